"""Prove an OAuth client by its secret (RFC 6749 §2.3.1)."""

import asyncio
from dataclasses import dataclass, field

from app.core.grant import ClientId
from app.core.reasons import Reason
from app.core.registry import AuthMethod, Client
from app.usecases.failures import Denied
from app.usecases.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """An id and a secret, and the way in which they were presented."""

    client_id: ClientId
    secret: str = field(repr=False)
    method: AuthMethod


BUSY = Denied(reason=Reason.RATE_LIMITED, detail="too many clients are being authenticated; try again")


async def authenticate_client(world: World, presented: ClientCredentials) -> Client | Denied | None:
    """The active client whose secret this is, presented in the way that it is registered for; else None.

    A denial when so many secrets wait for the slow hash that more would only queue: strangers can ask for it.
    """
    async with world.store.read() as tx:
        client = await tx.registry.client(presented.client_id)
        tenant = None if client is None else await tx.registry.tenant(client.tenant_id)
    if client is None or tenant is None or not (client.active and tenant.active):
        return None
    if client.auth_method is not presented.method:
        return None
    matches = world.vault.matches_quickly(presented.secret, client.secret_hash)
    if matches is None and world.hashing.full:
        return BUSY
    if matches is None:
        async with world.hashing.turn():
            matches = await asyncio.to_thread(world.vault.secret_matches, presented.secret, client.secret_hash)
    return client if matches else None
