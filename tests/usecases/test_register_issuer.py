"""Which issuers an administrator may let its tenant trust, and what a change of one takes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import pytest

from app.core.attenuation import Ceiling
from app.core.budget import Amount
from app.core.grant import ClientId, TenantId
from app.core.reasons import Reason
from app.core.registry import (
    PLATFORM_TENANT,
    AuthMethod,
    Client,
    ClientKind,
    GrantType,
    IssuerUse,
    Scope,
    Tenant,
    TrustedIssuer,
    Window,
    Workload,
)
from app.ports import AlreadyExists
from app.usecases.administration import PageRequest
from app.usecases.failures import Conflict, Denied, Malformed, NotFound
from app.usecases.register_client import (
    change_client,
    default_grant_types,
    redirect_uri_flaw,
    register_client,
    rotate_client_secret,
)
from app.usecases.register_issuer import (
    change_issuer,
    disable_issuer,
    list_issuers,
    read_issuer,
    register_issuer,
)
from app.usecases.world import Caller, World
from tests.outsiders import a_key, a_weak_rsa_key, jwks
from tests.samples import ACME
from tests.usecases.worlds import Scene, a_scene

T = TypeVar("T")

GLOBEX: Final = TenantId("globex")
ADMIN: Final = Caller(client_id=ClientId("acme-admin"), tenant_id=ACME, scopes=frozenset({Scope.ADMIN}))
MIGHTY: Final = replace(ADMIN, scopes=frozenset({Scope.ADMIN, Scope.AUDIT_READ, Scope.GRANTS_ISSUE}))
STRANGER: Final = Caller(client_id=ClientId("globex-admin"), tenant_id=GLOBEX, scopes=frozenset({Scope.ADMIN}))
PLATFORM: Final = Caller(client_id=ClientId("root"), tenant_id=PLATFORM_TENANT, scopes=frozenset({Scope.PLATFORM}))
KEYS: Final = jwks(a_key())
AN_ISSUER: Final = TrustedIssuer(
    tenant_id=ACME, name="idp", issuer="https://idp.example", uses=frozenset({IssuerUse.CLIENT}), jwks=KEYS
)


@pytest.fixture
async def scene() -> Scene:
    scene = await a_scene()
    async with scene.world.store.write() as tx:
        await tx.registry.put_tenant(Tenant(tenant_id=PLATFORM_TENANT, name="Platform"))
        await tx.registry.add_tenant(Tenant(tenant_id=GLOBEX, name="Globex"))
        await tx.commit()
    return scene


@pytest.fixture
def world(scene: Scene) -> World:
    return scene.world


def accepted(result: T | Denied) -> T:
    assert not isinstance(result, Denied), result
    return result


def refused(result: object) -> Reason:
    assert isinstance(result, Denied)
    return result.reason


async def test_an_issuer_is_trusted_from_then_on_and_that_is_on_record(world: World, scene: Scene) -> None:
    made = accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    assert (made.thing, made.created) == (AN_ISSUER, True)
    again = accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    assert (again.thing, again.created) == (AN_ISSUER, False)
    assert accepted(await read_issuer(world, ADMIN, ACME, "idp")) == AN_ISSUER
    page = accepted(await list_issuers(world, ADMIN, ACME, PageRequest()))
    assert page.items == (AN_ISSUER,)
    (event,) = [body for body in await scene.records() if body["type"] == "admin.changed"]
    assert (event["action"], event["resource"]) == ("issuer.created", "issuer/idp")


async def test_a_change_names_the_members_that_changed(world: World, scene: Scene) -> None:
    def changed(issuer: TrustedIssuer) -> TrustedIssuer:
        return replace(issuer, single_use=False, max_lifetime=timedelta(minutes=5))

    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    accepted(await change_issuer(world, ADMIN, ACME, "idp", changed))
    accepted(await disable_issuer(world, ADMIN, ACME, "idp"))
    named = [body["changedFields"] for body in await scene.records() if body.get("action") == "issuer.changed"]
    assert named == [["maxLifetimeSeconds", "singleUse"], ["status"]]
    assert not accepted(await read_issuer(world, ADMIN, ACME, "idp")).active


async def test_name_and_iss_stay(world: World) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    moved = replace(AN_ISSUER, name="other", issuer="https://evil.example", tenant_id=GLOBEX)
    assert accepted(await change_issuer(world, ADMIN, ACME, "idp", lambda _: moved)) == AN_ISSUER


async def test_what_is_taken_is_a_conflict(world: World) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    with pytest.raises(Conflict):
        await register_issuer(world, ADMIN, replace(AN_ISSUER, single_use=False))
    with pytest.raises(AlreadyExists, match="issuer"):
        await register_issuer(world, ADMIN, replace(AN_ISSUER, name="other"))


async def test_an_administrator_knows_its_own_tenants_issuers_alone(world: World) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    assert refused(await register_issuer(world, STRANGER, AN_ISSUER)) is Reason.TENANT_MISMATCH
    assert refused(await read_issuer(world, STRANGER, ACME, "idp")) is Reason.TENANT_MISMATCH
    assert refused(await list_issuers(world, STRANGER, ACME, PageRequest())) is Reason.TENANT_MISMATCH
    assert refused(await disable_issuer(world, STRANGER, ACME, "idp")) is Reason.TENANT_MISMATCH
    with pytest.raises(NotFound):
        await read_issuer(world, STRANGER, GLOBEX, "idp")
    plain = replace(ADMIN, scopes=frozenset({Scope.GRANTS_ISSUE}))
    assert refused(await register_issuer(world, plain, AN_ISSUER)) is Reason.INSUFFICIENT_SCOPE
    assert accepted(await read_issuer(world, PLATFORM, ACME, "idp")) == AN_ISSUER


UNFIT: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "ourselves": ({"issuer": "https://subgrant.example"}, "/issuer"),
    "ourselves with a slash": ({"issuer": "https://subgrant.example/"}, "/issuer"),
    "ourselves in other letters": ({"issuer": "HTTPS://Subgrant.Example:443"}, "/issuer"),
    "something below ourselves": ({"issuer": "https://subgrant.example/mcp/billing"}, "/issuer"),
    "no URI": ({"issuer": "idp"}, "/issuer"),
    "an issuer with a fragment": ({"issuer": "https://idp.example#x"}, "/issuer"),
    "an issuer with a blank": ({"issuer": "https://idp.example "}, "/issuer"),
    "an issuer that is too long": ({"issuer": "https://" + "x" * 255}, "/issuer"),
    "no use": ({"uses": frozenset()}, "/uses"),
    "no algorithm": ({"algorithms": frozenset()}, "/algorithms"),
    "no keys": ({"jwks": None}, "/jwksUri"),
    "two places for keys": ({"jwks_uri": "https://idp.example/jwks"}, "/jwksUri"),
    "keys over http": ({"jwks": None, "jwks_uri": "http://idp.example/jwks"}, "/jwksUri"),
    "keys over http from a private address": ({"jwks": None, "jwks_uri": "http://10.0.0.1/jwks"}, "/jwksUri"),
    "keys in a file": ({"jwks": None, "jwks_uri": "file:///etc/keys"}, "/jwksUri"),
    "keys behind a password": ({"jwks": None, "jwks_uri": "https://user:x@idp.example/jwks"}, "/jwksUri"),
    "keys at no port": ({"jwks": None, "jwks_uri": "https://idp.example:port/jwks"}, "/jwksUri"),
    "keys nowhere": ({"jwks": None, "jwks_uri": "https://"}, "/jwksUri"),
    "weak keys": ({"jwks": jwks(a_weak_rsa_key())}, "/jwks"),
    "a private key": ({"jwks": {"keys": [a_key().private_jwk]}}, "/jwks"),
    "an empty audience": ({"audience": ""}, "/audience"),
    "an audience with a blank": ({"audience": "a b"}, "/audience"),
    "tokens that live for ever": ({"max_lifetime": timedelta(days=8)}, "/maxLifetimeSeconds"),
    "tokens that never live": ({"max_lifetime": timedelta()}, "/maxLifetimeSeconds"),
}


@pytest.mark.parametrize("changes, pointer", UNFIT.values(), ids=list(UNFIT))
async def test_nobody_is_trusted_that_is_or_has(world: World, changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Malformed) as malformed:
        await register_issuer(world, ADMIN, replace(AN_ISSUER, **changes))
    assert malformed.value.pointer == pointer


@pytest.mark.parametrize(
    "uri",
    ["https://idp.example/jwks?v=1", "http://127.0.0.1:8080/jwks", "http://[::1]/jwks", "http://localhost:1/jwks"],
)
async def test_keys_may_be_at(world: World, uri: str) -> None:
    accepted(await register_issuer(world, ADMIN, replace(AN_ISSUER, jwks=None, jwks_uri=uri)))


@pytest.mark.parametrize("issuer", ["spiffe://mesh.example", "https://subgrant.example.evil", "urn:company:idp"])
async def test_an_issuer_may_be(world: World, issuer: str) -> None:
    accepted(await register_issuer(world, ADMIN, replace(AN_ISSUER, issuer=issuer)))


# --- clients that rest on an issuer -----------------------------------------------------------------------

A_POD: Final = Client(
    client_id=ClientId("pod"),
    tenant_id=ACME,
    kind=ClientKind.AUDITOR,
    scopes=frozenset({Scope.AUDIT_READ}),
    auth_method=AuthMethod.PRIVATE_KEY_JWT,
    secret_hash="",
    workload=Workload(issuer="idp", subject="sa:auditor"),
)


async def test_a_workload_needs_an_issuer_that_may_prove_clients(world: World) -> None:
    for prepared in (None, replace(AN_ISSUER, uses=frozenset({IssuerUse.SUBJECT}))):
        if prepared is not None:
            accepted(await register_issuer(world, ADMIN, prepared))
        with pytest.raises(Malformed) as malformed:
            await register_client(world, MIGHTY, A_POD)
        assert malformed.value.pointer == "/workload/issuer"
    accepted(await register_issuer(world, STRANGER, replace(AN_ISSUER, tenant_id=GLOBEX, name="theirs")))
    with pytest.raises(Malformed):
        await register_client(world, MIGHTY, replace(A_POD, workload=Workload(issuer="theirs", subject="x")))


TAKEOVERS: Final[dict[str, Callable[[TrustedIssuer], TrustedIssuer]]] = {
    "its keys": lambda issuer: replace(issuer, jwks=jwks(a_key("EdDSA", "mine"))),
    "where its keys are": lambda issuer: replace(issuer, jwks=None, jwks_uri="https://evil.example/jwks"),
    "its audience": lambda issuer: replace(issuer, audience="elsewhere"),
    "that its tokens are used once": lambda issuer: replace(issuer, single_use=False),
}


@pytest.mark.parametrize("change", TAKEOVERS.values(), ids=list(TAKEOVERS))
async def test_an_administrator_takes_over_no_client_that_outranks_it_by_changing_of_its_issuer(
    world: World, change: Callable[[TrustedIssuer], TrustedIssuer]
) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    accepted(await register_client(world, MIGHTY, A_POD))
    assert refused(await change_issuer(world, ADMIN, ACME, "idp", change)) is Reason.INSUFFICIENT_SCOPE
    assert accepted(await read_issuer(world, ADMIN, ACME, "idp")) == AN_ISSUER
    assert accepted(await change_issuer(world, MIGHTY, ACME, "idp", change)) == change(AN_ISSUER)


async def test_an_issuer_that_was_disabled_is_not_trusted_again_by_whom_its_clients_outrank(world: World) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    accepted(await register_client(world, MIGHTY, A_POD))
    accepted(await disable_issuer(world, ADMIN, ACME, "idp"))

    def revived(issuer: TrustedIssuer) -> TrustedIssuer:
        return replace(issuer, active=True)

    assert refused(await change_issuer(world, ADMIN, ACME, "idp", revived)) is Reason.INSUFFICIENT_SCOPE
    assert accepted(await change_issuer(world, MIGHTY, ACME, "idp", revived)).active


PROOFS: Final[dict[str, dict[str, Any]]] = {
    "keys": {"jwks": KEYS, "workload": None},
    "another workload": {"workload": Workload(issuer="idp", subject="sa:mine")},
    "a secret": {"auth_method": AuthMethod.CLIENT_SECRET_BASIC, "workload": None},
}


@pytest.mark.parametrize("changes", PROOFS.values(), ids=list(PROOFS))
async def test_an_administrator_takes_over_no_client_that_outranks_it_by_giving_it(
    world: World, changes: dict[str, Any]
) -> None:
    accepted(await register_issuer(world, ADMIN, AN_ISSUER))
    accepted(await register_client(world, MIGHTY, A_POD))

    def changed(client: Client) -> Client:
        return replace(client, **changes)

    assert refused(await change_client(world, ADMIN, None, A_POD.client_id, changed)) is Reason.INSUFFICIENT_SCOPE
    accepted(await change_client(world, MIGHTY, None, A_POD.client_id, changed))


@pytest.mark.parametrize("kind", [kind for kind in ClientKind if kind is not ClientKind.APP])
async def test_what_an_app_may_ask_for_is_given_when_it_is_to_be_its_own(world: World, kind: ClientKind) -> None:
    asks = replace(AN_APP, auth_method=AuthMethod.CLIENT_SECRET_BASIC, scopes=frozenset({Scope.AUDIT_READ}))
    accepted(await register_client(world, MIGHTY, asks))

    def becomes(client: Client) -> Client:
        return replace(client, kind=kind, grant_types=frozenset(), redirect_uris=())

    denied = await change_client(world, ADMIN, None, asks.client_id, becomes)
    assert isinstance(denied, Denied)
    assert (denied.reason, denied.scope) == (Reason.INSUFFICIENT_SCOPE, "audit:read")
    assert accepted(await change_client(world, MIGHTY, None, asks.client_id, becomes)).kind is kind


async def test_an_app_that_may_ask_for_no_more_than_its_administrator_holds_may_be_made_another_client(
    world: World,
) -> None:
    accepted(await register_client(world, ADMIN, AN_APP))
    accepted(await change_client(world, ADMIN, None, AN_APP.client_id, lambda _: AN_AGENT))


async def test_where_an_apps_codes_go_is_said_by_whoever_holds_all_that_it_may_ask_for(world: World) -> None:
    asks = replace(AN_APP, scopes=frozenset({Scope.AUDIT_READ}))
    accepted(await register_client(world, MIGHTY, asks))

    def elsewhere(client: Client) -> Client:
        return replace(client, redirect_uris=(*client.redirect_uris, "https://evil.example/cb"))

    assert refused(await change_client(world, ADMIN, None, asks.client_id, elsewhere)) is Reason.INSUFFICIENT_SCOPE
    accepted(await change_client(world, ADMIN, None, asks.client_id, lambda client: replace(client, active=False)))
    accepted(await change_client(world, MIGHTY, None, asks.client_id, elsewhere))


# --- what a client may be ---------------------------------------------------------------------------------

AN_AGENT: Final = replace(A_POD, kind=ClientKind.AGENT, scopes=frozenset(), jwks=KEYS, workload=None)
AN_APP: Final = replace(
    AN_AGENT,
    kind=ClientKind.APP,
    auth_method=AuthMethod.NONE,
    jwks=None,
    grant_types=frozenset({GrantType.AUTHORIZATION_CODE}),
    redirect_uris=("https://app.example/cb",),
)
A_PERSON: Final = replace(
    AN_AGENT,
    kind=ClientKind.PERSON,
    auth_method=AuthMethod.CLIENT_SECRET_BASIC,
    jwks=None,
    grant_types=frozenset(),
)

IMPOSSIBLE: Final[dict[str, tuple[Client, str]]] = {
    "an assertion without keys": (replace(AN_AGENT, jwks=None), "/authMethod"),
    "keys and a workload": (replace(AN_AGENT, workload=A_POD.workload), "/authMethod"),
    "keys beside a secret": (replace(AN_AGENT, auth_method=AuthMethod.CLIENT_SECRET_BASIC), "/jwks"),
    "a workload beside a secret": (replace(A_POD, auth_method=AuthMethod.CLIENT_SECRET_POST), "/workload"),
    "keys that are none": (replace(AN_AGENT, jwks={"keys": []}), "/jwks"),
    "weak keys": (replace(AN_AGENT, jwks=jwks(a_weak_rsa_key())), "/jwks"),
    "private keys": (replace(AN_AGENT, jwks={"keys": [a_key().private_jwk]}), "/jwks"),
    "an agent without a proof": (replace(AN_AGENT, auth_method=AuthMethod.NONE, jwks=None), "/authMethod"),
    "an agent that asks people": (
        replace(AN_AGENT, grant_types=frozenset({GrantType.AUTHORIZATION_CODE})),
        "/grantTypes",
    ),
    "an agent with an address for answers": (replace(AN_AGENT, redirect_uris=AN_APP.redirect_uris), "/redirectUris"),
    "a public app that exchanges": (
        replace(AN_APP, grant_types=frozenset({GrantType.AUTHORIZATION_CODE, GrantType.TOKEN_EXCHANGE})),
        "/grantTypes",
    ),
    "a public app without business": (replace(AN_APP, grant_types=frozenset(), redirect_uris=()), "/grantTypes"),
    "an app that acts by itself": (
        replace(
            AN_APP,
            auth_method=AuthMethod.PRIVATE_KEY_JWT,
            jwks=KEYS,
            grant_types=frozenset({GrantType.AUTHORIZATION_CODE, GrantType.CLIENT_CREDENTIALS}),
        ),
        "/grantTypes",
    ),
    "an app without an address for answers": (replace(AN_APP, redirect_uris=()), "/redirectUris"),
    "an app with too many": (
        replace(AN_APP, redirect_uris=tuple(f"https://app.example/{n}" for n in range(21))),
        "/redirectUris",
    ),
    "an app with a bad one": (
        replace(AN_APP, redirect_uris=("https://app.example/cb", "https://app.example/cb#x")),
        "/redirectUris/1",
    ),
    "an app with limits of its own": (
        replace(AN_APP, ceiling=Ceiling(audiences=frozenset({"*"}))),
        "/limits",
    ),
    "an app with a lifetime of its own": (replace(AN_APP, ceiling=Ceiling(max_lifetime=timedelta(hours=1))), "/limits"),
    "an app with a window of its own": (
        replace(AN_APP, window=Window(length=timedelta(days=1), limit=Amount(tool_calls=1, spend_ucents=1))),
        "/limits",
    ),
    "a person at the token endpoint": (
        replace(A_PERSON, grant_types=frozenset({GrantType.CLIENT_CREDENTIALS})),
        "/grantTypes",
    ),
    "a person with keys": (replace(A_PERSON, auth_method=AuthMethod.PRIVATE_KEY_JWT, jwks=KEYS), "/authMethod"),
}


@pytest.mark.parametrize("wish, pointer", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
async def test_no_client_is_registered_or_becomes(world: World, wish: Client, pointer: str) -> None:
    with pytest.raises(Malformed) as malformed:
        await register_client(world, MIGHTY, wish)
    assert malformed.value.pointer == pointer
    plain = replace(AN_AGENT, auth_method=AuthMethod.CLIENT_SECRET_BASIC, jwks=None)
    accepted(await register_client(world, MIGHTY, plain))
    with pytest.raises(Malformed) as malformed:
        await change_client(world, MIGHTY, None, plain.client_id, lambda _: wish)
    assert malformed.value.pointer == pointer


@pytest.mark.parametrize("wish", [AN_AGENT, AN_APP, replace(AN_APP, auth_method=AuthMethod.PRIVATE_KEY_JWT, jwks=KEYS)])
async def test_a_client_without_a_secret_is_given_none(world: World, wish: Client) -> None:
    made = accepted(await register_client(world, MIGHTY, wish))
    assert (made.created, made.secret, made.client.secret_hash) == (True, None, "")
    with pytest.raises(Conflict, match="no secret"):
        await rotate_client_secret(world, MIGHTY, None, wish.client_id)
    again = accepted(await register_client(world, MIGHTY, wish))
    assert (again.created, again.secret) == (False, None)


async def test_a_person_has_a_secret_to_sign_in_with(world: World) -> None:
    made = accepted(await register_client(world, MIGHTY, A_PERSON))
    assert made.secret is not None


async def test_a_secret_goes_where_it_proves_nothing_any_more(world: World) -> None:
    plain = replace(AN_AGENT, auth_method=AuthMethod.CLIENT_SECRET_BASIC, jwks=None)
    accepted(await register_client(world, MIGHTY, plain))
    after = accepted(await change_client(world, MIGHTY, None, plain.client_id, lambda _: AN_AGENT))
    assert after.secret_hash == ""
    back = accepted(await change_client(world, MIGHTY, None, plain.client_id, lambda _: plain))
    assert back.secret_hash == "", "the old secret does not come back to life"


def test_each_kind_has_what_it_needs_unless_told_otherwise() -> None:
    assert default_grant_types(ClientKind.PERSON) == frozenset()
    assert default_grant_types(ClientKind.APP) == {GrantType.AUTHORIZATION_CODE}
    for kind in (ClientKind.AGENT, ClientKind.ORCHESTRATOR, ClientKind.AUDITOR, ClientKind.ADMIN):
        assert default_grant_types(kind) == frozenset(GrantType) - {GrantType.AUTHORIZATION_CODE}


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example/cb",
        "https://app.example",
        "https://app.example:8443/cb?x=1",
        "https://App.Example/cb",
        "https://192.0.2.7/cb",
        "https://[2001:db8::7]:8443/cb",
        "https://xn--exmple-cua.example/cb",
        "http://127.0.0.1/cb",
        "http://127.0.0.1:49152/cb",
        "http://[::1]:7/cb",
        "http://localhost/cb",
        "com.example.app:/oauth/cb",
        "com.example.app://cb/done",
    ],
)
def test_an_answer_may_go_to(uri: str) -> None:
    assert redirect_uri_flaw(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/cb",
        "app.example/cb",
        "//app.example/cb",
        "https:///cb",
        "https:/app.example/cb",
        "https://app.example/cb#fragment",
        "https://app.example/cb#",
        "https://user@app.example/cb",
        "https://app.example\\@evil.example/cb",
        "https://app.example/c b",
        "https://app.example/cb\n",
        "https://app.example:99999/cb",
        "https://ex\u00e4mple/cb",
        "HTTPS://app.example/cb",
        "http://app.example/cb",
        "http://127.0.0.1.evil.example/cb",
        "http://127.0.0.2/cb",
        "http://localhost.evil.example/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "myapp:/cb",
        "com.example.app:",
        "https://app.example;script-src/cb",
        "https://app.example,evil.example/cb",
        "https://'unsafe-inline'/cb",
        "https://*/cb",
        "https://*.example/cb",
        "https://app%2eexample/cb",
        "https://app_x.example/cb",
        "https://app.example:/cb",
        "https://evil.example[::1]/cb",
        "https://[::1]evil.example/cb",
        "https://[::g]/cb",
        "https://[fe80::1%25lo]/cb",
        "http://evil.example[::1]/cb",
        "com.example.app://*/cb",
        "com.example.app://a;b/cb",
        "https://app.example/" + "x" * 500,
    ],
)
def test_no_answer_goes_to(uri: str) -> None:
    assert redirect_uri_flaw(uri) is not None
