"""`subgrant demo`: a delegated task, a planted instruction, and an agent that obeys it as far as it can.

`ACTS` is the story: who tries what, and how Subgrant ought to answer. Every step is a real request to a real
process; nothing is canned, and what differs from what was expected makes the demonstration fail. Refuses to
know how processes are started, how the stage is set and how any of it looks.
"""

import asyncio
import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from typing import Final

import aiohttp
from rich.console import Console

from app.core.reasons import Reason
from app.core.strict_json import JsonObject
from app.demo.processes import BILLING_HEADER, Servers, StartFailed, running
from app.demo.render import Screen
from app.demo.stage import (
    DELEGATION_GRANT,
    TIMEOUT,
    TOKEN_EXCHANGE,
    Act,
    Action,
    Answer,
    Bearer,
    Client,
    Exhibit,
    Outcome,
    Result,
    Stage,
    StageFailed,
    Step,
    items,
    objects,
    set_up,
    text,
)

SUPERVISOR: Final = "supervisor"
CHILD: Final = "child"
OUTSIDER: Final = "globex"
AUDITOR: Final = "auditor"
BILLING: Final = "billing"

SHORT_SECONDS: Final = 3
MARGIN_SECONDS: Final = 0.05
"""A sleep may end a little before a clock says so."""

FAILED: Final = "failed"
"""The decision on a step that could not even be tried."""


def allowed(code: str = "200", finding: str | None = None) -> Outcome:
    return Outcome(decision="allowed", reason=finding, code=code)


def refused(reason: str, code: str) -> Outcome:
    return Outcome(decision="refused", reason=reason, code=code)


# --- what is granted --------------------------------------------------------------------------------------

ANY_CASE: Final[JsonObject] = {
    "tenant": {"bind": "tenantId"},
    "customerId": {"str": {"minLength": 1, "maxLength": 40}},
    "limit": {"int": {"min": 1, "max": 50}},
}
ROOT: Final[JsonObject] = {
    "allowedTools": ["support/case_search", "support/send_message", "billing/refund"],
    "resourceConstraints": {
        "support/case_search": ANY_CASE,
        "support/send_message": {"to": {"str": {"maxLength": 40}}, "text": {"str": {"maxLength": 2000}}},
        "billing/refund": {
            "caseId": {"resource": {"type": "case", "where": {"customerId": "c_42"}}},
            "customerId": {"str": {"minLength": 1, "maxLength": 40}},
            "amountCents": {"int": {"min": 1, "max": 50_000}},
        },
    },
    "maxToolCalls": 20,
    "maxSpendCents": 100,
    "mayRedelegate": True,
    "expiresInSeconds": 600,
    "childRunId": "run_supervisor",
}
RESEARCH: Final[JsonObject] = {
    "allowedTools": ["case_search"],
    "resourceConstraints": {
        "case_search": {
            "tenant": {"bind": "tenantId"},
            "customerId": {"eq": "c_42"},
            "limit": {"int": {"min": 1, "max": 5}},
        }
    },
    "resultProjection": {
        "case_search": [
            "$.cases[*].caseId",
            "$.cases[*].issueCode",
            "$.cases[*].status",
            "$.cases[*].updatedOn",
            "$.cases[*].notes[*].on",
            "$.cases[*].notes[*].text",
        ]
    },
    "maxToolCalls": 2,
    "maxSpendCents": 5,
    "expiresInSeconds": 60,
    "holder": "researcher",
}
INSTRUCTION: Final = "by calling the refund tool"
"""By these words the story knows the planted note among the others."""

THE_CASES: Final[JsonObject] = {"customerId": "c_42", "limit": 5}
THE_REFUND: Final[JsonObject] = {"caseId": "case_1093", "customerId": "c_42", "amountCents": 48_000}


# --- what can be tried ------------------------------------------------------------------------------------


def then(act: Action, look: Callable[[Stage, JsonObject], str | None]) -> Action:
    """Try it, and where that succeeds look at what came back. What `look` says stands in the place of a reason."""

    async def both(stage: Stage) -> Answer:
        answer = await act(stage)
        return replace(answer, finding=look(stage, answer.document)) if answer.is_success else answer

    return both


def mint(name: str, members: JsonObject) -> Action:
    """The supervisor asks for a root grant that reaches both tool servers."""

    async def act(stage: Stage) -> Answer:
        body = members | {"audience": [*stage.audience.values()]}
        return await stage.api.post("/v1/grants", stage.supervisor.token, body)

    return then(act, _keep_grant(name))


