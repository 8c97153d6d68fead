"""What goes wrong in a database, in the words of the ports.

Whatever says "not now" (connections, time-outs, locks, deadlocks, disks, a schema that is not there) is
StoreUnavailable; a value or constraint that no use case may meet is a caller's bug. Errors about values repeat
them, and values are tokens and secrets too, so such an error goes no further. Refuses to know statements.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from app.ports import StoreUnavailable

# PostgreSQL's error classes (its manual, appendix A): connections, transactions, passwords, no such database,
# rollbacks (deadlocks), resources, prerequisites (locks), operators, system, internal; then single errors:
# privileges, and undefined tables and columns, which are a missing migration.
UNAVAILABLE_CLASSES = ("08", "25", "28", "3D", "40", "53", "55", "57", "58", "XX")
UNAVAILABLE_STATES = ("42501", "42P01", "42703")


@contextmanager
def in_the_ports_words() -> Iterator[None]:
    """Raises StoreUnavailable or AssertionError in place of the library's errors."""
    try:
        yield
    except exc.TimeoutError as error:
        raise StoreUnavailable("no connection to the database became free in time") from error
    except exc.DBAPIError as error:
        if not _means_unavailable(error):
            raise AssertionError(f"the store refuses what violates {_rule(error)}") from None
        raise StoreUnavailable(f"the database failed: {type(error.orig).__name__}") from error
    except (OSError, TimeoutError) as error:
        raise StoreUnavailable(f"the database was not reached: {type(error).__name__}") from error


def _means_unavailable(error: exc.DBAPIError) -> bool:
    if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        return True
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None:  # SQLite: a corrupt or foreign file
        return type(error) is exc.DatabaseError
    return state.startswith(UNAVAILABLE_CLASSES + UNAVAILABLE_STATES)


def _rule(error: exc.DBAPIError) -> str:
    """The name of the constraint, or what is known of it without any value."""
    if error.orig is None or not hasattr(error.orig, "sqlstate"):
        return str(error.orig)  # SQLite names constraints and columns, never values
    constraint = getattr(error.orig.__cause__, "constraint_name", None)
    return f"the constraint {constraint}" if constraint else f"SQLSTATE {error.orig.sqlstate}"
