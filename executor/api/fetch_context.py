"""Who reads a partition, and what they were last told: the state behind a fetch.

A `Reader` is one fetch session, or one request without a session for as long as it waits. It lists the
partitions that have something new for it in `changed`; answering a request costs what has changed, not
what the session holds. A replica keeps its readers and touches them when it changes.
"""

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from executor.partitions.delayed_operations import DelayedOperations, Waiting
from sparklog.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from executor.partitions.replica import Replica

NEVER_TOLD: Final = -2
"""No offset equals it, so a partition that was never answered for is always answered for."""


class PartitionKey(NamedTuple):
    """How a request names a partition: by topic id since Fetch version 13, by name before."""

    topic: UUID | str
    partition: int


class ReadPartition:
    """One partition as one reader asks for it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "reader",
        "replica",
        "told_high_watermark",
        "told_log_start_offset",
    )

    def __init__(self, key: PartitionKey, reader: "Reader") -> None:
        self.key = key
        self.reader = reader
        self.replica: Replica | None = None
        self.current_leader_epoch: LeaderEpoch | None = None
        self.fetch_offset: Offset = 0
        self.last_fetched_epoch: LeaderEpoch | None = None
        self.log_start_offset: Offset = 0
        self.max_bytes = 0
        self.told_high_watermark: Offset = NEVER_TOLD
        self.told_log_start_offset: Offset = NEVER_TOLD

    def watch(self, replica: "Replica") -> None:
        """Be touched when `replica` changes."""
        if self.replica is not replica:
            self.unwatch()
            self.replica = replica
            (replica.follower_readers if self.reader.is_follower else replica.consumer_readers)[self] = None

    def unwatch(self) -> None:
        """Be touched no more."""
        if self.replica is not None:
            self.replica.follower_readers.pop(self, None)
            self.replica.consumer_readers.pop(self, None)
            self.replica = None

    def touch(self) -> None:
        """There is something to tell, when the reader next asks."""
        self.reader.changed[self.key] = self

    def wake(self) -> None:
        """There is something to tell now: records, or an error."""
        reader = self.reader
        reader.changed[self.key] = self
        if reader.waiting is not None:
            reader.delayed.wake(reader.waiting)


class Reader:
    """A fetch session, or a single request without one."""

    __slots__ = ("changed", "delayed", "is_follower", "partitions", "waiting")

    def __init__(self, delayed: DelayedOperations, *, is_follower: bool) -> None:
        self.delayed = delayed
        self.is_follower = is_follower
        self.partitions: dict[PartitionKey, ReadPartition] = {}
        self.changed: dict[PartitionKey, ReadPartition] = {}
        """In the order in which they are to be read: who got records last comes last."""
        self.waiting: Waiting | None = None
        """The request that waits for a change, if one does."""

    def forget(self, key: PartitionKey) -> None:
        """Read that partition no more."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.unwatch()
            self.changed.pop(key, None)

    def pause(self) -> None:
        """Be touched by nothing until the next request, which looks at every partition anew."""
        for key, partition in self.partitions.items():
            partition.unwatch()
            self.changed[key] = partition

    def close(self) -> None:
        """Read nothing more."""
        for partition in self.partitions.values():
            partition.unwatch()
        self.partitions.clear()
        self.changed.clear()