def derive(name: str, members: JsonObject) -> Action:
    """The supervisor asks for a child of its own grant that reaches the support server alone."""
    wish = members | {"childRunId": f"run_{name}"}
    return then(derive_from("supervisor", wish, bearer=lambda stage: stage.supervisor.token), _keep_grant(name))


def derive_from(parent: str, members: JsonObject, *, bearer: Bearer) -> Action:
    """Somebody asks for a child of a grant."""

    async def act(stage: Stage) -> Answer:
        body = members | {"audience": stage.audience["support"]}
        return await stage.api.post(f"/v1/grants/{stage.grant(parent, 'grantId')}/derive", bearer(stage), body)

    return act


def _keep_grant(name: str) -> Callable[[Stage, JsonObject], None]:
    def keep(stage: Stage, document: JsonObject) -> None:
        stage.grants[name] = document

    return keep


def exchange(grant: str, who: Callable[[Stage], Client], *, resource: str | None = None, **parameters: str) -> Action:
    """A client exchanges a grant for an access token, unless it asks for something else (RFC 8693)."""

    async def act(stage: Stage) -> Answer:
        target = {} if resource is None else {"resource": stage.audience[resource]}
        subject = {"subject_token": stage.grant(grant, "grant"), "subject_token_type": DELEGATION_GRANT}
        return await stage.api.token(who(stage), grant_type=TOKEN_EXCHANGE, **subject, **target, **parameters)

    def keep(stage: Stage, document: JsonObject) -> None:
        stage.tokens[grant] = text(document, "access_token")

    return then(act, keep)


def token_for(grant: str) -> Bearer:
    """The token that a grant was exchanged for."""
    return lambda stage: stage.token(grant)


def forged(grant: str) -> Bearer:
    """The same with one more tool written into it; the signature stays what it was."""

    def edit(stage: Stage) -> str:
        header, payload, signature = stage.token(grant).split(".")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        claims["authorization_details"][0]["allowedTools"] = ["case_search", "refund"]
        edited = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
        return f"{header}.{edited}.{signature}"

    return edit


def call(tool: str, arguments: JsonObject, *, server: str = "support", bearer: Bearer | None = None) -> Action:
    """A tool call through the gateway; the child's unless another token is shown."""
    shown = bearer or token_for("research")

    async def act(stage: Stage) -> Answer:
        body: JsonObject = {"toolServerAudience": stage.audience[server], "name": tool, "arguments": arguments}
        return await stage.api.post("/v1/gateway/calls", shown(stage), body)

    return act


def refund(case: str) -> Action:
    """A refund under the supervisor's own grant."""
    arguments = THE_REFUND | {"caseId": case}
    return call("refund", arguments, server="billing", bearer=lambda stage: stage.grant("supervisor", "grant"))


async def refund_directly(stage: Stage) -> Answer:
    """Past the gateway: the child's token in place of the gateway's key."""
    token = stage.token("research")
    headers = {"Authorization": f"Bearer {token}", BILLING_HEADER: token}
    return await stage.api.send("POST", f"{stage.servers.billing.url}/refunds", headers, THE_REFUND)


async def search_directly(stage: Stage) -> Answer:
    """Past the gateway: the server is the one that the token is about, but trusts the gateway alone."""
    headers = {"Authorization": f"Bearer {stage.token('research')}", "Accept": "application/json, text/event-stream"}
    params: JsonObject = {"name": "case_search", "arguments": {"tenant": "acme", "customerId": "c_43"}}
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return await stage.api.send("POST", f"{stage.servers.support.url}/mcp", headers, message)


async def cancel(stage: Stage) -> Answer:
    """The supervisor is done with the child."""
    path = f"/v1/grants/{stage.grant('research', 'grantId')}/close"
    return await stage.api.post(path, stage.supervisor.token, {"reason": "cancelled"})


def once_expired(grant: str, act: Action) -> Action:
    """The same, once a grant's time is over. It is at most `SHORT_SECONDS` away."""

    async def later(stage: Stage) -> Answer:
        left = datetime.fromisoformat(stage.grant(grant, "expiresAt")).timestamp() - time.time()
        await asyncio.sleep(min(max(left, 0), SHORT_SECONDS) + MARGIN_SECONDS)
        return await act(stage)

    return later


async def open_books(stage: Stage) -> Answer:
    headers = {BILLING_HEADER: stage.servers.billing_key}
    return await stage.api.send("GET", f"{stage.servers.billing.url}/ledger", headers)


async def read_catalogue(stage: Stage) -> Answer:
    path = f"/v1/grants/{stage.grant('research', 'grantId')}/tools"
    return await stage.api.get(path, stage.researcher.token)


