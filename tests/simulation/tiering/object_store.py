"""An object store that is slow, fails, fails after it has written, writes late, and lists late.

Contents are Python values. A version is made of the content, as e-tags are: the same content again has the
same version.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from zlib import crc32

from tests.simulation.scheduler import Scheduler

TIMEOUT_MS: Final = 5_000
_LATEST_MS: Final = 12_000
"""After a time-out a request may still take effect for so long."""
_LISTED_LATE_MS: Final = 4_000


class Failed(Exception):  # noqa: N818  (an outcome)
    """Without a known outcome."""


class Stale(Exception):  # noqa: N818
    """Another one was faster."""


@dataclass(slots=True)
class StoredObject:
    content: Any
    version: str
    created_ms: int


class FaultyStore:
    def __init__(self, scheduler: Scheduler) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.deleted: list[tuple[str, int]] = []
        """Names, and when they went: lists may have them for a while."""
        self.failure_chance = 0.0
        self.is_down = False
        self.is_slow = False
        self.failures = 0
        self._scheduler: Final = scheduler
        self._chance: Final[Random] = scheduler.random

    def request(self, apply: Callable[[], Any], answer: Callable[[Any], None]) -> None:
        """Have `apply` happen in a while, or not, and `answer` be called with its result or a `Failed`."""
        chance, after = self._chance, self._scheduler.after
        there_ms = chance.randint(5, 3_000 if self.is_slow else 150)
        back_ms = chance.randint(5, 1_500 if self.is_slow else 100)
        if self.is_down or chance.random() < self.failure_chance:
            self.failures += 1
            fate = chance.random()
            if fate < 0.4:
                # It was written, and the answer is lost.
                after(there_ms, self._apply, apply)
            elif fate < 0.7:
                # It is on its way for longer than its sender waits.
                after(TIMEOUT_MS + chance.randint(0, _LATEST_MS), self._apply, apply)
            after(TIMEOUT_MS if chance.random() < 0.5 else there_ms + back_ms, answer, Failed())
            return
        after(there_ms, self._apply_and_answer, apply, answer, back_ms)

    def _apply(self, apply: Callable[[], Any]) -> Any:
        try:
            return apply()
        except Stale as stale:
            return stale

    def _apply_and_answer(
        self, apply: Callable[[], Any], answer: Callable[[Any], None], back_ms: int
    ) -> None:
        self._scheduler.after(back_ms, answer, self._apply(apply))

    # --- what happens in it ---------------------------------------------------------------------

    def put(self, name: str, content: Any) -> str:
        version = f"{crc32(repr(content).encode()):08x}"
        self.objects[name] = StoredObject(content, version, self._scheduler.now_ms)
        return version

    def swap(self, name: str, content: Any, version: str | None) -> str:
        found = self.objects.get(name)
        if (found.version if found is not None else None) != version:
            raise Stale
        return self.put(name, content)

    def delete(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.deleted.append((name, self._scheduler.now_ms))

    def list(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        now_ms, chance = self._scheduler.now_ms, self._chance
        listed = [
            name
            for name, stored in self.objects.items()
            if now_ms - stored.created_ms > _LISTED_LATE_MS or chance.random() < 0.5
        ]
        listed += [
            name
            for name, deleted_ms in self.deleted
            if now_ms - deleted_ms < _LISTED_LATE_MS and chance.random() < 0.5
        ]
        return tuple(name for name in listed if name.startswith(prefixes))
