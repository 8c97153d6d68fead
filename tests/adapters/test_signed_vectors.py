"""Signed vectors of standing grants and of what is bound to a key: the same bytes for ever, and what they say."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.adapters.jose import JoseSigner, KeyRing, OpenKey
from app.core.decision import widenings
from app.core.grant import parse_grant, render_grant
from app.core.narrowing import Ground
from tests.samples import a_chain

VECTOR: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "signed_ed25519.json").read_text(encoding="utf-8")
)
MADE, NOW = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 31, 12, 1, tzinfo=UTC)
KEY: Final = OpenKey.of("EdDSA", Ed25519PrivateKey.from_private_bytes(bytes.fromhex(VECTOR["seed"])), MADE)


@pytest.fixture
def signer() -> JoseSigner:
    return JoseSigner(issuer=VECTOR["issuer"], keys=KeyRing.holding(KEY), clock=lambda: NOW)


@pytest.mark.parametrize("name", ["grant", "standingGrant", "boundGrant"])
def test_a_grant_is_signed_and_read_as_it_ever_was(signer: JoseSigner, name: str) -> None:
    case = VECTOR[name]
    grant = parse_grant(case["document"])
    assert render_grant(grant) == case["document"]
    assert signer.sign_grant(grant, case["act"]) == case["compact"]
    assert signer.verify_grant(case["compact"]).grant == grant


def test_the_bound_grant_is_a_child_of_the_standing_one_for_whom_was_proven() -> None:
    root, child = (parse_grant(VECTOR[name]["document"]) for name in ("standingGrant", "boundGrant"))
    assert [*widenings(child, root, ground_of=lambda _: Ground())] == []
    assert a_chain(root, child).actors == VECTOR["boundGrant"]["act"]
    assert (root.standing, child.standing, root.subject, child.subject) == (True, False, "research-agent", "okta#alice")


def test_a_bound_access_token_is_signed_and_read_as_it_ever_was(signer: JoseSigner) -> None:
    case = VECTOR["boundAccessToken"]
    assert signer.sign_access_token(case["claims"]) == case["compact"]
    access = signer.verify_access_token(case["compact"], NOW)
    assert access.key_thumbprint == case["claims"]["cnf"]["jkt"]
    assert access.grant_id == VECTOR["boundGrant"]["document"]["grantId"]
