"""State that the parts of the consumer protocol share in a partition."""

import logging
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from sparklog.executor.coordinators.groups.machine.consumer.leaving import Downgraded, Leaving
from sparklog.executor.coordinators.groups.machine.consumer.metadata_hash import TopicHashes
from sparklog.executor.coordinators.groups.machine.consumer.settings import Settings
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.machine.coordinator_machine import (
    NOTHING,
    CoordinatorResult,
    Now,
    RunInExecutor,
)
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.node.config import BrokerConfig
from sparklog.protocol.types import Offset

logger = logging.getLogger(__name__)

Then: TypeAlias = Callable[[Any, Now], CoordinatorResult]


class CoordinatorExecutor:
    """Computations outside of the loop, at most one of a kind for each group.

    A result is dropped if its group was deleted meanwhile, or if the computation did not begin, because the
    decision that requested it could not be appended.
    """

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], RunInExecutor] = {}

    def is_running(self, group_id: str, what: str) -> bool:
        return (group_id, what) in self._running

    def begin(self, group_id: str, what: str, function: Callable[[], Any], then: Then) -> RunInExecutor:
        """Return an effect that runs `function` and lets `then` decide about the result."""
        key = group_id, what

        def done(result: Any, now: Now) -> CoordinatorResult:
            if self._running.get(key) is not effect:
                return NOTHING
            del self._running[key]
            if isinstance(result, Exception):
                logger.error("%s of group %s failed, it will be retried", what, group_id, exc_info=result)
                return NOTHING
            return then(result, now)

        effect = RunInExecutor(function, done)
        self._running[key] = effect
        return effect

    def abandon(self, effects: Iterable[Any]) -> None:
        """Forget effects of a decision that was not appended."""
        for effect in effects:
            for key, running in tuple(self._running.items()):
                if running is effect:
                    del self._running[key]

    def forget(self, group_id: str) -> None:
        for key in [key for key in self._running if key[0] == group_id]:
            del self._running[key]


class GroupContext:
    def __init__(
        self, groups: MutableMapping[str, Group], timers: Timers, keys: BrokerConfig, downgraded: Downgraded
    ) -> None:
        self.groups = groups
        self.timers = timers
        self.settings = Settings(keys)
        self.hashes = TopicHashes()
        self.executor = CoordinatorExecutor()
        self.leaving = Leaving(groups, timers, self.settings, self.hashes, downgraded)
        self.topics_created_at: Offset = 0
        """The end offset of the last image with new topics, as far as this partition knows."""
