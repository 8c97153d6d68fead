"""What tool servers offer, asked for once for all that wait, and which pins were confirmed a moment ago.

One process's own. A confirmation only ever says that nothing changed: what is not confirmed is asked about anew.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Final
from weakref import WeakValueDictionary

from app.core.grant import ToolName
from app.core.registry import ToolServer
from app.ports import DiscoveredTool

MAX_CONFIRMED: Final = 10_000

Offered = tuple[DiscoveredTool, ...] | None
"""The tools that a server lists; None where it did not say."""


@dataclass(eq=False)
class _Line:
    """Those who wait for one tool server's word. `asked` is when the question that was answered was put, in turns."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: int = -1
    answer: Offered = None


class Offers:
    """A tool server is known by its whole registration: what another endpoint or credential was told is no answer."""

    def __init__(self) -> None:
        self._turns = count()
        # Known as long as somebody waits: an answer may be large, and is worth nothing later.
        self._lines: WeakValueDictionary[ToolServer, _Line] = WeakValueDictionary()
        self._confirmed: OrderedDict[tuple[ToolServer, ToolName, str], datetime] = OrderedDict()

    async def ask(self, server: ToolServer, question: Callable[[], Awaitable[Offered]]) -> Offered:
        """The answer to a question that was put after this was called: one's own, or one that others wait for, too."""
        arrived = next(self._turns)
        line = self._lines.get(server)
        if line is None:
            line = self._lines[server] = _Line()
        async with line.turn:
            if line.asked < arrived:
                asked = next(self._turns)
                line.answer = await question()
                # Only now: where whoever asked goes away meanwhile, the next in line asks for itself.
                line.asked = asked
            return line.answer

    def confirm(self, server: ToolServer, tool: ToolName, digest: str, at: datetime) -> None:
        """Keep for a while that the tool server offers this."""
        if not server.definition_max_age_seconds:
            return
        key = (server, tool, digest)
        self._confirmed.pop(key, None)
        self._confirmed[key] = at
        if len(self._confirmed) > MAX_CONFIRMED:
            self._confirmed.popitem(last=False)

    def is_confirmed(self, server: ToolServer, tool: ToolName, digest: str, now: datetime) -> bool:
        """Whether the tool server offered this, no longer ago than it is registered to be believed."""
        at = self._confirmed.get((server, tool, digest))
        return at is not None and now < at + timedelta(seconds=server.definition_max_age_seconds)
