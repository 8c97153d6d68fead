"""Which of several signing keys signs: each is published before it does, and then takes over from those before it.

Knows the order and nothing of cryptography. Which keys there are, and where they are kept, is not known here.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Protocol, TypeVar

MAX_KEYS: Final = 16
"""How many keys may verify at once: whoever fetches them gets all of them, and so does every process."""


class Key(Protocol):
    """What the choice depends on."""

    @property
    def kid(self) -> str: ...
    @property
    def alg(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def signs_from(self) -> datetime: ...


K = TypeVar("K", bound=Key)


def signing_key(keys: Iterable[K], alg: str, now: datetime) -> K | None:
    """The last of this algorithm whose time to sign has come; one of another only where there is none of this.

    So a change of algorithm, too, waits until the new key is known everywhere. Every process finds the same key.
    """
    due = (key for key in keys if key.signs_from <= now)
    return max(due, key=lambda key: (key.alg == alg, key.signs_from, key.created_at, key.kid), default=None)
