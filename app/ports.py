"""What the use cases need of the world. Adapters implement these; `tests/contracts` holds each to the same suite.

A transaction is opened by the store, sees one consistent state and changes nothing unless `commit` is
called, which is always its last line. None is held open across a network call.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from app.core.audit import AuditRecord, Head
from app.core.budget import Amount, Budget, ReservationState
from app.core.decision import Account
from app.core.grant import ClientId, Grant, GrantId, RunId, ServerName, TenantId, ToolName, VerifiedGrant
from app.core.reasons import Reason
from app.core.registry import (
    Client,
    HttpBinding,
    Policy,
    Registration,
    Resource,
    Tenant,
    Tool,
    ToolServer,
    Transport,
    TrustedIssuer,
    Workload,
)
from app.core.resources import Attributes, ResourceRef, Resources
from app.core.strict_json import JsonObject, JsonValue

Clock = Callable[[], datetime]
"""Now, as an aware UTC time."""

Seal = Callable[[bytes, str], bytes]
"""`Vault.seal`, for whoever needs nothing else of it."""

NewId = Callable[[str], str]
"""A fresh, unguessable, time-ordered identifier with the given prefix, as in `gr_01j…`."""


# --- storage ----------------------------------------------------------------------------------------------


class StoreUnavailable(Exception):
    """The store can't be reached or did not answer in time. Nothing is decided without it: callers get 503."""


class AlreadyExists(Exception):
    """An insert met an existing key. `what` names the field for the caller."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is already in use")
        self.what = what


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGrant:
    """A grant at rest: the signed document, which never changes, its lineage (root first, itself last) and account."""

    tenant_id: TenantId
    grant_id: GrantId
    signed: str = field(repr=False)
    lineage: tuple[GrantId, ...]
    issued_at: datetime
    expires_at: datetime
    """Both as the store's columns have them, by which it finds grants: the signed document is what counts."""
    account: Account
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantFilter:
    """Which grants a page holds; None does not filter. `visible_to` keeps to a client's own grants and below."""

    parent_grant_id: GrantId | None = None
    root_grant_id: GrantId | None = None
    run_id: RunId | None = None
    holder: ClientId | None = None
    subject: str | None = None
    live_at: datetime | None = None
    visible_to: ClientId | None = None


NO_CALL_LEFT: Final = timedelta(hours=1)
"""How long after its expiry no call under a grant can be in flight any more."""


class GrantStore(Protocol):
    async def add(self, grant: Grant, signed: str, lineage: Sequence[GrantId], *, claims_run: bool) -> None:
        """Insert a grant and open its account. With `claims_run` its childRunId must be new in the tenant.

        Raises AlreadyExists("childRunId").
        """

    async def chain(self, tenant_id: TenantId, grant_id: GrantId) -> tuple[StoredGrant, ...]:
        """The lineage of a grant, root first; empty when there is no such grant in the tenant."""

    async def subtree(self, tenant_id: TenantId, grant_id: GrantId, limit: int) -> tuple[StoredGrant, ...]:
        """The grant and all its descendants, parents before children, at most `limit`."""

    async def page(
        self, tenant_id: TenantId, where: GrantFilter, *, before: GrantId | None, limit: int
    ) -> tuple[StoredGrant, ...]:
        """Newest first, starting before the given id."""

    async def children(self, tenant_id: TenantId, grant_id: GrantId, live_at: datetime | None = None) -> int:
        """How many direct children a grant has: those that live at a time, or closed and expired ones too."""

    async def tree_size(self, tenant_id: TenantId, root_grant_id: GrantId, live_at: datetime | None = None) -> int:
        """How many grants a root's tree has, itself among them: those that live at a time, or all."""

    async def close(self, tenant_id: TenantId, grant_id: GrantId, *, reason: str, at: datetime) -> tuple[GrantId, ...]:
        """Close a grant and every open descendant; the ids that were open, the grant first.

        Descendants that expired more than NO_CALL_LEFT ago stay as they are: a grant that stands for months has
        many, and they are dead.
        """

    async def runs_of(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, RunId]:
        """The run of each of these grants; unknown ids are left out."""

    async def closed_among(self, grants: Sequence[tuple[TenantId, GrantId]]) -> frozenset[GrantId]:
        """Which of these grants are closed, so that calls in flight under them are stopped."""

    async def resting_on(self, start: str, *, live_at: datetime, limit: int) -> int:
        """How many living grants, of every tenant, have a link whose signed form starts so; at most `limit`."""


