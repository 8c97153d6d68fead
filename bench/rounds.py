"""Rounds: proxy and gateway take turns, so that whatever else the machine does hits both.

Each round is checked to have done its work, by what the tool, the ledger and the audit log say, before its
speed counts for anything. Refuses to know how figures are shown.
"""

import asyncio
import contextlib
import json
import secrets
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import asyncpg
import httpx

from bench import machine
from bench.child import Child
from bench.figures import Cell, Pair, Round
from bench.load import Job, Report
from bench.stage import TOOL, Stage
from bench.tool import MARK
from tests.api_client import Api
from tests.postgres import PostgresServer
from tests.server_process import ServerProcess, sqlite_url

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
STORES: Final = (SQLITE, POSTGRESQL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure, and for how long each time."""

    stores: Sequence[str] = STORES
    concurrency: Sequence[int] = (1, 16, 64)
    seconds: float = 1.5
    rounds: int = 5


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was measured, what it was measured on, and whatever makes it worthless."""

    cells: list[Cell] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Helpers(NamedTuple):
    """What runs beside the gateway."""

    tool: Child
    proxy: Child
    load: Child


class Database(NamedTuple):
    """Where the gateway stores. `pid` is the database server's; None where it is a part of the gateway."""

    name: str
    version: str
    url: str
    pid: int | None = None


class Bench(NamedTuple):
    """Everything that runs while one store is measured."""

    database: Database
    gateway: ServerProcess
    helpers: Helpers


def measure(plan: Plan, tell: Callable[[str], None]) -> Findings:
    """Everything, on each store in turn, telling where it is."""
    findings = Findings(versions=[machine.versions()])
    with _helpers() as helpers:
        for store in plan.stores:
            with _database(store) as database, ServerProcess(database.url) as gateway:
                findings.versions.append(database.version)
                asyncio.run(_measure(plan, Bench(database, gateway, helpers), findings, tell))
    return findings


@contextlib.contextmanager
def _helpers() -> Iterator[Helpers]:
    with (
        Child("bench.tool") as tool,
        # The address at which the gateway finds a tool of this name.
        Child("bench.proxy", f"{_endpoint(tool)}/{TOOL}") as proxy,
        Child("bench.load") as load,
    ):
        yield Helpers(tool=tool, proxy=proxy, load=load)


def _endpoint(tool: Child) -> str:
    return f"http://127.0.0.1:{tool.port}"


@contextlib.contextmanager
def _database(store: str) -> Iterator[Database]:
    if store == SQLITE:
        with tempfile.TemporaryDirectory(prefix="subgrant-bench-") as folder:
            yield Database("SQLite", machine.sqlite_version(), sqlite_url(Path(folder)))
        return
    with PostgresServer() as postgres:
        url = postgres.create_database("bench")
        yield Database("PostgreSQL", asyncio.run(_postgres_version(url)), url, postgres.pid)


async def _postgres_version(url: str) -> str:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        version = str(await connection.fetchval("SHOW server_version"))
    finally:
        await connection.close()
    return f"PostgreSQL {version.partition(' ')[0]}"


async def _measure(plan: Plan, bench: Bench, findings: Findings, tell: Callable[[str], None]) -> None:
    async with Api(bench.gateway.url) as api:
        for concurrency in plan.concurrency:
            where = f"{bench.database.name}, {concurrency} at once"
            stage = await Stage.set_up(api, f"t{secrets.token_hex(6)}", _endpoint(bench.helpers.tool))
            turns = _Turns(bench=bench, stage=stage)
            pairs, syncs = [], []
            for number in range(plan.rounds):
                tell(f"{where}: round {number + 1} of {plan.rounds}")
                syncs.append(machine.sync_ms())
                pairs.append(await turns.pair(concurrency, plan.seconds))
            findings.cells.append(
                Cell(
                    store=bench.database.name,
                    concurrency=concurrency,
                    pairs=pairs,
                    sync_ms=statistics.median(syncs),
                )
            )
            findings.faults += [f"{where}: {fault}" for fault in turns.faults]


@dataclass(slots=True, kw_only=True)
class _Turns:
    """The rounds on one stage, and what went wrong in them."""

    bench: Bench
    stage: Stage
    faults: list[str] = field(default_factory=list)

    async def pair(self, concurrency: int, seconds: float) -> Pair:
        """A round of each. The proxy gets the very same requests."""
        job = await self.stage.job(self.bench.gateway.port, concurrency, seconds)
        through_proxy = replace(job, port=self.bench.helpers.proxy.port, expected=MARK)
        return Pair(proxy=await self._proxy(through_proxy), gateway=await self._gateway(job))

    async def _proxy(self, job: Job) -> Round:
        report, cpu, _ = await self._run(job, self.bench.helpers.proxy.pid, None)
        return _round(report, cpu, 0)

    async def _gateway(self, job: Job) -> Round:
        report, cpu, database_cpu = await self._run(job, self.bench.gateway.pid, self.bench.database.pid)
        self.faults += await self.stage.faults(report.good)
        return _round(report, cpu, database_cpu)

    async def _run(self, job: Job, server: int, database: int | None) -> tuple[Report, float, float]:
        """One job; what came of it, and the CPU seconds of the server and of its database server."""
        seen = await self._tool_calls()
        before = machine.cpu_seconds(server), _database_cpu(database)
        self.bench.helpers.load.write_line(json.dumps(asdict(job)))
        report = Report(**json.loads(self.bench.helpers.load.read_line()))
        after = machine.cpu_seconds(server), _database_cpu(database)
        self.faults += [f"{count} times instead of a success: {what}" for what, count in report.bad.items()]
        seen = await self._tool_calls() - seen
        if seen != report.good:
            self.faults.append(f"{report.good} calls succeeded, but the tool was called {seen} times")
        return report, after[0] - before[0], after[1] - before[1]

    async def _tool_calls(self) -> int:
        async with httpx.AsyncClient(trust_env=False) as http:
            return int((await http.get(_endpoint(self.bench.helpers.tool))).json()["calls"])


def _database_cpu(pid: int | None) -> float:
    return 0 if pid is None else machine.cpu_seconds(pid, with_children=True)


def _round(report: Report, server_cpu: float, database_cpu: float) -> Round:
    return Round(
        calls=report.calls,
        window_seconds=report.window_seconds,
        latencies_ms=report.latencies_ms,
        server_cpu_seconds=server_cpu,
        database_cpu_seconds=database_cpu,
    )
