"""Who is who in a delegation, by another issuer's token: for whom somebody acts, and which client does.

A token proves a party and gives no authority. What it says of delegation (`act`, `may_act`, RFC 8693 §4.1 and §4.4)
only ever restricts who may use it, and no token that we issue has any of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import Client, IssuerUse, TrustedIssuer, Workload
from app.core.resource_rules import id_flaw
from app.core.strict_json import JsonObject, JsonValue
from app.usecases.failures import Denied
from app.usecases.prove_identity import Proven, prove_identity
from app.usecases.world import World

JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
OUTSIDE_TYPES: Final = frozenset({JWT, ID_TOKEN})
"""The types of tokens (RFC 8693 §3) that others issue."""

_ACTOR_CLAIMS: Final = ("act", "may_act")


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The client that will act, and the token that proves its workload, where another issuer's does."""

    client: Client
    proven: Proven | None = None


async def proven_subject(world: World, compact: str, actor: Client, key: str | None) -> Proven | Denied:
    """The subject that a trusted issuer's token proves, for this client to act for, by this key."""
    proven = await prove_identity(world, actor.tenant_id, compact, IssuerUse.SUBJECT)
    return proven if isinstance(proven, Denied) else subject_for(world, proven, actor, key)


def subject_for(world: World, proven: Proven, actor: Client, key: str | None) -> Proven | Denied:
    """The proven subject, unless the token is another party's to use, or its name can't be one."""
    if not _is_for_key(proven, key):
        return Denied(reason=Reason.PROOF_INVALID, detail="the token is bound to another key (RFC 7800 §3.1)")
    if not all(_names(world, proven.token.claims[name], actor, proven.issuer) for name in _claimed(proven)):
        # To leave out whom it names would make a delegation look as if the subject acted alone (RFC 8693 §1.1).
        detail = "the token is for another party to act with"
        return Denied(reason=Reason.ACTOR_NOT_PERMITTED, detail=detail)
    if id_flaw(proven.subject) is not None:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the token's subject is not fit for a name")
    return proven


async def proven_actor(world: World, tenant_id: TenantId, compact: str, key: str | None) -> Actor | Denied:
    """The one client whose workload a trusted issuer's token proves. What counts once is for whoever asks to spend."""
    proven = await prove_identity(world, tenant_id, compact, IssuerUse.CLIENT)
    if isinstance(proven, Denied):
        return proven
    if not _is_for_key(proven, key):
        return Denied(reason=Reason.PROOF_INVALID, detail="the actor token is bound to another key (RFC 7800 §3.1)")
    workload = Workload(issuer=proven.issuer.name, subject=proven.token.subject)
    async with world.store.read() as tx:
        clients = await tx.registry.clients_of(tenant_id, workload)
    if len(clients) != 1 or _claimed(proven):
        return Denied(reason=Reason.ACTOR_NOT_PERMITTED, detail="the actor token proves no single client")
    if proven.issuer.single_use and proven.token.jti is None:
        return Denied(reason=Reason.TOKEN_INVALID, detail="the actor token has no jti, though it counts once")
    return Actor(client=clients[0], proven=proven)


def _is_for_key(proven: Proven, key: str | None) -> bool:
    """Whether the token is bound to no key, or to this one."""
    return "cnf" not in proven.token.claims or (key is not None and proven.token.claims["cnf"] == {"jkt": key})


def _claimed(proven: Proven) -> list[str]:
    return [name for name in _ACTOR_CLAIMS if name in proven.token.claims]


def _names(world: World, party: JsonValue, client: Client, issuer: TrustedIssuer) -> bool:
    """Whether an actor claim names this client, by our word or by its issuer's, and nobody besides.

    A member that is not understood restricts in a way that can't be kept, and a nested `act` is a further actor.
    """
    if not isinstance(party, Mapping) or not party.keys() & {"sub", "client_id"}:
        return False
    known: list[JsonObject] = [
        {"iss": world.rules.issuer, "sub": client.client_id, "client_id": client.client_id},
    ]
    if client.workload is not None and client.workload.issuer == issuer.name:
        known.append({"iss": issuer.issuer, "sub": client.workload.subject, "client_id": client.client_id})
    return any(party.items() <= one.items() for one in known)
