"""State that the parts of the consumer protocol share in a partition."""

from collections.abc import MutableMapping

from sparklog.executor.coordinators.groups.machine.consumer.coordinator_executor import CoordinatorExecutor
from sparklog.executor.coordinators.groups.machine.consumer.leaving import Downgraded, Leaving
from sparklog.executor.coordinators.groups.machine.consumer.metadata_hash import TopicHashes
from sparklog.executor.coordinators.groups.machine.consumer.settings import Settings
from sparklog.executor.coordinators.groups.machine.group import Group
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.node.config import BrokerConfig
from sparklog.protocol.types import Offset


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
