"""One dependency: the credentials of a request -> an authenticated Caller."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response

from app.api.challenges import scheme_of
from app.api.errors import DenialError, NoCredentials
from app.api.wire import BodyRefused, Identifier, QueryDocument, StrictRoute
from app.core.grant import TenantId
from app.core.reasons import Reason
from app.core.registry import Scope
from app.usecases.authenticate_caller import authenticate_caller
from app.usecases.failures import Denied
from app.usecases.prove_possession import Presented, ShownProofs, spend_now
from app.usecases.record_stranger import record_stranger
from app.usecases.world import Caller, World


async def world_of(request: Request) -> World:
    """The process's ports, put there by `main.py`. Asynchronous, since FastAPI runs others in a thread."""
    world: World = request.app.state.world
    return world


def presented_in(request: Request) -> Presented:
    """The one token of a request (RFC 6750 §2.1, RFC 9449 §7.1). Never from the query (§5.3), never two at once."""
    if "access_token" in request.query_params:
        raise BodyRefused(400, "a token must not be in the query", "/access_token")
    headers = request.headers.getlist("authorization")
    if not headers:
        raise NoCredentials
    if len(headers) > 1:
        raise BodyRefused(400, "more than one way to authenticate", "/authorization")
    token = headers[0].partition(" ")[2].strip()
    if scheme_of(request) not in _SCHEMES or not token:
        raise NoCredentials
    return Presented(token=token, is_dpop=scheme_of(request) == "dpop", shown=proofs_in(request))


_SCHEMES = {"bearer", "dpop"}


def proofs_in(request: Request) -> ShownProofs:
    """The DPoP proofs of a request, and its URL as the configured issuer has it: Host and its like say nothing."""
    world: World = request.app.state.world
    path = bytes(request.scope["raw_path"]).partition(b"?")[0].decode("latin-1")
    proofs = request.headers.getlist("dpop")
    return ShownProofs(proofs=proofs, method=request.method, url=f"{world.rules.issuer}{path}")


async def caller_of(request: Request) -> Caller:
    """Who is calling. 401 for whatever can't be proven."""
    return await _proven(request, may_be_expired=False)


async def agent_of(request: Request, *, will_call: bool = False) -> Caller:
    """Who calls a tool: an expired token too, which the decision refuses and the tenant's log has.

    With `will_call` a proof is left to the call itself, whose transaction spends it. Only a route of the class
    `CallRoute` may leave it, since that spends what is left over.
    """
    caller = await _proven(request, may_be_expired=True, leaves_proof=will_call)
    request.state.calling_agent = caller
    return caller


async def calling_agent_of(request: Request) -> Caller:
    """Who calls a tool by a route that does nothing else."""
    return await agent_of(request, will_call=True)


async def _proven(request: Request, *, may_be_expired: bool, leaves_proof: bool = False) -> Caller:
    world: World = request.app.state.world
    caller = await authenticate_caller(world, presented_in(request), may_be_expired=may_be_expired)
    if isinstance(caller, Caller) and not leaves_proof:
        caller = await spend_now(world, caller.tenant_id, caller.possession) or caller
    if isinstance(caller, Denied):
        await record_stranger(world, caller.reason, "a token was refused")
        raise DenialError(caller)
    return replace(caller, address=None if request.client is None else request.client.host)


class CallRoute(StrictRoute):
    """A route that leaves a caller's proof to the call. Whatever ends a request before that, the proof is spent."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            finally:
                caller: Caller | None = getattr(request.state, "calling_agent", None)
                if caller is not None:
                    await spend_now(request.app.state.world, caller.tenant_id, caller.possession)

        return handle


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
CallingAgent = Annotated[Caller, Depends(calling_agent_of)]
TheWorld = Annotated[World, Depends(world_of)]


def require(caller: Caller, *scopes: Scope) -> None:
    """Refuse a caller that has none of these scopes, or whose credential is a grant's."""
    if caller.grant_id is None and any(caller.has(scope) for scope in scopes):
        return
    needed = " ".join(scopes)
    raise DenialError(
        Denied(reason=Reason.INSUFFICIENT_SCOPE, detail="the token lacks the scope that this needs", scope=needed)
    )
