"""What a protected resource asks for: the challenges of 401 and 403 answers (RFC 9110 §11.6.1).

One place for the schemes Bearer (RFC 6750 §3) and DPoP (RFC 9449 §7.1), for where a client learns who issues tokens
(RFC 9728 §5.1), and for the scope that it should ask for. Refuses to know why anybody is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from fastapi import Request

from app.core.registry import Scope
from app.ports import PROOF_ALGORITHMS

PROTECTED_RESOURCE: Final = "/.well-known/oauth-protected-resource"

MCP_PATH: Final = "/mcp/"

SCOPES: Final[Mapping[str, tuple[Scope, ...]]] = {
    MCP_PATH: (Scope.TOOLS_CALL,),
    "/v1/gateway/": (Scope.TOOLS_CALL,),
    "/v1/grants": (Scope.GRANTS_ISSUE, Scope.GRANTS_READ),
    "/v1/audit/": (Scope.AUDIT_READ,),
    "/v1/admin/": (Scope.ADMIN,),
}
"""By the beginning of a path, what a client should ask for that has no token yet."""


def resource_metadata_url(issuer: str, below: str = "") -> str:
    """Where a resource's metadata is: the well-known path between host and path (RFC 9728 §3.1)."""
    split = urlsplit(issuer)
    return f"{split.scheme}://{split.netloc}{PROTECTED_RESOURCE}{split.path}{below}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What stands before a resource: where it is described, the scope that it takes, and how this request came.

    Whoever came by DPoP is answered in that scheme alone, all others in both. Bearer stands first, since many clients
    look no further than the first challenge.
    """

    metadata_url: str
    scope: str
    is_dpop: bool = False

    def asks(self) -> str:
        """The challenge for whoever presented nothing: it says of no error (RFC 6750 §3.1)."""
        return f"{self._bearer({})}, {self._dpop({})}"

    def refuses(self, error: str, detail: str, scope: str | None = None) -> str:
        """The challenge for credentials that were refused. A `scope` is what they lack, all of it at once."""
        said = {"error": error, "error_description": _quotable(detail)} | ({} if scope is None else {"scope": scope})
        if self.is_dpop:
            return self._dpop(said)
        # To lack a scope is no matter of the scheme.
        return self._bearer(said) if scope is not None else f"{self._bearer(said)}, {self._dpop({})}"

    def _bearer(self, said: Mapping[str, str]) -> str:
        return _challenge("Bearer", self._named(said))

    def _dpop(self, said: Mapping[str, str]) -> str:
        return _challenge("DPoP", self._named(said) | {"algs": " ".join(PROOF_ALGORITHMS)})

    def _named(self, said: Mapping[str, str]) -> dict[str, str]:
        return {"realm": "subgrant", "scope": self.scope, **said, "resource_metadata": self.metadata_url}


def guard_of(request: Request) -> Guard:
    """What stands before the resource that a request is for. URLs come from the configured issuer alone."""
    issuer, path = request.app.state.world.rules.issuer, str(request.scope["path"])
    scopes = next((scopes for start, scopes in SCOPES.items() if path.startswith(start)), tuple(Scope))
    return Guard(
        metadata_url=resource_metadata_url(issuer, _quotable(path) if path.startswith(MCP_PATH) else ""),
        scope=" ".join(scopes),
        is_dpop=scheme_of(request) == "dpop",
    )


def scheme_of(request: Request) -> str:
    """By which scheme a request authenticates, in small letters (RFC 9110 §11.1); empty where by none."""
    return request.headers.get("authorization", "").partition(" ")[0].lower()


def _challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    return f"{scheme} " + ", ".join(f'{name}="{value}"' for name, value in parameters.items())


def _quotable(text: str) -> str:
    """What of a text needs no escape in a quoted-string (RFC 6750 §3), and so can't end it."""
    return "".join(char for char in text if char.isascii() and char.isprintable() and char not in '"\\')
