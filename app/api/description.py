"""What the code alone does not say in the OpenAPI document: how callers prove themselves, and OAuth's forms."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.api.errors import Problem

SCHEMES: Final[dict[str, dict[str, str]]] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "An access token, or where its tenant allows it a delegation grant itself (RFC 6750). One that "
        "is bound to a key takes the scheme DPoP instead, with a proof of that key in the field DPoP (RFC 9449).",
    },
    "client": {
        "type": "http",
        "scheme": "basic",
        "description": "A client's id and secret, both form-encoded first (RFC 6749 §2.3.1).",
    },
}

PROVEN_BY: Final = (
    ("/v1/", "bearer"),
    ("/oauth/token", "client"),
    ("/oauth/introspect", "client"),
    ("/oauth/revoke", "client"),
)
"""Which scheme guards which paths; the others are open to all."""


def form(*required: str, **optional: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes a form: its required parameters, and others with what they are."""
    # An empty parameter counts as left out (RFC 6749 §3.1).
    properties: dict[str, Any] = {name: {"type": "string", "minLength": 1} for name in required}
    properties |= {name: {"type": "string", "description": text} for name, text in optional.items()}
    schema = {"type": "object", "required": [*required], "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes, openapi_version="3.1.0"
        )
        document["components"]["securitySchemes"] = SCHEMES
        document["components"]["schemas"]["Problem"] = Problem.model_json_schema()
        for path, operations in document["paths"].items():
            _guard(path, operations)
        app.openapi_schema = document
    return app.openapi_schema


def _guard(path: str, operations: dict[str, Any]) -> None:
    scheme = next((scheme for prefix, scheme in PROVEN_BY if path.startswith(prefix)), None)
    if scheme is not None:
        for operation in operations.values():
            operation["security"] = [{scheme: []}]
