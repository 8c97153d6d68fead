"""Trusted issuers: each tenant's own, one for each name and for each `iss`."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from app.core.grant import TenantId
from app.core.registry import (
    AuthMethod,
    ClientKind,
    GrantType,
    IssuerUse,
    SigningAlgorithm,
    Tenant,
    TrustedIssuer,
    Workload,
)
from app.ports import AlreadyExists, Store
from tests.contracts.examples import CLIENT, TENANT
from tests.samples import ACME

GLOBEX: Final = TenantId("globex")
FETCHED: Final = TrustedIssuer(
    tenant_id=ACME,
    name="idp",
    issuer="https://idp.example",
    uses=frozenset({IssuerUse.SUBJECT, IssuerUse.GRANT}),
    jwks_uri="https://idp.example/jwks",
)
INLINE: Final = TrustedIssuer(
    tenant_id=ACME,
    name="cluster",
    issuer="https://kubernetes.default.svc",
    uses=frozenset({IssuerUse.CLIENT}),
    algorithms=frozenset({SigningAlgorithm.RS256}),
    jwks={"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "k1"}]},
    audience="subgrant",
    max_lifetime=timedelta(seconds=90, microseconds=1),
    single_use=False,
    active=False,
)


@pytest.fixture
async def tenants(store: Store) -> Store:
    async with store.write() as tx:
        await tx.registry.add_tenant(TENANT)
        await tx.registry.add_tenant(Tenant(tenant_id=GLOBEX, name="Globex"))
        await tx.commit()
    return store


async def put(store: Store, *issuers: TrustedIssuer) -> None:
    async with store.write() as tx:
        for issuer in issuers:
            await tx.registry.put_issuer(issuer)
        await tx.commit()


async def test_an_issuer_is_read_as_it_was_written(tenants: Store) -> None:
    await put(tenants, FETCHED, INLINE)
    async with tenants.read() as tx:
        assert await tx.registry.issuer(ACME, "idp") == FETCHED
        assert await tx.registry.issuer(ACME, "cluster") == INLINE
        assert await tx.registry.issuer_of(ACME, INLINE.issuer) == INLINE
        assert await tx.registry.issuer(ACME, "other") is None


async def test_an_issuer_is_replaced_whole(tenants: Store) -> None:
    await put(tenants, INLINE)
    changed = replace(INLINE, jwks=None, jwks_uri="https://cluster.example/jwks", active=True)
    await put(tenants, changed)
    async with tenants.read() as tx:
        assert await tx.registry.issuer_of(ACME, INLINE.issuer) == changed


async def test_an_issuer_is_found_by_its_exact_spelling_alone(tenants: Store) -> None:
    await put(tenants, FETCHED)
    async with tenants.read() as tx:
        for spelling in (f"{FETCHED.issuer}/", FETCHED.issuer.upper(), f" {FETCHED.issuer}", "https://idp", ""):
            assert await tx.registry.issuer_of(ACME, spelling) is None


async def test_an_issuer_is_its_own_tenants(tenants: Store) -> None:
    await put(tenants, FETCHED, replace(INLINE, tenant_id=GLOBEX))
    async with tenants.read() as tx:
        assert await tx.registry.issuer_of(GLOBEX, FETCHED.issuer) is None
        assert await tx.registry.issuer(GLOBEX, "idp") is None
        assert await tx.registry.issuers(GLOBEX, after=None, limit=10) == (replace(INLINE, tenant_id=GLOBEX),)


async def test_tenants_may_trust_the_same_issuer_under_the_same_name(tenants: Store) -> None:
    other = replace(FETCHED, tenant_id=GLOBEX, jwks_uri="https://other.example/jwks")
    await put(tenants, FETCHED, other)
    async with tenants.read() as tx:
        assert await tx.registry.issuer_of(ACME, FETCHED.issuer) == FETCHED
        assert await tx.registry.issuer_of(GLOBEX, FETCHED.issuer) == other


async def test_one_issuer_has_one_name(tenants: Store) -> None:
    await put(tenants, FETCHED)
    with pytest.raises(AlreadyExists, match="issuer"):
        await put(tenants, replace(INLINE, issuer=FETCHED.issuer))
    async with tenants.read() as tx:
        assert await tx.registry.issuers(ACME, after=None, limit=10) == (FETCHED,)


async def test_issuers_are_listed_by_name(tenants: Store) -> None:
    named = [replace(FETCHED, name=name, issuer=f"https://{name}.example") for name in ("b", "B", "a-1", "a")]
    await put(tenants, *named)
    async with tenants.read() as tx:
        assert [issuer.name for issuer in await tx.registry.issuers(ACME, after=None, limit=3)] == ["B", "a", "a-1"]
        assert [issuer.name for issuer in await tx.registry.issuers(ACME, after="a-1", limit=3)] == ["b"]


async def test_a_client_keeps_what_it_proves_itself_by(tenants: Store) -> None:
    clients = (
        replace(
            CLIENT,
            auth_method=AuthMethod.PRIVATE_KEY_JWT,
            jwks={"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQ", "kid": "k1"}]},
            dpop_required=True,
        ),
        replace(CLIENT, auth_method=AuthMethod.PRIVATE_KEY_JWT, workload=Workload(issuer="cluster", subject="sa:a")),
        replace(
            CLIENT,
            kind=ClientKind.APP,
            auth_method=AuthMethod.NONE,
            grant_types=frozenset({GrantType.AUTHORIZATION_CODE}),
            redirect_uris=("com.example.app:/cb", "https://app.example/cb"),
        ),
    )
    for client in clients:
        async with tenants.write() as tx:
            await tx.registry.put_client(client)
            await tx.commit()
        async with tenants.read() as tx:
            assert await tx.registry.client(CLIENT.client_id) == client
