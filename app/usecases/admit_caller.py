"""May this caller speak to this tool server at all? What stands before a list of tools, or a first greeting.

Everything that a call's decision holds against a credential or its grant, and nothing about tools: a call itself
is decided by `decide` alone. A refusal is on record in the tenant's log.
"""

from dataclasses import replace

from app.core.audit import RecordType
from app.core.grant import ServerName
from app.core.reasons import Reason
from app.core.strict_json import JsonObject
from app.ports import Transaction
from app.usecases.failures import Denied
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.world import Caller, World, evidence

NO_GRANT = Denied(reason=Reason.TOKEN_INVALID, detail="a tool server needs a token for a grant")
UNKNOWN_GRANT = Denied(reason=Reason.TOKEN_INVALID, detail="the token names no grant")
GRANT_AS_TOKEN = Denied(reason=Reason.TOKEN_INVALID, detail="a grant is no access token here: exchange it")
EXPIRED = Denied(reason=Reason.TOKEN_EXPIRED, detail="the token has expired")
OTHER_AUDIENCE = Denied(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")


async def admit_caller(world: World, caller: Caller, server: ServerName) -> Denied | None:
    """None for whoever holds a living credential for this tool server, else why not."""
    async with world.store.read() as tx:
        denied = await _objection(tx, world, caller, server)
    return None if denied is None else await _recorded(world, caller, denied)


async def _objection(tx: Transaction, world: World, caller: Caller, server: ServerName) -> Denied | None:
    if caller.grant_id is None:
        return NO_GRANT
    lineage = await load_lineage(tx, world, caller.tenant_id, caller.grant_id, lock=False)
    if not isinstance(lineage, Lineage):
        return lineage or UNKNOWN_GRANT
    # In order of precedence.
    if caller.audience is None and not await _takes_grants(tx, world, caller):
        return GRANT_AS_TOKEN
    if caller.is_expired:
        return EXPIRED
    if not _reaches(caller, lineage, server):
        return OTHER_AUDIENCE
    return await death(tx, world, lineage)


async def _takes_grants(tx: Transaction, world: World, caller: Caller) -> bool:
    tenant = await tx.registry.tenant(caller.tenant_id)
    return world.rules.allow_grant_bearer and tenant is not None and tenant.allow_grant_bearer


def _reaches(caller: Caller, lineage: Lineage, server: ServerName) -> bool:
    """Whether every link, and the credential where it is for one audience, is for this tool server."""
    chain = lineage.chain
    named = {audience.uri: audience.server for audience in chain.leaf.audience}
    is_for_it = caller.audience is None or named.get(caller.audience) == server
    return is_for_it and all(server in grant.servers for grant in chain.grants)


async def _recorded(world: World, caller: Caller, denied: Denied) -> Denied:
    decision_id = world.new_id("dec")
    members: JsonObject = {
        "clientId": caller.client_id,
        "grantId": caller.grant_id,
        "decision": "deny",
        "reason": denied.reason.value,
        "decisionId": decision_id,
    }
    async with world.store.write() as tx:
        await tx.audit.append(caller.tenant_id, [evidence(RecordType.ACCESS_REFUSED, world.clock(), members)])
        await tx.commit()
    return replace(denied, decision_id=decision_id)
