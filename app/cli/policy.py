"""`subgrant policy`: the versions of a tenant's Cedar policies, and the cases that they must answer."""

from collections.abc import Mapping
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.client import segments
from app.cli.options import After, InTenant, Limit, Members, given, read_json, read_text
from app.cli.output import Cell, ExitCode, Stop, facts, line, plain, table
from app.cli.session import Session, remote, rows
from app.core.strict_json import JsonObject

group = typer.Typer(no_args_is_help=True)

PATH: Final = "/v1/admin/policies"
COLUMNS: Final = {
    "version": "version",
    "active": "active",
    "description": "description",
    "created": "createdAt",
    "by": "createdBy",
}
CASES: Final = {"case": "name", "expected": "expect", "call": "call"}
RESULTS: Final[Mapping[str, Cell]] = {
    "case": "name",
    "expected": "expect",
    "seen": "seen",
    "result": lambda result: "passed" if result.get("passed") is True else "FAILED",
    "decided by": "determining",
    "errors": "errors",
}


def read_policies(file: str) -> str:
    """The text of a file, or of standard input. Raises BadParameter."""
    return read_text(_source(file))


def read_cases(file: str) -> JsonObject:
    """The cases of a file as the API takes them. Raises BadParameter."""
    cases = read_json(_source(file))
    if not isinstance(cases, list):
        raise typer.BadParameter("cases must be a JSON list")
    return {"cases": cases}


def _source(file: str) -> str:
    return file if file == "-" else f"@{file}"


Version = Annotated[str, typer.Argument(metavar="VERSION")]


@group.command()
@remote
async def add(
    session: Session,
    *,
    text: Annotated[
        str, typer.Argument(metavar="FILE.cedar", parser=read_policies, help="The policies; `-` reads them.")
    ],
    cases: Annotated[
        Members | None,
        typer.Option(metavar="CASES.json", parser=read_cases, help="Calls that they must permit or deny."),
    ] = None,
    description: Annotated[str | None, typer.Option(help="What it changes, for people.")] = None,
    tenant: InTenant = None,
) -> None:
    """Add a version. It counts for nothing before it is activated."""
    body = given(text=text, description=description, tenant_id=tenant) | (cases or {})
    session.show(await session.api.post(PATH, body), summary)


@group.command("list")
@remote
async def list_(session: Session, *, tenant: InTenant = None, limit: Limit = 100, after: After = None) -> None:
    """List a tenant's versions in the order in which they were made."""
    await session.page(PATH, COLUMNS, {"tenant": tenant, "limit": limit, "after": after})


@group.command("show")
@remote
async def show_(session: Session, *, version: Version, tenant: InTenant = None) -> None:
    """Show a version with its text and cases."""
    session.show(await session.api.get(PATH + segments(version), {"tenant": tenant}), whole)


@group.command()
@remote
async def activate(session: Session, *, version: Version, tenant: InTenant = None) -> None:
    """Activate a version: its cases are run first, and one that fails refuses it."""
    path = PATH + segments(version, "activate")
    session.show(await session.api.request("POST", path, query={"tenant": tenant}), summary)


@group.command()
@remote
async def test(
    session: Session,
    *,
    policies: Annotated[
        str | None, typer.Argument(metavar="FILE.cedar", help="The policies; none with --version.")
    ] = None,
    cases: Annotated[str | None, typer.Argument(metavar="CASES.json", help="The cases; `-` reads them.")] = None,
    version: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Try this version, with its own cases unless others are given."),
    ] = None,
    tenant: InTenant = None,
) -> None:
    """Run cases against policies, and store nothing. Fails where a case does."""
    body = trial(policies, cases, version) | given(tenant_id=tenant)
    document = await session.api.post(f"{PATH}/test", body)
    session.show(document, lambda found: table(RESULTS, rows(found, "results")))
    failed = [result for result in rows(document, "results") if result.get("passed") is not True]
    if not session.as_json:
        line(f"{len(failed)} of {len(rows(document, 'results'))} cases fail")
    raise typer.Exit(0 if document.get("passed") is True else ExitCode.REFUSED)


def trial(policies: str | None, cases: str | None, version: str | None) -> JsonObject:
    """What to try, as the API takes it. With a version, a single file is one of cases."""
    if policies is not None and cases is not None and version is None:
        return {"text": read_policies(policies)} | read_cases(cases)
    if version is not None and cases is None:
        return {"version": version} | ({} if policies is None else read_cases(policies))
    raise Stop("give FILE.cedar and CASES.json, or --version and at most CASES.json", ExitCode.USAGE)


# --- for people -------------------------------------------------------------------------------------------


def summary(policy: JsonObject) -> RenderableType:
    """A version without its text and cases."""
    return facts({name: value for name, value in policy.items() if name not in {"text", "cases"}})


def whole(policy: JsonObject) -> RenderableType:
    """A version, its text as it is written, and its cases."""
    text = Text("\n".join(map(plain, str(policy.get("text")).splitlines())))
    cases = rows(policy, "cases")
    parts: list[RenderableType] = [summary(policy), "", text]
    return Group(*parts, "", table(CASES, cases)) if cases else Group(*parts)
