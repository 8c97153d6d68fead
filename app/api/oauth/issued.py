"""What the token endpoint answers with, and the parameters that all its grant types share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import Field

from app.api.oauth.failures import OAuthError
from app.api.oauth.form import Form
from app.api.wire import Members, OAuthDocument
from app.ports import AlreadyExists
from app.usecases.failures import Conflict, Malformed
from app.usecases.issue_api_token import ApiToken
from app.usecases.issued_token import ACCESS_TOKEN, Exchanged


class TokenResponse(OAuthDocument):
    """RFC 6749 §5.1 with the members of RFC 8693 §2.2.1 and RFC 9396 §7."""

    access_token: str
    issued_token_type: str
    token_type: Literal["Bearer", "DPoP", "N_A"]
    expires_in: int = Field(description="seconds")
    scope: str | None = None
    authorization_details: list[Members] | None = None


def scopes_of(form: Form) -> frozenset[str] | None:
    """The scopes that are asked for (RFC 6749 §3.3); None where that is left to the server."""
    text = form.one("scope")
    return None if text is None else frozenset(text.split(" "))


def targets_of(form: Form) -> tuple[str, ...]:
    """For whom the token is to be: `resource` (RFC 8707 §2) and `audience` (RFC 8693 §2.1) mean the same here."""
    return (*form.all("resource"), *form.all("audience"))


@contextmanager
def issuing() -> Iterator[None]:
    """What is wrong with a request for a token, as the token endpoint says it (RFC 6749 §5.2, RFC 9396 §5)."""
    try:
        yield
    except Malformed as error:
        raise OAuthError(
            "invalid_authorization_details", f"{error.pointer}: {error.detail}", reason=error.code
        ) from error
    except (Conflict, AlreadyExists) as error:
        raise OAuthError("invalid_request", str(error), reason=Conflict.code) from error


def delegated(exchanged: Exchanged) -> TokenResponse:
    """A token for a tool server, or a signed grant, as the answer."""
    is_access = exchanged.issued_token_type == ACCESS_TOKEN
    return TokenResponse(
        access_token=exchanged.token,
        issued_token_type=exchanged.issued_token_type,
        token_type=_bearer(exchanged.grant.key_thumbprint) if is_access else "N_A",
        expires_in=exchanged.expires_in_seconds,
        scope="tools:call" if is_access else None,
        authorization_details=[exchanged.details],
    )


def for_api(issued: ApiToken) -> TokenResponse:
    """A token for Subgrant's own API as the answer."""
    return TokenResponse(
        access_token=issued.token,
        issued_token_type=ACCESS_TOKEN,
        token_type=_bearer(issued.key_thumbprint),
        expires_in=issued.expires_in_seconds,
        scope=" ".join(issued.scopes),
    )


def _bearer(key_thumbprint: str | None) -> Literal["Bearer", "DPoP"]:
    return "Bearer" if key_thumbprint is None else "DPoP"
