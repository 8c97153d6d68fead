"""What an OAuth client discovers: the authorization server (RFC 8414), what it guards (RFC 9728), its keys (RFC 7517).

Every URL comes from the configured issuer, never from a request's headers.
"""

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from app.api.caller import TheWorld
from app.api.errors import refusal
from app.api.token import GRANT_TYPES
from app.api.wire import Name
from app.core.grant import ServerName
from app.core.registry import AuthMethod, Scope
from app.core.strict_json import JsonObject, JsonValue
from app.usecases.failures import NotFound
from app.usecases.world import World

router = APIRouter(tags=["oauth"])

CACHE = {"Cache-Control": "public, max-age=60"}

PROTECTED_RESOURCE: Final = "/.well-known/oauth-protected-resource"

_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)


async def server_named(server: str) -> ServerName:
    """The name in a path. Whether there is such a tool server is not to be learnt: what could be a name is one."""
    try:
        return ServerName(_NAME.validate_python(server))
    except ValidationError as error:
        raise NotFound("no tool server can have this name") from error


NamedServer = Annotated[ServerName, Depends(server_named)]


@router.get("/.well-known/oauth-authorization-server", summary="Authorization server metadata", response_model=None)
async def metadata(world: TheWorld) -> JSONResponse:
    """RFC 8414 §2."""
    issuer = world.rules.issuer
    methods: list[JsonValue] = [method.value for method in AuthMethod]
    scopes: list[JsonValue] = [scope.value for scope in Scope]
    document: JsonObject = {
        "issuer": issuer,
        "token_endpoint": f"{issuer}/oauth/token",
        "token_endpoint_auth_methods_supported": methods,
        "introspection_endpoint": f"{issuer}/oauth/introspect",
        "introspection_endpoint_auth_methods_supported": methods,
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "revocation_endpoint_auth_methods_supported": methods,
        "jwks_uri": f"{issuer}/oauth/jwks",
        "grant_types_supported": list[JsonValue](GRANT_TYPES),
        "scopes_supported": scopes,
        "authorization_details_types_supported": ["delegation"],
    }
    return JSONResponse(document, headers=CACHE)


@router.get(PROTECTED_RESOURCE, summary="The API as a protected resource", response_model=None)
async def api_metadata(world: TheWorld) -> JSONResponse:
    """RFC 9728 §2, for Subgrant's own API."""
    scopes: list[JsonValue] = [scope.value for scope in Scope]
    return _protected(world, world.rules.issuer, "Subgrant", scopes)


@router.get(
    f"{PROTECTED_RESOURCE}/mcp/{{server}}",
    summary="A tool server as a protected resource",
    response_model=None,
    responses={404: refusal("What can't be a tool server's name")},
)
async def tool_server_metadata(world: TheWorld, server: NamedServer) -> JSONResponse:
    """RFC 9728 §2, for the MCP endpoint of a tool server, whether or not there is one of this name."""
    resource = f"{world.rules.mcp_prefix}{server}"
    return _protected(world, resource, f"{server}, through Subgrant", [Scope.TOOLS_CALL.value])


def tool_server_metadata_url(issuer: str, server: ServerName) -> str:
    """Where a tool server's metadata is: the well-known path between host and path (RFC 9728 §3.1)."""
    split = urlsplit(issuer)
    return f"{split.scheme}://{split.netloc}{PROTECTED_RESOURCE}{split.path}/mcp/{server}"


def _protected(world: World, resource: str, name: str, scopes: list[JsonValue]) -> JSONResponse:
    document: JsonObject = {
        "resource": resource,
        "resource_name": name,
        "authorization_servers": [world.rules.issuer],
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
        "authorization_details_types_supported": ["delegation"],
    }
    return JSONResponse(document, headers=CACHE)


@router.get("/oauth/jwks", summary="The public keys", response_model=None)
async def jwks(world: TheWorld) -> JSONResponse:
    """RFC 7517 §5: every key that still verifies."""
    return JSONResponse(world.signer.jwks(), headers=CACHE)
