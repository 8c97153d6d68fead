"""Settings as the commands that start or open something take them: the environment, overridden by flags.

A flag is put into the environment, since that is where worker processes read their settings. Whatever is wrong
with a setting, the database or a file becomes one line.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from tomllib import TOMLDecodeError
from typing import Final

from alembic.util import CommandError

from app.cli.output import ExitCode, Stop, cause, warn
from app.ports import AlreadyExists, StoreUnavailable
from app.settings import CONFIG_FILE_VARIABLE, Settings, SettingsInvalid, load_settings
from app.usecases.failures import Failure

PREFIX: Final = "SUBGRANT_"
TESTS_PREFIX: Final = "SUBGRANT_TEST_"
SETTINGS: Final = frozenset(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)

OURS: Final = frozenset(
    {CONFIG_FILE_VARIABLE, *(f"{PREFIX}{name}" for name in ("URL", "CLIENT_ID", "CLIENT_SECRET", "TOKEN"))}
)
"""Variables that are no settings: where the settings are, and what this command reads as a client."""


def configure(**flags: object) -> Settings:
    """The settings under these flags; None is one that was not given. Raises Stop."""
    os.environ.update({f"{PREFIX}{name.upper()}": str(value) for name, value in flags.items() if value is not None})
    for name in unknown(os.environ):
        near = get_close_matches(name, SETTINGS, n=1)
        warn(f"warning: {name} is no setting, so it is ignored" + (f"; is {near[0]} meant?" if near else ""))
    with one_line():
        return load_settings()


def unknown(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none, in order."""
    ours = (name for name in environment if name.startswith(PREFIX) and not name.startswith(TESTS_PREFIX))
    return sorted(name for name in ours if name.upper() not in SETTINGS | OURS)


@contextmanager
def one_line() -> Iterator[None]:
    """What keeps the service from starting, as one line for the operator."""
    try:
        yield
    except (SettingsInvalid, AlreadyExists) as error:
        raise Stop(str(error), ExitCode.USAGE) from error
    except Failure as error:
        raise Stop(f"{error.code}: {error.detail}", ExitCode.USAGE) from error
    except StoreUnavailable as error:
        raise Stop(f"SUBGRANT_DATABASE_URL: {error}", ExitCode.USAGE) from error
    except TOMLDecodeError as error:
        raise Stop(f"{CONFIG_FILE_VARIABLE}: {error}", ExitCode.USAGE) from error
    except CommandError as error:
        raise Stop(f"SUBGRANT_DATABASE_URL: its schema is of another version: {error}", ExitCode.USAGE) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Stop(f"{where}{cause(error)}", ExitCode.USAGE) from error