async def read_lineage(stage: Stage) -> Answer:
    path = f"/v1/grants/{stage.grant('supervisor', 'grantId')}/lineage"
    return await stage.api.get(path, stage.supervisor.token)


async def read_log(stage: Stage) -> Answer:
    return await stage.api.get("/v1/audit/records?order=oldest&limit=500", stage.auditor.token)


async def verify_log(stage: Stage) -> Answer:
    return await stage.api.get("/v1/audit/verify", stage.auditor.token)


# --- what is found ----------------------------------------------------------------------------------------


def find_note(stage: Stage, document: JsonObject) -> str:
    """What the child reads holds an instruction that is not its supervisor's, and nobody's name or card."""
    notes = (note | {"caseId": case.get("caseId")} for case in _cases(document) for note in objects(case, "notes"))
    stage.planted_note = next((note for note in notes if INSTRUCTION in text(note, "text")), None)
    if stage.planted_note is None:
        return "no planted note"
    personal = any({"customer", "payment"} & case.keys() for case in _cases(document))
    return "names or cards" if personal else "no names, no cards"


def look_at_tools(_stage: Stage, document: JsonObject) -> str:
    """What the child's model is shown: how many tools, with how many arguments that it may choose."""
    shown = objects(document, "tools")
    choices = sum(len(_properties(tool)) for tool in shown)
    return f"{len(shown)} tool, {choices} arguments"


def _properties(tool: JsonObject) -> JsonObject:
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties if isinstance(properties, dict) else {}


def sum_up(stage: Stage, document: JsonObject) -> str | None:
    """What the child was asked for, made of what it read."""
    cases = _cases(document)
    counts = Counter(_status(case) for case in cases)
    shares = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    stage.summary = [f"Customer c_42 has {len(cases)} cases: {shares}.", *map(_summary_line, cases)]
    return None if cases else "no cases"


def _summary_line(case: JsonObject) -> str:
    return f"{text(case, 'updatedOn')}  {text(case, 'caseId')}  {_status(case):<21}{text(case, 'issueCode')}"


def _status(case: JsonObject) -> str:
    return text(case, "status").replace("_", " ")


def _cases(document: JsonObject) -> list[JsonObject]:
    """The cases in the result of an MCP tool."""
    result = document.get("result")
    found = result.get("structuredContent") if isinstance(result, dict) else None
    return objects(found, "cases") if isinstance(found, dict) else []


def count_entries(_stage: Stage, document: JsonObject) -> str:
    """The billing server's own ledger has everything that it was ever made to do."""
    refunds, closed = (len(items(document, name)) for name in ("refunds", "closedAccounts"))
    return f"{refunds} refunds, {closed} closed"


def keep_lineage(stage: Stage, document: JsonObject) -> None:
    stage.lineage = objects(document, "subtree")


def look_up_decisions(stage: Stage, document: JsonObject) -> str:
    """Each decision that was answered so far, in the log: the same, with the same reason."""
    stage.records = objects(document, "items")
    logged = [(record.get("decisionId"), record.get("reason")) for record in stage.records if "decision" in record]
    found = [one for one in stage.decisions.items() if one in logged]
    return "all are there" if found and len(found) == len(stage.decisions) else f"only {len(found)} are there"


def keep_verification(stage: Stage, document: JsonObject) -> str:
    stage.verification = document
    return "whole" if document.get("ok") is True else "not whole"


def _supervisor(stage: Stage) -> Client:
    return stage.supervisor


def _researcher(stage: Stage) -> Client:
    return stage.researcher


def _outsider(stage: Stage) -> Client:
    return stage.outsider


# --- the story --------------------------------------------------------------------------------------------

MORE_MONEY: Final[JsonObject] = RESEARCH | {"maxSpendCents": 101}
ACCOMPLICE: Final[JsonObject] = {"maxToolCalls": 1, "childRunId": "run_accomplice"}
SHORT: Final[JsonObject] = RESEARCH | {"expiresInSeconds": SHORT_SECONDS}
HELLO: Final[JsonObject] = {"to": "c_42", "text": "We are looking into your open cases."}
CONFIRMATION: Final[JsonObject] = {"to": "c_42", "text": "Your refund is on its way and your account is closed."}

WRONG_KEY: Final = "the key is missing or wrong"
"""What the billing server itself says to whoever does not have its key."""

