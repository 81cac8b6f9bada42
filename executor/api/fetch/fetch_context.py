"""The state behind a Fetch request: its partitions, and the offsets of their last answers.

A `FetchContext` is one fetch session, or one request without a session for as long as it waits. It lists the
partitions that have something new for it in `changed`; answering a request costs what has changed, not
what the session holds. A partition of it is a reader of its replica (`PartitionProgress`): the replica
touches and wakes it, and that wakes the request that waits.

Source: KIP-227, Kafka's FetchContext and CachedPartition.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from sparklog.protocol.codec.fetch_metadata import NO_SESSION_ID
from sparklog.protocol.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from sparklog.executor.partitions.replica import Replica

NEVER_SENT: Final = -2
"""No offset equals it, so a partition that was never answered for is always answered for."""


class PartitionKey(NamedTuple):
    """A partition's name in requests: by topic id since Fetch version 13, by topic name before."""

    topic: UUID | str
    partition: int


class WaitingFetch(Protocol):
    """A request that waits for a change of its context's partitions."""

    def wake(self) -> None:
        """Check soon whether there is enough."""

    def expire(self) -> None:
        """Answer with the records found so far."""


class CachedPartition:
    __slots__ = (
        "context",
        "current_leader_epoch",
        "fetch_offset",
        "is_forgotten",
        "is_named",
        "is_touched",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "replica",
        "sent_high_watermark",
        "sent_log_start_offset",
    )

    def __init__(self, key: PartitionKey, context: "FetchContext") -> None:
        self.key = key
        self.context = context
        self.replica: Replica | None = None
        """The replica that touches it, if any does."""
        self.is_forgotten = False
        """Whether the context holds it no more. A request that is still being answered may."""
        self.is_named = False
        """Whether a request has named it since records were last read for it. A session reads it for others'
        requests, too, which say nothing about what has become of the records."""
        self.is_touched = False
        """Whether it has changed since it was read last, so that what was found is not all there is."""
        self.current_leader_epoch: LeaderEpoch | None = None
        self.fetch_offset: Offset = 0
        self.last_fetched_epoch: LeaderEpoch | None = None
        self.log_start_offset: Offset = 0
        self.max_bytes = 0
        self.sent_high_watermark: Offset = NEVER_SENT
        self.sent_log_start_offset: Offset = NEVER_SENT

    @property
    def is_follower(self) -> bool:
        return self.context.is_follower

    def watch(self, replica: "Replica") -> None:
        """Register with `replica` for its changes, until no context asks for the partition."""
        if self.replica is not replica and not (self.is_forgotten or self.context.is_paused):
            self.unwatch()
            self.replica = replica
            replica.progress.add_reader(self)

    def unwatch(self) -> None:
        """Unregister from the replica."""
        if self.replica is not None:
            self.replica.progress.remove_reader(self)
            self.replica = None

    def forget(self) -> None:
        """Unregister from the replica, for good."""
        self.is_forgotten = True
        self.unwatch()

    def touch(self) -> None:
        """Mark the partition changed, for the context's next request."""
        self.is_touched = True
        self.context.changed[self.key] = self

    def wake(self) -> None:
        """Mark the partition changed, and wake the waiting request: records or an error are there."""
        context = self.context
        self.is_touched = True
        context.changed[self.key] = self
        if context.waiting is not None:
            context.waiting.wake()


class FetchContext:
    __slots__ = ("acls", "changed", "is_follower", "is_paused", "partitions", "session_id", "waiting")

    def __init__(self, *, is_follower: bool, session_id: int = NO_SESSION_ID) -> None:
        self.is_follower = is_follower
        self.session_id = session_id
        """`NO_SESSION_ID` for a request without a session, and for a session that was closed."""
        self.acls: object = None
        """By which it was last found out what may be read; an image's, which never change."""
        self.is_paused = False
        """Whether the connection of its last request has ended."""
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.changed: dict[PartitionKey, CachedPartition] = {}
        """In the order in which they are to be read: who got records last comes last."""
        self.waiting: WaitingFetch | None = None
        """The request that waits for a change, if one does."""

    def forget(self, key: PartitionKey) -> None:
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.forget()
            self.changed.pop(key, None)

    def pause(self) -> None:
        """Unregister from all replicas until the next request, which reads every partition again."""
        self.is_paused = True
        for key, partition in self.partitions.items():
            partition.unwatch()
            partition.is_touched = True
            self.changed[key] = partition

    def close(self) -> None:
        for partition in self.partitions.values():
            partition.is_forgotten = True
            if partition.replica is not None:  # of thousands that were answered at once none has one
                partition.unwatch()
        self.partitions.clear()
        self.changed.clear()
