"""Signs and mis-signs tokens as somebody would who has read the RFCs and has no scruples.

Knows the parts of a genuine token, the server's real keys and a stranger's own; takes tokens apart and puts them
together without any JOSE library, since those refuse to make what is wrong. Refuses to know what is done with them.
"""

import asyncio
import base64
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.adapters.jose import KeyRing, OpenKey
from app.core.strict_json import canonical
from app.main import load_keys, open_store, open_vault, prepare
from app.settings import load_settings
from tests.members import with_changes
from tests.server_process import BOOTSTRAP

Json = dict[str, Any]

ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
ED25519_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
STRANGER: Final = OpenKey.of("EdDSA", Ed25519PrivateKey.from_private_bytes(b"s" * 32), datetime(2026, 1, 1, tzinfo=UTC))

ACCESS_TYP: Final = "at+jwt"
TYPS: Final = (ACCESS_TYP, "delegation-grant+jwt", "subgrant-gateway+jwt")
"""What the server itself signs: each is another kind of token."""


def b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unb64(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def signed_by(key: OpenKey, header: bytes, payload: bytes) -> str:
    content = f"{b64(header)}.{b64(payload)}"
    return f"{content}.{b64(key.sign(content.encode()))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forger:
    """Has one genuine token, every key that the server signs with, and a URL that nobody must be lured to."""

    genuine: str
    keys: KeyRing
    lure: str

    @property
    def key(self) -> OpenKey:
        return self.keys.keys[self.header["kid"]]

    @property
    def ec_key(self) -> OpenKey:
        return next(key for key in self.keys.keys.values() if key.alg == "ES256")

    @property
    def segments(self) -> list[str]:
        return self.genuine.split(".")

    @property
    def header(self) -> Json:
        decoded: Json = json.loads(unb64(self.segments[0]))
        return decoded

    @property
    def payload(self) -> bytes:
        return unb64(self.segments[1])

    @property
    def claims(self) -> Json:
        decoded: Json = json.loads(self.payload)
        return decoded

    # --- with the server's own key: what even that key must not make true -----------------------------------

    def headed(self, **members: object) -> str:
        """Another header, truly signed."""
        return self.raw(canonical(with_changes(self.header, members)), self.payload)

    def claiming(self, **members: object) -> str:
        """Other claims, truly signed."""
        return self.paid(canonical(with_changes(self.claims, members)))

    def spelling(self, name: str, value: bytes) -> str:
        """One claim whose value is spelt in these bytes, which no encoder would write; truly signed."""
        marked = canonical(self.claims | {name: "<here>"})
        return self.paid(marked.replace(b'"<here>"', value))

    def paid(self, payload: bytes) -> str:
        return self.raw(canonical(self.header), payload)

    def raw(self, header: bytes, payload: bytes) -> str:
        return signed_by(self.key, header, payload)

    def with_first_member(self, part: int, member: bytes) -> str:
        """Header (0) or claims (1) with one more member at the front, perhaps a second time; truly signed."""
        parts = [canonical(self.header), self.payload]
        parts[part] = b"{" + member + b"," + parts[part][1:]
        return self.raw(*parts)

    def of_another_kind(self, which: int) -> str:
        """Truly signed, as another kind of token than it is."""
        others = [typ for typ in TYPS if typ != self.header["typ"]]
        return self.headed(typ=others[which])

    # --- without it ---------------------------------------------------------------------------------------

    def unsigned(self, **members: object) -> str:
        header = canonical(with_changes(self.header, members))
        return f"{b64(header)}.{self.segments[1]}."

    def by_stranger(self, **members: object) -> str:
        """Signed by a key that is not the server's."""
        return signed_by(STRANGER, canonical(with_changes(self.header, members)), self.payload)

    def hmac_with(self, secret: bytes, **members: object) -> str:
        content = f"{b64(canonical(with_changes(self.header, {'alg': 'HS256', **members})))}.{self.segments[1]}"
        return f"{content}.{b64(hmac.digest(secret, content.encode(), 'sha256'))}"

    def public(self, encoding: Encoding, form: PublicFormat) -> bytes:
        """The server's public key: known to everybody."""
        return self.key.public.public_bytes(encoding, form)

    def replaced(self, part: int, segment: str) -> str:
        segments = self.segments
        segments[part] = segment
        return ".".join(segments)

    def with_unused_bits(self, part: int) -> str:
        """The same bytes in another spelling, where the last character has bits that no byte needs."""
        segment = self.segments[part]
        if len(segment) % 4 == 0:
            return self.replaced(part, segment + "A")
        return self.replaced(part, segment[:-1] + ALPHABET[ALPHABET.index(segment[-1]) + 1])

    # --- with the server's P-256 key, whose signatures have parts to play with --------------------------------

    def ec(self, change: "EcChange | None" = None) -> str:
        """Truly signed by ES256, its r and s then changed."""
        header = with_changes(self.header, {"alg": "ES256", "kid": self.ec_key.kid})
        head, _, signature = signed_by(self.ec_key, canonical(header), self.payload).rpartition(".")
        r, s = (int.from_bytes(half) for half in (unb64(signature)[:32], unb64(signature)[32:]))
        return f"{head}.{b64((change or EcChange()).of(r, s))}"

    def shifted_by_the_order(self) -> str:
        """Ed25519's S plus the group's order: the same point to a verifier that does not look (RFC 8032 §5.1.7)."""
        signature = unb64(self.segments[2])
        shifted = int.from_bytes(signature[32:], "little") + ED25519_ORDER
        return self.replaced(2, b64(signature[:32] + shifted.to_bytes(32, "little")))


@dataclass(frozen=True, slots=True, kw_only=True)
class EcChange:
    """What becomes of an ECDSA signature (RFC 7518 §3.4: r and s, 32 bytes each)."""

    r: int | None = None
    s: int | None = None
    is_mirrored: bool = False
    is_der: bool = False
    length: int = 32

    def of(self, r: int, s: int) -> bytes:
        r = r if self.r is None else self.r
        s = s if self.s is None else self.s
        s = P256_ORDER - s if self.is_mirrored else s
        return encode_dss_signature(r, s) if self.is_der else r.to_bytes(self.length) + s.to_bytes(self.length)


class Lure:
    """A loopback server that offers the stranger's keys, and counts who comes for them."""

    def __init__(self) -> None:
        self.visits = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/jwks.json"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        await reader.readline()
        body = canonical({"keys": [STRANGER.public_jwk]})
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)
        await writer.drain()
        writer.close()


async def prepared_keys(database_url: str, algorithms: Sequence[str] = ("EdDSA", "ES256")) -> KeyRing:
    """Makes a database ready with a signing key of each algorithm, and gives away what only its server may know."""
    configured = [
        load_settings(
            database_url=database_url,
            signing_algorithm=algorithm,
            bootstrap_client_id=BOOTSTRAP.client_id,
            bootstrap_client_secret=BOOTSTRAP.client_secret,
        )
        for algorithm in algorithms
    ]
    for settings in configured:
        await prepare(settings)
    settings = configured[-1]
    store = open_store(settings)
    try:
        async with store.read() as tx:
            return load_keys(await tx.keys.all(), open_vault(settings))
    finally:
        await store.aclose()