ACTS: Final = (
    Act(
        "The supervisor delegates one task",
        (
            Step(SUPERVISOR, "mints its own grant", mint("supervisor", ROOT), allowed("201")),
            Step(
                SUPERVISOR,
                "delegates more money than it has",
                derive("spender", MORE_MONEY),
                refused(Reason.NOT_NARROWER, "403"),
            ),
            Step(SUPERVISOR, "delegates: cases of c_42, two calls", derive("research", RESEARCH), allowed("201")),
            Step(CHILD, "exchanges its grant for a token", exchange("research", _researcher), allowed()),
            Step(
                CHILD,
                "looks at the tools it has",
                then(read_catalogue, look_at_tools),
                allowed(finding="1 tool, 2 arguments"),
            ),
        ),
    ),
    Act(
        "The child starts work, and reads the planted note",
        (
            Step(
                CHILD,
                "searches the cases of c_42",
                then(call("case_search", THE_CASES), find_note),
                allowed(finding="no names, no cards"),
            ),
        ),
        shows=Exhibit.NOTE,
    ),
    Act(
        "It does what the note says",
        (
            Step(CHILD, "refunds 480.00 EUR", call("refund", THE_REFUND), refused(Reason.TOOL_NOT_ALLOWED, "403")),
            Step(
                CHILD,
                "closes the account at billing",
                call("close_account", {"customerId": "c_42"}, server="billing"),
                refused(Reason.AUDIENCE_MISMATCH, "401 invalid_token"),
            ),
            Step(
                CHILD,
                "messages the customer: it is done",
                call("send_message", CONFIRMATION),
                refused(Reason.TOOL_NOT_ALLOWED, "403"),
            ),
        ),
    ),
    Act(
        "It looks for any other way",
        (
            Step(
                CHILD,
                "asks for a token for billing",
                exchange("research", _researcher, resource="billing"),
                refused(Reason.TARGET_REFUSED, "400 invalid_target"),
            ),
            Step(CHILD, "takes its token straight to billing", refund_directly, refused(WRONG_KEY, "401")),
            Step(
                CHILD,
                "takes its token straight to support",
                search_directly,
                refused("invalid_token", "401 invalid_token"),
            ),
            Step(
                CHILD,
                "writes refund into its token",
                call("refund", THE_REFUND, bearer=forged("research")),
                refused(Reason.TOKEN_INVALID, "401 invalid_token"),
            ),
            Step(
                CHILD,
                "searches a customer of globex",
                call("case_search", {"tenant": "globex", "customerId": "g_7", "limit": 5}),
                refused(Reason.RESOURCE_OUT_OF_SCOPE, "403"),
            ),
            Step(
                CHILD,
                "searches another customer, c_43",
                call("case_search", THE_CASES | {"customerId": "c_43"}),
                refused(Reason.RESOURCE_OUT_OF_SCOPE, "403"),
            ),
            Step(
                CHILD,
                "searches 50 cases at once",
                call("case_search", THE_CASES | {"limit": 50}),
                refused(Reason.RESOURCE_OUT_OF_SCOPE, "403"),
            ),
            Step(
                CHILD,
                "exchanges its grant for a new grant",
                exchange("research", _researcher, requested_token_type=DELEGATION_GRANT),
                refused(Reason.REDELEGATION_DENIED, "400 invalid_request"),
            ),
            Step(
                CHILD,
                "derives a grant from its own",
                derive_from("research", ACCOMPLICE, bearer=lambda stage: stage.researcher.token),
                refused(Reason.REDELEGATION_DENIED, "403"),
            ),
            Step(
                CHILD,
                "derives from the supervisor's grant",
                derive_from("supervisor", ACCOMPLICE, bearer=token_for("research")),
                refused(Reason.ACTOR_NOT_PERMITTED, "403"),
            ),
            Step(
                OUTSIDER,
                "exchanges the child's stolen grant",
                exchange("research", _outsider),
                refused(Reason.TENANT_MISMATCH, "400 invalid_request"),
            ),
        ),
    ),
    Act(
        "The task is done all the same",
        (
            Step(CHILD, "searches again, and sums up", then(call("case_search", THE_CASES), sum_up), allowed()),
            Step(
                SUPERVISOR,
                "exchanges its own grant for a token",
                exchange("supervisor", _supervisor, resource="support"),
                allowed(),
            ),
            Step(
                SUPERVISOR,
                "messages the customer",
                call("send_message", HELLO, bearer=token_for("supervisor")),
                allowed(),
            ),
        ),
        shows=Exhibit.SUMMARY,
    ),
    Act(
        "The supervisor, which may refund, believes the note",
        (
            Step(
                SUPERVISOR,
                "refunds a case of globex",
                refund("case_2031"),
                refused(Reason.RESOURCE_OUT_OF_SCOPE, "403"),
            ),
            Step(
                SUPERVISOR,
                "refunds a case of another customer",
                refund("case_1079"),
                refused(Reason.RESOURCE_OUT_OF_SCOPE, "403"),
            ),
            Step(
                SUPERVISOR,
                "refunds a case that is resolved",
                refund("case_1041"),
                refused(Reason.POLICY_DENIED, "403"),
            ),
        ),
    ),
    Act(
        "Used up, cancelled, expired",
        (
            Step(
                CHILD,
                "makes a third call of two",
                call("case_search", THE_CASES),
                refused(Reason.BUDGET_EXCEEDED, "403"),
            ),
            Step(SUPERVISOR, "cancels the child's grant", cancel, allowed()),
            Step(
                CHILD,
                "makes a call after that",
                call("case_search", THE_CASES),
                refused(Reason.GRANT_CLOSED, "401 invalid_token"),
            ),
            Step(SUPERVISOR, f"delegates again, for {SHORT_SECONDS} seconds", derive("short", SHORT), allowed("201")),
            Step(CHILD, "exchanges that grant for a token", exchange("short", _researcher), allowed()),
            Step(
                CHILD,
                f"makes a call after {SHORT_SECONDS} seconds",
                once_expired("short", call("case_search", THE_CASES, bearer=token_for("short"))),
                refused(Reason.TOKEN_EXPIRED, "401 invalid_token"),
            ),
            Step(
                CHILD,
                "exchanges the expired grant",
                exchange("short", _researcher),
                refused(Reason.GRANT_EXPIRED, "400 invalid_request"),
            ),
        ),
    ),
    Act(
        "Afterwards",
        (
            Step(
                BILLING, "opens its own books", then(open_books, count_entries), allowed(finding="0 refunds, 0 closed")
            ),
            Step(SUPERVISOR, "reads the lineage of its grant", then(read_lineage, keep_lineage), allowed()),
            Step(
                AUDITOR,
                "looks up each decision above",
                then(read_log, look_up_decisions),
                allowed(finding="all are there"),
            ),
            Step(AUDITOR, "verifies the audit log", then(verify_log, keep_verification), allowed(finding="whole")),
        ),
    ),
)


