"""Add a version of a tenant's policies; read and list versions.

A version never changes and is never removed, since grants pin it and records name it: whoever wants other
policies adds another version. Adding one activates nothing. To say the newest version again adds nothing either,
so that a script which sets up a tenant may run twice; an older text said again is a new version, since it comes
after what stands between.

Records hold a keyed digest of a text, never the text.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.core.grant import POLICY_V0, ClientId, TenantId
from app.core.registry import Policy, PolicyCase, Tenant
from app.core.strict_json import JsonObject, canonical, has_lone_surrogate
from app.ports import PolicyEngine, Transaction
from app.usecases.administration import (
    Page,
    PageRequest,
    Registered,
    admin_event,
    administering,
    known_tenant,
    out_of_reach,
    page_of,
    rows_to_ask,
)
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.read_case import read_case
from app.usecases.world import Caller, World, digest

MAX_VERSIONS: Final = 1000
MAX_TEXT_BYTES: Final = 65_536
MAX_DESCRIPTION_CHARS: Final = 1000
MAX_CASES: Final = 100
MAX_CASES_BYTES: Final = 131_072
MAX_NAME_CHARS: Final = 100
MAX_SHOWN_FLAWS: Final = 5
ROWS_AT_ONCE: Final = 20
"""Versions whose texts and cases are in memory at once while a list is made."""

BUILT_IN_TEXT: Final = "permit (principal, action, resource);"
BUILT_IN_DESCRIPTION: Final = "built in: permits what the grant permits"

_VERSION: Final = re.compile(r"v(?:0|[1-9][0-9]{0,3})")

_BIDI: Final = "\u202a-\u202e\u2066-\u2069"
"""Characters that show a text in another order than it is read in."""

_UNSEEN: Final = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_BIDI}]")
"""What a reviewer of a text would not see, line breaks and tabs apart."""

_UNSEEN_IN_LINE: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDI}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWish:
    """A version to add; its name is the server's to give."""

    tenant_id: TenantId
    text: str
    description: str = ""
    cases: tuple[PolicyCase, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySummary:
    """A version, and whether it is the tenant's active one. `v0` is built in: nobody made it, at no time."""

    tenant_id: TenantId
    version: str
    description: str
    created_at: datetime | None
    created_by: ClientId | None
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDetail(PolicySummary):
    """The same with all that the version says."""

    text: str
    cases: tuple[PolicyCase, ...]


async def add_policy(world: World, caller: Caller, wish: PolicyWish) -> Registered[PolicyDetail] | Denied:
    """The version as it is now: a new one, or the newest where that says the same.

    Raises Malformed, NotFound for a tenant that is none, and Conflict where there are too many.
    """
    if (denied := out_of_reach(caller, wish.tenant_id)) is not None:
        return denied
    await _check(world.policies, wish)
    async with administering(world) as tx:
        tenant = await known_tenant(tx, wish.tenant_id)
        count = await tx.policies.count(wish.tenant_id)
        newest = await tx.policies.policy(wish.tenant_id, _nth(count)) if count else None
        if newest is not None and _says(newest) == _says(wish):
            return Registered(thing=_detail(newest, tenant), created=False)
        policy = _next(world, caller, wish, count)
        await tx.policies.add(policy)
        await tx.audit.append(wish.tenant_id, [_event(world, caller, policy)])
        await tx.commit()
    return Registered(thing=_detail(policy, tenant), created=True)


async def read_policy(world: World, caller: Caller, tenant_id: TenantId, version: str) -> PolicyDetail | Denied:
    """One version. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        return await known_policy(tx, tenant_id, version)


async def list_policies(
    world: World, caller: Caller, tenant_id: TenantId, page: PageRequest
) -> Page[PolicySummary] | Denied:
    """A tenant's versions in the order in which they were made, the built-in one first. Raises NotFound, Malformed."""
    if (denied := out_of_reach(caller, tenant_id)) is not None:
        return denied
    rows = rows_to_ask(world, page)
    if page.after is not None and not _VERSION.fullmatch(page.after):
        raise Malformed("/after", "must be a page's next")
    async with world.store.read() as tx:
        tenant = await known_tenant(tx, tenant_id)
        found: list[PolicySummary] = [_built_in(tenant)] if page.after is None else []
        after = None if page.after == POLICY_V0 else page.after
        found += await _summaries(tx, tenant, after, rows - len(found))
    return page_of(found, page, lambda summary: summary.version)


async def known_policy(tx: Transaction, tenant_id: TenantId, version: str) -> PolicyDetail:
    """A version with all that it says. Raises NotFound."""
    tenant = await known_tenant(tx, tenant_id)
    if version == POLICY_V0:
        return _built_in(tenant)
    policy = await tx.policies.policy(tenant_id, version) if _VERSION.fullmatch(version) else None
    if policy is None:
        raise NotFound("there is no such version")
    return _detail(policy, tenant)


async def _summaries(tx: Transaction, tenant: Tenant, after: str | None, rows: int) -> list[PolicySummary]:
    found: list[PolicySummary] = []
    while len(found) < rows:
        asked = min(ROWS_AT_ONCE, rows - len(found))
        policies = await tx.policies.page(tenant.tenant_id, after=after, limit=asked)
        found += [_summary(policy, tenant) for policy in policies]
        if len(policies) < asked:
            break
        after = policies[-1].version
    return found


def _built_in(tenant: Tenant) -> PolicyDetail:
    return PolicyDetail(
        tenant_id=tenant.tenant_id,
        version=POLICY_V0,
        description=BUILT_IN_DESCRIPTION,
        created_at=None,
        created_by=None,
        active=tenant.policy_version == POLICY_V0,
        text=BUILT_IN_TEXT,
        cases=(),
    )


def _summary(policy: Policy, tenant: Tenant) -> PolicySummary:
    return PolicySummary(
        tenant_id=policy.tenant_id,
        version=policy.version,
        description=policy.description,
        created_at=policy.created_at,
        created_by=policy.created_by,
        active=tenant.policy_version == policy.version,
    )


def _detail(policy: Policy, tenant: Tenant) -> PolicyDetail:
    summary = _summary(policy, tenant)
    return PolicyDetail(
        tenant_id=summary.tenant_id,
        version=summary.version,
        description=summary.description,
        created_at=summary.created_at,
        created_by=summary.created_by,
        active=summary.active,
        text=policy.text,
        cases=policy.cases,
    )


# --- a new version ----------------------------------------------------------------------------------------


def _nth(number: int) -> str:
    return f"v{number}"


def _next(world: World, caller: Caller, wish: PolicyWish, count: int) -> Policy:
    """The version behind so many. Taking the number of them is safe, since none is ever removed."""
    if count >= MAX_VERSIONS:
        raise Conflict(f"a tenant has at most {MAX_VERSIONS} versions of its policies")
    return Policy(
        tenant_id=wish.tenant_id,
        version=_nth(count + 1),
        text=wish.text,
        description=wish.description,
        cases=wish.cases,
        created_at=world.clock(),
        created_by=caller.client_id,
    )


def _says(policy: Policy | PolicyWish) -> tuple[str, str, bytes]:
    # As bytes, since to Python `true` equals 1, to a policy it does not.
    cases = canonical([[case.name, case.permitted, case.call] for case in policy.cases])
    return policy.text, policy.description, cases


def _event(world: World, caller: Caller, policy: Policy) -> JsonObject:
    event = admin_event(policy.created_at, "policy.created", f"policy/{policy.version}", caller=caller)
    return event | {"textDigest": digest(world, policy.tenant_id, policy.text.encode())}


# --- what makes a usable one ------------------------------------------------------------------------------


async def _check(engine: PolicyEngine, wish: PolicyWish) -> None:
    if len(wish.description) > MAX_DESCRIPTION_CHARS or _is_unreadable(wish.description):
        raise Malformed(
            "/description", f"must be at most {MAX_DESCRIPTION_CHARS} characters without control characters"
        )
    await check_text(engine, wish.text)
    check_cases(wish.cases, wish.tenant_id)


async def check_text(engine: PolicyEngine, text: str) -> None:
    """Whether a text can be policies. Raises Malformed with the first of its flaws."""
    if _is_unreadable(text):
        raise Malformed("/text", "must have no control characters and none that turn the direction of writing")
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise Malformed("/text", f"must be at most {MAX_TEXT_BYTES} bytes of UTF-8")
    if flaws := await asyncio.to_thread(engine.flaws, text):
        raise Malformed("/text", "; ".join(flaws[:MAX_SHOWN_FLAWS]))


def check_cases(cases: Sequence[PolicyCase], tenant_id: TenantId) -> None:
    """Whether cases can be run. Raises Malformed."""
    if len(cases) > MAX_CASES:
        raise Malformed("/cases", f"must be at most {MAX_CASES} cases")
    if len(canonical([case.call for case in cases])) > MAX_CASES_BYTES:
        raise Malformed("/cases", f"must be at most {MAX_CASES_BYTES} bytes together")
    names: set[str] = set()
    for index, case in enumerate(cases):
        _check_name(case.name, names, f"/cases/{index}/name")
        names.add(case.name)
        read_case(case.call, tenant_id, f"/cases/{index}/call")


def _check_name(name: str, others: set[str], pointer: str) -> None:
    if not 1 <= len(name) <= MAX_NAME_CHARS or _UNSEEN_IN_LINE.search(name) or has_lone_surrogate(name):
        raise Malformed(pointer, f"must be one line of 1 to {MAX_NAME_CHARS} characters")
    if name in others:
        raise Malformed(pointer, "must be another name than the cases before it have")


def _is_unreadable(text: str) -> bool:
    return _UNSEEN.search(text) is not None or has_lone_surrogate(text)
