"""A JWT has one spelling and one reading, whoever signed it (RFC 7515 §7.1, RFC 8725 §2)."""

import base64
from typing import Final

import pytest

from app.core.compact_jwt import NotCompactError, base64url, object_in, taken_apart

HEADER: Final = b'{"alg":"ES256"}'
PAYLOAD: Final = b'{"a":1.0}'
GOOD: Final = f"{base64url(HEADER)}.{base64url(PAYLOAD)}.{base64url(b'signed')}"
LONGEST: Final = 200
NOT_BASE64URL: Final = "a part of the token is not base64url"
NOT_JSON: Final = "a part of the token is not strict JSON"


def with_parts(header: bytes = HEADER, payload: bytes = PAYLOAD, signature: bytes = b"signed") -> str:
    return ".".join(map(base64url, (header, payload, signature)))


def test_the_parts_are_what_was_signed() -> None:
    parts = taken_apart(GOOD, max_chars=LONGEST)
    assert parts.header == {"alg": "ES256"}
    assert parts.payload == PAYLOAD
    assert parts.signature == b"signed"
    assert parts.signed.decode() == GOOD.rpartition(".")[0]
    assert parts.claims() == {"a": 1}


def test_no_part_is_shown() -> None:
    assert repr(taken_apart(GOOD, max_chars=LONGEST)) == "CompactJwt()"


REFUSED: Final[dict[str, tuple[str, str]]] = {
    "nothing": ("", "the token is not in compact form"),
    "two parts": (GOOD.rpartition(".")[0], "the token is not in compact form"),
    "four parts": (f"{GOOD}.{base64url(b'x')}", "the token is not in compact form"),
    "a letter of another script": (GOOD.replace("e", "\u0435", 1), "the token is not in compact form"),
    "one character too many": ("e" * (LONGEST + 1), "the token is too long"),
    "an empty signature": (GOOD.rpartition(".")[0] + ".", NOT_BASE64URL),
    "padding": (f"{GOOD}=", NOT_BASE64URL),
    "a line end": (f"{GOOD}\n", NOT_BASE64URL),
    "characters of the other alphabet": (
        GOOD.replace(base64url(b"signed"), "+/+/"),
        NOT_BASE64URL,
    ),
    "bits that no byte needs": (
        GOOD.replace(base64url(HEADER), base64url(HEADER + b" ")[:-1] + "B"),
        NOT_BASE64URL,
    ),
    "a part of an impossible length": (f"{GOOD}a", NOT_BASE64URL),
    "a header that is a list": (with_parts(b"[]"), "a part of the token is not a JSON object"),
    "a header that is no JSON": (with_parts(b"{"), NOT_JSON),
    "a header with a member twice": (with_parts(b'{"a":1,"a":1}'), NOT_JSON),
    "a header that is too deep": (
        with_parts(b'{"a":' + b"[" * 8 + b"]" * 8 + b"}"),
        NOT_JSON,
    ),
    "an extension": (with_parts(b'{"crit":["x"],"x":1}'), "a critical extension is not known"),
    "no extensions": (with_parts(b'{"crit":[]}'), "a critical extension is not known"),
    "an unencoded payload": (with_parts(b'{"b64":false}'), "a critical extension is not known"),
    "an encoded payload that says so": (with_parts(b'{"b64":true}'), "a critical extension is not known"),
}


@pytest.mark.parametrize("compact, detail", REFUSED.values(), ids=list(REFUSED))
def test_a_token_is_refused_with(compact: str, detail: str) -> None:
    with pytest.raises(NotCompactError) as refused:
        taken_apart(compact, max_chars=LONGEST)
    assert refused.value.detail == detail


def test_a_header_may_be_as_large_as_is_read_and_no_larger() -> None:
    filler = b'{"x":"' + b"x" * (4096 - 8) + b'"}'
    assert taken_apart(with_parts(filler), max_chars=8192).header
    with pytest.raises(NotCompactError):
        taken_apart(with_parts(filler.replace(b"xx", b"xxx", 1)), max_chars=8192)


@pytest.mark.parametrize("payload", [b"[]", b"1", b"null", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b"\xff", b"{}x"])
def test_claims_are_an_object_of_strict_json(payload: bytes) -> None:
    with pytest.raises(NotCompactError):
        taken_apart(with_parts(payload=payload), max_chars=LONGEST).claims()


def test_claims_are_as_deep_as_is_read_and_no_deeper() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert taken_apart(with_parts(payload=nested(64)), max_chars=1000).claims()
    with pytest.raises(NotCompactError):
        taken_apart(with_parts(payload=nested(65)), max_chars=1000).claims()


def test_base64url_has_no_padding_and_its_own_alphabet() -> None:
    content = bytes(range(256))
    assert base64url(content) == base64.urlsafe_b64encode(content).decode().rstrip("=")
    assert "+" not in base64url(b"\xfb\xff") + base64url(b"\xfe")


def test_an_object_is_read_within_its_bounds() -> None:
    assert object_in(b'{"a":1}', max_bytes=7, max_depth=1) == {"a": 1}
    with pytest.raises(NotCompactError):
        object_in(b'{"a":1}', max_bytes=6, max_depth=1)
