"""A tenant's policies: Cedar text, held against one call.

Knows Cedar through cedarpy, the schema that policies are written against, and how a call becomes data for it.
Refuses to know where policies are kept, which version counts and what a denial is answered with.

Cedar by itself skips a policy that fails and decides by the others; here any failure denies. What is known of a
call reaches Cedar as JSON, never as policy text. The library decides while it holds the interpreter's lock, so
nothing can interrupt it, and its parser takes the whole process down where brackets nest too deeply. Hence a
text is measured before the library sees it, so that whatever passes is read safely and decided quickly.
"""

import asyncio
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, NamedTuple, TypeAlias

from cedarpy import AuthzResult, Decision, PolicySet, Schema, is_authorized, validate_policies

from app.core.registry import Effect, Trust
from app.core.resources import Attributes, ResourceRef
from app.core.strict_json import JsonObject, JsonScalar, canonical
from app.ports import PolicyAnswer, PolicyQuestion

MAX_TEXT_BYTES: Final = 64 * 1024
MAX_POLICIES: Final = 256

MAX_BRACKETS: Final = 32
"""Brackets inside one another. Each costs the parser 13 KB of stack, and it does not look how much there is."""

MAX_HEIGHT: Final = 100
"""Operators inside one another. Beyond some two hundred, on a small stack, the validator passes what it gave up on."""

MAX_PATH: Final = 8
"""Dots in one path: `has a.b.c` is written out by the parser, and grows with the square of its length."""

MAX_PATTERN_CHARS: Final = 4096
"""Characters of all `like` patterns together: each may be held against each character of a string."""

MAX_STRING_CHARS: Final = 1024
"""Characters of any string that a call brings along, for the same reason. The directory's are shorter."""

MAX_ATTRIBUTES: Final = 64
"""Attributes of one thing; the directory has fewer."""

MAX_FLAWS: Final = 16
MAX_FLAW_CHARS: Final = 300
MAX_NAMED: Final = 16
"""Policies that one answer names, and failures that it lists."""

MAX_KEPT_CHARS: Final = 2 * 1024 * 1024
"""Characters of text whose parsed form is kept, which takes some thirty times as much memory."""

_KEPT_OVERHEAD_CHARS: Final = 1024
"""What keeping even the shortest text counts for."""

TIMED_OUT: Final = "policy_timeout"
BUSY: Final = "policy_engine_busy"
FAULT: Final = "policy_engine_fault"
UNUSABLE: Final = "policy_unusable"
UNFIT: Final = "policy_question_unfit"

Decide: TypeAlias = Callable[[dict[str, Any], PolicySet, list[dict[str, Any]], Schema], AuthzResult]
"""cedarpy's `is_authorized`: request, policies, entities, schema."""


def _enumerated(words: type[Effect | Trust]) -> str:
    return ", ".join(f'"{word.value}"' for word in words)


SCHEMA: Final = f"""
// What a tool does, and how far its output may be trusted. No other words are known: a policy that misspells
// one is refused instead of never applying.
entity Effect enum [{_enumerated(Effect)}];
entity Trust enum [{_enumerated(Trust)}];

// Every entity below carries as tags, all of them strings, what the tenant's directory says of it.
entity Tenant tags String;
entity Client tags String;
entity Subject tags String;

// The principal: the run that calls. It is in the client that acts in it.
entity Run in [Client] = {{
  "tenant": Tenant,
  "subject": Subject,         // for whom
  "actor": Client,            // by whom
  "depth": Long,              // 0 under a root grant, one more with each redelegation
  "grantId": String,
  "rootGrantId": String,
  "parentRunId"?: String,
}} tags String;

entity ToolServer tags String;

// The resource of the request: the tool that is called.
entity Tool in [ToolServer] = {{
  "server": ToolServer,
  "name": String,             // without its server's
  "effect": Effect,
  "trust": Trust,
  "sinks": Set<String>,
  "idempotent": Bool,
  "maxCostUcents": Long,      // of this call, at most; 10,000 are a cent
}} tags String;

// A thing that the call's arguments name.
entity Resource = {{
  "type": String,
  "id": String,
}} tags String;

action call appliesTo {{
  principal: [Run],
  resource: [Tool],
  context: {{
    "now": datetime,
    "date": String,           // "2026-01-31"; this and what follows in UTC
    "weekday": Long,          // 1 is Monday, 7 is Sunday
    "hour": Long,
    "minute": Long,
    "client": Client,         // who presents the credential
    "sourceIp"?: ipaddr,
    "resource"?: Resource,
  }},
}};
"""
"""What policies may speak of. `docs/policies.md` explains it to their authors."""


