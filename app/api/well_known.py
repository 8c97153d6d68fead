"""What an OAuth client discovers: authorization server metadata (RFC 8414) and the key set (RFC 7517)."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.api.caller import TheWorld
from app.api.token import GRANT_TYPES
from app.core.registry import AuthMethod, Scope
from app.core.strict_json import JsonObject, JsonValue

router = APIRouter(tags=["oauth"])

CACHE = {"Cache-Control": "public, max-age=60"}


@router.get("/.well-known/oauth-authorization-server", summary="Authorization server metadata", response_model=None)
async def metadata(world: TheWorld) -> JSONResponse:
    """RFC 8414 §2. Every URL comes from the configured issuer, never from a request's headers."""
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


@router.get("/oauth/jwks", summary="The public keys", response_model=None)
async def jwks(world: TheWorld) -> JSONResponse:
    """RFC 7517 §5: every key that still verifies."""
    return JSONResponse(world.signer.jwks(), headers=CACHE)
