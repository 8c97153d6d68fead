"""May this caller speak to this tool server at all? What stands before a list of tools, or a first greeting.

Everything that a call's decision holds against a credential or its grant, and nothing about tools: a call itself
is decided by `decide` alone. A refusal is on record in the tenant's log.
"""

from app.core.audit import RecordType
from app.core.grant import ServerName
from app.core.reasons import Reason
from app.ports import Transaction
from app.usecases.authorize_call import (
    GRANT_AS_TOKEN,
    UNKNOWN_GRANT,
    credential_server,
    record_unweighed,
    takes_grants,
)
from app.usecases.failures import Denied
from app.usecases.load_chain import Lineage, death, load_lineage
from app.usecases.prove_possession import MUST_BE_BOUND, unbound
from app.usecases.world import Caller, World

NO_GRANT = Denied(reason=Reason.TOKEN_INVALID, detail="a tool server needs a token for a grant")
EXPIRED = Denied(reason=Reason.TOKEN_EXPIRED, detail="the token has expired")
OTHER_AUDIENCE = Denied(reason=Reason.AUDIENCE_MISMATCH, detail="the token is for another audience")


async def admit_caller(world: World, caller: Caller, server: ServerName) -> Denied | None:
    """None for whoever holds a living credential for this tool server, else why not."""
    async with world.store.read() as tx:
        denied = await _objection(tx, world, caller, server)
    if denied is None:
        return None
    async with world.store.write() as tx:
        recorded = await record_unweighed(tx, world, caller, denied, RecordType.ACCESS_REFUSED)
        await tx.commit()
    return recorded


async def _objection(tx: Transaction, world: World, caller: Caller, server: ServerName) -> Denied | None:
    if caller.grant_id is None:
        return NO_GRANT
    lineage = await load_lineage(tx, world, caller.tenant_id, caller.grant_id, lock=False)
    if not isinstance(lineage, Lineage):
        return lineage or UNKNOWN_GRANT
    is_grant_in_vain = caller.audience is None and not takes_grants(world, await tx.registry.tenant(caller.tenant_id))
    in_order_of_precedence = (
        (is_grant_in_vain, GRANT_AS_TOKEN),
        (await unbound(tx, caller, lineage.chain) is not None, MUST_BE_BOUND),
        (caller.is_expired, EXPIRED),
        (not _reaches(caller, lineage, server), OTHER_AUDIENCE),
    )
    for objects, denied in in_order_of_precedence:
        if objects:
            return denied
    return await death(tx, world, lineage)


def _reaches(caller: Caller, lineage: Lineage, server: ServerName) -> bool:
    """Whether every link, and the credential where it is for one audience, is for this tool server."""
    chain = lineage.chain
    return credential_server(caller, chain) in (None, server) and all(server in grant.servers for grant in chain.grants)
