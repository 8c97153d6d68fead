"""What administrators register: tenants, OAuth clients, tool servers and their tools.

Plain immutable records and the words they use. Nothing here is ever taken from a caller's request at call
time, nor from what a tool server says of itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.core.attenuation import Ceiling
from app.core.budget import Amount, Price
from app.core.definition import Definition, PendingDefinition
from app.core.grant import POLICY_V0, ClientId, ServerName, TenantId, ToolName
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonObject, JsonValue, canonical

PLATFORM_TENANT = TenantId("platform")

DESCRIBED_TYPES: Final = frozenset({"tenant", "subject", "run", "client", "tool-server", "tool"})
"""The types under which the directory describes what stands around a call: no tool server's word counts for them."""

_NOT_CREDENTIALS: Final = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "cookie", "date", "expect", "host", "keep-alive", "last-event-id", "set-cookie", "te",
        "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
    }
)  # fmt: skip
"""Fields that frame a message or belong to the protocol. A cookie is a session, and sessions are never shared."""

_NOT_CREDENTIALS_PREFIXES: Final = ("mcp-", "proxy-", "sec-", "content-", "if-")


class Scope(StrEnum):
    """OAuth scopes: what a client may do with the API. Authority over tools is a grant's matter."""

    TOOLS_CALL = "tools:call"
    GRANTS_ISSUE = "grants:issue"
    GRANTS_READ = "grants:read"
    AUDIT_READ = "audit:read"
    ADMIN = "admin"
    PLATFORM = "platform"


class ClientKind(StrEnum):
    """What a client is. A `person` signs in where an application asks for authority, and an `app` asks."""

    ORCHESTRATOR = "orchestrator"
    AGENT = "agent"
    AUDITOR = "auditor"
    ADMIN = "admin"
    PERSON = "person"
    APP = "app"


class AuthMethod(StrEnum):
    """How a client proves itself at the token endpoint (RFC 6749 §2.3.1, RFC 7523 §2.2).

    `none` is for applications that can keep no secret: PKCE alone ties their codes to them (RFC 7636).
    """

    CLIENT_SECRET_BASIC = "client_secret_basic"
    CLIENT_SECRET_POST = "client_secret_post"
    PRIVATE_KEY_JWT = "private_key_jwt"
    NONE = "none"


class GrantType(StrEnum):
    """What a client may present at the token endpoint (RFC 6749 §4, RFC 8693 §2.1, RFC 7523 §2.1)."""

    CLIENT_CREDENTIALS = "client_credentials"
    TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
    JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
    AUTHORIZATION_CODE = "authorization_code"


DEFAULT_GRANT_TYPES: Final = frozenset({GrantType.CLIENT_CREDENTIALS, GrantType.TOKEN_EXCHANGE, GrantType.JWT_BEARER})


class SigningAlgorithm(StrEnum):
    """By what others may sign what they present here (RFC 7518 §3.1, RFC 8037 §3.1): never by a shared secret."""

    EDDSA = "EdDSA"
    ES256 = "ES256"
    ES384 = "ES384"
    ES512 = "ES512"
    PS256 = "PS256"
    PS384 = "PS384"
    PS512 = "PS512"
    RS256 = "RS256"
    RS384 = "RS384"
    RS512 = "RS512"


DEFAULT_ISSUER_ALGORITHMS: Final = frozenset({SigningAlgorithm.RS256, SigningAlgorithm.ES256, SigningAlgorithm.EDDSA})


class Transport(StrEnum):
    HTTP = "http"
    MCP = "mcp"


class CredentialType(StrEnum):
    """What the gateway presents to a tool server: nothing, a secret header, or a JWT that it signs."""

    NONE = "none"
    HEADER = "header"
    JWT = "jwt"


class Effect(StrEnum):
    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"
    EXTERNAL = "external"


class Trust(StrEnum):
    """How far a tool's output may be trusted."""

    TRUSTED = "trusted"
    INTERNAL = "internal"
    EXTERNAL_UNTRUSTED = "external_untrusted"


class ToolSource(StrEnum):
    DECLARED = "declared"
    DISCOVERED = "discovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A cumulative limit over consecutive windows of time, so that minting new roots evades nothing."""

    length: timedelta
    limit: Amount

    def start(self, now: datetime) -> int:
        """The Unix second at which the window that holds `now` began."""
        seconds = int(self.length.total_seconds())
        return int(now.timestamp()) // seconds * seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    tenant_id: TenantId
    name: str
    active: bool = True
    allow_grant_bearer: bool = True
    window: Window | None = None
    policy_version: str = POLICY_V0
    """The policy that is active: new roots pin it, and every call must satisfy it."""
    max_depth: int | None = None
    """How deep any delegation may go, whatever its grants say; None: as deep as those allow."""

    def bounded(self, ceiling: Ceiling) -> Ceiling:
        """A client's ceiling, no deeper than the tenant allows."""
        return ceiling if self.allows_depth(ceiling.max_depth) else replace(ceiling, max_depth=self.max_depth or 0)

    def allows_depth(self, depth: int) -> bool:
        return self.max_depth is None or depth <= self.max_depth


