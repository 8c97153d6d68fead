"""The narrowing that `authorization_details` asks for (RFC 9396)."""

from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from app.api.errors import pointer_to, sentence_on
from app.api.grants import NarrowingDocument
from app.api.oauth.failures import OAuthError
from app.api.oauth.form import Form
from app.api.wire import MAX_BODY_BYTES, MAX_BODY_DEPTH
from app.core.strict_json import StrictJsonError, parse
from app.usecases.issued_token import DETAIL_TYPE
from app.usecases.read_wish import NarrowingFields


class DelegationDetail(NarrowingDocument):
    """One member of `authorization_details` (RFC 9396): the narrowing."""

    type: Literal["delegation"]


PARAMETER: Final = "authorization_details"
_DETAILS = TypeAdapter(list[DelegationDetail])


def narrowing_of(form: Form) -> NarrowingFields:
    """The one narrowing that `authorization_details` holds, parsed as strictly as any body."""
    text = form.one(PARAMETER)
    if text is None:
        return NarrowingFields()
    try:
        details = _DETAILS.validate_python(parse(text.encode(), max_bytes=MAX_BODY_BYTES, max_depth=MAX_BODY_DEPTH))
    except StrictJsonError as error:
        raise OAuthError("invalid_authorization_details", error.detail) from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = pointer_to((PARAMETER, *fault["loc"]))
        raise OAuthError("invalid_authorization_details", f"{PARAMETER}{where}: {sentence_on(fault)}") from error
    if len(details) != 1:
        raise OAuthError("invalid_authorization_details", f"exactly one detail of type {DETAIL_TYPE} is needed")
    return details[0].fields()
