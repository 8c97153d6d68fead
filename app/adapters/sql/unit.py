"""A transaction on a connection, however the database is driven.

The statements themselves are plain functions of a synchronous SQLAlchemy connection, so that each method of a
port is one step: one hop to SQLite's thread, one greenlet for PostgreSQL, however many statements it takes.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from app.adapters.sql.failures import in_the_ports_words
from app.ports import AlreadyExists

P = ParamSpec("P")
T = TypeVar("T")


class Unit(Protocol):
    """One open transaction."""

    async def run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do some work in the transaction. Raises StoreUnavailable."""

    async def commit(self) -> None:
        """Make it last. Raises StoreUnavailable; whether it lasted is then not known."""


class Life:
    """Whether a transaction can still be committed: not after a step that failed or was abandoned halfway.

    PostgreSQL would turn such a commit into a rollback without a word.
    """

    def __init__(self) -> None:
        self._goes_on = True

    @contextmanager
    def step(self, *, is_last: bool = False) -> Iterator[None]:
        """Around each step. Raises StoreUnavailable in place of the library's errors."""
        assert self._goes_on, "the transaction failed or was committed before"
        self._goes_on = False
        try:
            with in_the_ports_words():
                yield
        except AlreadyExists:
            self._goes_on = True  # a taken key is an answer, and nothing was changed
            raise
        self._goes_on = not is_last


class Database(Protocol):
    """Where transactions come from. What is not committed is rolled back, however the block is left."""

    def read(self) -> AbstractAsyncContextManager[Unit]: ...
    def write(self) -> AbstractAsyncContextManager[Unit]: ...
    async def aclose(self) -> None: ...
