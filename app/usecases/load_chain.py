"""A grant's whole lineage, each link's signature verified, with the accounts that say what became of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.core.budget import Amount, least
from app.core.decision import Account, Accounts, budget_of, dead_link
from app.core.grant import ChainBroken, ClientId, GrantChain, GrantId, TenantId, VerifiedGrant, chain_of
from app.core.reasons import Reason
from app.core.registry import Client, Tenant, Window
from app.ports import StoredGrant, TokenRefused, Transaction
from app.usecases.failures import Denied
from app.usecases.world import Caller, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A verified chain and its accounts as the transaction sees them. `stored` is what was read before any lock."""

    chain: GrantChain
    accounts: Accounts
    stored: tuple[StoredGrant, ...]

    def up_to(self, length: int) -> "Lineage":
        """The lineage of an ancestor: so many links of this one, from the root on."""
        chain = GrantChain(self.chain.grants[:length])
        return Lineage(chain=chain, accounts=self.accounts, stored=self.stored[:length])

    @property
    def left(self) -> Amount:
        """What every account of the chain still has."""
        accounts = self.accounts.grants
        return least(budget_of(grant, accounts[grant.grant_id]).left for grant in self.chain.grants)

    @property
    def clients(self) -> frozenset[ClientId]:
        """Every client that the chain rests on: who issued and who holds each link."""
        return frozenset(client for grant in self.chain.grants for client in (grant.issued_by, grant.holder))

    def permits(self, caller: Caller) -> bool:
        """Whether the caller may derive from, exchange or close the leaf.

        Its holder, or a client that minted it or an ancestor; a grant-bound credential reaches its own node and
        what is below it.
        """
        if caller.grant_id is not None:
            return caller.grant_id in {grant.grant_id for grant in self.chain.grants}
        return caller.client_id == self.chain.leaf.holder or caller.client_id in {
            grant.issued_by for grant in self.chain.grants
        }


UNVERIFIABLE = Denied(reason=Reason.TOKEN_INVALID, detail="the grant's record can't be verified")


async def death(tx: Transaction, world: World, lineage: Lineage) -> Denied | None:
    """Why a chain no longer lives: a link is closed or out of its time, or whom it rests on is disabled."""
    dead = dead_link(lineage.chain, lineage.accounts, world.clock())
    if dead is not None:
        return Denied(reason=dead.reason, detail=dead.detail)
    if not await _all_active(tx, lineage.chain.leaf.tenant_id, lineage.clients):
        return Denied(reason=Reason.GRANT_REVOKED, detail="the grant was revoked")
    return None


async def _all_active(tx: Transaction, tenant_id: TenantId, clients: Iterable[ClientId]) -> bool:
    tenant = await tx.registry.tenant(tenant_id)
    if tenant is None or not tenant.active:
        return False
    for client_id in clients:
        client = await tx.registry.client(client_id)
        if client is None or not client.active or client.tenant_id != tenant_id:
            return False
    return True


async def load_lineage(
    tx: Transaction, world: World, tenant_id: TenantId, grant_id: GrantId, *, lock: bool
) -> Lineage | Denied | None:
    """The lineage of a grant; None when the tenant has no such grant, a denial when a signature does not hold.

    With `lock` its accounts are held until the transaction ends, and are read after they are held.
    """
    stored = await tx.grants.chain(tenant_id, grant_id)
    if not stored:
        return None
    chain = verified_chain(world, stored)
    if chain is None:
        return UNVERIFIABLE
    accounts: Mapping[GrantId, Account] = {link.grant_id: link.account for link in stored}
    if lock:
        accounts = await tx.ledger.lock(tenant_id, [*accounts])
    return Lineage(chain=chain, accounts=Accounts(grants=accounts), stored=stored)


def verified_chain(world: World, stored: Sequence[StoredGrant]) -> GrantChain | None:
    """The chain of stored grants, or None when one was forged, swapped or lost."""
    try:
        return chain_of(tuple(verified_grant(world, link) for link in stored))
    except (TokenRefused, ChainBroken):
        return None


def verified_grant(world: World, stored: StoredGrant) -> VerifiedGrant:
    """A stored grant whose signature holds and which stands where it belongs. Raises TokenRefused, ChainBroken."""
    verified = world.signer.verify_grant(stored.signed)
    if (verified.grant.grant_id, verified.grant.tenant_id) != (stored.grant_id, stored.tenant_id):
        raise ChainBroken("another grant stands in this one's place")
    return verified


def window_limits(tenant: Tenant | None, client: Client | None, now: datetime) -> dict[str, Amount]:
    """The window accounts that a root of this client weighs on, by id."""
    windows: list[tuple[str, Window]] = []
    if tenant is not None and tenant.window is not None:
        windows.append(("tenant", tenant.window))
    if client is not None and client.window is not None:
        windows.append((f"client:{client.client_id}", client.window))
    return {
        f"window:{owner}:{int(window.length.total_seconds())}:{window.start(now)}": window.limit
        for owner, window in windows
    }
