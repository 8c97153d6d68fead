"""Run a policy author's cases: against a text that is stored nowhere, or a version that is. Nothing is changed.

A policy that fails in a case denies it, as it would deny the call, and the failure is reported beside.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import PolicyCase
from app.ports import PolicyAnswer
from app.usecases.administration import known_tenant, out_of_reach
from app.usecases.failures import Denied, Malformed
from app.usecases.read_case import read_case
from app.usecases.register_policy import check_cases, check_text, known_policy
from app.usecases.world import Caller, World

MAX_SECONDS: Final = 10
"""How long all cases may take together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to try: a text, or a version by its name; with these cases, or with the version's own."""

    tenant_id: TenantId
    text: str | None = None
    version: str | None = None
    cases: tuple[PolicyCase, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case and what the policies answered."""

    case: PolicyCase
    answer: PolicyAnswer

    @property
    def passed(self) -> bool:
        return self.answer.permitted == self.case.permitted


async def try_policy(world: World, caller: Caller, trial: Trial) -> tuple[CaseResult, ...] | Denied:
    """Each case with its answer, in order. Raises Malformed, also where there is no case, and NotFound."""
    if (denied := out_of_reach(caller, trial.tenant_id)) is not None:
        return denied
    text, cases = await _tried(world, trial)
    if not cases:
        raise Malformed("/cases", "must be at least one: without any, nothing is tried")
    if world.trials.full:
        return TOO_MANY_TRIALS
    return await run_cases(world, text, cases, trial.tenant_id)


TOO_MANY_TRIALS: Final = Denied(
    reason=Reason.RATE_LIMITED, detail="too many policies are being tried at this moment; try again shortly"
)


async def run_cases(
    world: World, text: str, cases: Sequence[PolicyCase], tenant_id: TenantId
) -> tuple[CaseResult, ...]:
    """One case after the other, and one trial, so that whoever tries policies takes no more than one call does.

    Raises Malformed where together they take too long.
    """
    questions = [(case, read_case(case.call, tenant_id)) for case in cases]
    answer = world.policies.answer
    try:
        async with world.trials.turn(), asyncio.timeout(MAX_SECONDS):
            return tuple([CaseResult(case=case, answer=await answer(text, asked)) for case, asked in questions])
    except TimeoutError as error:
        raise Malformed("/cases", f"take longer than {MAX_SECONDS} seconds together") from error


async def _tried(world: World, trial: Trial) -> tuple[str, tuple[PolicyCase, ...]]:
    if (trial.text is None) == (trial.version is None):
        raise Malformed("/text", "is needed where no version is named, and only there")
    check_cases(trial.cases or (), trial.tenant_id)
    if trial.text is not None:
        await check_text(world.policies, trial.text)
    async with world.store.read() as tx:
        if trial.version is not None:
            policy = await known_policy(tx, trial.tenant_id, trial.version)
            return policy.text, policy.cases if trial.cases is None else trial.cases
        await known_tenant(tx, trial.tenant_id)
    assert trial.text is not None, "it is one of the two"
    return trial.text, trial.cases or ()
