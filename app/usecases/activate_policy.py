"""Activate a version of a tenant's policies: from the next call on, every call must satisfy it.

Its own cases are run first, while no transaction is open, and one that fails refuses the activation. The
built-in version has none and may always be activated, so that there is a way back.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from app.core.grant import POLICY_V0, TenantId
from app.usecases.administration import admin_event, administering, known_tenant, out_of_reach
from app.usecases.failures import Conflict, Denied, Malformed
from app.usecases.register_policy import PolicyDetail, check_text, known_policy
from app.usecases.try_policy import run_cases
from app.usecases.world import Caller, World

MAX_SHOWN_CASES: Final = 10


async def activate_policy(world: World, caller: Caller, tenant_id: TenantId, version: str) -> PolicyDetail | Denied:
    """The version, active. What is active already stays so, and no case is run.

    Raises NotFound, and Conflict naming the cases that fail.
    """
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        policy = await known_policy(tx, tenant_id, version)
    if not policy.active:
        await _refuse_failing(world, policy)
        await _activate(world, caller, tenant_id, version)
    return replace(policy, active=True)


async def _activate(world: World, caller: Caller, tenant_id: TenantId, version: str) -> None:
    async with administering(world) as tx:
        tenant = await known_tenant(tx, tenant_id)
        if tenant.policy_version == version:
            return
        await tx.registry.put_tenant(replace(tenant, policy_version=version))
        event = admin_event(
            world.clock(),
            "policy.activated",
            f"policy/{version}",
            caller=caller,
            changed=["policyVersion"],
        )
        await tx.audit.append(tenant_id, [event | {"fromVersion": tenant.policy_version, "toVersion": version}])
        await tx.commit()


async def _refuse_failing(world: World, policy: PolicyDetail) -> None:
    """Raises Conflict. All is looked at again, since another release may have taken what this one does not."""
    if policy.version == POLICY_V0:
        return
    try:
        await check_text(world.policies, policy.text)
        results = await run_cases(world, policy.text, policy.cases, policy.tenant_id)
    except Malformed as error:
        raise Conflict(f"the version can't be tried: {error.pointer}: {error.detail}") from error
    if failed := [result.case.name for result in results if not result.passed]:
        raise Conflict(f"{len(failed)} of {len(results)} cases fail: {_names(failed)}")


def _names(failed: Sequence[str]) -> str:
    shown = ", ".join(f'"{name}"' for name in failed[:MAX_SHOWN_CASES])
    rest = len(failed) - MAX_SHOWN_CASES
    return f"{shown} and {rest} more" if rest > 0 else shown
