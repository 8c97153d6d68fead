"""How a use case ends when it does not end well.

A denial is a value (`Denied`): a rule of the core refused, with its reason. A failure is an exception: the
request was malformed, named nothing that exists, or met something in the way.
"""

from dataclasses import dataclass

from app.core.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A refusal for the caller. `pointer` names the member of the request that was refused (RFC 6901)."""

    reason: Reason
    detail: str
    decision_id: str | None = None
    pointer: str | None = None
    scope: str | None = None


class Failure(Exception):
    """Base of the failures; `code` is what problem documents carry as their reason."""

    code = "failure"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Malformed(Failure):
    """A member of the request is unusable. Nothing was changed."""

    code = "malformed"

    def __init__(self, pointer: str, detail: str) -> None:
        super().__init__(detail)
        self.pointer = pointer


class NotFound(Failure):
    """No such thing, or one that the caller may not see: the same answer for both."""

    code = "not_found"


class Conflict(Failure):
    """The request contradicts what exists."""

    code = "conflict"


class DeadGrant(Conflict):
    """A live caller named a grant that is closed, revoked or expired."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.code = reason.value


class UnverifiableGrant(Conflict):
    """A live caller named a grant whose record, or that of one above it, is signed by no key that still counts."""

    code = "grant_unverifiable"

    def __init__(self) -> None:
        super().__init__("the grant's record can't be verified")


class IdempotencyConflict(Conflict):
    """The idempotency key was used for another call."""

    code = "idempotency_conflict"


class CallInFlight(Conflict):
    """The first call with this idempotency key has not ended yet."""

    code = "call_in_flight"
    retry_after_seconds = 1


class ToolServerFailed(Failure):
    """The call provably did not reach the tool; nothing was charged."""

    code = "tool_server_unavailable"

    def __init__(self, detail: str, call_id: str, decision_id: str, *, timed_out: bool) -> None:
        super().__init__(detail)
        self.call_id = call_id
        self.decision_id = decision_id
        self.timed_out = timed_out
