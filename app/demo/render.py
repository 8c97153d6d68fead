"""How the story looks on a terminal: the cast, the steps, the lineage as a tree, the audit trail.

Says in words what colours say, so that nothing is lost without them. What is shown comes from strangers, so it
is never read as markup. Refuses to know why a step was expected to end as it did.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from app.core.strict_json import JsonObject, JsonValue
from app.demo.processes import Servers
from app.demo.stage import Act, Exhibit, Result, Stage

WIDTH: Final = 100

STYLES: Final = {"allowed": "green", "allow": "green", "refused": "red", "deny": "red", "failed": "bold red"}

LEFT_OUT: Final = ("admin.", "delegation.scope", "tool.proposed")
"""Starts of the types of records that are counted and not shown."""

Parts: TypeAlias = Iterator[RenderableType]


class Screen:
    """A console, as wide as a page."""

    def __init__(self, console: Console) -> None:
        self._console = console
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH

    def waiting(self, words: str) -> AbstractContextManager[object]:
        """Words that stand there while something is done, on a terminal only."""
        return self._console.status(Text(words))

    def introduce(self, servers: Servers) -> None:
        self._print(_heading("Subgrant: authority only ever gets narrower, and every tool call is checked"))
        self._print(_cast(servers))

    def tell(self, acts: Sequence[Act], results: Sequence[Result], stage: Stage) -> None:
        """Everything that came of it."""
        is_narrow = self._console.width < WIDTH
        self._print(*_steps(acts, results, stage, is_narrow=is_narrow))
        self._print(*_lineage(stage.lineage))
        self._print(*_trail(stage.records, is_narrow=is_narrow))
        self._print(*_verified(stage.verification))

    def failed(self, words: str) -> None:
        self._print(_heading(words, "bold red"))

    def succeeded(self, words: str) -> None:
        self._print(_heading(words, "bold green"))

    def _print(self, *renderables: RenderableType) -> None:
        for renderable in renderables:
            self._console.print(renderable, highlight=False)


def _heading(words: str, style: str = "bold") -> RenderableType:
    return _below(Text(words, style=style))


def _below(renderable: RenderableType) -> RenderableType:
    """With an empty line above."""
    return Padding(renderable, (1, 0, 0, 0))


def _columns(widths: Mapping[str, int | None]) -> Table:
    """A table without lines, whose columns have these headings and widths; None takes what is left."""
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    for heading, width in widths.items():
        table.add_column(heading, width=width, ratio=1 if width is None else None, overflow="fold")
    return table


def _cell(value: JsonValue) -> Text:
    """A value as text: for a decision in its colour, nothing for none."""
    word = "" if value is None else str(value)
    return Text(word, style=STYLES.get(word, ""))


# --- who is who -------------------------------------------------------------------------------------------


def _cast(servers: Servers) -> RenderableType:
    pids = (servers.subgrant.pid, servers.support.pid, servers.billing.pid)
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name, words in (
        ("supervisor", "an agent of the tenant acme that may search cases, refund and message customers"),
        ("child", "its research agent, to summarise the recent cases of customer c_42 (a script, no model)"),
        ("Subgrant", f"guards the servers support (MCP) and billing (HTTP); pids {', '.join(map(str, pids))}"),
    ):
        table.add_row(Text(name, style="bold"), Text(words))
    return table


# --- the steps --------------------------------------------------------------------------------------------

STEP_COLUMNS: Final = {"#": 2, "who": 10, "tries": None, "decision": 8, "reason": 21, "code": 19}
NARROW_STEP_COLUMNS: Final = STEP_COLUMNS | {"code": 15}


def _steps(acts: Sequence[Act], results: Sequence[Result], stage: Stage, *, is_narrow: bool) -> Parts:
    """A table an act, all with the same columns, and below it what came to light."""
    left = list(results)
    for act in acts:
        played, left = left[: len(act.steps)], left[len(act.steps) :]
        if played:
            yield _heading(act.title)
            yield _act(played, NARROW_STEP_COLUMNS if is_narrow else STEP_COLUMNS)
            yield from _EXHIBITS[act.shows](stage)


def _act(results: Sequence[Result], columns: Mapping[str, int | None]) -> Table:
    table = _columns(columns)
    table.show_header = results[0].number == 1
    for result in results:
        seen, step = result.seen, result.step
        table.add_row(*map(_cell, (str(result.number), step.who, step.tries, seen.decision, seen.reason, seen.code)))
        if result.difference is not None:
            table.add_row("", "", Text("^ not as expected", style="bold red"))
    return table


def _nothing(_stage: Stage) -> Parts:
    yield from ()


def _note(stage: Stage) -> Parts:
    note = stage.planted_note
    if note is not None:
        yield _panel(f"The planted note, in {note.get('caseId')} since {note.get('on')}", str(note.get("text")), "red")


def _summary(stage: Stage) -> Parts:
    if stage.summary:
        yield _panel("The summary that the child hands in", "\n".join(stage.summary), "green")


def _panel(title: str, words: str, style: str) -> RenderableType:
    return _below(Panel(Text(words), title=Text(title), title_align="left", border_style=style))


_EXHIBITS: Final[Mapping[Exhibit, Callable[[Stage], Parts]]] = {
    Exhibit.NOTHING: _nothing,
    Exhibit.NOTE: _note,
    Exhibit.SUMMARY: _summary,
}


# --- the lineage ------------------------------------------------------------------------------------------


def _lineage(grants: Sequence[JsonObject]) -> Parts:
    if grants:
        yield _heading("The lineage: every grant and token below the supervisor's, with its budget")
        yield _branch(grants[0], grants, None)


def _branch(grant: JsonObject, grants: Sequence[JsonObject], above: Tree | None) -> Tree:
    label = _grant(grant, is_token=_is_token(grant, grants))
    branch = Tree(label, guide_style="dim") if above is None else above.add(label)
    for child in grants:
        if child.get("parentGrantId") == grant.get("grantId"):
            _branch(child, grants, branch)
    return branch


def _is_token(grant: JsonObject, grants: Sequence[JsonObject]) -> bool:
    """An access token's node acts for the same run as the grant above it."""
    return any(
        grant.get("parentGrantId") == other.get("grantId") and grant.get("childRunId") == other.get("childRunId")
        for other in grants
    )