class Outcome(StrEnum):
    """How a forwarded call ended."""

    SUCCESS = "success"
    TOOL_ERROR = "tool_error"
    UNKNOWN = "unknown"
    UNSENT = "unsent"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A call's reservation and, once it ended, its outcome. `accounts` are all that it holds budget on."""

    tenant_id: TenantId
    call_id: str
    decision_id: str
    grant_id: GrantId
    run_id: RunId
    server: ServerName
    tool: ToolName
    request_digest: str
    idempotency_key: str | None
    hold: Amount
    accounts: tuple[str, ...]
    reserved_at: datetime
    deadline_at: datetime
    state: ReservationState = ReservationState.PENDING
    charged_ucents: int = 0
    outcome: Outcome | None = None
    result: bytes | None = field(default=None, repr=False)
    result_digest: str | None = None
    settled_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """How a call ended. `result` is the sealed answer that a repeat of the idempotency key gets."""

    state: ReservationState
    charged_ucents: int
    outcome: Outcome
    result: bytes | None = field(default=None, repr=False)
    result_digest: str | None = None


class Ledger(Protocol):
    async def lock(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        """The accounts of these grants, locked in a fixed order until the transaction ends; unknown ids left out."""

    async def accounts(self, tenant_id: TenantId, grants: Sequence[GrantId]) -> Mapping[GrantId, Account]:
        """The same without locking: for answers that reserve nothing."""

    async def windows(self, tenant_id: TenantId, limits: Mapping[str, Amount], *, lock: bool) -> tuple[Budget, ...]:
        """The accounts of windows by id, made where missing (with `lock`, in a fixed order), under today's limits."""

    async def reserve(self, call: CallRecord) -> None:
        """Hold the call's amount on all its accounts, which are locked, and store it pending.

        Raises AlreadyExists("idempotencyKey") where its key is taken in the run and server.
        """

    async def settle(self, tenant_id: TenantId, call_id: str, ending: Settlement, at: datetime) -> CallRecord | None:
        """Turn a pending hold into the ending's state and charge; None when it was settled before.

        A hold that the reconciler expired is corrected once by the late answer: the charge replaces the maximum.
        A voided call gives its idempotency key back, since it never ran.
        """

    async def repeated(
        self, tenant_id: TenantId, run_id: RunId, server: ServerName, idempotency_key: str
    ) -> CallRecord | None:
        """The call that took this idempotency key."""

    async def overdue(self, now: datetime, limit: int) -> tuple[CallRecord, ...]:
        """Pending calls of every tenant whose deadline has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Which audit records a page holds; None does not filter. `subtree_of` takes a grant and all below it."""

    type: str | None = None
    decision: str | None = None
    reason: str | None = None
    grant_id: str | None = None
    subtree_of: str | None = None
    root_grant_id: str | None = None
    run_id: str | None = None
    subject: str | None = None
    client_id: str | None = None
    tool: str | None = None
    call_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None


class AuditLog(Protocol):
    async def append(self, tenant_id: TenantId, events: Sequence[JsonObject]) -> tuple[AuditRecord, ...]:
        """Chain events to the tenant's log, in the transaction of what they record."""

    async def head(self, tenant_id: TenantId) -> Head: ...

    async def page(
        self, tenant_id: TenantId, where: RecordFilter, *, after_seq: int | None, newest_first: bool, limit: int
    ) -> tuple[AuditRecord, ...]:
        """Records beyond `after_seq` in the given direction."""

    def read(self, tenant_id: TenantId) -> AsyncIterator[AuditRecord]:
        """Every record that is stored, whatever the head says, in order of seq and in bounded memory.

        One whose columns differ from its body does not verify.
        """


class Registry(Protocol):
    """Tenants, clients, tool servers and tools. `put_*` inserts or replaces; `add_*` raises AlreadyExists."""

    async def add_tenant(self, tenant: Tenant) -> None: ...
    async def put_tenant(self, tenant: Tenant) -> None: ...
    async def tenant(self, tenant_id: TenantId) -> Tenant | None: ...
    async def tenants(self, *, after: str | None, limit: int) -> tuple[Tenant, ...]: ...

    async def add_client(self, client: Client) -> None: ...
    async def put_client(self, client: Client) -> None: ...
    async def client(self, client_id: ClientId) -> Client | None: ...
    async def clients(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Client, ...]: ...

    async def clients_of(self, tenant_id: TenantId, workload: Workload) -> tuple[Client, ...]:
        """Every client of the tenant that this workload proves, by id."""

    async def add_server(self, server: ToolServer) -> None: ...
    async def put_server(self, server: ToolServer) -> None: ...
    async def server(self, tenant_id: TenantId, name: ServerName) -> ToolServer | None: ...
    async def server_for(self, tenant_id: TenantId, audience: str) -> ToolServer | None:
        """The tool server registered with exactly this audience URI."""

    async def addresses(self) -> frozenset[str]:
        """Every endpoint and upstream audience in use: strings that may never be an audience."""

    async def audiences(self) -> frozenset[str]:
        """Every audience in use: strings that may never be an endpoint or upstream audience."""

    async def servers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[ToolServer, ...]: ...

    async def put_tool(self, tool: Tool) -> None: ...
    async def remove_tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> bool: ...
    async def tool(self, tenant_id: TenantId, server: ServerName, name: ToolName) -> Tool | None: ...
    async def tools(self, tenant_id: TenantId, server: ServerName) -> tuple[Tool, ...]: ...

    async def put_issuer(self, issuer: TrustedIssuer) -> None:
        """Raises AlreadyExists("issuer") where another name of the tenant has the same issuer."""

    async def issuer(self, tenant_id: TenantId, name: str) -> TrustedIssuer | None: ...
    async def issuer_of(self, tenant_id: TenantId, issuer: str) -> TrustedIssuer | None:
        """The one with exactly this `iss`."""

    async def issuers(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[TrustedIssuer, ...]:
        """By name."""

    async def registration(
        self, tenant_id: TenantId, clients: Sequence[ClientId], server: ServerName, tool: ToolName
    ) -> Registration:
        """All that bears on one call, in as few round trips as the store can."""


class Directory(Protocol):
    """What belongs to whom, by an administrator's word."""

    async def put(self, resources: Sequence[Resource]) -> None:
        """Insert these, each in the place of the one before."""

    async def remove(self, tenant_id: TenantId, ref: ResourceRef) -> bool: ...
    async def resource(self, tenant_id: TenantId, ref: ResourceRef) -> Resource | None: ...

    async def look_up(self, tenant_id: TenantId, refs: Collection[ResourceRef]) -> Resources:
        """Those of the things that belong to the tenant, in one round trip."""

    async def page(
        self, tenant_id: TenantId, *, kind: str | None, after: ResourceRef | None, limit: int
    ) -> tuple[Resource, ...]:
        """By type and id, code point order, behind the given one; of one type only where `kind` names it."""


class PolicyStore(Protocol):
    """The versions of tenants' policies. Nothing here is ever changed or removed."""

    async def add(self, policy: Policy) -> None:
        """Raises AlreadyExists("version")."""

    async def policy(self, tenant_id: TenantId, version: str) -> Policy | None: ...

    async def count(self, tenant_id: TenantId) -> int:
        """How many versions a tenant has."""

    async def page(self, tenant_id: TenantId, *, after: str | None, limit: int) -> tuple[Policy, ...]:
        """In the order in which they were made, behind the given version."""


class SpentTokens(Protocol):
    """Tokens that may not be used again, by who issued them and their `jti`: a JWT has several accepted spellings.

    Assertions and proofs are spent by their first use, our own tokens when they are revoked.
    """

    async def spend(
        self, tenant_id: TenantId, issuer: str, jti: str, *, expires_at: datetime, now: datetime, on: str | None = None
    ) -> bool:
        """Spend a token until it expires; False where it was spent before. `on` is what it was spent on.

        What the tenant has spent and has expired by now may be forgotten.
        """

    async def is_spent(self, tenant_id: TenantId, issuer: str, jti: str) -> bool: ...
    async def spent_on(self, tenant_id: TenantId, issuer: str, jti: str) -> str | None: ...
    async def spent_among(self, tenant_id: TenantId, issuer: str, jtis: Sequence[str]) -> frozenset[str]:
        """Those of them that are spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A signing key at rest: public JWK in the clear, private key encrypted.

    From `signs_from` on it signs, having been published before; retired it verifies nothing any more.
    """

    kid: str
    alg: str
    public_jwk: JsonObject
    sealed_private: bytes = field(repr=False)
    created_at: datetime
    signs_from: datetime
    retired_at: datetime | None = None


class KeyStore(Protocol):
    async def add(self, key: SigningKey) -> None: ...
    async def all(self) -> tuple[SigningKey, ...]:
        """Every key that is not retired, oldest first."""

    async def key(self, kid: str) -> SigningKey | None:
        """One key, retired or not."""

    async def page(self, *, after: str | None, limit: int) -> tuple[SigningKey, ...]:
        """Every key, retired or not, in the order in which they were made, behind the given one."""

    async def retire(self, kid: str, at: datetime) -> None:
        """A key that was retired before keeps its time."""


class Transaction(Protocol):
    grants: GrantStore
    ledger: Ledger
    audit: AuditLog
    registry: Registry
    directory: Directory
    policies: PolicyStore
    spent: SpentTokens
    keys: KeyStore

    async def commit(self) -> None: ...


class Store(Protocol):
    """The unit of work. A write transaction that is not committed changes nothing."""

    def read(self) -> AbstractAsyncContextManager[Transaction]: ...
    def write(self) -> AbstractAsyncContextManager[Transaction]: ...
    async def ready(self) -> str | None:
        """None when reachable and migrated, else a sentence that says what is missing."""

    async def aclose(self) -> None: ...


# --- keys and secrets -------------------------------------------------------------------------------------


class TokenRefused(Exception):
    """A presented token is none of ours, expired or of another kind. Carries no part of the token."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """The verified claims of an RFC 9068 access token. Without a grant it is for Subgrant's own API."""

    jti: str
    audience: str
    subject: str
    client_id: ClientId
    tenant_id: TenantId
    scopes: frozenset[str]
    grant_id: GrantId | None
    issued_at: datetime
    expires_at: datetime
    key_thumbprint: str | None = None
    """The key that the token is bound to (RFC 9449 §6.1)."""
    claims: JsonObject = field(repr=False)


class TokenExpired(TokenRefused):
    """A genuine access token whose time is over: who presented it is proven, what it was good for is gone."""

    def __init__(self, token: AccessToken) -> None:
        super().__init__(Reason.TOKEN_EXPIRED, "the token has expired")
        self.token = token


class Signer(Protocol):
    """Signs and verifies Subgrant's JWTs. A signature says who wrote it; whether a grant lives, the core says.

    Raises StoreUnavailable wherever it can't know which keys are retired by now.
    """

    def sign_grant(self, grant: Grant, act: JsonObject) -> str: ...
    def verify_grant(self, compact: str) -> VerifiedGrant:
        """Raises TokenRefused."""

    def sign_access_token(self, claims: JsonObject) -> str:
        """An `at+jwt`; issuer and key id are added."""

    def verify_access_token(self, compact: str, now: datetime) -> AccessToken:
        """Raises TokenRefused, and TokenExpired where nothing else is wrong."""

    def sign_upstream(self, audience: str, claims: JsonObject, now: datetime, lifetime: timedelta) -> str:
        """The credential that the gateway presents to a tool server with `jwt` credentials."""

    def jwks(self) -> JsonObject:
        """Every key that verifies or will sign."""

    @property
    def algorithm(self) -> str:
        """What new keys are for, and by which the service signs wherever a key of it may."""

    def new_key(self, seal: Seal, now: datetime, signs_from: datetime) -> SigningKey:
        """A key that was made now, its private half sealed."""

    def grants_start(self, key: SigningKey) -> str:
        """What the signed form of every grant starts with that this key signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideToken:
    """The verified claims of another issuer's JWT, or of a client's own assertion."""

    issuer: str
    subject: str
    jti: str | None
    issued_at: datetime | None
    expires_at: datetime
    typ: str | None
    claims: JsonObject = field(repr=False)


class OutsideTokens(Protocol):
    """Reads JWTs that others signed. Whom they may speak for, the use cases judge. Never called in a transaction."""

    def issuer_named(self, compact: str) -> str:
        """The `iss` that a token claims, which nothing proves yet. Raises TokenRefused for what is no strict JWT."""

    async def verify(
        self, compact: str, *, issuer: str, audience: str, keys: "KeySource", now: datetime, max_lifetime: timedelta
    ) -> OutsideToken:
        """A token that exactly this issuer signed for exactly this audience (RFC 7523 §3). Raises TokenRefused."""

    def flaw(self, jwks: JsonObject) -> str | None:
        """None for a set of public keys that can all be used, else what is wrong with it (RFC 7517 §5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where an issuer's public keys are, and by which algorithms they may sign: ours to say, never a token's."""

    algorithms: frozenset[str]
    jwks: JsonObject | None = field(default=None, repr=False)
    jwks_uri: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedKeys:
    """A key set as its owner publishes it, not yet read, and for how long its server says that it may be kept."""

    body: bytes = field(repr=False)
    max_age_seconds: float | None = None


FetchKeys = Callable[[str], Awaitable[PublishedKeys]]
"""Fetches the key set at a URL. Raises UpstreamFailed."""


PROOF_ALGORITHMS: Final = ("ES256", "ES384", "EdDSA", "Ed25519", "RS256", "PS256")
"""What a DPoP proof may be signed with (RFC 9449 §4.2): asymmetric all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A verified DPoP proof (RFC 9449 §4.2): which key was proven, and the proof's own marks."""

    key_thumbprint: str
    jti: str
    expires_at: datetime
    """When no worker accepts it any more, whatever its clock says."""


class Proofs(Protocol):
    """Verifies DPoP proofs (RFC 9449 §4.3) but for replay, which the store knows."""

    def verify(self, proof: str, *, method: str, url: str, access_token: str | None, now: datetime) -> Proof:
        """Raises TokenRefused: PROOF_INVALID, or PROOF_NONCE_NEEDED where it is sound but lacks a good nonce."""

    def nonce(self, now: datetime) -> str | None:
        """A nonce for the next proof; None where none are asked for (RFC 9449 §8)."""


class Vault(Protocol):
    """Encryption at rest and keyed digests, all under the key-encryption key."""

    def seal(self, plaintext: bytes, purpose: str) -> bytes: ...
    def open(self, sealed: bytes, purpose: str) -> bytes:
        """Raises ValueError where key, purpose or bytes differ."""

    def digest(self, content: bytes) -> str:
        """A keyed digest (hex), so that small values can't be guessed from it."""

    def hash_secret(self, secret: str) -> str: ...
    def secret_matches(self, secret: str, secret_hash: str) -> bool:
        """Takes a core for a while where `matches_quickly` does not know."""

    def matches_quickly(self, secret: str, secret_hash: str) -> bool | None:
        """Whether they match, where that is told at once; None where only the slow hash can tell."""


# --- tool servers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """One call to forward: the arguments that were checked, and the gateway's own credential."""

    transport: Transport
    endpoint: str
    tool: ToolName
    http: HttpBinding
    arguments: JsonObject
    headers: Mapping[str, str] = field(repr=False)
    timeout_seconds: float
    max_response_bytes: int
    session_key: str
    """Upstream sessions are never shared between different keys: tenant, tool server and run."""
    input_schema: JsonObject = field(default_factory=dict, repr=False)
    """The pinned one, which may ask for arguments to be repeated in header fields."""
    listener: "Listener | None" = field(default=None, repr=False, compare=False)
    """Who is told what the tool says while it runs, where anybody asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a running tool says that it is."""

    progress: int | float
    total: int | float | None = None
    message: str | None = None


LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""How grave a log message may be (RFC 5424 §6.2.1), the gravest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMessage:
    """What a running tool has to say for whoever watches."""

    level: str
    data: JsonValue
    logger: str | None = None


Notice = Progress | LogMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Who wants to hear of a running tool. `tell` returns at once and keeps only as much as it has room for."""

    tell: Callable[[Notice], None]
    hears_progress: bool = False
    log_level: str | None = None
    """The least grave of the log messages that are wanted; None wants none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAnswer:
    """What came of a forwarded call.

    SUCCESS and TOOL_ERROR carry the tool's result; UNKNOWN means that the request may have reached the tool
    (a time-out or a dropped connection after sending); UNSENT that it provably did not. `detail` is a sentence
    for the caller without any address or credential; `timed_out` tells 504 from 502.
    """

    outcome: Outcome
    result: JsonValue = None
    detail: str | None = None
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredTool:
    name: ToolName
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveRequest:
    """A question to a tool server's own resolver: what are these things of this tenant."""

    endpoint: str
    tenant_id: TenantId
    refs: tuple[ResourceRef, ...]
    headers: Mapping[str, str] = field(repr=False)
    timeout_seconds: float
    max_response_bytes: int


class UpstreamFailed(Exception):
    """A tool server could not be asked for its tools or its record. The message names no address and no credential."""


class Upstream(Protocol):
    async def call(self, request: UpstreamRequest) -> UpstreamAnswer:
        """Forward one call, once: no redirect is followed, nothing is retried. Cancellation aborts it."""

    def misfit(
        self, transport: Transport, endpoint: str, binding: HttpBinding, arguments: JsonObject
    ) -> tuple[str, str] | None:
        """None where the request has a place for every argument, else the pointer of one that has none, and why."""

    async def discover(self, request: UpstreamRequest) -> tuple[DiscoveredTool, ...]:
        """The tools of an MCP server (`tools/list`, every page, bounded). Raises UpstreamFailed."""

    async def resolve(self, request: ResolveRequest) -> Resources:
        """What the resolver has on record of the things asked about, of the tenant asked about; others are left out.

        Raises UpstreamFailed for any answer that is not understood to the last member.
        """

    async def aclose(self) -> None: ...


class SchemaValidator(Protocol):
    """JSON Schema (2020-12), without remote references."""

    def check_schema(self, schema: JsonObject) -> str | None:
        """None for a usable schema, else what is wrong with it."""

    def objection(self, schema: JsonObject, value: JsonValue) -> tuple[str, str] | None:
        """None where the value is accepted, else an RFC 6901 pointer and the violated keyword; never a value."""


# --- policies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyQuestion:
    """One call as policies may see it: what the server knows, and nothing that the caller claims but its address.

    `attributes` is what the directory has of what stands around the call: ("subject", …), ("run", …), ("client", …),
    ("tool", "server/tool"), ("tool-server", …), ("tenant", …). `resource_attributes` is what is on record of the
    named `resource`, with the directory or with the tool server; a call that names several is asked about once for
    each. The two are kept apart, so that a tool server's record never describes who calls.
    """

    tenant_id: str
    grant_id: str
    root_grant_id: str
    depth: int
    run_id: str
    parent_run_id: str | None
    subject: str
    actor: str
    client_id: str
    server: str
    tool: str
    effect: str
    trust: str
    sinks: tuple[str, ...]
    idempotent: bool
    max_cost_ucents: int
    now: datetime
    source_ip: str | None
    resource: ResourceRef | None
    resource_attributes: Attributes
    attributes: Mapping[ResourceRef, Attributes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    """Whether policies permit; whatever went wrong, which denies; which policies decided. Fit for a log."""

    permitted: bool
    errors: tuple[str, ...] = ()
    determining: tuple[str, ...] = ()


class PolicyEngine(Protocol):
    def flaws(self, text: str) -> tuple[str, ...]:
        """What is wrong with a text of policies, in sentences for its author; nothing for a usable one."""

    async def answer(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        """A policy that fails, a time-out or a fault in the engine denies and is named among the errors."""
