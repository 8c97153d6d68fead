"""Keys that are proven at the token endpoint (RFC 9449 §5), and to which what it issues is bound.

Knows the DPoP header and the parameter `dpop_jkt`. Refuses to know how a proof is read, and what is issued.
"""

import re
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Depends, Request

from app.api.caller import TheWorld, proofs_in
from app.api.oauth.failures import OAuthError, refused
from app.api.oauth.form import Form, TheForm
from app.core.reasons import Reason
from app.core.registry import Client
from app.usecases.failures import Denied
from app.usecases.prove_possession import prove, spend_now
from app.usecases.world import World

THUMBPRINT: Final = re.compile(r"[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
"""A SHA-256 thumbprint (RFC 7638 §3) in base64url, whose last character stands for four bits."""

KEY_NEEDED: Final = Denied(reason=Reason.PROOF_INVALID, detail="the client must prove a key: a DPoP proof is missing")


async def proven_form_of(request: Request, world: TheWorld, form: TheForm) -> Form:
    """The form with the key that was proven beside it.

    To be asked for before the client: a proof that lacks its nonce must cost no client assertion (RFC 9449 §8).
    """
    if "dpop" not in request.headers:
        return form
    possession = prove(world, proofs_in(request))
    if isinstance(possession, Denied):
        raise refused(possession)
    return replace(form, possession=possession)


ProvenForm = Annotated[Form, Depends(proven_form_of)]


async def take_proof(world: World, client: Client, form: Form) -> None:
    """Spend the proof of an authenticated client. Raises OAuthError, also where a client has none and must."""
    if form.possession is None and client.dpop_required:
        raise refused(KEY_NEEDED)
    replayed = await spend_now(world, client.tenant_id, form.possession)
    if replayed is not None:
        raise refused(replayed)


def proven_key(form: Form) -> str | None:
    """The thumbprint of the key that whoever asks has proven."""
    return None if form.possession is None else form.possession.proof.key_thumbprint


def key_for(form: Form) -> str | None:
    """The thumbprint of the key that what is issued is bound to: the one that `dpop_jkt` names, else the proven one.

    By `dpop_jkt` a parent binds a token to the key of the child that it is for, which is not at hand.
    """
    named = form.one("dpop_jkt")
    if named is not None and not THUMBPRINT.fullmatch(named):
        raise OAuthError("invalid_request", "dpop_jkt is not the RFC 7638 thumbprint of a key")
    return named or proven_key(form)
