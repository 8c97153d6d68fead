"""The table is whole, and no row says what another wire contradicts."""

import pytest

from app.api.errors import TABLE, denial
from app.core.reasons import Reason
from app.usecases.failures import Denied

UNAUTHENTICATED = 401


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_row(reason: Reason) -> None:
    row = TABLE[reason]
    assert row.status in {401, 403, 422, 429}
    assert (row.status == UNAUTHENTICATED) == (row.bearer == "invalid_token")


def test_reasons_stand_in_order_of_precedence() -> None:
    assert [reason.precedence for reason in Reason] == list(range(len(Reason)))
    assert Reason.GRANT_EXPIRED.precedence < Reason.TOOL_NOT_ALLOWED.precedence < Reason.BUDGET_EXCEEDED.precedence


def test_a_challenge_can_not_be_broken_out_of() -> None:
    denied = Denied(reason=Reason.TOKEN_INVALID, detail='a "quoted"\r\nSet-Cookie: x=\\é')
    header = denial(denied).headers["www-authenticate"]
    assert header == 'Bearer realm="subgrant", error="invalid_token", error_description="a quotedSet-Cookie: x="'


def test_a_scope_that_is_missing_is_named_in_the_challenge() -> None:
    denied = Denied(reason=Reason.INSUFFICIENT_SCOPE, detail="no", scope="audit:read")
    assert 'scope="audit:read"' in denial(denied).headers["www-authenticate"]