def _grant(grant: JsonObject, *, is_token: bool) -> Text:
    kind = "token" if is_token else "grant"
    label = Text(f"{kind} for {grant.get('holder')}, {grant.get('childRunId')}", style="" if is_token else "bold")
    label.append(f": {_budget(grant)}, {_status(grant)}", style="not bold")
    if not is_token:
        for line in _scope(grant):
            label.append(f"\n{line}", style="not bold dim")
    return label


def _budget(grant: JsonObject) -> str:
    calls, cents = _posted(grant, "toolCalls"), _posted(grant, "spendCents")
    return f"{calls} of {grant.get('maxToolCalls')} calls, {cents} of {grant.get('maxSpendCents')} cents"


def _posted(grant: JsonObject, member: str) -> JsonValue:
    usage = grant.get("usage")
    amounts = usage.get(member) if isinstance(usage, dict) else None
    return amounts.get("posted") if isinstance(amounts, dict) else None


def _status(grant: JsonObject) -> str:
    why = grant.get("closeReason")
    status = f"{grant.get('status')} ({why})" if why else str(grant.get("status"))
    return f"{status}, may redelegate" if grant.get("mayRedelegate") is True else status


def _scope(grant: JsonObject) -> Iterator[str]:
    """A line a tool: what its arguments may be."""
    constraints, tools = grant.get("resourceConstraints"), grant.get("allowedTools")
    for tool in tools if isinstance(tools, list) else ():
        rules = constraints.get(str(tool)) if isinstance(constraints, dict) else None
        arguments = rules.items() if isinstance(rules, dict) else ()
        yield f"{tool}({', '.join(_argument(name, rule) for name, rule in arguments)}){_shown(grant, str(tool))}"


def _shown(grant: JsonObject, tool: str) -> str:
    """What comes back of the tool's result, where that is not all."""
    projection = grant.get("resultProjection")
    paths = projection.get(tool) if isinstance(projection, dict) else None
    if not isinstance(paths, list):
        return ""
    return f" -> {', '.join(str(path).rpartition('.')[2] for path in paths)}"


def _argument(name: str, rule: JsonValue) -> str:
    match rule:
        case {"eq": value}:
            return f"{name} = {value}"
        case {"bind": "tenantId"}:
            return f"{name} = the grant's"
        case {"resource": {"type": kind, "where": {"customerId": customer}}}:
            return f"{name} = a {kind} of {customer} on record"
        case {"int": {"min": least, "max": most}}:
            return f"{name} {least}..{most}"
        case _:
            return name


# --- the audit trail --------------------------------------------------------------------------------------

RECORD_COLUMNS: Final = {"seq": 3, "time": 12, "type": 20, "run": 14, "tool": None, "decision": 8, "reason": 21}
NARROW_RECORD_COLUMNS: Final = {"seq": 3, "time": 8, "type": 20, "tool": None, "decision": 8, "reason": 21}


def _trail(records: Sequence[JsonObject], *, is_narrow: bool) -> Parts:
    if not records:
        return
    yield _heading("The audit trail of acme, as its auditor reads it")
    columns = NARROW_RECORD_COLUMNS if is_narrow else RECORD_COLUMNS
    table = _columns(columns)
    for record in records:
        if not _is_left_out(record):
            row = _row(record, time_chars=columns["time"])
            table.add_row(*(_cell(row[heading]) for heading in columns))
    yield table
    yield Text(_left_out(records), style="dim")


def _row(record: JsonObject, time_chars: int | None) -> JsonObject:
    """A record under the headings of the columns."""
    return record | {
        "time": str(record.get("time"))[11:23][:time_chars],
        "run": record.get("runId"),
        "tool": record.get("tool"),
        "decision": record.get("decision"),
        "reason": record.get("reason") or record.get("closeReason"),
    }


def _is_left_out(record: JsonObject) -> bool:
    return str(record.get("type")).startswith(LEFT_OUT)


def _left_out(records: Sequence[JsonObject]) -> str:
    counts = Counter(str(record.get("type")) for record in records if _is_left_out(record))
    return "Not shown: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _verified(verification: JsonObject | None) -> Parts:
    if verification is None:
        return
    fault = verification.get("fault")
    if verification.get("ok") is True:
        yield _heading(
            f"Verified: {verification.get('records')} records, each chained to the one before it by its hash."
        )
    else:
        at = fault.get("seq") if isinstance(fault, dict) else "?"
        yield _heading(f"NOT VERIFIED: the log is not what was written, from record {at} on.", "bold red")
    yield Text(f"The newest has the hash {verification.get('headHash')}", style="dim")
