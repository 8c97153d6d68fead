"""Small, valid examples of the core's values; a test names only what it is about."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.core.attenuation import Birth, Ceiling, Wish
from app.core.budget import Amount, Budget, Price, Usage
from app.core.constraints import ToolRule, parse_tool_rule
from app.core.decision import Account, Accounts, Call, Facts, Offer
from app.core.grant import (
    POLICY_V0,
    Audience,
    ClientId,
    Grant,
    GrantChain,
    GrantId,
    RunId,
    ServerName,
    TenantId,
    ToolName,
    ToolRef,
    VerifiedGrant,
    chain_of,
)
from app.core.strict_json import JsonObject

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
ACME = TenantId("acme")
SUPPORT = Audience("https://tools.example/support", ServerName("support"))
BILLING = Audience("https://tools.example/billing", ServerName("billing"))
SEARCH = ToolRef(SUPPORT.server, ToolName("case_search"))
MESSAGE = ToolRef(SUPPORT.server, ToolName("send_message"))
REFUND = ToolRef(BILLING.server, ToolName("refund"))
SEARCH_RULE: JsonObject = {"customerId": {"eq": "c_42"}, "limit": {"int": {"min": 1, "max": 50}, "optional": True}}


def rule(document: JsonObject) -> ToolRule:
    return parse_tool_rule(document, pointer="")


def a_grant(**changes: object) -> Grant:
    grant = Grant(
        grant_id=GrantId("gr_root"),
        parent_grant_id=None,
        root_grant_id=GrantId("gr_root"),
        depth=0,
        tenant_id=ACME,
        subject="user:ada",
        actor="planner",
        issued_by=ClientId("planner"),
        holder=ClientId("planner"),
        parent_run_id=None,
        child_run_id=RunId("run_root"),
        audience=(SUPPORT,),
        tools={SEARCH: rule(SEARCH_RULE)},
        limit=Amount(tool_calls=10, spend_ucents=1_000_000),
        issued_at=NOW,
        not_before=NOW,
        expires_at=NOW + timedelta(minutes=10),
        may_redelegate=True,
        max_depth=4,
        policy_version=POLICY_V0,
    )
    return replace(grant, **changes)  # type: ignore[arg-type]  # a sample's changes are the test's to get right


def a_child(parent: Grant, **changes: object) -> Grant:
    """A child exactly as wide as its parent, which may not redelegate further unless the test says so."""
    child = replace(
        parent,
        grant_id=GrantId(f"{parent.grant_id}_c"),
        parent_grant_id=parent.grant_id,
        depth=parent.depth + 1,
        child_run_id=RunId(f"{parent.child_run_id}_c"),
        parent_run_id=parent.child_run_id,
    )
    return replace(child, **changes)  # type: ignore[arg-type]  # likewise


def a_chain(*grants: Grant) -> GrantChain:
    return chain_of(tuple(VerifiedGrant(grant=grant, signed="") for grant in grants))


def accounts_of(
    chain: GrantChain, *, closed: Mapping[str, str] | None = None, posted: Amount | None = None
) -> Accounts:
    """An account for every grant of the chain, with the same amount posted on each."""
    usage = Usage(posted=posted or Amount())
    return Accounts(
        grants={
            grant.grant_id: Account(
                budget=Budget(account_id=grant.grant_id, limit=grant.limit, usage=usage),
                closed=(closed or {}).get(grant.grant_id),
            )
            for grant in chain.grants
        }
    )


def a_call(arguments: JsonObject | None = None, ref: ToolRef = SEARCH, tenant_id: TenantId = ACME) -> Call:
    return Call(tenant_id=tenant_id, ref=ref, arguments={"customerId": "c_42"} if arguments is None else arguments)


def facts(**changes: object) -> Facts:
    price = Price(fixed_ucents=10_000, max_ucents=10_000)
    known = Facts(price=price, active_policy=POLICY_V0, offer=Offer.AS_PINNED)
    return replace(known, **changes)  # type: ignore[arg-type]  # likewise


def a_birth(**changes: object) -> Birth:
    birth = Birth(
        grant_id=GrantId("gr_new"),
        actor="planner",
        issued_by=ClientId("planner"),
        holder=ClientId("planner"),
        child_run_id=RunId("run_new"),
        now=NOW,
    )
    return replace(birth, **changes)  # type: ignore[arg-type]  # likewise


def a_ceiling(**changes: object) -> Ceiling:
    ceiling = Ceiling(
        audiences=frozenset({SUPPORT.uri}),
        allowed_tools=frozenset({SEARCH.tool}),
        limit=Amount(tool_calls=100, spend_ucents=10_000_000),
        max_lifetime=timedelta(hours=1),
    )
    return replace(ceiling, **changes)  # type: ignore[arg-type]  # likewise


def a_wish(**changes: object) -> Wish:
    wish = Wish(audience=(SUPPORT,), tools={SEARCH: rule(SEARCH_RULE)}, tool_calls=5)
    return replace(wish, **changes)  # type: ignore[arg-type]  # likewise
