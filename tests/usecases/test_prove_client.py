"""Who a client is: by its own assertion, by a trusted issuer's, or by its name alone (RFC 6749 §2.3, RFC 7523 §3)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from app.core.grant import ClientId, TenantId
from app.core.registry import (
    AuthMethod,
    Client,
    ClientKind,
    GrantType,
    IssuerUse,
    Tenant,
    TrustedIssuer,
    Workload,
)
from app.usecases.authenticate_client import ClientCredentials
from app.usecases.failures import Denied
from app.usecases.prove_client import ClientAssertion, ClientName, ProvenClient, Unproven, prove_client, spend_assertion
from app.usecases.prove_identity import Proven, prove_identity
from app.usecases.world import CLOCK_MARGIN
from tests.members import DROP
from tests.outsiders import OutsideKey, a_key, claims_of, jwks
from tests.samples import ACME, NOW
from tests.usecases.worlds import Scene, a_scene

OUR_ISSUER: Final = "https://subgrant.example"
CLUSTER: Final = "https://cluster.example"
GLOBEX: Final = TenantId("globex")
BOT: Final = ClientId("bot")
POD: Final = "system:serviceaccount:agents:planner"
KEY: Final = a_key("EdDSA", "bot-1")
CLUSTER_KEY: Final = a_key("ES256", "cluster-1")
STRANGER: Final = a_key("ES256", "stranger", 1)

A_CLIENT: Final = Client(
    client_id=BOT,
    tenant_id=ACME,
    kind=ClientKind.AGENT,
    scopes=frozenset(),
    auth_method=AuthMethod.PRIVATE_KEY_JWT,
    secret_hash="",
    jwks=jwks(KEY),
)
AN_ISSUER: Final = TrustedIssuer(
    tenant_id=ACME,
    name="cluster",
    issuer=CLUSTER,
    uses=frozenset({IssuerUse.CLIENT}),
    jwks=jwks(CLUSTER_KEY),
    max_lifetime=timedelta(hours=1),
)
A_POD: Final = replace(A_CLIENT, client_id=ClientId("pod"), jwks=None, workload=Workload(issuer="cluster", subject=POD))
AN_APP: Final = replace(
    A_CLIENT,
    client_id=ClientId("app"),
    kind=ClientKind.APP,
    auth_method=AuthMethod.NONE,
    jwks=None,
    grant_types=frozenset({GrantType.AUTHORIZATION_CODE}),
)


@dataclass(frozen=True)
class Stage:
    scene: Scene

    async def put(self, *clients: Client, issuers: tuple[TrustedIssuer, ...] = ()) -> None:
        async with self.scene.world.store.write() as tx:
            for issuer in issuers:
                await tx.registry.put_issuer(issuer)
            for client in clients:
                await tx.registry.put_client(client)
            await tx.commit()

    async def proven(self, assertion: str, client_id: str | None = None) -> ProvenClient | None:
        named = None if client_id is None else ClientId(client_id)
        proven = await prove_client(self.scene.world, ClientAssertion(client_id=named, assertion=assertion))
        assert not isinstance(proven, Denied)
        return proven if isinstance(proven, ProvenClient) else None

    async def refusal(self, assertion: str, client_id: str | None = None) -> tuple[str, ClientId | None]:
        """What the platform's own log will have."""
        named = None if client_id is None else ClientId(client_id)
        unproven = await prove_client(self.scene.world, ClientAssertion(client_id=named, assertion=assertion))
        assert isinstance(unproven, Unproven)
        return unproven.cause.removeprefix("a client assertion was refused: "), unproven.client_id

    async def identity(self, assertion: str, use: IssuerUse, tenant_id: TenantId = ACME) -> Proven | Denied:
        return await prove_identity(self.scene.world, tenant_id, assertion, use)


@pytest.fixture
async def stage() -> Stage:
    stage = Stage(await a_scene())
    async with stage.scene.world.store.write() as tx:
        await tx.registry.add_tenant(Tenant(tenant_id=GLOBEX, name="Globex"))
        await tx.commit()
    await stage.put(A_CLIENT, A_POD, AN_APP, issuers=(AN_ISSUER,))
    return stage


