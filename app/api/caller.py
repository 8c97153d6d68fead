"""One dependency: the credentials of a request -> an authenticated Caller."""

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request

from app.api.errors import DenialError, NoCredentials
from app.api.wire import BodyRefused, Identifier, QueryDocument
from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.usecases.authenticate_caller import authenticate_caller
from app.usecases.failures import Denied
from app.usecases.record_stranger import record_stranger
from app.usecases.world import Caller, World


async def world_of(request: Request) -> World:
    """The process's ports, put there by `main.py`. Asynchronous, since FastAPI runs others in a thread."""
    world: World = request.app.state.world
    return world


def bearer_of(request: Request) -> str:
    """The one bearer token of a request (RFC 6750 §2.1). Never from the query (§5.3), never two at once."""
    if "access_token" in request.query_params:
        raise BodyRefused(400, "a token must not be in the query", "/access_token")
    headers = request.headers.getlist("authorization")
    if not headers:
        raise NoCredentials
    if len(headers) > 1:
        raise BodyRefused(400, "more than one way to authenticate", "/authorization")
    scheme, _, token = headers[0].partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NoCredentials
    return token.strip()


async def caller_of(request: Request) -> Caller:
    """Who is calling. 401 for whatever can't be proven."""
    return await _proven(request, may_be_expired=False)


async def agent_of(request: Request) -> Caller:
    """Who calls a tool: an expired token too, which the decision refuses and the tenant's log has."""
    return await _proven(request, may_be_expired=True)


async def _proven(request: Request, *, may_be_expired: bool) -> Caller:
    world: World = request.app.state.world
    result = await authenticate_caller(world, bearer_of(request), may_be_expired=may_be_expired)
    if isinstance(result, Denied):
        await record_stranger(world, result.reason, "a bearer token was refused")
        raise DenialError(result)
    return replace(result, address=None if request.client is None else request.client.host)


class TenantQuery(QueryDocument):
    """In which tenant; the caller's own unless a platform administrator names another."""

    tenant: Identifier | None = None

    def of(self, caller: Caller) -> TenantId:
        return self.named or caller.tenant_id

    @property
    def named(self) -> TenantId | None:
        return None if self.tenant is None else TenantId(self.tenant)


async def in_tenant(
    caller: Annotated[Caller, Depends(caller_of)], tenant: Annotated[Identifier | None, Query()] = None
) -> Caller:
    """The caller in the tenant that the query names: its own, unless it administers the platform."""
    if tenant in (None, caller.tenant_id):
        return caller
    if caller.grant_id is not None or not caller.is_platform:
        raise DenialError(Denied(reason=Reason.TENANT_MISMATCH, detail="the tenant is another one", pointer="/tenant"))
    return replace(caller, tenant_id=TenantId(tenant))


CallerInTenant = Annotated[Caller, Depends(in_tenant)]
AuthenticatedCaller = Annotated[Caller, Depends(caller_of)]
CallingAgent = Annotated[Caller, Depends(agent_of)]
TheWorld = Annotated[World, Depends(world_of)]


def require(caller: Caller, *scopes: Scope) -> None:
    """Refuse a caller that has none of these scopes, or whose credential is a grant's."""
    if caller.grant_id is None and any(caller.has(scope) for scope in scopes):
        return
    needed = " ".join(scopes)
    raise DenialError(
        Denied(reason=Reason.INSUFFICIENT_SCOPE, detail="the token lacks the scope that this needs", scope=needed)
    )
