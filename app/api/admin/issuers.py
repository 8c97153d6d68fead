"""Trusted issuers: whose word a tenant takes for who somebody is."""

from datetime import timedelta
from typing import Annotated, Final, Self

from fastapi import APIRouter, Response
from pydantic import Field, StringConstraints

from app.api.admin.documents import Administrator, InTenant, PageInTenant, Status, merged, status_of, tenant_named
from app.api.caller import TheWorld
from app.api.errors import allowed
from app.api.wire import Document, Identifier, Members, Name, StrictRoute
from app.core.grant import TenantId
from app.core.registry import DEFAULT_ISSUER_ALGORITHMS, IssuerUse, SigningAlgorithm, TrustedIssuer
from app.usecases.register_issuer import (
    MAX_ISSUER_CHARS,
    MAX_LIFETIME,
    change_issuer,
    disable_issuer,
    list_issuers,
    read_issuer,
    register_issuer,
)

router = APIRouter(prefix="/issuers", route_class=StrictRoute)

MAX_SECONDS: Final = MAX_LIFETIME // timedelta(seconds=1)
DAY_SECONDS: Final = 86_400

IssuerUri = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ISSUER_CHARS)]
Audience = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ISSUER_CHARS)]
KeysUri = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Use = Annotated[IssuerUse, Field(strict=False)]
Algorithm = Annotated[SigningAlgorithm, Field(strict=False)]
Uses = Annotated[list[Use], Field(min_length=1, max_length=len(IssuerUse))]
Algorithms = Annotated[list[Algorithm], Field(min_length=1, max_length=len(SigningAlgorithm))]
LifetimeSeconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]


class IssuerRequest(Document):
    """An issuer to trust. Its keys are either `jwks` or what `jwksUri` serves."""

    name: Name = Field(description="its subjects are known as `{name}#{sub}`")
    tenant_id: Identifier | None = Field(default=None, description="the caller's own unless named")
    issuer: IssuerUri = Field(description="the exact `iss` of its tokens; a SPIFFE trust domain where they have none")
    uses: Uses = Field(description="what its word is taken for: who is a client, a subject, or lets a client act")
    algorithms: Algorithms = Field(default_factory=lambda: sorted(DEFAULT_ISSUER_ALGORITHMS))
    jwks_uri: KeysUri | None = Field(default=None, description="https, or http on this machine itself")
    jwks: Members | None = Field(default=None, description="public keys (RFC 7517 §5)")
    audience: Audience | None = Field(default=None, description="the only `aud` of its tokens; this issuer unless set")
    max_lifetime_seconds: LifetimeSeconds = DAY_SECONDS
    single_use: bool = Field(default=True, description="whether each of its tokens proves a client once only")
    status: Status = "active"

    def trusted(self, tenant_id: TenantId) -> TrustedIssuer:
        return TrustedIssuer(
            tenant_id=tenant_id,
            name=self.name,
            issuer=self.issuer,
            uses=frozenset(self.uses),
            algorithms=frozenset(self.algorithms),
            jwks_uri=self.jwks_uri,
            jwks=self.jwks,
            audience=self.audience,
            max_lifetime=timedelta(seconds=self.max_lifetime_seconds),
            single_use=self.single_use,
            active=self.status == "active",
        )


class IssuerPatch(Document):
    """Members to change; null takes the default. Name and issuer stay: subjects are known by them."""

    uses: Uses | None = None
    algorithms: Algorithms | None = None
    jwks_uri: KeysUri | None = None
    jwks: Members | None = None
    audience: Audience | None = None
    max_lifetime_seconds: LifetimeSeconds | None = None
    single_use: bool | None = None
    status: Status | None = None


class IssuerDocument(Document):
    tenant_id: str
    name: str
    issuer: str
    uses: list[IssuerUse]
    algorithms: list[SigningAlgorithm]
    jwks_uri: str | None = Field(default=None, description="left out where the keys are `jwks`")
    jwks: Members | None = Field(default=None, description="left out where the keys are fetched")
    audience: str | None = Field(default=None, description="left out where it is this issuer")
    max_lifetime_seconds: int
    single_use: bool
    status: Status

    @classmethod
    def of(cls, issuer: TrustedIssuer) -> Self:
        optional = {"jwks_uri": issuer.jwks_uri, "jwks": issuer.jwks, "audience": issuer.audience}
        document = cls(
            tenant_id=issuer.tenant_id,
            name=issuer.name,
            issuer=issuer.issuer,
            uses=sorted(issuer.uses),
            algorithms=sorted(issuer.algorithms),
            max_lifetime_seconds=issuer.max_lifetime // timedelta(seconds=1),
            single_use=issuer.single_use,
            status=status_of(active=issuer.active),
        )
        return document.model_copy(update={name: value for name, value in optional.items() if value is not None})


class IssuerPage(Document):
    items: list[IssuerDocument]
    next: str | None


@router.post(
    "",
    status_code=201,
    summary="Trust an issuer",
    response_model_exclude_unset=True,
    responses={200: {"model": IssuerDocument, "description": "It is trusted so already"}},
)
async def register(
    world: TheWorld, caller: Administrator, query: InTenant, body: IssuerRequest, response: Response
) -> IssuerDocument:
    """409 where the name is taken by one that differs, or the issuer is trusted under another name."""
    wish = body.trusted(tenant_named(caller, query, body.tenant_id))
    registered = allowed(await register_issuer(world, caller, wish))
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/v1/admin/issuers/{registered.thing.name}"
    return IssuerDocument.of(registered.thing)


@router.get("", summary="List a tenant's trusted issuers by name", response_model_exclude_unset=True)
async def page(world: TheWorld, caller: Administrator, query: PageInTenant) -> IssuerPage:
    found = allowed(await list_issuers(world, caller, query.of(caller), query.page))
    return IssuerPage(items=[IssuerDocument.of(issuer) for issuer in found.items], next=found.next)


@router.get("/{name}", summary="A trusted issuer", response_model_exclude_unset=True)
async def read(world: TheWorld, caller: Administrator, query: InTenant, name: Name) -> IssuerDocument:
    return IssuerDocument.of(allowed(await read_issuer(world, caller, query.of(caller), name)))


@router.patch("/{name}", summary="Change a trusted issuer", response_model_exclude_unset=True)
async def change(
    world: TheWorld, caller: Administrator, query: InTenant, name: Name, body: IssuerPatch
) -> IssuerDocument:
    """Members that are left out stay as they are; null takes the default.

    Only for an administrator that holds every scope of the clients that rest on the issuer, as its keys prove them.
    """

    def changed(issuer: TrustedIssuer) -> TrustedIssuer:
        return merged(IssuerRequest, IssuerDocument.of(issuer), body).trusted(issuer.tenant_id)

    return IssuerDocument.of(allowed(await change_issuer(world, caller, query.of(caller), name, changed)))


@router.delete("/{name}", status_code=204, summary="No longer trust an issuer")
async def disable(world: TheWorld, caller: Administrator, query: InTenant, name: Name) -> None:
    """Nothing that it signs proves anything from the next token on; a PATCH of `status` undoes it."""
    allowed(await disable_issuer(world, caller, query.of(caller), name))
