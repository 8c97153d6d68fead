"""Policies: the versions of a tenant's Cedar policies, their cases, and which version is active."""

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from app.api.admin.documents import Administrator, InTenant, PageInTenant, tenant_named
from app.api.caller import TheWorld
from app.api.errors import allowed, refusal
from app.api.wire import Document, Identifier, Members, StrictRoute, Time
from app.core.grant import TenantId
from app.core.registry import PolicyCase
from app.usecases.activate_policy import activate_policy
from app.usecases.register_policy import (
    MAX_CASES,
    MAX_DESCRIPTION_CHARS,
    MAX_NAME_CHARS,
    MAX_TEXT_BYTES,
    PolicyDetail,
    PolicySummary,
    PolicyWish,
    add_policy,
    list_policies,
    read_policy,
)
from app.usecases.try_policy import CaseResult, Trial, try_policy

router = APIRouter(prefix="/policies", route_class=StrictRoute)

Verdict = Literal["permit", "deny"]

PolicyText = Annotated[
    str, StringConstraints(max_length=MAX_TEXT_BYTES), Field(description="Cedar; 64 KiB of UTF-8 at most")
]
Version = Annotated[str, StringConstraints(min_length=1, max_length=8, pattern=r"^v[0-9]+$")]


class CaseDocument(Document):
    """A call that the policies must permit or deny; what `call` leaves out is one harmless call's."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS)]
    expect: Verdict
    call: Members = Field(default_factory=dict)

    @property
    def case(self) -> PolicyCase:
        return PolicyCase(name=self.name, permitted=self.expect == "permit", call=self.call)

    @classmethod
    def of(cls, case: PolicyCase) -> Self:
        return cls(name=case.name, expect=_verdict(permitted=case.permitted), call=case.call)


Cases = Annotated[list[CaseDocument], Field(max_length=MAX_CASES)]


class PolicyRequest(Document):
    """A version to add. Its name is the server's to give."""

    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    text: PolicyText
    description: Annotated[str, StringConstraints(max_length=MAX_DESCRIPTION_CHARS)] = ""
    cases: Cases = Field(default_factory=list)

    def wish(self, tenant_id: TenantId) -> PolicyWish:
        return PolicyWish(tenant_id=tenant_id, text=self.text, description=self.description, cases=_cases(self.cases))


class TrialRequest(Document):
    """What to try: a text, or a version; with these cases, or with the version's own."""

    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    text: PolicyText | None = None
    version: Version | None = None
    cases: Cases | None = None

    def trial(self, tenant_id: TenantId) -> Trial:
        cases = None if self.cases is None else _cases(self.cases)
        return Trial(tenant_id=tenant_id, text=self.text, version=self.version, cases=cases)


class PolicySummaryDocument(Document):
    """A version without its text and cases."""

    tenant_id: str
    version: str = Field(description="`v0` is built in: it permits what the grant permits")
    description: str
    created_at: Time | None
    created_by: str | None
    active: bool

    @classmethod
    def of(cls, policy: PolicySummary) -> Self:
        return cls.model_validate(_members(policy))


class PolicyDocument(PolicySummaryDocument):
    text: str
    cases: list[CaseDocument]

    @classmethod
    def of_detail(cls, policy: PolicyDetail) -> Self:
        cases = [CaseDocument.of(case) for case in policy.cases]
        return cls.model_validate(_members(policy) | {"text": policy.text, "cases": cases})


class PolicyPage(Document):
    items: list[PolicySummaryDocument]
    next: str | None


class CaseResultDocument(Document):
    name: str
    expect: Verdict
    seen: Verdict
    passed: bool
    errors: list[str] = Field(description="what went wrong, which denies")
    determining: list[str] = Field(description="the policies that decided")

    @classmethod
    def of(cls, result: CaseResult) -> Self:
        return cls(
            name=result.case.name,
            expect=_verdict(permitted=result.case.permitted),
            seen=_verdict(permitted=result.answer.permitted),
            passed=result.passed,
            errors=list(result.answer.errors),
            determining=list(result.answer.determining),
        )


class TrialDocument(Document):
    passed: bool
    results: list[CaseResultDocument]


def _verdict(*, permitted: bool) -> Verdict:
    return "permit" if permitted else "deny"


def _cases(documents: list[CaseDocument]) -> tuple[PolicyCase, ...]:
    return tuple(document.case for document in documents)


def _members(policy: PolicySummary) -> dict[str, object]:
    names = ("tenant_id", "version", "description", "created_at", "created_by", "active")
    return {name: getattr(policy, name) for name in names}


@router.post(
    "",
    status_code=201,
    summary="Add a version of a tenant's policies",
    responses={200: {"model": PolicyDocument, "description": "The newest version says the same already"}},
)
async def add(
    world: TheWorld, caller: Administrator, query: InTenant, body: PolicyRequest, response: Response
) -> PolicyDocument:
    """A version never changes and is never removed. It counts for nothing before it is activated."""
    wish = body.wish(tenant_named(caller, query, body.tenant_id))
    added = allowed(await add_policy(world, caller, wish))
    response.status_code = 201 if added.created else 200
    response.headers["Location"] = f"/v1/admin/policies/{added.thing.version}"
    return PolicyDocument.of_detail(added.thing)


@router.post("/test", summary="Run cases against policies, and store nothing")
async def test(world: TheWorld, caller: Administrator, query: InTenant, body: TrialRequest) -> TrialDocument:
    """A policy that fails in a case denies it, as it would deny the call."""
    trial = body.trial(tenant_named(caller, query, body.tenant_id))
    results = allowed(await try_policy(world, caller, trial))
    return TrialDocument(
        passed=all(result.passed for result in results), results=[CaseResultDocument.of(each) for each in results]
    )


@router.get("", summary="List the versions of a tenant's policies in the order in which they were made")
async def page(world: TheWorld, caller: Administrator, query: PageInTenant) -> PolicyPage:
    found = allowed(await list_policies(world, caller, query.of(caller), query.page))
    return PolicyPage(items=[PolicySummaryDocument.of(policy) for policy in found.items], next=found.next)


@router.get("/{version}", summary="A version of a tenant's policies")
async def read(world: TheWorld, caller: Administrator, query: InTenant, version: Version) -> PolicyDocument:
    return PolicyDocument.of_detail(allowed(await read_policy(world, caller, query.of(caller), version)))


@router.post(
    "/{version}/activate",
    summary="Activate a version of a tenant's policies",
    responses={409: refusal("Cases of its own fail; `detail` names them")},
)
async def activate(world: TheWorld, caller: Administrator, query: InTenant, version: Version) -> PolicyDocument:
    """Its cases are run first. From the next call on, every call must satisfy it and the version its grant pins."""
    return PolicyDocument.of_detail(allowed(await activate_policy(world, caller, query.of(caller), version)))
