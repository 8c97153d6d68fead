"""Prove that whoever sends a request holds a key (RFC 9449), and spend the proof: it counts for one request.

Knows which credentials need a proof, and by which key. Refuses to know how a proof is read, and what is refused or
answered afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.core.grant import ClientId, GrantChain, TenantId
from app.core.reasons import Reason
from app.core.registry import Client
from app.ports import TokenRefused, Transaction
from app.usecases.failures import Denied
from app.usecases.world import CLOCK_MARGIN, Caller, Possession, World

THUMBPRINT_URI = "urn:ietf:params:oauth:jwk-thumbprint:sha-256:"
"""Who made a proof: its key, by RFC 9278. A `jti` is unique among the proofs of one key."""

ONE_PROOF = Denied(reason=Reason.PROOF_INVALID, detail="exactly one DPoP proof is needed")
REPLAYED = Denied(reason=Reason.PROOF_INVALID, detail="the DPoP proof was used before")
NOT_AS_BEARER = Denied(
    reason=Reason.TOKEN_INVALID, detail="the token is bound to a key: it takes the scheme DPoP and a proof of that key"
)
NOT_BOUND = Denied(reason=Reason.TOKEN_INVALID, detail="the token is bound to no key: it takes the scheme Bearer")
MUST_BE_BOUND = Denied(reason=Reason.TOKEN_INVALID, detail="the client's tokens must be bound to a key")
OTHER_KEY = Denied(reason=Reason.TOKEN_INVALID, detail="the DPoP proof is by another key than the token's")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProofs:
    """The proofs that came with a request, as many as there were, and the request that they must be made for."""

    proofs: Sequence[str] = field(repr=False)
    method: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """A token as it was presented: by the scheme DPoP, or else as whoever bears it may."""

    token: str = field(repr=False)
    is_dpop: bool
    shown: ShownProofs


def prove(world: World, shown: ShownProofs, access_token: str | None = None) -> Possession | Denied:
    """The key that a sound proof for this request proves; whether it was used before is asked by `spend`."""
    if len(shown.proofs) != 1:
        return ONE_PROOF
    try:
        proof = world.proofs.verify(
            shown.proofs[0], method=shown.method, url=shown.url, access_token=access_token, now=world.clock()
        )
    except TokenRefused as refused:
        return Denied(reason=refused.reason, detail=refused.detail)
    return Possession(proof=proof, use=world.new_id("use"))


def prove_for(world: World, presented: Presented, key_thumbprint: str | None) -> Possession | Denied | None:
    """The proof of the key that a genuine token is bound to; None for one that is bound to none.

    Neither is taken for the other (RFC 9449 §7.2): a bound token without its proof is worth nothing, and a proof
    beside a token that anybody may use would prove nothing.
    """
    if key_thumbprint is None:
        return NOT_BOUND if presented.is_dpop else None
    if not presented.is_dpop:
        return NOT_AS_BEARER
    possession = prove(world, presented.shown, presented.token)
    if isinstance(possession, Possession) and possession.proof.key_thumbprint != key_thumbprint:
        return OTHER_KEY
    return possession


def lacks_key(key_thumbprint: str | None, *clients: Client | None) -> bool:
    """Whether a credential is bound to no key though one of these clients' must be: it may be from before."""
    return key_thumbprint is None and any(client is not None and client.dpop_required for client in clients)


def whose_key(caller: Caller, chain: GrantChain) -> frozenset[ClientId]:
    """Who may have to bind a credential for a grant to a key: whom it was issued to, and who holds the grant.

    They differ where somebody asked for the token of an agent that its grant was handed to.
    """
    return frozenset({caller.client_id, *(grant.holder for grant in chain.grants if grant.grant_id == caller.grant_id)})


async def unbound(tx: Transaction, caller: Caller, chain: GrantChain) -> Denied | None:
    """The refusal of a credential for a grant of this chain that lacks the key that it must have."""
    if caller.grant_id is None or caller.key_thumbprint is not None:
        return None
    clients = [await tx.registry.client(client_id) for client_id in sorted(whose_key(caller, chain))]
    return MUST_BE_BOUND if lacks_key(caller.key_thumbprint, *clients) else None


async def spend(tx: Transaction, world: World, tenant_id: TenantId, possession: Possession | None) -> Denied | None:
    """Spend a proof in this transaction, before all else of it; a denial where another request did (RFC 9449 §11.1).

    Whoever comes second waits for the first one's transaction to end, in whatever worker that is. The same request
    may spend it again, as it does when its transaction is tried again.
    """
    if possession is None:
        return None
    proof, issuer = possession.proof, THUMBPRINT_URI + possession.proof.key_thumbprint
    expires_at, now = proof.expires_at + CLOCK_MARGIN, world.clock()
    is_first = await tx.spent.spend(tenant_id, issuer, proof.jti, expires_at=expires_at, now=now, on=possession.use)
    if is_first or await tx.spent.spent_on(tenant_id, issuer, proof.jti) == possession.use:
        return None
    return REPLAYED


async def spend_now(world: World, tenant_id: TenantId, possession: Possession | None) -> Denied | None:
    """Spend a proof before anything is answered, where no other transaction does it."""
    if possession is None or possession.is_spent:
        return None
    async with world.store.write() as tx:
        replayed = await spend(tx, world, tenant_id, possession)
        await tx.commit()
    possession.is_spent = True
    return replayed


def spent_with(caller: Caller) -> None:
    """Note that a transaction that spent the caller's proof was committed."""
    if caller.possession is not None:
        caller.possession.is_spent = True
