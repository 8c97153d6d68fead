"""The stage: Subgrant's public API as any client speaks it, and the tenants, clients and tools of the story.

Knows addresses, credentials and what came back. Refuses to know what is tried and how it ought to end:
`story.py` does.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import aiohttp

from app.core.strict_json import JsonObject, JsonValue
from app.demo.processes import BILLING_HEADER, SUPPORT_AUDIENCE, Servers

CASES_FILE: Final = Path(__file__).with_name("cases.json")

ACME: Final = "acme"
GLOBEX: Final = "globex"

CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
DELEGATION_GRANT: Final = "urn:subgrant:params:oauth:token-type:delegation-grant"

TIMEOUT: Final = aiohttp.ClientTimeout(total=15)
CHALLENGE_ERROR: Final = re.compile(r'\berror="([^"]*)"')


class StageFailed(Exception):
    """Something that the story rests on is not there; the message says what."""


# --- what comes back --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a step, or should have: whether it was allowed, why not, and the code on the wire.

    Where something was looked up rather than tried, `reason` says what was found.
    """

    decision: str
    reason: str | None
    code: str
    detail: str | None = field(default=None, compare=False)

    @property
    def words(self) -> str:
        short = ", ".join(filter(None, (self.decision, self.reason, self.code)))
        return f"{short} ({self.detail})" if self.detail else short


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An HTTP answer: its status, its document, and the OAuth error that its document or challenge names.

    `finding` says what somebody saw who looked at it.
    """

    status: int
    document: JsonObject
    error: str | None = None
    finding: str | None = None

    @property
    def is_success(self) -> bool:
        return self.status < 400  # noqa: PLR2004 - HTTP's own line

    @property
    def outcome(self) -> Outcome:
        code = f"{self.status} {self.error or ''}".rstrip()
        decision = "allowed" if self.is_success else "refused"
        return Outcome(decision=decision, reason=self._reason, code=code, detail=self._detail)

    @property
    def _reason(self) -> str | None:
        if not self.is_success:
            return str(self.document.get("reason") or self.document.get("error") or "no reason given")
        # A call that was allowed and failed at the tool is no success.
        outcome = self.document.get("outcome", "success")
        return self.finding if outcome == "success" else str(outcome)

    @property
    def _detail(self) -> str | None:
        detail = self.document.get("detail") or self.document.get("error_description")
        return detail if isinstance(detail, str) else None

    @property
    def decision_id(self) -> str | None:
        """By which the audit log knows the decision; OAuth's documents spell it their way."""
        found = self.document.get("decisionId") or self.document.get("decision_id")
        return found if isinstance(found, str) else None


def text(document: JsonValue, name: str) -> str:
    """A member that must be there. Raises StageFailed."""
    value = document.get(name) if isinstance(document, dict) else None
    if not isinstance(value, str):
        raise StageFailed(f"an answer has no {name}")
    return value


def items(document: JsonObject, name: str) -> list[JsonValue]:
    """A list that must be there. Raises StageFailed."""
    value = document.get(name)
    if not isinstance(value, list):
        raise StageFailed(f"an answer has no {name}")
    return value


def objects(document: JsonObject, name: str) -> list[JsonObject]:
    """The objects of a list that must be there. Raises StageFailed."""
    return [item for item in items(document, name) if isinstance(item, dict)]


# --- the API ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An OAuth client with its token for the API itself."""

    client_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """Requests to Subgrant, and past it. Whatever comes back is an Answer."""

    http: aiohttp.ClientSession
    issuer: str

    async def post(self, path: str, bearer: str, body: JsonObject) -> Answer:
        return await self.send("POST", self.issuer + path, _bearer(bearer), body)

    async def get(self, path: str, bearer: str) -> Answer:
        return await self.send("GET", self.issuer + path, _bearer(bearer))

    async def token(self, client: Client, **parameters: str) -> Answer:
        """A request to the token endpoint (RFC 6749 §3.2), as a client that proves who it is."""
        basic = {"Authorization": aiohttp.encode_basic_auth(client.client_id, client.secret)}
        async with self.http.post(f"{self.issuer}/oauth/token", data=parameters, headers=basic) as response:
            return await _answer(response)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: JsonObject | None = None) -> Answer:
        async with self.http.request(method, url, headers=headers, json=body, allow_redirects=False) as response:
            return await _answer(response)

    async def login(self, client_id: str, secret: str) -> Client:
        """The client with a token for the API (`client_credentials`)."""
        client = Client(client_id=client_id, secret=secret)
        answer = await self.token(client, grant_type=CLIENT_CREDENTIALS)
        token = text(_made("a token", answer), "access_token")
        return Client(client_id=client_id, secret=secret, token=token)


