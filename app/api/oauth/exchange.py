"""Token exchange (RFC 8693), with what is asked for as `authorization_details` (RFC 9396)."""

from typing import Final

from app.api.oauth.details import narrowing_of
from app.api.oauth.failures import OAuthError, refused
from app.api.oauth.form import Form
from app.api.oauth.issued import TokenResponse, delegated, issuing, scopes_of, targets_of
from app.api.oauth.possession import key_for, proven_key
from app.core.registry import Client
from app.usecases.exchange_token import ExchangeRequest, exchange_token
from app.usecases.failures import Denied
from app.usecases.issued_token import ACCESS_TOKEN, DELEGATION_GRANT
from app.usecases.prove_parties import JWT, OUTSIDE_TYPES
from app.usecases.world import World

SUBJECT_TYPES: Final = frozenset({ACCESS_TOKEN, DELEGATION_GRANT}) | OUTSIDE_TYPES
ACTOR_TYPES: Final = frozenset({ACCESS_TOKEN, JWT})
ISSUED_TYPES: Final = frozenset({ACCESS_TOKEN, DELEGATION_GRANT})


async def exchange(world: World, client: Client, form: Form) -> TokenResponse:
    with issuing():
        exchanged = await exchange_token(world, client, _exchange_request(form))
    if isinstance(exchanged, Denied):
        raise refused(exchanged)
    return delegated(exchanged)


def _exchange_request(form: Form) -> ExchangeRequest:
    actor_token, actor_type = form.one("actor_token"), form.one("actor_token_type")
    if (actor_token is None) != (actor_type is None):
        raise OAuthError("invalid_request", "actor_token and actor_token_type go together")
    subject_type = form.need("subject_token_type")
    requested = form.one("requested_token_type") or ACCESS_TOKEN
    for name, given, known in (
        ("actor_token_type", actor_type, {*ACTOR_TYPES, None}),
        ("subject_token_type", subject_type, SUBJECT_TYPES),
        ("requested_token_type", requested, ISSUED_TYPES),
    ):
        if given not in known:
            raise OAuthError("invalid_request", f"the {name} is not supported")
    return ExchangeRequest(
        subject_token=form.need("subject_token"),
        subject_token_type=subject_type,
        actor_token=actor_token,
        actor_token_type=actor_type,
        resource=targets_of(form),
        scopes=scopes_of(form),
        requested_token_type=requested,
        fields=narrowing_of(form),
        key_thumbprint=key_for(form),
        proven_key=proven_key(form),
    )
