"""The narrowing that `authorization_details` asks for (RFC 9396)."""

from typing import Literal

from pydantic import TypeAdapter, ValidationError

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


_DETAILS = TypeAdapter(list[DelegationDetail])


def narrowing_of(form: Form) -> NarrowingFields:
    """The one narrowing that `authorization_details` holds, parsed as strictly as any body."""
    text = form.one("authorization_details")
    if text is None:
        return NarrowingFields()
    try:
        details = _DETAILS.validate_python(parse(text.encode(), max_bytes=MAX_BODY_BYTES, max_depth=MAX_BODY_DEPTH))
    except StrictJsonError as error:
        raise OAuthError("invalid_authorization_details", error.detail) from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = "".join(f"/{part}" for part in fault["loc"])
        raise OAuthError("invalid_authorization_details", f"{where}: {fault['msg']}") from error
    if len(details) != 1:
        raise OAuthError("invalid_authorization_details", f"exactly one detail of type {DETAIL_TYPE} is needed")
    return details[0].fields()