class IssuerUse(StrEnum):
    """What a trusted issuer's word is taken for."""

    CLIENT = "client"
    """That a workload is a client: assertions at the token endpoint (RFC 7523 §2.2), tokens of actors."""
    SUBJECT = "subject"
    """Who a subject is: subject tokens (RFC 8693 §2.1)."""
    GRANT = "grant"
    """That a user lets a client act at a tool server: identity assertion grants (RFC 7523 §2.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedIssuer:
    """Another issuer whose JWTs a tenant trusts: a company's identity provider, a cluster's or mesh's workloads.

    Its keys are `jwks`, or what `jwks_uri` serves. `audience` is the only `aud` that its tokens may have here; None
    is our own issuer. A subject that it names is known to us as `{name}#{sub}`, which no client's id can be.
    """

    tenant_id: TenantId
    name: str
    issuer: str
    uses: frozenset[IssuerUse]
    algorithms: frozenset[SigningAlgorithm] = DEFAULT_ISSUER_ALGORITHMS
    jwks_uri: str | None = None
    jwks: JsonObject | None = field(default=None, repr=False)
    audience: str | None = None
    max_lifetime: timedelta = timedelta(hours=24)
    single_use: bool = True
    """Whether each of its tokens proves a client once only. Platforms hand others out as files, to be shown again."""
    active: bool = True

    def subject(self, sub: str) -> str:
        """The name by which we know a subject of this issuer."""
        return f"{self.name}#{sub}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Whom a trusted issuer must name for a client: the issuer by its name, and the `sub` of its assertions."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An OAuth client. `secret_hash` never leaves the store's side of the use cases."""

    client_id: ClientId
    tenant_id: TenantId
    kind: ClientKind
    scopes: frozenset[Scope]
    auth_method: AuthMethod
    secret_hash: str = field(repr=False)
    ceiling: Ceiling = field(default_factory=Ceiling)
    window: Window | None = None
    active: bool = True
    grant_types: frozenset[GrantType] = DEFAULT_GRANT_TYPES
    jwks: JsonObject | None = field(default=None, repr=False)
    """The public keys of a client that signs its own assertions (RFC 7517 §5)."""
    workload: Workload | None = None
    """Who else's assertions prove the client, instead of keys of its own."""
    dpop_required: bool = False
    """Whether its tokens must be bound to a key (RFC 9449 §5.2)."""
    redirect_uris: tuple[str, ...] = ()
    standing_grants: Mapping[str, str] = field(default_factory=dict)
    """By tool server, the id of the grant that stands behind the tokens that the client asks for by itself."""

    @property
    def is_platform(self) -> bool:
        """Whether the client administers every tenant. Only the bootstrap makes such a client."""
        return Scope.PLATFORM in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What is presented to a tool server. `sealed` is the header's secret value, encrypted."""

    type: CredentialType = CredentialType.NONE
    header: str | None = None
    sealed: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Where a tool server says whose the things of these types are: a path of its own origin, asked over HTTP.

    `cache_seconds` is how long an answer may be used again.
    """

    path: str
    types: tuple[str, ...]
    cache_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolServer:
    tenant_id: TenantId
    name: ServerName
    audience: str
    transport: Transport
    endpoint: str
    upstream_audience: str
    credential: Credential
    timeout_seconds: float
    max_response_bytes: int
    resolver: Resolver | None = None
    active: bool = True
    definition_max_age_seconds: float = 0.0
    """How long an MCP server's word that a tool is as it was pinned may be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBinding:
    """How a tool is called over plain HTTP: `{name}` in the path takes that argument as one segment."""

    method: str = "POST"
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool of a tool server, as an administrator declared it or pinned it at discovery."""

    tenant_id: TenantId
    server: ServerName
    name: ToolName
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    price: Price
    effect: Effect
    trust: Trust
    sinks: tuple[str, ...]
    idempotent: bool
    loggable_arguments: tuple[str, ...]
    http: HttpBinding
    source: ToolSource
    resource_arguments: Mapping[str, str] = field(default_factory=dict)
    """The arguments that name things, and the type of those: policies are asked about them, whatever a grant says."""
    pinned: Definition | None = None
    """What the tool server's own definition is held to, where an administrator describes the tool in other words."""
    pending: PendingDefinition | None = None
    """What the tool server offered otherwise than pinned: no call is made until an administrator accepts it."""

    @property
    def definition(self) -> Definition:
        """The tool as models are shown it."""
        return Definition(
            description=self.description, input_schema=self.input_schema, output_schema=self.output_schema
        )

    @property
    def pin(self) -> Definition:
        """What the tool server must offer for a call to be made."""
        return self.pinned or self.definition

    @property
    def pin_digest(self) -> str:
        return self.pin.digest(self.name)

    def things(self, arguments: JsonObject) -> frozenset[ResourceRef]:
        """What these arguments name by the tool's registration. An item of a list is a thing of its own."""
        given = ((type_, arguments[name]) for name, type_ in self.resource_arguments.items() if name in arguments)
        each = ((type_, value if isinstance(value, list) else [value]) for type_, value in given)
        return frozenset(ResourceRef(type_, _spelt(item)) for type_, items in each for item in items)


def _spelt(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A thing that belongs to a tenant, as Subgrant's own directory has it."""

    tenant_id: TenantId
    type: str
    id: str
    attributes: Attributes

    @property
    def ref(self) -> ResourceRef:
        return ResourceRef(self.type, self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCase:
    """One question that a policy's author wants answered so: run before the policy may be activated.

    `call` is the question's document, as `docs/policies.md` spells it.
    """

    name: str
    permitted: bool
    call: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One version of a tenant's policies, as Cedar text. It never changes; a tenant activates one version."""

    tenant_id: TenantId
    version: str
    text: str
    description: str
    cases: tuple[PolicyCase, ...]
    created_at: datetime
    created_by: ClientId


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Everything the registry says that bears on one call."""

    tenant: Tenant | None
    clients: Mapping[ClientId, Client]
    server: ToolServer | None
    tool: Tool | None


def may_carry_credential(header: str) -> bool:
    """Whether a header field is free for what the gateway presents to a tool server."""
    name = header.lower()
    return name not in _NOT_CREDENTIALS and not name.startswith(_NOT_CREDENTIALS_PREFIXES)