def own(key: OutsideKey = KEY, header: dict[str, Any] | None = None, **changes: object) -> str:
    """An assertion that the client signs itself."""
    claims = claims_of(BOT, OUR_ISSUER, BOT, NOW, **changes)  # type: ignore[arg-type]  # whatever a claim may be
    return key.sign(claims, **(header or {}))


def pods(key: OutsideKey = CLUSTER_KEY, header: dict[str, Any] | None = None, **changes: object) -> str:
    """A token that the cluster signs for the client's workload."""
    claims = claims_of(CLUSTER, OUR_ISSUER, POD, NOW, **changes)  # type: ignore[arg-type]  # likewise
    return key.sign(claims, **(header or {}))


# --- by an assertion of its own ---------------------------------------------------------------------------


@pytest.mark.parametrize("typ", [DROP, "JWT", "client-authentication+jwt"])
@pytest.mark.parametrize("client_id", [None, BOT])
async def test_a_client_proves_itself_by_what_it_signs(stage: Stage, client_id: str | None, typ: object) -> None:
    proven = await stage.proven(own(header={"typ": typ}), client_id)
    assert proven is not None
    assert proven.client == A_CLIENT


async def test_an_assertion_is_spent_once(stage: Stage) -> None:
    first, second = await stage.proven(own()), await stage.proven(own())
    assert first is not None
    assert second is not None
    assert [await spend_assertion(stage.scene.world, each) for each in (first, second)] == [True, False]
    other = await stage.proven(own(jti="jti-2"))
    assert other is not None
    assert await spend_assertion(stage.scene.world, other)


async def test_an_assertion_is_remembered_for_as_long_as_it_could_be_shown(stage: Stage) -> None:
    world, clock = stage.scene.world, stage.scene.clock
    spent = await stage.proven(own())
    assert spent is not None
    assert await spend_assertion(world, spent)
    clock.now = NOW + timedelta(seconds=59)
    for jti in ("a", "b"):  # what others spend meanwhile makes nobody forget it
        other = await stage.proven(own(jti=jti, exp=int(NOW.timestamp()) + 120))
        assert other is not None
        assert await spend_assertion(world, other)
    again = await stage.proven(own())
    assert again is not None
    assert not await spend_assertion(world, again)


async def test_an_assertion_is_remembered_where_a_clock_is_behind(stage: Stage) -> None:
    world, clock = stage.scene.world, stage.scene.clock
    spent = await stage.proven(own())
    assert spent is not None
    assert await spend_assertion(world, spent)
    clock.now = spent_until(spent) + CLOCK_MARGIN - timedelta(seconds=1)
    other = await stage.proven(own(jti="a", exp=int(clock.now.timestamp()) + 60))
    assert other is not None
    assert await spend_assertion(world, other)
    assert not await spend_assertion(world, spent)


def spent_until(proven: ProvenClient) -> datetime:
    assert proven.spendable is not None
    return proven.spendable.token.expires_at


OWN_REFUSED: Final[dict[str, dict[str, Any]]] = {
    "another issuer": {"iss": "planner"},
    "another subject": {"sub": "planner"},
    "another client in both": {"iss": "planner", "sub": "planner"},
    "no jti": {"jti": DROP},
    "no expiry": {"exp": DROP},
    "an expiry that is too far": {"seconds": 3601},
    "the token endpoint as audience": {"aud": f"{OUR_ISSUER}/oauth/token"},
    "two audiences": {"aud": [OUR_ISSUER, "https://other.example"]},
    "no subject": {"sub": DROP},
}


@pytest.mark.parametrize("changes", OWN_REFUSED.values(), ids=list(OWN_REFUSED))
@pytest.mark.parametrize("client_id", [None, BOT])
async def test_an_assertion_proves_nobody_that_has(
    stage: Stage, changes: dict[str, Any], client_id: str | None
) -> None:
    assert await stage.proven(own(**changes), client_id) is None


@pytest.mark.parametrize("typ", ["at+jwt", "dpop+jwt", "oauth-id-jag+jwt", "logout+jwt", "jwt", "delegation-grant+jwt"])
async def test_a_jwt_of_another_kind_is_no_assertion(stage: Stage, typ: str) -> None:
    assert await stage.proven(own(header={"typ": typ})) is None
    assert await stage.proven(pods(header={"typ": typ}), "pod") is None


