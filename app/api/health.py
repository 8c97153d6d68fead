"""Alive, and ready."""

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from app.api.caller import TheWorld
from app.api.errors import problem
from app.core.strict_json import JsonValue

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="The process is alive", response_model=None)
async def healthz() -> JSONResponse:
    return JSONResponse({"status": "alive"})


@router.get("/readyz", summary="Store reachable, migrated, keys present", response_model=None)
async def readyz(world: TheWorld) -> Response:
    missing = await world.store.ready()
    keys: JsonValue = world.signer.jwks().get("keys")
    if missing is None and not keys:
        missing = "there is no signing key"
    return JSONResponse({"status": "ready"}) if missing is None else problem(503, "not_ready", missing)
