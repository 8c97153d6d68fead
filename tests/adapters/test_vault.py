"""The vault: what is sealed opens only as it was sealed, and keys and secrets give nothing away."""

import base64
import hashlib
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters import vault as module
from app.adapters.vault import AesVault, key_file, parse_key

KEY = bytes(range(32))
PURPOSE = "signing-key:abc"
SEALED_LONG_AGO = "AXYp/0YjxQHVG9DhjT07tHjP598Dnp0stbOKvKvS6vRsfWZpC11J+h/1+gFVnvwzQ0P+eg5+uTwPOxqAixglz80="


@pytest.fixture
def vault() -> AesVault:
    return AesVault(KEY)


# --- sealing ----------------------------------------------------------------------------------------------


@given(plaintext=st.binary(max_size=300), purpose=st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_what_is_sealed_opens_again(plaintext: bytes, purpose: str) -> None:
    vault = AesVault(KEY)
    assert AesVault(KEY).open(vault.seal(plaintext, purpose), purpose) == plaintext


def test_what_was_sealed_by_an_earlier_version_still_opens(vault: AesVault) -> None:
    assert vault.open(base64.b64decode(SEALED_LONG_AGO), PURPOSE) == b"sealed bytes are forever"


def test_nothing_of_the_plaintext_shows(vault: AesVault) -> None:
    assert b"secret" not in vault.seal(b"secret" * 100, PURPOSE)


def test_the_same_plaintext_is_never_sealed_alike(vault: AesVault) -> None:
    assert len({vault.seal(b"x", PURPOSE) for _ in range(1000)}) == 1000


def test_another_purpose_does_not_open(vault: AesVault) -> None:
    with pytest.raises(ValueError, match="for this purpose"):
        vault.open(vault.seal(b"x", PURPOSE), "signing-key:abd")


def test_another_key_does_not_open(vault: AesVault) -> None:
    with pytest.raises(ValueError, match="with this key"):
        AesVault(bytes(32)).open(vault.seal(b"x", PURPOSE), PURPOSE)


def test_one_flipped_bit_anywhere_does_not_open(vault: AesVault) -> None:
    sealed = vault.seal(b"forty-two", PURPOSE)
    for place in range(len(sealed)):
        for bit in range(8):
            changed = bytearray(sealed)
            changed[place] ^= 1 << bit
            with pytest.raises(ValueError, match="sealed"):
                vault.open(bytes(changed), PURPOSE)


def test_what_was_cut_off_anywhere_does_not_open(vault: AesVault) -> None:
    sealed = vault.seal(b"forty-two", PURPOSE)
    for length in range(len(sealed)):
        with pytest.raises(ValueError, match="sealed"):
            vault.open(sealed[:length], PURPOSE)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        AesVault(bytes(size))


# --- digests ----------------------------------------------------------------------------------------------


def test_a_digest_is_the_same_for_the_same_key_and_content_only(vault: AesVault) -> None:
    assert vault.digest(b"a") == AesVault(KEY).digest(b"a")
    assert vault.digest(b"a") != vault.digest(b"b")
    assert vault.digest(b"a") != AesVault(bytes(32)).digest(b"a")


def test_a_digest_is_forever(vault: AesVault) -> None:
    assert vault.digest(b"c_42") == "e5061f391dc911e667924ab5c090ee687bd005ea6e45871973eaadbd7e653d0d"


def test_a_digest_is_no_plain_hash(vault: AesVault) -> None:
    assert vault.digest(b"1") != hashlib.sha256(b"1").hexdigest()


# --- client secrets ---------------------------------------------------------------------------------------


@pytest.fixture
def scrypts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often scrypt ran: one item each time."""
    runs: list[int] = []
    slow = hashlib.scrypt

    def counted(*args: object, **kwargs: object) -> bytes:
        runs.append(1)
        return slow(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "scrypt", counted)
    return runs


def test_a_secret_matches_its_hash_and_no_other_does(vault: AesVault) -> None:
    hashed = vault.hash_secret("päss$word")
    assert vault.secret_matches("päss$word", hashed)
    assert not vault.secret_matches("päss$word ", hashed)
    assert not vault.secret_matches("", hashed)


def test_a_hash_says_how_it_was_made_and_matches_in_every_process(vault: AesVault) -> None:
    hashed = vault.hash_secret("s")
    assert hashed.startswith("scrypt$16384$8$1$")
    assert AesVault(bytes(32)).secret_matches("s", hashed)


def test_the_same_secret_is_never_hashed_alike(vault: AesVault) -> None:
    assert vault.hash_secret("s") != vault.hash_secret("s")


def test_an_old_hash_of_lower_cost_still_matches(vault: AesVault) -> None:
    salt, hashed = b"salt", hashlib.scrypt(b"s", salt=b"salt", n=1024, r=8, p=1, dklen=32)
    text = f"scrypt$1024$8$1${base64.b64encode(salt).decode()}${base64.b64encode(hashed).decode()}"
    assert vault.secret_matches("s", text)


def test_an_empty_secret_is_no_secret(vault: AesVault) -> None:
    with pytest.raises(ValueError, match="empty"):
        vault.hash_secret("")


def test_a_secret_is_not_the_same_with_a_nul_behind_it(vault: AesVault) -> None:
    """To scrypt alone it would be: HMAC fills its key up with them (RFC 2104 §2)."""
    hashed = vault.hash_secret("s")
    assert vault.secret_matches("s", hashed)
    assert not vault.secret_matches("s\0", hashed)
    with pytest.raises(ValueError, match="NUL"):
        vault.hash_secret("s\0")


SALT = base64.b64encode(b"salt").decode()
HASH = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "s",
        "scrypt",
        "$$$$$",
        f"bcrypt$16384$8$1${SALT}${HASH}",
        f"scrypt$16384$8$1${SALT}$",
        f"scrypt$16384$8$1${SALT}$!",
        f"scrypt$x$8$1${SALT}${HASH}",
        f"scrypt$16383$8$1${SALT}${HASH}",
        f"scrypt$0$8$1${SALT}${HASH}",
        f"scrypt$-2$8$1${SALT}${HASH}",
        f"scrypt$16384$-8$-1${SALT}${HASH}",
        f"scrypt$16384$0$0${SALT}${HASH}",
        f"scrypt$1048576$8$1${SALT}${HASH}",
        f"scrypt${'9' * 5000}$8$1${SALT}${HASH}",
        f"scrypt$16384$8$1${SALT}${HASH}$more",
    ],
)
def test_what_is_no_hash_matches_nothing(vault: AesVault, hashed: str) -> None:
    assert not vault.secret_matches("s", hashed)


@pytest.mark.parametrize("cost", ["16384$8$99", "1048576$8$1", "2097152$1$1"])
def test_a_hash_of_absurd_cost_is_not_even_tried(vault: AesVault, scrypts: list[int], cost: str) -> None:
    assert not vault.secret_matches("s", f"scrypt${cost}${SALT}${HASH}")
    assert not scrypts


def test_a_secret_that_is_no_text_matches_nothing(vault: AesVault) -> None:
    assert not vault.secret_matches("\ud800", vault.hash_secret("s"))


def test_a_secret_that_matched_is_not_hashed_again(vault: AesVault, scrypts: list[int]) -> None:
    hashed = vault.hash_secret("s")
    for _ in range(5):
        assert vault.secret_matches("s", hashed)
    assert len(scrypts) == 2


def test_a_wrong_secret_is_hashed_each_time(vault: AesVault, scrypts: list[int]) -> None:
    hashed = vault.hash_secret("s")
    vault.secret_matches("s", hashed)
    scrypts.clear()
    for _ in range(3):
        assert not vault.secret_matches("t", hashed)
    assert len(scrypts) == 3


def test_a_replaced_secret_no_longer_matches_though_it_did_before(vault: AesVault) -> None:
    old, new = vault.hash_secret("old"), vault.hash_secret("new")
    assert vault.secret_matches("old", old)
    assert not vault.secret_matches("old", new)


def test_only_so_many_matches_are_remembered(
    vault: AesVault, scrypts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_PROVEN", 1)
    first, second = vault.hash_secret("s"), vault.hash_secret("s")
    assert vault.secret_matches("s", first)
    assert vault.secret_matches("s", second)
    scrypts.clear()
    assert vault.secret_matches("s", second)
    assert not scrypts
    assert vault.secret_matches("s", first)
    assert scrypts


# --- the key ----------------------------------------------------------------------------------------------

AWKWARD = b"\xfb\xff\xfe" * 10 + b"\xfb\xff"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_key_is_read_in_either_alphabet_padded_or_not(encode: Callable[[bytes], bytes]) -> None:
    text = encode(AWKWARD).decode()
    assert parse_key(text) == parse_key(text.rstrip("=")) == parse_key(f" {text}\n") == AWKWARD


@pytest.mark.parametrize(
    "text",
    [
        "",
        "=",
        "changeme",
        "x" * 32,
        "c0ffee42" * 8,
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        base64.b64encode(bytes(32)).decode() + "A",
        base64.b64encode(bytes(32)).decode().replace("A", " ", 1),
        "é" * 43,
        "!" + base64.b64encode(bytes(32)).decode(),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="must be 32 bytes in base64") as refused:
        parse_key(text)
    assert len(text) < 3 or text not in str(refused.value)


def test_a_key_file_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = key_file(path)
    assert len(key) == 32
    assert key_file(path) == key
    assert parse_key(path.read_text()) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_key_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key_file(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_workers_that_start_at_once_read_the_same_key(tmp_path: Path) -> None:
    workers = 16
    for attempt in range(20):
        path, start = tmp_path / f"key{attempt}", threading.Barrier(workers)

        def worker(path: Path = path, start: threading.Barrier = start) -> bytes:
            start.wait()
            return key_file(path)

        with ThreadPoolExecutor(workers) as pool:
            keys = {future.result() for future in [pool.submit(worker) for _ in range(workers)]}
        assert keys == {key_file(path)}
    assert all(not entry.name.endswith(".new") for entry in tmp_path.iterdir())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o601])
def test_a_key_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    key_file(path)
    path.chmod(mode)
    with pytest.raises(ValueError, match=r"key is open to group or others: it must have mode 0600"):
        key_file(path)


@pytest.mark.parametrize("content", ["", "not a key", "A" * 100_000, "\x00" * 32])
def test_a_key_file_that_holds_no_key_is_refused_by_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="key must be 32 bytes in base64"):
        key_file(path)


def test_a_key_file_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a regular file"):
        key_file(Path(os.devnull))
    with pytest.raises(IsADirectoryError):
        key_file(tmp_path)


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        key_file(tmp_path / "nowhere" / "key")