async def test_nobody_signs_for_another_client(stage: Stage) -> None:
    assert await stage.proven(own(STRANGER, {"kid": "bot-1", "alg": "ES256"})) is None
    other = replace(A_CLIENT, client_id=ClientId("other"), jwks=jwks(STRANGER))
    await stage.put(other)
    assert await stage.proven(own(STRANGER), "other") is None
    assert await stage.proven(own(STRANGER), BOT) is None
    assert await stage.proven(own(), "other") is None


async def test_an_assertion_helps_no_client_that_is_registered_for_another_way(stage: Stage) -> None:
    for method in (AuthMethod.CLIENT_SECRET_BASIC, AuthMethod.CLIENT_SECRET_POST, AuthMethod.NONE):
        await stage.put(replace(A_CLIENT, auth_method=method))
        assert await stage.proven(own()) is None


async def test_a_client_that_is_disabled_or_whose_tenant_is_proves_nothing(stage: Stage) -> None:
    await stage.put(replace(A_CLIENT, active=False))
    assert await stage.proven(own()) is None
    await stage.put(A_CLIENT)
    async with stage.scene.world.store.write() as tx:
        await tx.registry.put_tenant(Tenant(tenant_id=ACME, name="Acme", active=False))
        await tx.commit()
    assert await stage.proven(own()) is None
    assert await stage.proven(pods(), "pod") is None


async def test_what_is_no_jwt_proves_nobody(stage: Stage) -> None:
    for text in ("", "x", "a.b.c", own().replace(".", "..", 1)):
        assert await stage.proven(text, BOT) is None


async def test_a_client_whose_id_is_our_issuer_spends_none_of_our_tokens(stage: Stage) -> None:
    """Our own tokens are revoked by their issuer and jti: a client must not revoke them by signing such a jti."""
    client = replace(A_CLIENT, client_id=ClientId(OUR_ISSUER))
    await stage.put(client)
    proven = await stage.proven(own(iss=OUR_ISSUER, sub=OUR_ISSUER, jti="at_1"))
    assert proven is not None
    assert await spend_assertion(stage.scene.world, proven)
    async with stage.scene.world.store.read() as tx:
        assert not await tx.spent.is_spent(ACME, OUR_ISSUER, "at_1")


# --- by a trusted issuer's --------------------------------------------------------------------------------


@pytest.mark.parametrize("typ", [DROP, "JWT", "JOSE"])
async def test_a_workload_is_proven_by_its_issuer(stage: Stage, typ: object) -> None:
    proven = await stage.proven(pods(header={"typ": typ}), "pod")
    assert proven is not None
    assert proven.client == A_POD
    again = await stage.proven(pods(), "pod")
    assert again is not None
    assert [await spend_assertion(stage.scene.world, each) for each in (proven, again)] == [True, False]


async def test_a_workload_says_which_client_it_is(stage: Stage) -> None:
    assert await stage.proven(pods()) is None
    named = replace(A_POD, client_id=ClientId(CLUSTER))
    await stage.put(named)
    assert await stage.proven(pods()) is None
    assert await stage.proven(pods(), CLUSTER) is not None


POD_REFUSED: Final[dict[str, dict[str, Any]]] = {
    "another subject": {"sub": f"{POD}2"},
    "the client's own id as subject": {"sub": "pod"},
    "an administrator's id as subject": {"sub": "admin"},
    "another issuer": {"iss": "https://cluster.other"},
    "an issuer with a slash more": {"iss": f"{CLUSTER}/"},
    "the client's id as issuer": {"iss": "pod", "sub": "pod"},
    "no jti": {"jti": DROP},
    "an expiry that is too far": {"seconds": 3601},
    "no expiry": {"exp": DROP},
    "another audience": {"aud": "https://other.example"},
}


@pytest.mark.parametrize("changes", POD_REFUSED.values(), ids=list(POD_REFUSED))
async def test_a_workloads_token_proves_nobody_that_has(stage: Stage, changes: dict[str, Any]) -> None:
    assert await stage.proven(pods(**changes), "pod") is None


