"""Everything under the key-encryption key: secrets at rest, keyed digests, and hashes of client secrets.

Knows ciphers and how a key is read from a setting or a file. Refuses to know what is sealed, where it is
stored, and any setting but the text handed in. No message repeats a secret, not even a malformed one.
"""

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32
_VERSION: Final = b"\x01"
_SALT_BYTES: Final = 12
_NONCE_BYTES: Final = 12
_HEAD_BYTES: Final = len(_VERSION) + _SALT_BYTES + _NONCE_BYTES
_MAX_KEY_FILE_BYTES: Final = 256
_MAX_PROVEN: Final = 4096
_MAX_SCRYPT_COST: Final = 2**19  # n·r·p, of which the memory is 128 times as many bytes
_OURS: Final = re.compile(r"sgs_[A-Za-z0-9_-]{43}")
_KEYED: Final = "hmac$"
_SCRYPT: Final = re.compile(r"scrypt\$([0-9]{1,7})\$([0-9]{1,2})\$([0-9]{1,2})\$([\w+/]+=*)\$([\w+/]+=*)", re.ASCII)


class AesVault:
    """AES-256-GCM and HMAC-SHA256 under keys derived from the key-encryption key (RFC 5869)."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key-encryption key has {KEY_BYTES} bytes")
        self._sealing = _derive(key, b"subgrant sealing 1")
        self._digesting = _derive(key, b"subgrant digest 1")
        self._proven = _Proven()

    def seal(self, plaintext: bytes, purpose: str) -> bytes:
        """Version, salt, nonce, ciphertext. The purpose is authenticated: opening it takes the same again."""
        salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_NONCE_BYTES)
        return _VERSION + salt + nonce + self._cipher(salt).encrypt(nonce, plaintext, purpose.encode())

    def open(self, sealed: bytes, purpose: str) -> bytes:
        if not sealed.startswith(_VERSION):
            raise ValueError("this was not sealed here")
        salt, nonce = sealed[1 : 1 + _SALT_BYTES], sealed[1 + _SALT_BYTES : _HEAD_BYTES]
        try:
            return self._cipher(salt).decrypt(nonce, sealed[_HEAD_BYTES:], purpose.encode())
        except (InvalidTag, ValueError):  # ValueError: it was cut off inside the nonce
            raise ValueError("this was not sealed with this key for this purpose, or was changed") from None

    def digest(self, content: bytes) -> str:
        return hmac.digest(self._digesting, content, "sha256").hex()

    def hash_secret(self, secret: str) -> str:
        """A keyed hash for a secret that was made here, `scrypt$n$r$p$salt$hash` (RFC 7914) for any other.

        Secrets that people chose can be guessed, so each guess is made to cost some 50 ms and 16 MiB. Ours are
        256 random bits, which nobody guesses: for them the slow hash would only be a way to keep us busy.
        """
        if not secret:
            raise ValueError("a secret is not empty")
        if "\0" in secret:
            raise ValueError("a secret holds no NUL")
        return self._keyed_hash(secret) if _OURS.fullmatch(secret) else str(_ScryptHash.of(secret))

    def secret_matches(self, secret: str, secret_hash: str) -> bool:
        """Whether this secret was hashed; what is no hash matches none. Slow for scrypt, unless it matched before."""
        known = self.matches_quickly(secret, secret_hash)
        if known is not None:
            return known
        matches = _matches(secret, secret_hash)
        if matches:
            self._proven.add(secret, secret_hash)
        return matches

    def matches_quickly(self, secret: str, secret_hash: str) -> bool | None:
        if secret_hash.startswith(_KEYED):
            return hmac.compare_digest(self._keyed_hash(secret), secret_hash)
        return True if self._proven.holds(secret, secret_hash) else None

    def _keyed_hash(self, secret: str) -> str:
        return _KEYED + self.digest(b"client secret\0" + secret.encode(errors="surrogatepass"))

    def _cipher(self, salt: bytes) -> AESGCM:
        # A key for each message: a random 96-bit nonce alone is good for 2^32 messages under one key
        # (NIST SP 800-38D §8.3), which a busy gateway, sealing every result, reaches within weeks.
        return AESGCM(hmac.digest(self._sealing, salt, "sha256"))


def _derive(key: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


# --- client secrets ---------------------------------------------------------------------------------------


class _ScryptHash(NamedTuple):
    """A hash that says how it was made, so that the cost can be raised while old hashes go on matching."""

    n: int
    r: int
    p: int
    salt: bytes
    hashed: bytes

    @classmethod
    def of(cls, secret: str) -> Self:
        blank = cls(n=2**14, r=8, p=1, salt=secrets.token_bytes(16), hashed=b"")
        return blank._replace(hashed=blank.rehash(secret))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, also for a cost that would make every comparison an attack on ourselves."""
        match = _SCRYPT.fullmatch(text)
        if match is None:
            raise ValueError("not a hash made here")
        n, r, p = (int(number) for number in match.group(1, 2, 3))
        salt, hashed = (base64.b64decode(part) for part in match.group(4, 5))
        if n * r * p > _MAX_SCRYPT_COST or len(hashed) != KEY_BYTES:
            raise ValueError("not a hash made here")
        return cls(n, r, p, salt, hashed)

    def rehash(self, secret: str) -> bytes:
        return hashlib.scrypt(
            secret.encode(), salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=2**27, dklen=KEY_BYTES
        )

    def __str__(self) -> str:
        salt, hashed = (base64.b64encode(part).decode() for part in (self.salt, self.hashed))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${hashed}"


