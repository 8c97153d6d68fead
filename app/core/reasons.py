"""Every reason for which Subgrant refuses, in order of precedence.

When several rules object to one call, the objection whose reason stands first here is the one that is
answered, so that a caller learns of a dead credential before it learns anything about tools or budgets.
How a reason looks on the wire is not known here: `app/api/errors.py` has the one table.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A refusal's code: the same string in REST, OAuth and MCP answers and in the audit log."""

    TOKEN_INVALID = "token_invalid"
    PROOF_INVALID = "proof_invalid"
    PROOF_NONCE_NEEDED = "proof_nonce_needed"
    TOKEN_EXPIRED = "token_expired"
    AUDIENCE_MISMATCH = "audience_mismatch"
    GRANT_REVOKED = "grant_revoked"
    GRANT_CLOSED = "grant_closed"
    GRANT_EXPIRED = "grant_expired"
    GRANT_NOT_YET_VALID = "grant_not_yet_valid"
    TENANT_MISMATCH = "tenant_mismatch"
    INSUFFICIENT_SCOPE = "insufficient_scope"
    ACTOR_NOT_PERMITTED = "actor_not_permitted"
    TOOL_NOT_ALLOWED = "tool_not_allowed"
    TOOL_CHANGED = "tool_changed"
    RESOURCE_OUT_OF_SCOPE = "resource_out_of_scope"
    ARGUMENT_INVALID = "argument_invalid"
    BUDGET_EXCEEDED = "budget_exceeded"
    POLICY_DENIED = "policy_denied"
    APPROVAL_REQUIRED = "approval_required"
    REDELEGATION_DENIED = "redelegation_denied"
    DEPTH_EXCEEDED = "depth_exceeded"
    NOT_NARROWER = "not_narrower"
    NARROWING_UNPROVABLE = "narrowing_unprovable"
    TARGET_REFUSED = "target_refused"
    RATE_LIMITED = "rate_limited"
    TOOL_SERVER_UNAVAILABLE = "tool_server_unavailable"

    @property
    def precedence(self) -> int:
        """Rank of this reason, 0 first."""
        return _PRECEDENCE[self]


_PRECEDENCE = {reason: rank for rank, reason in enumerate(Reason)}