class CedarPolicyEngine:
    """`ports.PolicyEngine` on cedarpy, in a few threads of its own.

    A time-out ends the waiting, not the work: a thread goes on until Cedar is done. So `threads` bounds how many
    may be stuck, and `waiting` how many questions may stand behind them; a question beyond that is denied at once.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float = 1.0,
        threads: int = 4,
        waiting: int = 256,
        decide: Decide = is_authorized,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout_seconds
        self._decide = decide
        self._clock = clock
        self._schema = Schema.from_str(SCHEMA)
        self._shelf = _Shelf(self._schema)
        self._threads = ThreadPoolExecutor(threads, "policy")
        self._places = threading.BoundedSemaphore(threads + waiting)

    def flaws(self, text: str) -> tuple[str, ...]:
        try:
            return self._shelf.compiled(text).flaws
        except BaseException as fault:
            if not _is_fault(fault):
                raise
            return ("the policies can't be read",)

    async def answer(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        if not self._places.acquire(blocking=False):
            return _denied(BUSY)
        deadline = self._clock() + self._timeout
        try:
            work = self._threads.submit(self._judge, text, question, deadline)
        except RuntimeError:  # closed, or no thread to be had
            self._places.release()
            return _denied(FAULT)
        work.add_done_callback(lambda _: self._places.release())
        waited = asyncio.wrap_future(work)
        # Unlike `wait_for`, this never cancels: what is cancelled leaves its place and stays in the queue.
        await asyncio.wait({waited}, timeout=self._timeout)
        if not waited.done() or self._clock() > deadline:
            return _denied(TIMED_OUT)
        return _denied(FAULT) if waited.cancelled() else waited.result()

    def close(self) -> None:
        """Let the threads end; what still waits is denied."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _judge(self, text: str, question: PolicyQuestion, deadline: float) -> PolicyAnswer:
        if self._clock() > deadline:
            return _denied(TIMED_OUT)  # it waited too long, and nobody waits for it any more
        try:
            return self._judged(text, question)
        except _Unfit:
            return _denied(UNFIT)
        except BaseException as fault:
            if not _is_fault(fault):
                raise
            return _denied(FAULT)

    def _judged(self, text: str, question: PolicyQuestion) -> PolicyAnswer:
        compiled = self._shelf.compiled(text)
        if compiled.policies is None:
            return _denied(UNUSABLE)
        result = self._decide(_request(question), compiled.policies, _entities(question), self._schema)
        return _answer(result, compiled.names)


def _is_fault(raised: BaseException) -> bool:
    """Whether something went wrong, rather than the process being told to end. A panic in Rust is no Exception."""
    return isinstance(raised, Exception) or type(raised).__name__ == "PanicException"


# --- what Cedar said --------------------------------------------------------------------------------------

_POLICY: Final = re.compile(r"policy([0-9]+)")
_FAILURE: Final = re.compile(r"error while evaluating policy `policy([0-9]+)`: (.*)", re.DOTALL)

_FAILURES: Final[Mapping[str, str]] = {
    "integer overflow": "overflow",
    "recursion limit": "too_deep",
    "type error": "wrong_type",
    "record does not have": "missing_attribute",
    "`": "missing_attribute",
    "entity ": "unknown_entity",
    "error while evaluating": "invalid_value",
    "the expression contains unknown": "unknown_value",
}
"""How Cedar begins its sentence on each failure, which goes on with values; and what is said instead."""


def _denied(error: str) -> PolicyAnswer:
    return PolicyAnswer(permitted=False, errors=(error,))


