"""The tool gateway over REST: propose a call, get its result or the reason why not."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header
from pydantic import Discriminator, Field, Tag

from app.api.caller import AuthenticatedCaller, CallingAgent, CallRoute, TheWorld
from app.api.errors import REFUSALS, allowed, refusal
from app.api.grants import UsageDocument, usage_document
from app.api.wire import TAGS, Document, Json, Members, Text, ToolSpelling
from app.core.budget import ucents_to_cents
from app.core.decision import Deny
from app.core.grant import ToolName
from app.usecases.authorize_call import ProposedCall, Weighed, authorize_call
from app.usecases.failures import Malformed
from app.usecases.forward_call import Forwarded, forward_call

router = APIRouter(prefix="/v1/gateway", tags=["gateway"], route_class=CallRoute, responses=REFUSALS)

Key = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$")]


class CheckDocument(Document):
    """A call to decide on."""

    tool_server_audience: Text = Field(examples=["https://tools.example/support"])
    name: ToolSpelling = Field(examples=["case_search"])
    arguments: Members = Field(default_factory=dict, examples=[{"customerId": "c_42"}])

    def proposed(self, idempotency_key: str | None = None) -> ProposedCall:
        return ProposedCall(
            tool_server_audience=self.tool_server_audience,
            name=ToolName(self.name),
            arguments=self.arguments,
            idempotency_key=idempotency_key,
        )


class CallDocument(CheckDocument):
    """A call to run."""

    idempotency_key: Key | None = None


class ChecksDocument(Document):
    calls: Annotated[list[CallDocument], Field(min_length=1, max_length=100)]


def _one_or_many(body: object) -> str:
    return MANY if isinstance(body, dict) and "calls" in body else ONE


ONE, MANY = TAGS
OneOrMany = Annotated[
    Annotated[CallDocument, Tag(ONE)] | Annotated[ChecksDocument, Tag(MANY)], Discriminator(_one_or_many)
]


class CallResult(Document):
    """What came of an allowed call. `unknown`: it may have reached the tool; it is charged and never run again."""

    decision: Literal["allow"] = "allow"
    call_id: str
    decision_id: str
    grant_id: str
    outcome: Literal["success", "tool_error", "unknown"]
    result: Json = None
    result_available: bool = True
    result_digest: str | None = None
    detail: str | None = None
    cost_cents: int | float
    usage: UsageDocument | None = None


class DecisionDocument(Document):
    decision: Literal["allow", "deny"]
    decision_id: str
    reason: str | None = None
    detail: str | None = None
    pointer: str | None = None


class DecisionsDocument(Document):
    decisions: list[DecisionDocument]


@router.post(
    "/calls",
    summary="Check, reserve, forward, settle",
    responses={
        502: refusal("The tool server can't be reached, or does not say whether the tool is as it was accepted"),
        504: refusal("The tool server took too long to be reached"),
    },
)
async def calls(
    world: TheWorld,
    caller: CallingAgent,
    body: CallDocument,
    idempotency_key: Annotated[list[Key] | None, Header()] = None,
) -> CallResult:
    """Run one tool call under the grant of the bearer token. A repeat of an idempotency key runs nothing."""
    keys = {*(idempotency_key or ()), *(() if body.idempotency_key is None else (body.idempotency_key,))}
    if len(keys) > 1:
        raise Malformed("/idempotencyKey", "more than one idempotency key was given")
    proposed = body.proposed(next(iter(keys), None))
    return _result(allowed(await forward_call(world, caller, proposed)))


@router.post("/checks", summary="The same decisions, nothing reserved or forwarded")
async def checks(world: TheWorld, caller: AuthenticatedCaller, body: OneOrMany) -> DecisionsDocument:
    """One call, spelt as for `/calls`, or a list of them. A denial is an answer here, not an error."""
    proposals = body.calls if isinstance(body, ChecksDocument) else [body]
    weighed = allowed(await authorize_call(world, caller, [one.proposed() for one in proposals]))
    return DecisionsDocument(decisions=[_decision(one) for one in weighed])


def _result(forwarded: Forwarded) -> CallResult:
    usage = None if forwarded.account is None else forwarded.account.budget.usage
    shown = None if usage is None else UsageDocument.model_validate(usage_document(usage.posted, usage.pending))
    return CallResult.model_validate(
        {
            "callId": forwarded.call_id,
            "decisionId": forwarded.decision_id,
            "grantId": forwarded.grant_id,
            "outcome": forwarded.outcome.value,
            "result": forwarded.result,
            "resultAvailable": forwarded.result_available,
            "resultDigest": forwarded.result_digest,
            "detail": forwarded.detail,
            "costCents": ucents_to_cents(forwarded.charged_ucents),
            "usage": shown,
        }
    )


def _decision(weighed: Weighed) -> DecisionDocument:
    verdict = weighed.verdict
    if isinstance(verdict, Deny):
        return DecisionDocument(
            decision="deny",
            decision_id=weighed.decision_id,
            reason=verdict.reason.value,
            detail=verdict.detail,
            pointer=verdict.pointer,
        )
    return DecisionDocument(decision="allow", decision_id=weighed.decision_id)
