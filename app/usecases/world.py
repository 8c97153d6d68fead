"""What every use case is given: the ports, the clock and the service's own rules. Nothing is global."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from app.core.audit import RecordType
from app.core.grant import ClientId, GrantId, TenantId
from app.core.registry import Scope
from app.core.strict_json import JsonObject, JsonValue
from app.ports import (
    Clock,
    NewId,
    OutsideTokens,
    PolicyEngine,
    Proof,
    Proofs,
    SchemaValidator,
    Signer,
    Store,
    Upstream,
    Vault,
)
from app.usecases.allowance import Allowance
from app.usecases.in_flight import InFlight
from app.usecases.offers import Offers
from app.usecases.resolved import Resolved
from app.usecases.turns import Shares, Turns

CLOCK_MARGIN: Final = timedelta(minutes=1)
"""How far apart the clocks of two workers may be: for so much longer than it could be used, what is spent is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The service-wide limits and names that settings decide."""

    issuer: str
    default_grant_lifetime: timedelta = timedelta(minutes=10)
    access_token_lifetime: timedelta = timedelta(minutes=10)
    max_access_token_lifetime: timedelta = timedelta(hours=1)
    upstream_token_lifetime: timedelta = timedelta(minutes=1)
    settle_grace: timedelta = timedelta(seconds=15)
    key_lead: timedelta = timedelta(minutes=1)
    """How long a new signing key is published before it signs."""
    keys_good_for: timedelta = timedelta(seconds=5)
    """How long a worker believes the signing keys that it read."""
    max_children_per_grant: int = 1000
    max_grants_per_tree: int = 2000
    max_lineage_rows: int = 200
    max_grant_bytes: int = 65_536
    max_page_rows: int = 500
    allow_grant_bearer: bool = True

    @property
    def mcp_prefix(self) -> str:
        """What a tool server's default audience starts with; its name follows."""
        return f"{self.issuer}/mcp/"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ports of one process."""

    store: Store
    signer: Signer
    vault: Vault
    upstream: Upstream
    schemas: SchemaValidator
    policies: PolicyEngine
    outsiders: OutsideTokens
    proofs: Proofs
    clock: Clock
    new_id: NewId
    rules: Rules
    in_flight: InFlight = field(default_factory=InFlight)
    strangers: Allowance = field(default_factory=Allowance)
    resolved: Resolved = field(default_factory=Resolved.nothing)
    offers: Offers = field(default_factory=Offers)
    hashing: Turns = field(default_factory=lambda: Turns(at_once=2, waiting=16))
    """Slow hashes of secrets: each takes a core for a while, and strangers may ask for it."""
    policy_shares: Shares = field(default_factory=lambda: Shares(at_once=2))
    """Questions to policies, by tenant: the slow policies of one deny nothing to another."""
    catalogues: Turns = field(default_factory=lambda: Turns(at_once=2, waiting=64))
    """Catalogues: each takes a core for as long as its grant's rules are many."""
    trials: Turns = field(default_factory=lambda: Turns(at_once=2, waiting=8))
    """Trials of policies: an administrator's may not keep the engine from calls."""
    long_reads: Turns = field(default_factory=lambda: Turns(at_once=2, waiting=8))
    """Reads of a whole log: each holds a connection for as long as the log is."""


@dataclass(slots=True, kw_only=True, eq=False)
class Possession:
    """A key that was proven with a request (RFC 9449), by a proof that counts once.

    `use` names the request, which alone may spend it; `is_spent` once it has.
    """

    proof: Proof
    use: str
    is_spent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who is calling, as proven by the credential that was presented.

    With a `grant_id` the credential is an access token for that grant (`audience` is its `aud`) or the grant
    itself (`audience` is None); without, it is a token for Subgrant's own API. Only the gateway takes an expired
    token for more than a stranger's, so that its refusal is on record where it belongs.
    """

    client_id: ClientId
    tenant_id: TenantId
    scopes: frozenset[str] = frozenset()
    through: ClientId | None = None
    """The application that acts for the client, a person, with a token for the API that the person let it have."""
    grant_id: GrantId | None = None
    audience: str | None = None
    is_expired: bool = False
    address: str | None = None
    """The address that the request came from, as far as the server knows it."""
    key_thumbprint: str | None = None
    """The key that the credential is bound to, which was proven with this request."""
    possession: Possession | None = field(default=None, repr=False, compare=False)
    """The proof of that key. Whoever acts for the caller spends it, unless it was spent where it was proven."""
    signature: str | None = field(default=None, repr=False, compare=False)
    """The last part of the credential, by which it is known where it does not belong."""

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes

    @property
    def is_platform(self) -> bool:
        return self.has(Scope.PLATFORM)

    @property
    def sees_whole_tenant(self) -> bool:
        """Administrators and auditors see every grant of the tenant; others their own and what is below."""
        return self.has(Scope.ADMIN) or self.has(Scope.AUDIT_READ) or self.is_platform


def digest(world: World, tenant_id: TenantId, content: bytes) -> str:
    """A keyed digest of a tenant's content: equal content of two tenants does not look equal."""
    return world.vault.digest(tenant_id.encode() + b"\0" + content)


def stamp(moment: datetime) -> str:
    """A time for the audit log: RFC 3339, UTC, always six digits, so that text order is time order."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def evidence(kind: RecordType, at: datetime, members: Mapping[str, JsonValue]) -> JsonObject:
    """An audit event; members that are None are left out."""
    event: JsonObject = {"type": kind.value, "time": stamp(at)}
    return event | {name: value for name, value in members.items() if value is not None}