def _answer(result: AuthzResult, names: Sequence[str]) -> PolicyAnswer:
    if result.decision is Decision.NoDecision:
        return _denied(UNFIT)  # the call did not fit the schema; Cedar's sentence would repeat all that was said
    errors = sorted({_failure(sentence, names) for sentence in result.diagnostics.errors})
    return PolicyAnswer(
        permitted=result.decision is Decision.Allow and not errors,
        errors=tuple(errors[:MAX_NAMED]),
        determining=tuple(sorted(_name(policy, names) for policy in result.diagnostics.reasons)[:MAX_NAMED]),
    )


def _failure(sentence: str, names: Sequence[str]) -> str:
    match = _FAILURE.fullmatch(sentence)
    if match is None:
        return "policy_failed"
    name, detail = names[int(match[1])], match[2]
    return f"{name}: {next((code for start, code in _FAILURES.items() if detail.startswith(start)), 'failed')}"


def _name(policy: str, names: Sequence[str]) -> str:
    match = _POLICY.fullmatch(policy)
    assert match is not None, "a static policy is numbered as it stands in the text"
    return names[int(match[1])]


# --- a call as data ---------------------------------------------------------------------------------------


class _Unfit(Exception):
    """A question that can't be put to Cedar: nothing is decided on half of what is known."""


def _request(question: PolicyQuestion) -> dict[str, Any]:
    return {
        "principal": _uid("Run", question.run_id),
        "action": _uid("Action", "call"),
        "resource": _uid("Tool", _tool_id(question)),
        "context": _context(question),
    }


def _context(question: PolicyQuestion) -> JsonObject:
    context = _time(question.now) | {"client": _ref("Client", question.client_id)}
    if question.source_ip is not None:
        context["sourceIp"] = _extension("ip", _address(question.source_ip))
    if question.resource is not None:
        context["resource"] = _ref("Resource", _joined(*question.resource))
    return context


def _time(now: datetime) -> JsonObject:
    if now.utcoffset() is None:
        raise _Unfit
    now = now.astimezone(UTC)
    # Cut to milliseconds, never rounded: the last moment of a day is still of that day.
    text = now.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return {
        "now": _extension("datetime", text),
        "date": now.date().isoformat(),
        "weekday": now.isoweekday(),
        "hour": now.hour,
        "minute": now.minute,
    }


