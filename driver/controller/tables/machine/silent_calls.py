"""Calls of a catalogue that were given up without an answer: when the next call may begin.

Pure. A thread that waits for an answer cannot be stopped, so each call without one leaves a thread and a
connection behind, perhaps for as long as the process lives. Up to `MOST_SILENT` of them cost nothing worth a
rule. From then on callers whose last call was given up begin one every `PROBE_INTERVAL_MS` all together, by
which they notice a catalogue that answers again: the answer lets all of them go on, whether or not the
threads ever end. Answers to other callers say nothing, since a lock may be on one table alone.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final

MOST_SILENT: Final = 16
PROBE_INTERVAL_MS: Final = 10 * 60 * 1000


class SilentCalls:
    def __init__(self) -> None:
        self._left: Final[Counter[Hashable]] = Counter()
        """By their callers."""
        self._silent: Final[set[Hashable]] = set()
        """Callers whose last call was given up."""
        self._next_probe_ms = 0

    def given_up(self, caller: Hashable) -> None:
        self._left[caller] += 1
        self._silent.add(caller)

    def answered(self, caller: Hashable) -> None:
        """Note the end of a call that was not given up, by a result or by an error of its own."""
        if caller in self._silent:
            self._silent.clear()

    def ended(self, caller: Hashable) -> None:
        """Note the late end of a call that was given up."""
        self._left[caller] -= 1
        if not self._left[caller]:
            del self._left[caller]

    def may_begin(self, caller: Hashable, now_ms: int) -> bool:
        """Return whether a call may begin; it then does."""
        if self._left.total() < MOST_SILENT or caller not in self._silent:
            return True
        if now_ms < self._next_probe_ms:
            return False
        self._next_probe_ms = now_ms + PROBE_INTERVAL_MS
        return True
