"""The table is whole, and no row says what another wire contradicts."""

from dataclasses import replace

import pytest

from app.api.challenges import Guard
from app.api.errors import TABLE, denial
from app.core.reasons import Reason
from app.ports import PROOF_ALGORITHMS
from app.usecases.failures import Denied

UNAUTHENTICATED = 401
PROOF_ERRORS = {"invalid_dpop_proof", "use_dpop_nonce"}
METADATA = "https://subgrant.example/.well-known/oauth-protected-resource"
GUARD = Guard(metadata_url=METADATA, scope="tools:call")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_row(reason: Reason) -> None:
    row = TABLE[reason]
    assert row.status in {401, 403, 422, 429, 502}
    assert (row.status == UNAUTHENTICATED) == (row.challenge in {"invalid_token", *PROOF_ERRORS})


def test_reasons_stand_in_order_of_precedence() -> None:
    assert [reason.precedence for reason in Reason] == list(range(len(Reason)))
    assert Reason.GRANT_EXPIRED.precedence < Reason.TOOL_NOT_ALLOWED.precedence < Reason.BUDGET_EXCEEDED.precedence


def header_of(reason: Reason, detail: str = "no", *, is_dpop: bool = False, scope: str | None = None) -> str:
    denied = Denied(reason=reason, detail=detail, scope=scope)
    return denial(denied, replace(GUARD, is_dpop=is_dpop)).headers["www-authenticate"]


def test_a_challenge_can_not_be_broken_out_of() -> None:
    header = header_of(Reason.TOKEN_INVALID, 'a "quoted"\r\nSet-Cookie: x=\\é')
    assert header.startswith(
        'Bearer realm="subgrant", scope="tools:call", error="invalid_token", '
        'error_description="a quotedSet-Cookie: x=", '
    )


def test_a_challenge_names_the_resources_metadata_and_both_schemes_with_bearer_first() -> None:
    header = header_of(Reason.TOKEN_INVALID)
    bearer, dpop = header.split(", DPoP ")
    assert bearer.startswith("Bearer ")
    for challenge in (bearer, dpop):
        assert f'resource_metadata="{METADATA}"' in challenge
        assert 'scope="tools:call"' in challenge
    assert "error=" not in dpop
    assert f'algs="{" ".join(PROOF_ALGORITHMS)}"' in dpop


@pytest.mark.parametrize(
    "reason,error",
    [
        (Reason.TOKEN_INVALID, "invalid_token"),
        (Reason.PROOF_INVALID, "invalid_dpop_proof"),
        (Reason.PROOF_NONCE_NEEDED, "use_dpop_nonce"),
    ],
)
def test_whoever_came_by_dpop_gets_the_dpop_challenge_alone(reason: Reason, error: str) -> None:
    header = header_of(reason, is_dpop=True)
    assert header.startswith("DPoP ")
    assert f'error="{error}"' in header
    assert "Bearer" not in header


def test_nothing_presented_is_no_error() -> None:
    asked = GUARD.asks()
    assert asked.startswith("Bearer ")
    assert ", DPoP " in asked
    assert "error" not in asked


@pytest.mark.parametrize("is_dpop", [False, True])
def test_scopes_that_are_missing_are_named_at_once_and_in_the_scheme_that_was_used(is_dpop: bool) -> None:
    header = header_of(Reason.INSUFFICIENT_SCOPE, is_dpop=is_dpop, scope="audit:read grants:read")
    assert header.startswith("DPoP " if is_dpop else "Bearer ")
    assert 'scope="audit:read grants:read"' in header
    assert header.count("scope=") == 1
    assert header.count("realm=") == 1
