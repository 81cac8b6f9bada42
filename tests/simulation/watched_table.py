"""The replicas of a broker's process, at hand for who looks at all of them after every event."""

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable


class WatchedTable(PartitionTable):
    """Production's table, which also knows `all` of its replicas without looking for them."""

    def __init__(self, listener_name: str) -> None:
        super().__init__(listener_name)
        self.all: tuple[Replica, ...] = ()

    def add(self, replica: Replica) -> None:
        super().add(replica)
        self.all = tuple(self)

    def remove(self, replica: Replica) -> None:
        super().remove(replica)
        self.all = tuple(self)