async def test_a_clients_own_key_is_not_its_issuers(stage: Stage) -> None:
    assert await stage.proven(pods(STRANGER, {"kid": "cluster-1"}), "pod") is None
    assert await stage.proven(pods(KEY, {"kid": "cluster-1", "alg": "EdDSA"}), "pod") is None


async def test_a_client_with_keys_of_its_own_is_not_proven_by_an_issuer(stage: Stage) -> None:
    assert await stage.proven(pods(sub=BOT), BOT) is None


CHANGES: Final[dict[str, dict[str, Any]]] = {
    "disabled": {"active": False},
    "for other uses alone": {"uses": frozenset({IssuerUse.SUBJECT, IssuerUse.GRANT})},
    "for another audience": {"audience": "https://other.example"},
    "of other algorithms": {"algorithms": frozenset({"RS256"})},
    "of other keys": {"jwks": jwks(STRANGER)},
    "of another iss": {"issuer": "https://cluster.other"},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=list(CHANGES))
async def test_its_workloads_are_proven_no_more_where_the_issuer_is(stage: Stage, changes: dict[str, Any]) -> None:
    await stage.put(issuers=(replace(AN_ISSUER, **changes),))
    assert await stage.proven(pods(), "pod") is None


async def test_another_tenants_issuer_proves_no_client_of_this_one(stage: Stage) -> None:
    foreign = replace(AN_ISSUER, tenant_id=GLOBEX, issuer="https://evil.example", jwks=jwks(STRANGER))
    await stage.put(issuers=(foreign,))
    assert await stage.proven(pods(STRANGER, iss="https://evil.example"), "pod") is None
    assert await stage.proven(pods(STRANGER), "pod") is None


async def test_a_platforms_token_is_shown_again_where_that_is_how_it_hands_them_out(stage: Stage) -> None:
    await stage.put(issuers=(replace(AN_ISSUER, single_use=False),))
    without: tuple[dict[str, Any], ...] = ({}, {"jti": DROP}, {"jti": DROP, "iat": DROP})
    for changes in without:
        for _ in range(2):
            proven = await stage.proven(pods(**changes), "pod")
            assert proven is not None
            assert await spend_assertion(stage.scene.world, proven)
    assert await stage.proven(pods(iat=DROP, seconds=3661), "pod") is None, "its life is bounded all the same"


async def test_an_audience_may_be_the_issuers_own(stage: Stage) -> None:
    await stage.put(issuers=(replace(AN_ISSUER, audience="subgrant"),))
    assert await stage.proven(pods(aud=["subgrant"]), "pod") is not None
    assert await stage.proven(pods(), "pod") is None


# --- what is on record of a refusal ---------------------------------------------------------------------


FLAWS: Final[dict[str, tuple[Callable[[], str], str | None, str, str | None]]] = {
    "another audience": (
        lambda: own(aud=f"{OUR_ISSUER}/oauth/token"),
        None,
        "aud is not exactly the audience that it must be",
        BOT,
    ),
    "no longer valid": (lambda: own(exp=int(NOW.timestamp()) - 1), None, "the token has expired", BOT),
    "another's key": (lambda: own(STRANGER), None, "the signing key is not known", BOT),
    "another's signature": (lambda: own(STRANGER.named("bot-1")), None, "the signing key is not known", BOT),
    "another subject": (lambda: own(sub="planner"), None, "sub is not the client", BOT),
    "another type": (lambda: own(header={"typ": "at+jwt"}), None, "typ is of another kind of token", BOT),
    "no jti": (lambda: own(jti=DROP), None, "jti is missing", BOT),
    "no JWT": (lambda: "x", None, "the token is not in compact form", None),
    "nobody": (lambda: own(iss="nobody"), None, "there is no such client", None),
    "a client with a secret": (
        lambda: own(iss="planner"),
        None,
        "the client is registered for another way to prove itself",
        "planner",
    ),
    "a workload without a name": (
        lambda: pods(iss="pod"),
        None,
        "client_id is missing: an issuer names a subject, not a client",
        "pod",
    ),
    "another workload": (lambda: pods(sub="other"), "pod", "sub is another workload", "pod"),
    "a workload that names nothing": (
        lambda: pods(jti=DROP),
        "pod",
        "jti is missing, and the issuer's tokens are to be used once",
        "pod",
    ),
}


