"""Prove an OAuth client by its secret (RFC 6749 §2.3.1)."""

import asyncio
from dataclasses import dataclass, field

from app.core.grant import ClientId
from app.core.registry import AuthMethod, Client
from app.usecases.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """An id and a secret, and the way in which they were presented."""

    client_id: ClientId
    secret: str = field(repr=False)
    method: AuthMethod


async def authenticate_client(world: World, presented: ClientCredentials) -> Client | None:
    """The active client whose secret this is, presented in the way that it is registered for; else None."""
    async with world.store.read() as tx:
        client = await tx.registry.client(presented.client_id)
        tenant = None if client is None else await tx.registry.tenant(client.tenant_id)
    if client is None or tenant is None:
        return None
    async with world.hashing:
        if not await asyncio.to_thread(world.vault.secret_matches, presented.secret, client.secret_hash):
            return None
    usable = client.active and tenant.active and client.auth_method is presented.method
    return client if usable else None