def _address(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise _Unfit from error
    if not isinstance(address, IPv6Address):
        return str(address)
    # An IPv4 caller of an IPv6 socket is in the networks of IPv4; a zone says which interface, not who calls.
    return str(address.ipv4_mapped or IPv6Address(int(address)))


def _entities(question: PolicyQuestion) -> list[dict[str, Any]]:
    known = question.attributes
    tool = _tool_id(question)
    entities = [
        _entity("Tenant", question.tenant_id, _tags(known, "tenant", question.tenant_id)),
        _entity("Subject", question.subject, _tags(known, "subject", question.subject)),
        *(_entity("Client", client, _tags(known, "client", client)) for client in {question.actor, question.client_id}),
        _entity("ToolServer", question.server, _tags(known, "tool-server", question.server)),
        _entity("Tool", tool, _tags(known, "tool", tool), _tool(question), _uid("ToolServer", question.server)),
        _entity("Run", question.run_id, _tags(known, "run", question.run_id), _run(question), _actor(question)),
    ]
    if question.resource is not None:
        thing: JsonObject = {"type": question.resource.type, "id": question.resource.id}
        entities.append(_entity("Resource", _joined(*question.resource), _tags_of(question.resource_attributes), thing))
    return entities


def _run(question: PolicyQuestion) -> JsonObject:
    run: JsonObject = {
        "tenant": _ref("Tenant", question.tenant_id),
        "subject": _ref("Subject", question.subject),
        "actor": _ref("Client", question.actor),
        "depth": question.depth,
        "grantId": _text(question.grant_id),
        "rootGrantId": _text(question.root_grant_id),
    }
    return run if question.parent_run_id is None else run | {"parentRunId": _text(question.parent_run_id)}


def _actor(question: PolicyQuestion) -> JsonObject:
    return _uid("Client", question.actor)


def _tool(question: PolicyQuestion) -> JsonObject:
    return {
        "server": _ref("ToolServer", question.server),
        "name": _text(question.tool),
        "effect": _ref("Effect", question.effect),
        "trust": _ref("Trust", question.trust),
        "sinks": [_text(sink) for sink in question.sinks],
        "idempotent": question.idempotent,
        "maxCostUcents": question.max_cost_ucents,
    }


def _entity(
    kind: str, id_: str, tags: JsonObject, attributes: JsonObject | None = None, parent: JsonObject | None = None
) -> dict[str, Any]:
    parents = [] if parent is None else [parent]
    return {"uid": _uid(kind, id_), "attrs": attributes or {}, "parents": parents, "tags": tags}


def _tags(known: Mapping[ResourceRef, Attributes], kind: str, id_: str) -> JsonObject:
    return _tags_of(known.get(ResourceRef(kind, id_), {}))


def _tags_of(attributes: Attributes) -> JsonObject:
    if len(attributes) > MAX_ATTRIBUTES:
        raise _Unfit
    return {_text(name): _text(_spelt(value)) for name, value in attributes.items()}


def _spelt(value: JsonScalar) -> str:
    return value if isinstance(value, str) else canonical(value).decode()


def _tool_id(question: PolicyQuestion) -> str:
    return _joined(question.server, question.tool)


def _joined(owner: str, name: str) -> str:
    """Two names as one, which no other two become: the first has no slash."""
    if "/" in owner:
        raise _Unfit
    return f"{owner}/{name}"


def _text(text: str) -> str:
    if len(text) > MAX_STRING_CHARS:
        raise _Unfit
    return text


def _uid(kind: str, id_: str) -> JsonObject:
    return {"type": kind, "id": _text(id_)}


def _ref(kind: str, id_: str) -> JsonObject:
    return {"__entity": _uid(kind, id_)}


def _extension(function: str, argument: str) -> JsonObject:
    return {"__extn": {"fn": function, "arg": argument}}


# --- a text as policies -----------------------------------------------------------------------------------


class _Flawed(Exception):
    """What is wrong with a text, in sentences for its author."""

    def __init__(self, *flaws: str) -> None:
        super().__init__(*flaws)
        self.flaws = flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiled:
    """A text's policies with their names in order, or none and why not."""

    policies: PolicySet | None = None
    names: tuple[str, ...] = ()
    flaws: tuple[str, ...] = ()


class _Shelf:
    """Texts as they were compiled, the most recently used ones. Asked by several threads."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._kept: OrderedDict[str, _Compiled] = OrderedDict()
        self._chars = 0
        self._lock = threading.Lock()

    def compiled(self, text: str) -> _Compiled:
        with self._lock:
            if text in self._kept:
                self._kept.move_to_end(text)
                return self._kept[text]
        compiled = _compile(text, self._schema)
        if len(text) <= MAX_TEXT_BYTES:
            self._keep(text, compiled)
        return compiled

    def _keep(self, text: str, compiled: _Compiled) -> None:
        with self._lock:
            if text not in self._kept:
                self._chars += len(text) + _KEPT_OVERHEAD_CHARS
            self._kept[text] = compiled
            while self._chars > MAX_KEPT_CHARS:
                oldest, _ = self._kept.popitem(last=False)
                self._chars -= len(oldest) + _KEPT_OVERHEAD_CHARS


def _compile(text: str, schema: Schema) -> _Compiled:
    try:
        statements = _measured(text)
        names = _names(statements)
        policies = _parsed(text, statements)
        _validate(text, names, schema)
    except _Flawed as flawed:
        return _Compiled(flaws=tuple(_line(flaw) for flaw in flawed.flaws[:MAX_FLAWS]))
    return _Compiled(policies=policies, names=names)


def _parsed(text: str, statements: Sequence["_Statement"]) -> PolicySet:
    try:
        policies = PolicySet.from_str(text, release_gil=True)
    except ValueError as error:
        # The library does not say where; so each policy is tried alone.
        raise _Flawed(next(_refused(text, statements), str(error))) from None
    if len(policies) != len(statements):
        raise _Flawed("the text is not understood to its last policy")
    return policies


def _refused(text: str, statements: Sequence["_Statement"]) -> Iterator[str]:
    for statement in statements:
        first, last = statement[0], statement[-1]
        try:
            PolicySet.from_str(text[first.start : last.start + len(last.text)])
        except ValueError as error:
            yield f"{_place(text, first)}: {error}"


def _validate(text: str, names: Sequence[str], schema: Schema) -> None:
    """Strict, which Cedar's validator always is here. Raises _Flawed."""
    result = validate_policies(text, schema, release_gil=True)
    if not result.validation_passed:
        raise _Flawed(*(_objection(error.policy_id, error.error, names) for error in result.errors))


def _objection(policy: str, sentence: str, names: Sequence[str]) -> str:
    return f"{_name(policy, names)}: {sentence.removeprefix(f'for policy `{policy}`').lstrip(',: ')}"


def _place(text: str, token: "_Token") -> str:
    return f"line {text.count(chr(10), 0, token.start) + 1}"


def _line(flaw: str) -> str:
    line = " ".join(flaw.split())
    return line if len(line) <= MAX_FLAW_CHARS else line[: MAX_FLAW_CHARS - 1] + "…"


# --- a text before the library sees it --------------------------------------------------------------------


class _Token(NamedTuple):
    text: str
    start: int


_Statement: TypeAlias = list[_Token]

_LEXEME: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+|//[^\n\r]*)"""
    r"""|"[^"\\]*(?:\\.[^"\\]*)*"|[A-Za-z_][A-Za-z0-9_]*|[0-9]+"""
    r"""|::|==|!=|<=|>=|\|\||&&|[-@?.,:;(){}\[\]<>=+*/%!]"""
)
"""Cedar's own tokens. A character that begins none is refused, so that no two readers of a text can differ."""