@pytest.mark.parametrize("made, client_id, cause, named", FLAWS.values(), ids=list(FLAWS))
async def test_the_log_says_which_check_failed_and_for_which_client(
    stage: Stage, made: Callable[[], str], client_id: str | None, cause: str, named: str | None
) -> None:
    assert await stage.refusal(made(), client_id) == (cause, named)


async def test_the_log_says_that_a_client_is_disabled(stage: Stage) -> None:
    await stage.put(replace(A_CLIENT, active=False))
    assert await stage.refusal(own()) == ("the client or its tenant is disabled", BOT)


# --- by its name, by its secret ---------------------------------------------------------------------------


async def test_a_name_proves_only_a_client_that_has_nothing_else(stage: Stage) -> None:
    for name, expected in (("app", AN_APP), ("bot", None), ("pod", None), ("planner", None), ("nobody", None)):
        proven = await prove_client(stage.scene.world, ClientName(client_id=ClientId(name)))
        assert isinstance(proven, Unproven) if expected is None else proven == ProvenClient(client=expected)


async def test_no_secret_proves_a_client_that_has_none(stage: Stage) -> None:
    for client in (A_CLIENT, A_POD, AN_APP):
        for method in (AuthMethod.CLIENT_SECRET_BASIC, AuthMethod.CLIENT_SECRET_POST, client.auth_method):
            credentials = ClientCredentials(client_id=client.client_id, secret="", method=method)
            assert await prove_client(stage.scene.world, credentials) == Unproven()


# --- whoever a trusted issuer names -----------------------------------------------------------------------


async def test_an_identity_is_known_by_its_issuers_name(stage: Stage) -> None:
    await stage.put(issuers=(replace(AN_ISSUER, uses=frozenset({IssuerUse.SUBJECT})),))
    proven = await stage.identity(pods(sub="admin"), IssuerUse.SUBJECT)
    assert isinstance(proven, Proven)
    assert proven.subject == "cluster#admin"
    assert proven.token.subject == "admin"


@pytest.mark.parametrize("use", IssuerUse)
async def test_an_issuer_is_believed_only_for_its_uses(stage: Stage, use: IssuerUse) -> None:
    typ = {IssuerUse.GRANT: "oauth-id-jag+jwt"}.get(use, "JWT")
    for trusted in IssuerUse:
        await stage.put(issuers=(replace(AN_ISSUER, uses=frozenset({trusted})),))
        proven = await stage.identity(pods(header={"typ": typ}), use)
        assert isinstance(proven, Proven) is (trusted is use)


@pytest.mark.parametrize(
    "use, typ",
    [
        (IssuerUse.SUBJECT, "logout+jwt"),
        (IssuerUse.SUBJECT, "oauth-id-jag+jwt"),
        (IssuerUse.SUBJECT, "dpop+jwt"),
        (IssuerUse.SUBJECT, "client-authentication+jwt"),
        (IssuerUse.GRANT, "JWT"),
        (IssuerUse.GRANT, DROP),
        (IssuerUse.GRANT, "at+jwt"),
        (IssuerUse.CLIENT, "at+jwt"),
        (IssuerUse.CLIENT, "secevent+jwt"),
    ],
)
async def test_a_token_of_another_kind_proves_no_identity(stage: Stage, use: IssuerUse, typ: object) -> None:
    await stage.put(issuers=(replace(AN_ISSUER, uses=frozenset(IssuerUse)),))
    assert isinstance(await stage.identity(pods(header={"typ": typ}), use), Denied)


async def test_an_identity_is_proven_in_the_tenant_that_trusts_its_issuer(stage: Stage) -> None:
    assert isinstance(await stage.identity(pods(), IssuerUse.CLIENT), Proven)
    assert isinstance(await stage.identity(pods(), IssuerUse.CLIENT, GLOBEX), Denied)
    assert isinstance(await stage.identity("no token", IssuerUse.CLIENT), Denied)
    assert isinstance(await stage.identity(pods(iss=OUR_ISSUER), IssuerUse.CLIENT), Denied)
