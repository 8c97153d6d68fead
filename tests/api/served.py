"""Routers over a world of fakes, with an HTTP client before them: what a route says, without a server's start."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType

import httpx
from fastapi import FastAPI

from app.api import errors
from app.api.oauth.failures import OAuthError, oauth_error
from app.usecases.world import World


@asynccontextmanager
async def served(world: World, *modules: ModuleType, base_url: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the modules' routers, at the issuer's address unless told otherwise."""
    app = FastAPI(version="7.8.9", redirect_slashes=False)
    for module in modules:
        app.include_router(module.router)
    errors.install(app)
    app.exception_handler(OAuthError)(oauth_error)
    app.state.world = world
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url=base_url or world.rules.issuer) as client:
        yield client
