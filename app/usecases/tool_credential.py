"""What the gateway presents to a tool server: never anything that a caller sent."""

from collections.abc import Mapping

from app.core.registry import CredentialType, ToolServer
from app.core.strict_json import JsonObject
from app.usecases.world import World


def credential_headers(world: World, server: ToolServer, claims: JsonObject) -> Mapping[str, str]:
    """The header fields that prove the gateway to a tool server; `claims` go into a JWT that is signed for it."""
    credential = server.credential
    match credential.type:
        case CredentialType.NONE:
            return {}
        case CredentialType.HEADER:
            assert credential.header is not None, "a header credential has its header"
            assert credential.sealed is not None, "a header credential has its value"
            value = world.vault.open(credential.sealed, credential_purpose(server))
            return {credential.header: value.decode()}
        case CredentialType.JWT:
            lifetime = world.rules.upstream_token_lifetime
            token = world.signer.sign_upstream(server.upstream_audience, claims, world.clock(), lifetime)
            return {"Authorization": f"Bearer {token}"}


def credential_purpose(server: ToolServer) -> str:
    """What a sealed header value is for: sealed for one tool server, it opens for no other."""
    return f"tool-server:{server.tenant_id}/{server.name}"