def _bearer(token: str) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _answer(response: aiohttp.ClientResponse) -> Answer:
    try:
        document = json.loads(await response.read() or b"{}")
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        document = {}
    challenge = CHALLENGE_ERROR.search(response.headers.get("WWW-Authenticate", ""))
    error = challenge[1] if challenge else None
    if "error_description" in document:
        error = str(document.get("error"))
    return Answer(status=response.status, document=document, error=error)


def _made(what: str, answer: Answer) -> JsonObject:
    if answer.is_success:
        return answer.document
    raise StageFailed(f"{what} could not be made: {answer.outcome.words}")


# --- the cast ---------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Stage:
    """Who is there, and what the story has come to so far."""

    api: Api
    servers: Servers
    audience: Mapping[str, str]
    supervisor: Client
    researcher: Client
    auditor: Client
    outsider: Client
    grants: dict[str, JsonObject] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    decisions: dict[str, str | None] = field(default_factory=dict)
    planted_note: JsonObject | None = None
    summary: list[str] = field(default_factory=list)
    lineage: list[JsonObject] = field(default_factory=list)
    records: list[JsonObject] = field(default_factory=list)
    verification: JsonObject | None = None

    def grant(self, name: str, member: str) -> str:
        """A member of a grant that the story has made. Raises StageFailed."""
        return text(self.grants.get(name), member)

    def token(self, name: str) -> str:
        """A token that the story was given. Raises StageFailed."""
        return text(dict(self.tokens), name)


SUPPORT_TOOLS: Final[Mapping[str, JsonObject]] = {
    "case_search": {"costCents": 1.5, "effect": "read", "loggableArguments": ["customerId"]},
    "send_message": {"costCents": 2, "effect": "external", "loggableArguments": ["to"]},
}
"""What an administrator adds to what the MCP server says of its tools."""


def _schema(**properties: JsonValue) -> JsonObject:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


BILLING_TOOLS: Final[Mapping[str, JsonObject]] = {
    "refund": {
        "description": "Pay money back to a customer.",
        "inputSchema": _schema(
            caseId={"type": "string"}, customerId={"type": "string"}, amountCents={"type": "integer", "minimum": 1}
        ),
        # Held at its maximum while it runs, charged at what the payment provider says that it took.
        "maxCostCents": 30,
        "costFrom": "/costCents",
        "effect": "destructive",
        "loggableArguments": ["caseId", "customerId"],
        "resourceArguments": {"caseId": "case"},
        "http": {"method": "POST", "path": "/refunds"},
    },
    "close_account": {
        "description": "Close a customer's account.",
        "inputSchema": _schema(customerId={"type": "string"}),
        "effect": "destructive",
        "loggableArguments": ["customerId"],
        "http": {"method": "POST", "path": "/accounts/{customerId}/close"},
    },
}

POLICY: Final = """\
permit (principal, action, resource);

@id("nothing-is-paid-for-a-resolved-case")
forbid (principal, action, resource == Tool::"billing/refund")
when { context has resource && context.resource.hasTag("status") && context.resource.getTag("status") == "resolved" };
"""
"""What Acme holds every call to, whatever was granted."""

POLICY_CASES: Final[list[JsonValue]] = [
    {
        "name": f"a refund for a case that is {status}",
        "expect": expected,
        "call": {
            "server": "billing",
            "tool": "refund",
            "resource": {"type": "case", "id": "case_1"},
            "attributes": {"case": {"case_1": {"status": status}}},
        },
    }
    for status, expected in (("resolved", "deny"), ("open", "permit"))
]
"""What must come of it before it may be activated."""

SUPERVISOR_LIMITS: Final[JsonObject] = {
    "audiences": ["support", "billing"],
    "allowedTools": ["support/case_search", "support/send_message", "billing/refund"],
    "maxToolCalls": 100,
    "maxSpendCents": 500,
    "maxLifetimeSeconds": 3600,
    "maxDepth": 2,
}


