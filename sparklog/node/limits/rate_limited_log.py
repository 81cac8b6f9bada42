"""Rate limit of log lines that a peer can cause: one a minute for each reason, and the count.

The first line of a kind, a reason and an address, is written at once. Those that follow within the minute are
counted; at its end one line has the last of them and their number. The number of kinds is bounded: beyond it,
addresses are not distinguished.

Belongs to one event loop. `close` writes the pending counts.
"""

import asyncio
import logging
from typing import Any, Final, NamedTuple

INTERVAL_S: Final = 60.0
_MAX_KINDS: Final = 256
ANY_PEER: Final = "any address"


class _Kind(NamedTuple):
    level: int
    address: str
    reason: str


class _Repeated:
    __slots__ = ("count", "last_line", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.count = 0
        """How often it happened since the last line."""
        self.last_line = ""
        self.timer = timer


class RateLimitedLog:
    def __init__(self, logger: logging.Logger, loop: asyncio.AbstractEventLoop) -> None:
        self._logger = logger
        self._loop = loop
        self._repeated: dict[_Kind, _Repeated] = {}

    def write(self, level: int, address: str, reason: str, line: str, **details: Any) -> None:
        """Write `line`, unless the same `reason` was written of that address a short while ago.

        The number of reasons is bounded; varying texts belong into `line`. `details` are those of
        `logging.Logger.log`, for the first line.
        """
        kind = self._kind(level, address, reason)
        repeated = self._repeated.get(kind)
        if repeated is None:
            self._repeated[kind] = _Repeated(self._loop.call_later(INTERVAL_S, self._tell, kind))
            self._logger.log(level, "%s", line, **details)
        else:
            repeated.count += 1
            repeated.last_line = line

    def close(self) -> None:
        """Write the pending counts."""
        repeated, self._repeated = self._repeated, {}
        for kind, each in repeated.items():
            each.timer.cancel()
            self._write_repeated(kind, each)

    def _kind(self, level: int, address: str, reason: str) -> _Kind:
        kind = _Kind(level, address, reason)
        if kind in self._repeated or len(self._repeated) < _MAX_KINDS:
            return kind
        return _Kind(level, ANY_PEER, reason)

    def _tell(self, kind: _Kind) -> None:
        repeated = self._repeated[kind]
        if not repeated.count:
            del self._repeated[kind]
            return
        self._write_repeated(kind, repeated)
        repeated.count = 0
        repeated.timer = self._loop.call_later(INTERVAL_S, self._tell, kind)

    def _write_repeated(self, kind: _Kind, repeated: _Repeated) -> None:
        if repeated.count:
            self._logger.log(
                kind.level,
                "%s (the last of %d more from %s within %d s: %s)",
                repeated.last_line,
                repeated.count,
                kind.address,
                INTERVAL_S,
                kind.reason,
            )
