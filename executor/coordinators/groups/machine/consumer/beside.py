"""What is being found out beside the loop, at most one of a kind for a group.

A result is dropped if its group has gone meanwhile, or if it was never begun, because the decision that asked
for it could not be appended.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from sparklog.executor.coordinators.machine.decision import NOTHING, Beside, Decision, Now

logger = logging.getLogger(__name__)

Then: TypeAlias = Callable[[Any, Now], Decision]


class BesideTheLoop:
    """The searches of the groups of a partition."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], Beside] = {}

    def is_running(self, group_id: str, what: str) -> bool:
        """Whether somebody has asked for it already."""
        return (group_id, what) in self._running

    def begin(self, group_id: str, what: str, function: Callable[[], Any], then: Then) -> Beside:
        """Return the effect that has `then` decide about what `function` finds."""
        key = group_id, what

        def done(result: Any, now: Now) -> Decision:
            if self._running.get(key) is not effect:
                return NOTHING
            del self._running[key]
            if isinstance(result, Exception):
                logger.error("%s of group %s failed, and is tried again", what, group_id, exc_info=result)
                return NOTHING
            return then(result, now)

        effect = Beside(function, done)
        self._running[key] = effect
        return effect

    def abandon(self, effects: Iterable[Any]) -> None:
        """What a decision asked for will not be done."""
        for effect in effects:
            for key, running in tuple(self._running.items()):
                if running is effect:
                    del self._running[key]

    def forget(self, group_id: str) -> None:
        """A group has gone."""
        for key in [key for key in self._running if key[0] == group_id]:
            del self._running[key]