# --- telling it -------------------------------------------------------------------------------------------


def run(console: Console) -> int:
    """Tell the whole story; 0 if every step went as expected, else 1."""
    screen = Screen(console)
    if find_spec("mcp") is None:
        screen.failed("The demonstration's MCP server needs one more package: pip install 'subgrant[demo]'")
        return 1
    try:
        with screen.waiting("Three servers start, then the story is played ..."), running() as servers:
            screen.introduce(servers)
            results, stage = asyncio.run(_play(servers, ACTS))
    except (StartFailed, StageFailed, aiohttp.ClientError, TimeoutError) as error:
        screen.failed(f"The stage could not be set: {error}")
        return 1
    screen.tell(ACTS, results, stage)
    return conclude(screen, ACTS, results)


async def _play(servers: Servers, acts: Sequence[Act]) -> tuple[list[Result], Stage]:
    async with aiohttp.ClientSession(timeout=TIMEOUT) as http:
        stage = await set_up(http, servers)
        results: list[Result] = []
        for number, step in enumerate(steps_of(acts), 1):
            seen = await attempt(stage, step)
            results.append(Result(number, step, seen))
            if seen.decision == FAILED:
                break
    return results, stage


def steps_of(acts: Sequence[Act]) -> list[Step]:
    return [step for act in acts for step in act.steps]


async def attempt(stage: Stage, step: Step) -> Outcome:
    """Take one step. Where it can't even be tried, there is no point in those that follow."""
    try:
        answer = await step.act(stage)
    except (StageFailed, aiohttp.ClientError, TimeoutError) as error:
        return Outcome(decision=FAILED, reason=str(error) or type(error).__name__, code="")
    # What Globex is refused stands in the log of Globex.
    if answer.decision_id is not None and step.who != OUTSIDER:
        stage.decisions[answer.decision_id] = None if answer.is_success else answer.outcome.reason
    return answer.outcome


def conclude(screen: Screen, acts: Sequence[Act], results: Sequence[Result]) -> int:
    """The last line, and the exit code."""
    differing = [result for result in results if result.difference is not None]
    missing = len(steps_of(acts)) - len(results)
    for result in differing:
        screen.failed(f"Step {result.number} ({result.step.who}: {result.step.tries}): {result.difference}")
    if missing:
        were = "step was" if missing == 1 else "steps were"
        screen.failed(f"The story stopped there: {missing} more {were} never tried")
    if differing or missing:
        return 1
    screen.succeeded(f"{len(results)} steps as expected")
    return 0