_CLOSES: Final[Mapping[str, str]] = {")": "(", "]": "[", "}": "{"}
_OPENS: Final = frozenset(_CLOSES.values())
_OPERATORS: Final = frozenset(
    {".", "==", "!=", "<", "<=", ">", ">=", "=", "+", "-", "*", "/", "%", "!", "in", "is", "has", "like"}
)
_JOINS: Final = frozenset({"&&", "||", "if"})

_ID: Final = re.compile(r'"([A-Za-z0-9][A-Za-z0-9._:-]{0,63})"')


def _measured(text: str) -> list[_Statement]:
    """The policies of a text, each as its tokens. Raises _Flawed for a text beyond the limits."""
    # The characters first: they are at most as many, and counting them copies nothing.
    if len(text) > MAX_TEXT_BYTES or len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        raise _Flawed(f"the text must be at most {MAX_TEXT_BYTES} bytes of UTF-8")
    statements = _Survey(text).statements()
    if not statements:
        raise _Flawed("the text has no policy, so that every call would be denied")
    if len(statements) > MAX_POLICIES:
        raise _Flawed(f"the text must have at most {MAX_POLICIES} policies")
    return statements


def _tokens(text: str) -> Iterator[_Token]:
    start = 0
    while start < len(text):
        match = _LEXEME.match(text, start)
        if match is None:
            raise _Flawed(f"{_place(text, _Token('', start))}: here is no token of Cedar")
        if match.lastgroup != "blank":
            yield _Token(match[0], start)
        start = match.end()


@dataclass(slots=True)
class _Level:
    """What stands inside one bracket, as far as it was read: how high the expressions in it may tower.

    `&&` and its like end a segment and lie above all segments beside them; a comma ends an item. Too high an
    estimate at times, and never too low.
    """

    bracket: str
    joins: int = 0
    operators: int = 0
    inner: int = 0
    segment: int = 0
    item: int = 0

    def end_segment(self) -> None:
        self.segment = max(self.segment, self.operators + self.inner)
        self.operators = self.inner = 0

    def end_item(self) -> int:
        self.end_segment()
        self.item = max(self.item, self.joins + self.segment)
        self.joins = self.segment = 0
        return self.item


