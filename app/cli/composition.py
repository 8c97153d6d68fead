"""The service as a command starts it. Nobody imports the composition root: like a server of ASGI, it is named.

So a command that only talks to a server loads none of it, which halves the time that it takes.
"""

from collections.abc import Awaitable
from datetime import datetime
from importlib import import_module
from typing import Final, Protocol, cast

from fastapi import FastAPI

from app.ports import Store, Vault
from app.settings import Settings

ROOT: Final = "app.main"
FACTORY: Final = f"{ROOT}:app_from_environment"
"""What each of several worker processes runs."""


class FirstAdmin(Protocol):
    """The administrator that a first start made up."""

    @property
    def client_id(self) -> str: ...
    @property
    def secret(self) -> str: ...


class Composition(Protocol):
    """What commands use of `app/main.py`."""

    def prepare(self, settings: Settings) -> Awaitable[FirstAdmin | None]: ...
    def create_app(self, settings: Settings) -> FastAPI: ...
    def open_vault(self, settings: Settings) -> Vault: ...
    def open_store(self, settings: Settings) -> Store: ...
    def now(self) -> datetime: ...


def composition() -> Composition:
    """The composition root."""
    return cast("Composition", import_module(ROOT))
