"""The time for which each broker has been away, so that it counts as lost in the end.

A controller counts from its own beginning, and without pauses in which it did not run itself: brokers could
not come back then.
"""

from collections.abc import Callable, Collection

from sparklog.driver.controller.machine.sessions import LISTENING_GAP_MS
from sparklog.protocol.types import BrokerId


class Absences:
    def __init__(self) -> None:
        self._since_ms: dict[BrokerId, int] = {}
        self._last_step_ms: int | None = None

    @property
    def away(self) -> Collection[BrokerId]:
        return self._since_ms.keys()

    def note_step(self, now_ms: int) -> None:
        """Note that the controller runs; to be called often, with the time of each step."""
        if self._last_step_ms is not None:
            pause_ms = now_ms - self._last_step_ms
            if pause_ms > LISTENING_GAP_MS:
                for broker_id in self._since_ms:
                    self._since_ms[broker_id] += pause_ms
        self._last_step_ms = now_ms

    def look(self, known: Collection[BrokerId], is_active: Callable[[BrokerId], bool], now_ms: int) -> None:
        """Note the brokers that are away; those that are not `known` are forgotten."""
        away = sorted(each for each in known if not is_active(each))
        self._since_ms = {each: self._since_ms.get(each, now_ms) for each in away}

    def duration_ms(self, broker_id: BrokerId, now_ms: int) -> int:
        return now_ms - self._since_ms[broker_id]

    def longer_than(self, duration_ms: int, now_ms: int) -> frozenset[BrokerId]:
        return frozenset(
            each for each, since_ms in self._since_ms.items() if now_ms - since_ms >= duration_ms
        )
