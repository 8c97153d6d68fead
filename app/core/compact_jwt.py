"""A JWT taken apart, in the only spelling that each has: three canonical base64url segments of strict JSON.

Knows the compact serialization (RFC 7515 §7.1) and what no header may say, whoever signed. Libraries let pass what
must be refused here: members given twice, a second spelling of the same bytes, extensions that nobody knows.
Refuses to know keys, signatures and what the claims mean. No message holds a part of a token.
"""

import base64
from dataclasses import dataclass, field
from typing import Final

from app.core.strict_json import JsonObject, StrictJsonError, parse

MAX_HEADER_BYTES: Final = 4096
MAX_HEADER_DEPTH: Final = 8
MAX_CLAIMS_DEPTH: Final = 64


class NotCompactError(ValueError):
    """What was presented is no JWT, or one that can be read in more than one way."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactJwt:
    """The parts of a JWT, of which nothing is proven yet. `signed` is what the signature is over."""

    header: JsonObject = field(repr=False)
    payload: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)

    def claims(self) -> JsonObject:
        """The claims; their numbers are canonical. Raises NotCompactError."""
        return object_in(self.payload, max_bytes=len(self.payload), max_depth=MAX_CLAIMS_DEPTH)


def taken_apart(compact: str, *, max_chars: int) -> CompactJwt:
    """The parts of a token that is at most so long. Raises NotCompactError."""
    refuse_unreadable(compact, max_chars=max_chars)
    segments = compact.split(".", 3)
    if len(segments) != 3:  # noqa: PLR2004 - header, payload, signature
        raise NotCompactError("the token is not in compact form")
    header, payload, signature = (decoded(segment) for segment in segments)
    members = object_in(header, max_bytes=MAX_HEADER_BYTES, max_depth=MAX_HEADER_DEPTH)
    if "crit" in members or "b64" in members:  # b64 changes what is signed, even if crit forgets it (RFC 7797)
        raise NotCompactError("a critical extension is not known")
    signed = compact.rpartition(".")[0].encode("ascii")
    return CompactJwt(header=members, payload=payload, signed=signed, signature=signature)


def refuse_unreadable(compact: str, *, max_chars: int) -> None:
    """Raises NotCompactError for what is too long to be looked at, or not ASCII."""
    if len(compact) > max_chars:
        raise NotCompactError("the token is too long")
    if not compact.isascii():
        raise NotCompactError("the token is not in compact form")


def object_in(raw: bytes, *, max_bytes: int, max_depth: int) -> JsonObject:
    """A part of a token as the JSON object that it must be. Raises NotCompactError."""
    try:
        value = parse(raw, max_bytes=max_bytes, max_depth=max_depth)
    except StrictJsonError:
        # Without a cause: a parser's error may quote what it stumbled on.
        raise NotCompactError("a part of the token is not strict JSON") from None
    if not isinstance(value, dict):
        raise NotCompactError("a part of the token is not a JSON object")
    return value


def base64url(content: bytes) -> str:
    """Base64url without padding (RFC 7515 §2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def decoded(segment: str) -> bytes:
    """What base64url stands for, if it is not empty and in its only spelling. Raises NotCompactError."""
    try:
        content = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except ValueError:
        raise NotCompactError("a part of the token is not base64url") from None
    # The decoder skips what is not of its alphabet and ignores trailing bits: only its inverse knows.
    if not content or base64url(content) != segment:
        raise NotCompactError("a part of the token is not base64url")
    return content
