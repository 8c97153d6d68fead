"""What an issued token is: an access token for one tool server (RFC 9068), or a signed child grant.

Every flow of the token endpoint ends here with the node that it made. Refuses to know why the node may be.
"""

from dataclasses import dataclass, field

from app.core.grant import Grant, GrantChain, render_grant
from app.core.registry import Client, Scope
from app.core.strict_json import JsonObject, canonical
from app.usecases.derive_grant import Node
from app.usecases.failures import Malformed
from app.usecases.world import World

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
DELEGATION_GRANT = "urn:subgrant:params:oauth:token-type:delegation-grant"
DETAIL_TYPE = "delegation"
MAX_SHOWN_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What was issued: an access token for one tool server, or a signed child grant."""

    token: str = field(repr=False)
    issued_token_type: str
    expires_in_seconds: int
    grant: Grant

    @property
    def details(self) -> JsonObject:
        """What was granted, as the response's `authorization_details` echo it (RFC 9396 §7)."""
        return {"type": DETAIL_TYPE, **render_grant(self.grant)}


def issued_token(world: World, client: Client, node: Node, token_type: str, token_id: str) -> Exchanged:
    """The token for a node that was just made, issued to the client that asked. Raises Malformed."""
    grant = node.grant
    is_grant = token_type == DELEGATION_GRANT
    try:
        token = node.signed if is_grant else world.signer.sign_access_token(_claims(client, node.chain, token_id))
    except ValueError as error:
        raise Malformed("", f"the token can't be issued: {error}") from error
    return Exchanged(
        token=token,
        issued_token_type=token_type,
        expires_in_seconds=max(0, int((grant.expires_at - world.clock()).total_seconds())),
        grant=grant,
    )


def _claims(client: Client, chain: GrantChain, token_id: str) -> JsonObject:
    """The claims of an access token for a tool server (RFC 9068 §2.2, RFC 8693 §4)."""
    grant = chain.leaf
    return {
        "aud": grant.audience[0].uri,
        "sub": grant.subject,
        "act": chain.actors,
        "may_act": {"sub": grant.holder},
        "client_id": client.client_id,
        "tenant_id": grant.tenant_id,
        "grant_id": grant.grant_id,
        "scope": Scope.TOOLS_CALL.value,
        "jti": token_id,
        "iat": int(grant.issued_at.timestamp()),
        "nbf": int(grant.not_before.timestamp()),
        "exp": int(grant.expires_at.timestamp()),
        "authorization_details": [_shown(grant)],
        **confirmation(grant.key_thumbprint),
    }


def confirmation(key_thumbprint: str | None) -> JsonObject:
    """The claim that binds a token to a key (RFC 9449 §6.1); nothing for one that whoever bears it may use."""
    return {} if key_thumbprint is None else {"cnf": {"jkt": key_thumbprint}}


def _shown(grant: Grant) -> JsonObject:
    # A token travels in a header: it names its grant, and says what it allows only where that is short.
    document = render_grant(grant)
    summary = {name: document[name] for name in ("allowedTools", "maxToolCalls", "maxSpendCents", "mayRedelegate")}
    named: JsonObject = {"type": DETAIL_TYPE, "grantId": grant.grant_id}
    return named | summary if len(canonical(summary)) <= MAX_SHOWN_BYTES else named
