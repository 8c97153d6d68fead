"""Which key signs: the last whose time has come, in whatever order they are given."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import permutations

from app.core.signing import signing_key
from tests.samples import NOW


@dataclass(frozen=True)
class Key:
    kid: str
    signs_from: datetime
    alg: str = "EdDSA"
    created_at: datetime = NOW


def later(seconds: int) -> datetime:
    return NOW + timedelta(seconds=seconds)


def chosen(*keys: Key, now: datetime = NOW, alg: str = "EdDSA") -> str | None:
    """The kid of the key that signs, which no order of the keys changes."""
    signing = (signing_key(order, alg, now) for order in permutations(keys))
    found = {None if key is None else key.kid for key in signing}
    (kid,) = found
    return kid


def test_nothing_signs_before_its_time() -> None:
    assert chosen(Key("a", later(1))) is None
    assert chosen() is None


def test_a_key_takes_over_at_its_very_moment() -> None:
    keys = Key("z", later(-10)), Key("a", later(5))
    assert chosen(*keys, now=later(5) - timedelta(microseconds=1)) == "z"
    assert chosen(*keys, now=later(5)) == "a"


def test_the_key_that_was_announced_for_later_takes_over_later() -> None:
    announced = Key("a", later(60), created_at=NOW)
    hurried = Key("b", later(5), created_at=later(1))
    assert chosen(announced, hurried, now=later(10)) == "b"
    assert chosen(announced, hurried, now=later(60)) == "a"


def test_of_two_for_the_same_moment_the_younger_signs_and_else_the_name_decides() -> None:
    assert chosen(Key("z", NOW, created_at=later(-2)), Key("a", NOW, created_at=later(-1))) == "a"
    assert chosen(Key("z", NOW), Key("a", NOW)) == "z"


def test_another_algorithm_signs_only_where_none_of_the_wanted_one_may() -> None:
    old, new = Key("z", later(-1)), Key("a", later(-2), alg="ES256")
    assert chosen(old, new, alg="ES256") == "a"
    assert chosen(old, Key("a", later(1), alg="ES256"), alg="ES256") == "z"
