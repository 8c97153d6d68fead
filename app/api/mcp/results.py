"""What came of a call, as the CallToolResult that a model reads, with the decision beside it for whoever runs it.

A denial, too, is a result: the model learns why and goes on, and nobody takes it for success.
"""

from collections.abc import Mapping
from typing import Final

from app.api.grants import usage_document
from app.api.mcp.messages import Code
from app.core.budget import ucents_to_cents
from app.core.reasons import Reason
from app.core.registry import Transport
from app.core.strict_json import JsonObject, JsonValue, canonical
from app.ports import Outcome
from app.usecases.failures import CallInFlight, Conflict, Denied, ToolServerFailed
from app.usecases.forward_call import Forwarded

PREFIX: Final = "dev.subgrant/"
"""Ours among the members of `_meta`."""

CLIENT_CAPABILITIES: Final = ("elicitation", "roots", "sampling")

DECISION: Final = f"{PREFIX}decision"

UNKNOWN: Final = (
    "Nobody knows whether this call happened. It may have, it was charged, and it must not simply be repeated: "
    "find out first what it did."
)
GONE: Final = "This call was made before and is not run again. Its result is not kept any more."
GONE_ERROR: Final = (
    "This call was made before, ended in an error of the tool, and is not run again. The error is not kept."
)
UNSENT: Final = "The call did not reach the tool and nothing was charged. It may be tried again later."
IN_FLIGHT: Final = "It is not run twice. Ask again soon, in the same words and with the same key."
ANOTHER: Final = "Nothing was run. A new call needs a new key."

STAY_WITHIN: Final = "Keep to what the tool's input schema allows; the same call will be refused again."
ADVICE: Final[Mapping[Reason, str]] = {
    Reason.RESOURCE_OUT_OF_SCOPE: STAY_WITHIN,
    Reason.ARGUMENT_INVALID: STAY_WITHIN,
    Reason.BUDGET_EXCEEDED: "Nothing was run or charged. Go on without this call, or ask for a larger budget.",
    Reason.APPROVAL_REQUIRED: "Nothing was run. Somebody has to approve this call first.",
    Reason.RATE_LIMITED: "Nothing was run. Wait a while before the next call.",
    Reason.TOOL_CHANGED: "Nothing was run. An administrator has to look at the change and accept it first.",
    Reason.TOOL_SERVER_UNAVAILABLE: UNSENT,
}
"""What a model can do about a denial, where it can do anything."""

HOPELESS: Final = "Nothing was run, and the same call will be refused again."


# --- a call that ran --------------------------------------------------------------------------------------


def result_of(came: Forwarded) -> JsonObject:
    """The result of an allowed call. An MCP tool's own is a CallToolResult already."""
    return {**_content(came), "_meta": {DECISION: allowed_decision(came)}}


def _content(came: Forwarded) -> JsonObject:
    if came.outcome is Outcome.UNKNOWN:
        return _error(UNKNOWN, came.detail)
    if not came.result_available:
        return _error(GONE if came.outcome is Outcome.SUCCESS else GONE_ERROR)
    if came.outcome is Outcome.TOOL_ERROR:
        return _tool_error(came)
    if came.transport is Transport.MCP:
        return _own(came.result) | {"isError": False}
    text = canonical(came.result).decode()
    return {"content": _texts(text), "structuredContent": _object(came.result), "isError": False}


def _tool_error(came: Forwarded) -> JsonObject:
    """What a tool says of its failure. Its structure is left out: it need not fit the tool's schema."""
    if came.transport is Transport.MCP and "content" in (own := _own(came.result)):
        return own | {"isError": True}
    said = None if came.result is None else canonical(came.result).decode()
    return _error(came.detail or "the tool reported an error", said)


def _own(result: JsonValue) -> JsonObject:
    members = result if isinstance(result, dict) else {}
    content: JsonObject = {"content": members["content"]} if "content" in members else {}
    if "structuredContent" not in members:
        return content
    return {**content, "structuredContent": _object(members["structuredContent"])}


def _object(structure: JsonValue) -> JsonObject:
    """The root that all revisions allow; a value of another type travels inside one."""
    return structure if isinstance(structure, dict) else {"result": structure}


def allowed_decision(came: Forwarded) -> JsonObject:
    usage = None if came.account is None else came.account.budget.usage
    members: JsonObject = {
        "decision": "allow",
        "decisionId": came.decision_id,
        "callId": came.call_id,
        "grantId": came.grant_id,
        "outcome": came.outcome.value,
        "detail": came.detail,
        "resultAvailable": None if came.result_available else False,
        "resultDigest": came.result_digest,
        "costCents": ucents_to_cents(came.charged_ucents),
        "usage": None if usage is None else usage_document(usage.posted, usage.pending),
    }
    return _without_nothing(members)


def lacked_by(came: Forwarded, declared: JsonObject) -> JsonObject:
    """What a tool needed of its client that this one does not offer, by the names that MCP has for it; else nothing.

    That is all that is handed on: what else stands there are the tool's own words.
    """
    error = came.result.get("error") if isinstance(came.result, dict) and came.transport is Transport.MCP else None
    if not isinstance(error, dict) or error.get("code") != Code.MISSING_CAPABILITY:
        return {}
    data = error.get("data")
    required = data.get("requiredCapabilities") if isinstance(data, dict) else None
    return {
        name: {} for name in CLIENT_CAPABILITIES if isinstance(required, dict) and name in required.keys() - declared
    }


# --- a call that did not ----------------------------------------------------------------------------------


def denied_result(denied: Denied) -> JsonObject:
    """A denial that a model can act on."""
    advice = ADVICE.get(denied.reason, HOPELESS)
    return _error(f"Refused ({denied.reason}): {denied.detail}. {advice}") | {"_meta": {DECISION: decision_of(denied)}}


def decision_of(denied: Denied) -> JsonObject:
    """What a problem document of the REST API says."""
    return _without_nothing(
        {
            "decision": "deny",
            "reason": denied.reason.value,
            "detail": denied.detail,
            "decisionId": denied.decision_id,
            "pointer": denied.pointer,
        }
    )


def failed_result(failure: Conflict | ToolServerFailed) -> JsonObject:
    """A call that was allowed and has no result: none was run, or the first one with its key has not ended."""
    advice, known = _failure(failure)
    told: JsonObject = {"reason": failure.code, "detail": failure.detail, **known}
    return _error(f"{failure.detail}. {advice}") | {"_meta": {DECISION: told}}


def _failure(failure: Conflict | ToolServerFailed) -> tuple[str, JsonObject]:
    """What a model can do about it, and what is known of the call."""
    if isinstance(failure, CallInFlight):
        return IN_FLIGHT, {"retryAfterSeconds": failure.retry_after_seconds}
    if not isinstance(failure, ToolServerFailed):
        return ANOTHER, {}
    ids: JsonObject = {"decisionId": failure.decision_id, "callId": failure.call_id}
    return UNSENT, {"decision": "allow", **ids, "outcome": Outcome.UNSENT.value, "costCents": 0}


def _error(*texts: str | None) -> JsonObject:
    return {"content": _texts(*texts), "isError": True}


def _texts(*texts: str | None) -> JsonValue:
    return [{"type": "text", "text": text} for text in texts if text]


def _without_nothing(members: JsonObject) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}