def _matches(secret: str, secret_hash: str) -> bool:
    if "\0" in secret:  # scrypt's HMAC fills its key up with NULs, so a secret and a longer one would be the same
        return False
    try:
        stored = _ScryptHash.parse(secret_hash)
        return hmac.compare_digest(stored.rehash(secret), stored.hashed)
    except ValueError:
        return False


class _Proven:
    """Pairs of secret and hash that matched, so that a client asking for a token pays for scrypt only once.

    Safe, since only matches are kept, and each for its very hash: a guess is never cheaper than scrypt, and a
    secret that was replaced or a client that is gone has a hash that nobody asks about any more. What is
    remembered is an HMAC under a key of this process, which is worth nothing outside it.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)
        self._pairs: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def holds(self, secret: str, secret_hash: str) -> bool:
        with self._lock:
            return self._name(secret, secret_hash) in self._pairs

    def add(self, secret: str, secret_hash: str) -> None:
        with self._lock:
            self._pairs[self._name(secret, secret_hash)] = None
            while len(self._pairs) > _MAX_PROVEN:
                self._pairs.popitem(last=False)

    def _name(self, secret: str, secret_hash: str) -> bytes:
        # A hash that matched holds no NUL, so no two pairs are written alike.
        pair = f"{secret_hash}\0{secret}".encode(errors="surrogatepass")
        return hmac.digest(self._key, pair, "sha256")


# --- the key-encryption key -------------------------------------------------------------------------------


def parse_key(text: str) -> bytes:
    """The key in base64 or base64url, padded or not, white space around it ignored; raises ValueError."""
    plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
    try:
        key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"must be {KEY_BYTES} bytes in base64, such as `openssl rand -base64 32` prints")
    return key


def key_file(path: Path) -> bytes:
    """The key in the file, which is made with mode 0600 where there is none; raises ValueError, OSError.

    Several workers may start at once: the file appears complete or not at all, and all of them read the one
    that was first.
    """
    if not path.exists():
        _create(path)
    try:
        return parse_key(_read_private(path))
    except ValueError as error:
        raise ValueError(f"the key file {path} {error}") from None


def _create(path: Path) -> None:
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    with _draft(path, key) as draft:
        try:
            os.link(draft, path)  # unlike a rename, it never replaces
        except FileExistsError:
            return
        _sync(path.parent)  # a key lost in a power cut would take all that it sealed with it


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[Path]:
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
        yield draft
    finally:
        draft.unlink()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_private(path: Path) -> str:
    with path.open("rb") as file:
        state = os.fstat(file.fileno())  # of what was opened, not of what the name means a moment later
        if not stat.S_ISREG(state.st_mode):
            raise ValueError("is not a regular file")
        if state.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError("is open to group or others: it must have mode 0600 (chmod 600)")
        return file.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace")
