"""Which sessions are kept, which go, and whose they are."""

from base64 import urlsafe_b64encode
from collections.abc import Hashable

import pytest

from app.adapters.upstream import sessions
from app.adapters.upstream.sessions import Sessions, credential_identity
from app.core.strict_json import JsonObject, canonical

pytestmark = pytest.mark.anyio


def opened(kept: Sessions[str], key: Hashable) -> None:
    with kept.use(key) as slot:
        slot.session = f"session of {key}"


def bearer(**claims: str) -> dict[str, str]:
    members: JsonObject = dict(claims)
    payload = urlsafe_b64encode(canonical(members)).decode().rstrip("=")
    return {"Authorization": f"Bearer e30.{payload}.c2ln"}


async def test_the_least_recently_used_go_first() -> None:
    kept: Sessions[str] = Sessions(limit=2)
    for key in ("a", "b", "a", "c"):
        opened(kept, key)
    assert kept.take_surplus() == ["session of b"]
    assert len(kept) == 2


async def test_a_session_in_use_is_never_taken_away() -> None:
    kept: Sessions[str] = Sessions(limit=1)
    opened(kept, "a")
    with kept.use("a"):
        opened(kept, "b")
        opened(kept, "c")
        assert kept.take_surplus() == ["session of b", "session of c"]
    assert kept.take_all() == ["session of a"]


async def test_an_idle_session_ends_when_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: Sessions[str] = Sessions(limit=100)
    opened(kept, "a")
    monkeypatch.setattr(sessions, "IDLE_SECONDS", -1.0)
    assert kept.take_surplus() == ["session of a"]


async def test_forgetting_spares_a_session_that_has_taken_the_place() -> None:
    kept: Sessions[str] = Sessions(limit=1)
    with kept.use("a") as slot:
        slot.session = "new"
        slot.forget("old")
        assert slot.session == "new"
        slot.forget("new")
        assert slot.session is None


async def test_a_place_in_which_no_session_is_left_is_given_up() -> None:
    kept: Sessions[str] = Sessions(limit=10)
    opened(kept, "forgotten")
    with kept.use("forgotten") as slot:
        assert slot.session is not None
        slot.forget(slot.session)
    for run in range(300):
        with kept.use(run):
            pass
    assert len(kept) == 0


async def test_a_place_is_kept_for_whoever_still_waits_for_its_session() -> None:
    kept: Sessions[str] = Sessions(limit=10)
    with kept.use("a") as waiting:
        with kept.use("a"):
            pass
        waiting.session = "opened"
    with kept.use("a") as later:
        assert later is waiting


async def test_a_place_that_was_taken_over_meanwhile_is_left_alone() -> None:
    kept: Sessions[str] = Sessions(limit=10)
    with kept.use("a"):
        assert kept.take_all() == []
        opened(kept, "a")
    assert kept.take_all() == ["session of a"]


def test_a_token_signed_anew_for_the_same_principal_is_the_same_credential() -> None:
    one = bearer(iss="https://subgrant", aud="https://tool", sub="u_1", call_id="call_1", exp="1")
    two = bearer(iss="https://subgrant", aud="https://tool", sub="u_1", call_id="call_2", exp="2")
    assert one != two
    assert credential_identity(one) == credential_identity(two)


@pytest.mark.parametrize(
    "other",
    [
        bearer(iss="https://subgrant", aud="https://tool", sub="u_2"),
        bearer(iss="https://other", aud="https://tool", sub="u_1"),
        {"Authorization": "Bearer opaque"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer e30.W10.c2ln"},
        {"X-Key": "secret"},
        {},
    ],
)
def test_another_principal_is_another_credential(other: dict[str, str]) -> None:
    mine = bearer(iss="https://subgrant", aud="https://tool", sub="u_1")
    assert credential_identity(mine) != credential_identity(other)


def test_two_secrets_are_two_credentials() -> None:
    assert credential_identity({"X-Key": "one"}) != credential_identity({"X-Key": "two"})
    assert credential_identity({"X-Key": "one"}) == credential_identity({"x-key": "one"})