class _Survey:
    """One walk through the tokens of a text, which refuses what the library should not be given."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._levels = [_Level("")]
        self._before = _Token("", 0)
        self._dots = 0
        self._pattern_chars = 0

    def statements(self) -> list[_Statement]:
        statements: list[_Statement] = []
        current: _Statement = []
        for token in _tokens(self._text):
            self._look_at(token)
            current.append(token)
            self._before = token
            if token.text == ";":
                statements.append(current)
                current = []
        if current:
            raise self._flaw(current[-1], "the text ends in the middle of a policy")
        return statements

    def _look_at(self, token: _Token) -> None:
        self._refuse_foreign(token)
        self._count(token)
        if token.text in _OPENS:
            self._open(token)
        elif token.text in _CLOSES:
            self._close(token)
        elif token.text == ";":
            self._end(token)
        elif token.text in _JOINS:
            self._levels[-1].end_segment()
            self._levels[-1].joins += 1
        elif token.text == ",":
            self._levels[-1].end_item()
        elif token.text in _OPERATORS:
            self._levels[-1].operators += 1

    def _refuse_foreign(self, token: _Token) -> None:
        if token.text == "?":
            raise self._flaw(token, "templates with ?principal and ?resource are not supported")
        if token.text == "(" and self._before.text == "unknown":
            raise self._flaw(token, "unknown() is not supported: a policy must always come to a decision")

    def _count(self, token: _Token) -> None:
        if token.text == ".":
            self._dots += 1
        elif self._before.text != ".":
            self._dots = 0
        if self._before.text == "like":
            self._pattern_chars += len(token.text)
        if self._dots > MAX_PATH:
            raise self._flaw(token, f"a path must have at most {MAX_PATH} dots")
        if self._pattern_chars > MAX_PATTERN_CHARS:
            raise self._flaw(token, f"the patterns behind like must have at most {MAX_PATTERN_CHARS} characters")

    def _open(self, token: _Token) -> None:
        self._levels.append(_Level(token.text))
        if len(self._levels) > MAX_BRACKETS + 1:
            raise self._flaw(token, f"at most {MAX_BRACKETS} brackets may stand inside one another")

    def _close(self, token: _Token) -> None:
        level = self._levels.pop()
        if level.bracket != _CLOSES[token.text]:
            raise self._flaw(token, "a bracket is closed that was not opened last")
        outer = self._levels[-1]
        outer.operators += 1
        outer.inner = max(outer.inner, level.end_item())

    def _end(self, token: _Token) -> None:
        level = self._levels.pop()
        if level.bracket:
            raise self._flaw(token, "the policy ends with a bracket open")
        if level.end_item() > MAX_HEIGHT:
            raise self._flaw(token, f"a policy must have at most {MAX_HEIGHT} operators inside one another")
        self._levels.append(_Level(""))

    def _flaw(self, token: _Token, sentence: str) -> _Flawed:
        return _Flawed(f"{_place(self._text, token)}: {sentence}")


def _names(statements: Sequence[_Statement]) -> tuple[str, ...]:
    """What each policy is called in answers: its `@id`, or `policy` and where it stands, from 0. Raises _Flawed."""
    names: list[str] = []
    for index, statement in enumerate(statements):
        given = _given_name([token.text for token in statement])
        if given in names:
            raise _Flawed(f'two policies have the @id "{given}"')
        names.append(given or f"policy{index}")
    return tuple(names)


def _given_name(tokens: Sequence[str]) -> str | None:
    places = [place for place, token in enumerate(tokens) if token == "@" and tokens[place + 1] == "id"]
    if not places:
        return None
    literal = tokens[places[0] + 3] if tokens[places[0] + 2] == "(" else ""
    match = _ID.fullmatch(literal)
    if match is None or _POLICY.fullmatch(match[1]):
        raise _Flawed('an @id is 1 to 64 letters, digits, ".", "_", ":" and "-", and not "policy" with a number')
    return match[1]
