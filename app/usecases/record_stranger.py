"""Evidence of refusals that belong to no tenant: a bad token, a client that could not be authenticated.

They go to the platform's own log, so many a second and no more: a flood of strangers must not fill a disk.
"""

from app.core.audit import RecordType
from app.core.grant import ClientId
from app.core.reasons import Reason
from app.core.registry import PLATFORM_TENANT
from app.core.strict_json import JsonObject
from app.usecases.world import World, evidence


async def record_stranger(world: World, reason: Reason, detail: str, client_id: ClientId | None = None) -> None:
    """Record one refusal, or count it among those that were too many. `detail` is a sentence of ours.

    `client_id` is of a client that there is: what else strangers call themselves is not kept.
    """
    now = world.clock()
    skipped = world.strangers.take(now)
    if skipped is None:
        return
    members: JsonObject = {
        "decision": "deny",
        "reason": reason.value,
        "cause": detail,
        "clientId": client_id,
        "unrecorded": skipped or None,
    }
    async with world.store.write() as tx:
        await tx.audit.append(PLATFORM_TENANT, [evidence(RecordType.ACCESS_REFUSED, now, members)])
        await tx.commit()
