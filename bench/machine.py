"""What the machine says: the CPU time that processes took, how long its disk takes, and the versions at work.

Reads /proc, so it knows Linux only. Names no machine and no path.
"""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")
SYNCS: Final = 5
PAGE: Final = bytes(4096)


class _Stat(NamedTuple):
    """Of /proc/PID/stat what is needed here, in clock ticks."""

    parent: int
    own: int
    of_reaped_children: int


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """The CPU time of all threads of a process so far; with the children that it has and had if wanted."""
    stat = _stat(pid)
    if stat is None:
        raise ProcessLookupError(pid)
    ticks = stat.own
    if with_children:
        ticks += stat.of_reaped_children
        ticks += sum(child.own + child.of_reaped_children for child in _all() if child.parent == pid)
    return ticks / TICKS


def _all() -> Iterator[_Stat]:
    for process in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(process.name))
        if stat is not None:
            yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        # The command's name, in parentheses, may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    user, system, reaped_user, reaped_system = (int(word) for word in fields[11:15])
    return _Stat(parent=int(fields[1]), own=user + system, of_reaped_children=reaped_user + reaped_system)


def sync_ms() -> float:
    """What one append and fdatasync of a page takes where temporary files are; the median of a few."""
    with tempfile.TemporaryFile(buffering=0) as file:
        return statistics.median(_timed_sync(file.fileno()) for _ in range(SYNCS))


def _timed_sync(descriptor: int) -> float:
    os.write(descriptor, PAGE)
    start = time.perf_counter()
    os.fdatasync(descriptor)
    return (time.perf_counter() - start) * 1000


def now() -> datetime:
    return datetime.now(UTC)


def versions() -> str:
    """What was measured on, as far as it may be told."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, Python {platform.python_version()}"


def sqlite_version() -> str:
    return f"SQLite {sqlite3.sqlite_version}"