async def set_up(http: aiohttp.ClientSession, servers: Servers) -> Stage:
    """Everything that an administrator does before the first grant. Raises StageFailed."""
    api = Api(http=http, issuer=servers.subgrant.url)
    admin = Admin(api=api, client=await api.login(servers.admin_id, servers.admin_secret))
    await admin.make("tenants", {"tenantId": ACME, "name": "Acme"})
    await admin.make("tenants", {"tenantId": GLOBEX, "name": "Globex"})
    await admin.make("resources", {"resources": _directory()})
    policy = await admin.make("policies", {"tenantId": ACME, "text": POLICY, "cases": POLICY_CASES})
    await admin.make(f"policies/{text(policy, 'version')}/activate?tenant={ACME}", {})
    return Stage(
        api=api,
        servers=servers,
        audience={"support": await _support(admin, servers), "billing": await _billing(admin, servers)},
        supervisor=await admin.register(ACME, "supervisor", "orchestrator", "grants:issue", **SUPERVISOR_LIMITS),
        researcher=await admin.register(ACME, "researcher", "agent", "tools:call"),
        auditor=await admin.register(ACME, "auditor", "auditor", "audit:read"),
        outsider=await admin.register(GLOBEX, "globex-agent", "agent", "tools:call"),
    )


def _directory() -> list[JsonValue]:
    """Whose the cases are, in which state: the administrator's word, which no caller can change."""
    cases = json.loads(CASES_FILE.read_text("utf-8"))["cases"]
    return [
        {
            "tenantId": case["tenant"],
            "type": "case",
            "id": case["caseId"],
            "attributes": {"customerId": case["customerId"], "status": case["status"]},
        }
        for case in cases
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The platform's administrator at work."""

    api: Api
    client: Client

    async def make(self, path: str, body: JsonObject, *, method: str = "POST") -> JsonObject:
        """The document of something made or changed. Raises StageFailed."""
        url = f"{self.api.issuer}/v1/admin/{path}"
        return _made(path, await self.api.send(method, url, _bearer(self.client.token), body))

    async def register(self, tenant: str, client_id: str, kind: str, scope: str, **limits: JsonValue) -> Client:
        body: JsonObject = {"clientId": client_id, "tenantId": tenant, "kind": kind, "scopes": [scope]}
        made = await self.make("clients", body | {"authMethod": "client_secret_basic", "limits": limits})
        return await self.api.login(client_id, text(made, "clientSecret"))

    async def tool_server(self, name: str, **members: JsonValue) -> str:
        """A tool server of Acme; its audience."""
        return text(await self.make("tool-servers", {"tenantId": ACME, "name": name, **members}), "audience")


async def _support(admin: Admin, servers: Servers) -> str:
    """An MCP server: it says which tools it has, and trusts a JWT that Subgrant signs for it alone."""
    audience = await admin.tool_server(
        "support",
        transport="mcp",
        endpoint=f"{servers.support.url}/mcp",
        upstreamAudience=SUPPORT_AUDIENCE,
        credential={"type": "jwt"},
    )
    await admin.make(f"tool-servers/support/discover?tenant={ACME}", {})
    for tool, members in SUPPORT_TOOLS.items():
        await admin.make(f"tool-servers/support/tools/{tool}?tenant={ACME}", members, method="PATCH")
    return audience


async def _billing(admin: Admin, servers: Servers) -> str:
    """A plain HTTP server: its tools are declared, and it trusts whoever knows its key."""
    credential: JsonObject = {"type": "header", "header": BILLING_HEADER, "value": servers.billing_key}
    endpoint = servers.billing.url
    audience = await admin.tool_server("billing", transport="http", endpoint=endpoint, credential=credential)
    for tool, members in BILLING_TOOLS.items():
        await admin.make(f"tool-servers/billing/tools/{tool}?tenant={ACME}", members, method="PUT")
    return audience


# --- how a story is written -------------------------------------------------------------------------------

Action: TypeAlias = Callable[[Stage], Awaitable[Answer]]
Bearer: TypeAlias = Callable[[Stage], str]
"""Whose token is shown."""


class Step(NamedTuple):
    """One thing that somebody tries, and what ought to come of it."""

    who: str
    tries: str
    act: Action
    expected: Outcome


class Exhibit(Enum):
    """What came to light in an act and is worth seeing."""

    NOTHING = auto()
    NOTE = auto()
    SUMMARY = auto()


class Act(NamedTuple):
    """Steps under a heading."""

    title: str
    steps: tuple[Step, ...]
    shows: Exhibit = Exhibit.NOTHING


class Result(NamedTuple):
    """A step and what came of it."""

    number: int
    step: Step
    seen: Outcome

    @property
    def difference(self) -> str | None:
        """How it went otherwise than expected, in words; None where it did not."""
        if self.seen == self.step.expected:
            return None
        return f"expected {self.step.expected.words}; got {self.seen.words}"
