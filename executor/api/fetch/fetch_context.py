"""Who fetches, and what they were last told: the state behind a Fetch request.

A `FetchContext` is one fetch session, or one request without a session for as long as it waits. It lists the
partitions that have something new for it in `changed`; answering a request costs what has changed, not
what the session holds. A replica keeps its readers and touches them when it changes.

Pure. Source: KIP-227, Kafka's FetchContext and CachedPartition.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from sparklog.protocol.codec.fetch_metadata import NO_SESSION_ID
from sparklog.protocol.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from sparklog.executor.partitions.replica import Replica

NEVER_TOLD: Final = -2
"""No offset equals it, so a partition that was never answered for is always answered for."""


class PartitionKey(NamedTuple):
    """How a request names a partition: by topic id since Fetch version 13, by name before."""

    topic: UUID | str
    partition: int


class WaitingFetch(Protocol):
    """A request that waits for something to be there for its context."""

    def wake(self) -> None:
        """Something may be there: look soon."""

    def expire(self) -> None:
        """Answer with what there is."""


class CachedPartition:
    """One partition as one context asks for it."""

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
        "told_high_watermark",
        "told_log_start_offset",
    )

    def __init__(self, key: PartitionKey, context: "FetchContext") -> None:
        self.key = key
        self.context = context
        self.replica: Replica | None = None
        """The one that touches it, if any does."""
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
        self.told_high_watermark: Offset = NEVER_TOLD
        self.told_log_start_offset: Offset = NEVER_TOLD

    @property
    def is_follower(self) -> bool:
        """Whether a follower asks."""
        return self.context.is_follower

    def watch(self, replica: "Replica") -> None:
        """Be touched when `replica` changes, as long as anybody asks for it."""
        if self.replica is not replica and not (self.is_forgotten or self.context.is_paused):
            self.unwatch()
            self.replica = replica
            replica.progress.add_reader(self)

    def unwatch(self) -> None:
        """Be touched no more."""
        if self.replica is not None:
            self.replica.progress.remove_reader(self)
            self.replica = None

    def forget(self) -> None:
        """Be touched no more, and never again."""
        self.is_forgotten = True
        self.unwatch()

    def touch(self) -> None:
        """There is something to tell, when the context's next request comes."""
        self.is_touched = True
        self.context.changed[self.key] = self

    def wake(self) -> None:
        """There is something to tell now: records, or an error."""
        context = self.context
        self.is_touched = True
        context.changed[self.key] = self
        if context.waiting is not None:
            context.waiting.wake()


class FetchContext:
    """A fetch session, or a single request without one."""

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
        """Read that partition no more."""
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.forget()
            self.changed.pop(key, None)

    def pause(self) -> None:
        """Be touched by nothing until the next request, which looks at every partition anew."""
        self.is_paused = True
        for key, partition in self.partitions.items():
            partition.unwatch()
            partition.is_touched = True
            self.changed[key] = partition

    def close(self) -> None:
        """Read nothing more."""
        for partition in self.partitions.values():
            partition.is_forgotten = True
            if partition.replica is not None:  # of thousands that were answered at once none has one
                partition.unwatch()
        self.partitions.clear()
        self.changed.clear()
