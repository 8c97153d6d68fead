"""Make the standing grant of a client for one tool server: what stands behind the tokens that it asks for by itself.

An administrator's act, within what the client may grant at all. Its signed form is given to nobody: who had it could
act as the client. It is closed as every grant is.
"""

from collections.abc import Sequence
from dataclasses import replace

from app.core.decision import lifeless
from app.core.grant import ClientId, Grant, GrantId, ServerName, TenantId, extended
from app.core.reasons import Reason
from app.core.registry import Client
from app.ports import Transaction
from app.usecases.administration import administering, out_of_reach, record
from app.usecases.delegation_evidence import creation_events
from app.usecases.failures import Conflict, Denied, Malformed
from app.usecases.issue_under_standing_grant import standing_lineage
from app.usecases.mint_grant import RootParties, audience_in, root_of
from app.usecases.read_grants import GrantView, UnverifiableView, View, view_of
from app.usecases.read_wish import NarrowingFields
from app.usecases.register_client import known_client
from app.usecases.world import Caller, World


async def make_standing_grant(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId, fields: NarrowingFields
) -> GrantView | Denied:
    """The new grant. Raises Malformed, NotFound, AlreadyExists, and Conflict while the one before lives."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with administering(world) as tx:
        client = await known_client(tx, caller, tenant_id, client_id)
        if not client.active:
            raise Conflict("the client is disabled")
        made = await _minted(tx, world, client, fields)
        if isinstance(made, Denied):
            return made
        (server,) = made.servers
        await _refuse_second(tx, world, client, server)
        signed = world.signer.sign_grant(made, extended(None, made).actors)
        await tx.grants.add(made, signed, (made.grant_id,), claims_run=True)
        standing = {**client.standing_grants, server: made.grant_id}
        await tx.registry.put_client(replace(client, standing_grants=standing))
        await tx.audit.append(made.tenant_id, creation_events(world, caller.client_id, made))
        await record(tx, world, caller, made.tenant_id, "client.standing_grant_made", f"client/{client_id}")
        (stored,) = await tx.grants.chain(made.tenant_id, made.grant_id)
        await tx.commit()
    made_now = view_of(world, stored)
    assert isinstance(made_now, GrantView), "what was signed just now is verified"
    return made_now


async def list_standing_grants(
    world: World, caller: Caller, tenant_id: TenantId | None, client_id: ClientId
) -> Sequence[View] | Denied:
    """The latest standing grant for each tool server, dead or alive or past verifying. Raises NotFound."""
    if (denied := out_of_reach(caller, tenant_id or caller.tenant_id)) is not None:
        return denied
    async with world.store.read() as tx:
        client = await known_client(tx, caller, tenant_id, client_id)
        ids = [GrantId(grant_id) for _, grant_id in sorted(client.standing_grants.items())]
        found = [await tx.grants.chain(client.tenant_id, grant_id) for grant_id in ids]
    views = [view_of(world, stored[-1]) for stored in found if stored]
    return [view for view in views if _is_its_own(view, client)]


def _is_its_own(view: View, client: Client) -> bool:
    """The registry only says where to look: what is verified must be the client's own standing grant."""
    if isinstance(view, UnverifiableView):
        return True
    return view.grant.standing and view.grant.holder == client.client_id


async def _minted(tx: Transaction, world: World, client: Client, fields: NarrowingFields) -> Grant | Denied:
    """A root for one tool server, by the client, for the client, within the client's ceiling."""
    audience = await audience_in(tx, world, client, fields)
    if isinstance(audience, Denied):
        return audience
    if len(audience) != 1:
        raise Malformed("/audience", "a standing grant is for exactly one tool server")
    own, lifetime = client.client_id, client.ceiling.max_lifetime
    who = RootParties(holder=own, subject=own, lifetime=lifetime, is_standing=True)
    return await root_of(tx, world, client, fields, audience, who)


async def _refuse_second(tx: Transaction, world: World, client: Client, server: ServerName) -> None:
    """Two living ones would be twice the budget. Raises Conflict."""
    before = await standing_lineage(tx, world, client, server, lock=True)
    if before is None:
        return
    grant = before.chain.leaf
    dead = lifeless(grant, before.accounts.grants.get(grant.grant_id), world.clock())
    if dead is None or dead.reason is Reason.GRANT_NOT_YET_VALID:
        raise Conflict(f"the client has a standing grant for this tool server: {grant.grant_id}")
