"""What an OAuth client discovers: the authorization server (RFC 8414), what it guards (RFC 9728), its keys (RFC 7517).

Every URL comes from the configured issuer, never from a request's headers.
"""

from collections.abc import Iterable
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError

from app.api.caller import TheWorld
from app.api.challenges import PROTECTED_RESOURCE, resource_metadata_url
from app.api.errors import refusal
from app.api.oauth.authorize import CODE_CHALLENGE_METHODS, RESPONSE_TYPES
from app.api.oauth.token import ISSUERS
from app.api.wire import Name
from app.core.grant import ServerName
from app.core.registry import AuthMethod, Scope
from app.core.strict_json import JsonObject, JsonValue
from app.ports import PROOF_ALGORITHMS
from app.usecases.failures import NotFound
from app.usecases.prove_client import ASSERTION_ALGORITHMS
from app.usecases.world import World

router = APIRouter(tags=["oauth"])

CACHE = {"Cache-Control": "public, max-age=60"}

_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)


async def server_named(server: str) -> ServerName:
    """The name in a path. Whether there is such a tool server is not to be learnt: what could be a name is one."""
    try:
        return ServerName(_NAME.validate_python(server))
    except ValidationError as error:
        raise NotFound("no tool server can have this name") from error


NamedServer = Annotated[ServerName, Depends(server_named)]


@router.get("/.well-known/oauth-authorization-server", summary="Authorization server metadata", response_model=None)
@router.get("/.well-known/openid-configuration", include_in_schema=False, response_model=None)
async def metadata(world: TheWorld) -> JSONResponse:
    """RFC 8414 §2. The second path is where many clients look first (§5); no ID tokens are issued here."""
    return JSONResponse(authorization_server(world.rules.issuer), headers=CACHE)


@router.get("/.well-known/oauth-authorization-server/{path:path}", include_in_schema=False, response_model=None)
@router.get("/.well-known/openid-configuration/{path:path}", include_in_schema=False, response_model=None)
@router.get("/{path:path}/.well-known/openid-configuration", include_in_schema=False, response_model=None)
async def metadata_with_path(world: TheWorld, path: str) -> JSONResponse:
    """The same where the issuer has a path, which RFC 8414 §3.1 inserts and OpenID Connect Discovery §4 appends."""
    if f"/{path}" != urlsplit(world.rules.issuer).path:
        raise NotFound("there is no authorization server with this path")
    return JSONResponse(authorization_server(world.rules.issuer), headers=CACHE)


def authorization_server(issuer: str) -> JsonObject:
    """What clients may know of us (RFC 8414 §2 and the RFCs that add to it). What would be empty is left out."""
    methods = _listed(method for method in AuthMethod if method is not AuthMethod.NONE)
    proven: JsonObject = {}
    for endpoint in ("token", "introspection", "revocation"):
        proven[f"{endpoint}_endpoint_auth_methods_supported"] = methods
        proven[f"{endpoint}_endpoint_auth_signing_alg_values_supported"] = _listed(ASSERTION_ALGORITHMS)
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/oauth/authorize",
        "token_endpoint": f"{issuer}/oauth/token",
        "introspection_endpoint": f"{issuer}/oauth/introspect",
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "jwks_uri": f"{issuer}/oauth/jwks",
        "response_types_supported": _listed(RESPONSE_TYPES),
        "response_modes_supported": ["query"],
        "code_challenge_methods_supported": _listed(CODE_CHALLENGE_METHODS),
        "authorization_response_iss_parameter_supported": True,
        "grant_types_supported": _listed(ISSUERS),
        "scopes_supported": _listed(Scope),
        "authorization_details_types_supported": ["delegation"],
        "dpop_signing_alg_values_supported": _listed(PROOF_ALGORITHMS),
        **proven,
    }


def _listed(words: Iterable[str]) -> list[JsonValue]:
    return [str(word) for word in words]


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


@router.get(f"{PROTECTED_RESOURCE}/{{path:path}}", include_in_schema=False, response_model=None)
async def metadata_of_resource_with_path(world: TheWorld, path: str) -> JSONResponse:
    """The two above where the issuer has a path, which RFC 9728 §3.1 inserts."""
    below = f"/{path}".removeprefix(urlsplit(world.rules.issuer).path)
    if f"/{path}" == below:  # the issuer has no path, or another one
        raise NotFound("there is no protected resource with this path")
    if not below:
        return await api_metadata(world)
    prefix, _, server = below.rpartition("/")
    if prefix != "/mcp":
        raise NotFound("there is no protected resource with this path")
    return await tool_server_metadata(world, await server_named(server))


def tool_server_metadata_url(issuer: str, server: ServerName) -> str:
    """Where a tool server's metadata is: the well-known path between host and path (RFC 9728 §3.1)."""
    return resource_metadata_url(issuer, f"/mcp/{server}")


def _protected(world: World, resource: str, name: str, scopes: list[JsonValue]) -> JSONResponse:
    document: JsonObject = {
        "resource": resource,
        "resource_name": name,
        "authorization_servers": [world.rules.issuer],
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
        "authorization_details_types_supported": ["delegation"],
        "dpop_signing_alg_values_supported": _listed(PROOF_ALGORITHMS),
        "dpop_bound_access_tokens_required": False,
    }
    return JSONResponse(document, headers=CACHE)


@router.get("/oauth/jwks", summary="The public keys", response_model=None)
async def jwks(world: TheWorld) -> JSONResponse:
    """RFC 7517 §5: every key that still verifies."""
    return JSONResponse(world.signer.jwks(), headers=CACHE)
