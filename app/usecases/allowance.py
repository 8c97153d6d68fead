"""A bounded rate: so many at once, then one each while."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(slots=True)
class Allowance:
    """`burst` at once, then one each `refill`; counts what it turned away. One process's own."""

    burst: int = 20
    refill: timedelta = timedelta(seconds=1)
    _left: int = field(default=20, init=False)
    _since: datetime | None = field(default=None, init=False)
    _skipped: int = field(default=0, init=False)

    def take(self, now: datetime) -> int | None:
        """None when there is none left now, else how many were turned away since the last one."""
        since = self._since or now
        refills = (now - since) // self.refill
        if refills or self._since is None:
            self._left = min(self.burst, self._left + refills)
            self._since = since + refills * self.refill
        if self._left == 0:
            self._skipped += 1
            return None
        self._left -= 1
        skipped, self._skipped = self._skipped, 0
        return skipped
