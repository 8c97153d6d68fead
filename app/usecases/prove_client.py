"""Prove an OAuth client, in whichever way it is registered for (RFC 6749 §2.3, RFC 7521 §4.2, RFC 7523 §2.2).

By its secret, by a JWT that it signed itself, or by one that a trusted issuer signed for its workload. Whatever is
wrong, whoever asks gets one same answer, which does not tell whether there is such a client; what was wrong is for the
platform's own log.

An assertion is verified first and spent last: what else the request lacks must be said before, since the client
would need another assertion to come again (RFC 9449 §8).
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, TypeAlias

from app.core.grant import ClientId
from app.core.registry import AuthMethod, Client, IssuerUse, SigningAlgorithm, Workload
from app.ports import KeySource, OutsideToken, TokenRefused
from app.usecases.authenticate_client import ClientCredentials, authenticate_client
from app.usecases.failures import Denied
from app.usecases.prove_identity import TYPES, proven_by
from app.usecases.world import CLOCK_MARGIN, World

MAX_ASSERTION_LIFETIME: Final = timedelta(hours=1)
"""What a client signs itself is used at once; for so long at most its `jti` is remembered."""

ASSERTION_ALGORITHMS: Final = (*SigningAlgorithm, "Ed25519")
"""By what client assertions may be signed (RFC 8414 §2): `Ed25519` is the newer name of EdDSA (RFC 9864)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssertion:
    """A JWT that says which client this is. Without a `client_id` the client is its issuer (RFC 7521 §4.2)."""

    client_id: ClientId | None
    assertion: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientName:
    """An application's name, and no more than that: its codes alone prove something (RFC 7636)."""

    client_id: ClientId


Presented: TypeAlias = ClientCredentials | ClientAssertion | ClientName


@dataclass(frozen=True, slots=True, kw_only=True)
class Spendable:
    """What makes an assertion one of its own, and until when it could be shown again."""

    issuer: str
    token: OutsideToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenClient:
    """A client, and the assertion that is to be spent on it, where it may be used only once."""

    client: Client
    spendable: Spendable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """No client was proven. Whoever asked is told no more than that; the platform's own log has the rest."""

    cause: str = "a client could not be authenticated"
    """A sentence of ours, without a part of what was presented."""
    client_id: ClientId | None = None
    """Which client it would have been, where there is one of that id."""


async def prove_client(world: World, presented: Presented) -> ProvenClient | Denied | Unproven:
    """The active client that this proves, or that it proves none; a denial where too many wait to be proven."""
    match presented:
        case ClientCredentials():
            client = await authenticate_client(world, presented)
            return ProvenClient(client=client) if isinstance(client, Client) else client or Unproven()
        case ClientName():
            named = await _active(world, presented.client_id, AuthMethod.NONE)
            return ProvenClient(client=named) if isinstance(named, Client) else named
        case ClientAssertion():
            return await _by_assertion(world, presented)


async def spend_assertion(world: World, proven: ProvenClient) -> bool:
    """Use the assertion up, in all workers; False where it was used before."""
    spendable = proven.spendable
    if spendable is None:
        return True
    assert spendable.token.jti is not None, "what can't be told apart is refused when it is proven"
    async with world.store.write() as tx:
        is_first = await tx.spent.spend(
            proven.client.tenant_id,
            spendable.issuer,
            spendable.token.jti,
            expires_at=spendable.token.expires_at + CLOCK_MARGIN,
            now=world.clock(),
        )
        await tx.commit()
    return is_first


async def _active(world: World, client_id: ClientId, method: AuthMethod) -> Client | Unproven:
    async with world.store.read() as tx:
        client = await tx.registry.client(client_id)
        tenant = None if client is None else await tx.registry.tenant(client.tenant_id)
    if client is None:
        return Unproven(cause="there is no such client")
    if tenant is None or not (client.active and tenant.active):
        return Unproven(cause="the client or its tenant is disabled", client_id=client_id)
    if client.auth_method is not method:
        return Unproven(cause="the client is registered for another way to prove itself", client_id=client_id)
    return client


async def _by_assertion(world: World, presented: ClientAssertion) -> ProvenClient | Unproven:
    try:
        named = world.outsiders.issuer_named(presented.assertion)
    except TokenRefused as refused:
        return Unproven(cause=_of_assertion(refused.detail))
    client = await _active(world, presented.client_id or ClientId(named), AuthMethod.PRIVATE_KEY_JWT)
    if isinstance(client, Unproven):
        return replace(client, cause=_of_assertion(client.cause))
    if client.workload is None:
        result = await _signed_itself(world, client, presented.assertion)
    elif presented.client_id is None:
        result = "client_id is missing: an issuer names a subject, not a client"
    else:
        result = await _vouched_for(world, client, client.workload, presented)
    if isinstance(result, ProvenClient):
        return result
    return Unproven(cause=_of_assertion(result), client_id=client.client_id)


def _of_assertion(flaw: str) -> str:
    return f"a client assertion was refused: {flaw}"


async def _signed_itself(world: World, client: Client, assertion: str) -> ProvenClient | str:
    """The client, or what is wrong.

    RFC 7523 §3: issuer and subject are the client, the audience is this server, and it is used once.
    """
    try:
        token = await world.outsiders.verify(
            assertion,
            issuer=client.client_id,
            audience=world.rules.issuer,
            keys=KeySource(algorithms=frozenset(ASSERTION_ALGORITHMS), jwks=client.jwks),
            now=world.clock(),
            max_lifetime=MAX_ASSERTION_LIFETIME,
        )
    except TokenRefused as refused:
        return refused.detail
    if token.subject != client.client_id:
        return "sub is not the client"
    if token.typ not in TYPES[IssuerUse.CLIENT]:
        return "typ is of another kind of token"
    if token.jti is None:
        return "jti is missing"
    # Apart from what issuers have signed, our own tokens among them: a client's id may look like an issuer's.
    return ProvenClient(client=client, spendable=Spendable(issuer=f"client {client.client_id}", token=token))


async def _vouched_for(
    world: World, client: Client, workload: Workload, presented: ClientAssertion
) -> ProvenClient | str:
    """The client, where its trusted issuer names exactly its workload, or what is wrong."""
    async with world.store.read() as tx:
        issuer = await tx.registry.issuer(client.tenant_id, workload.issuer)
    proven = await proven_by(world, issuer, presented.assertion, IssuerUse.CLIENT)
    if isinstance(proven, Denied):
        return proven.detail
    if proven.token.subject != workload.subject:
        return "sub is another workload"
    if not proven.issuer.single_use:
        return ProvenClient(client=client)
    if proven.token.jti is None:
        return "jti is missing, and the issuer's tokens are to be used once"
    return ProvenClient(client=client, spendable=Spendable(issuer=proven.token.issuer, token=proven.token))
