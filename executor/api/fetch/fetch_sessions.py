"""The state behind a Fetch request: its partitions, and the offsets of their last answers.

A `FetchContext` is one fetch session, or one request without a session for as long as it waits. It lists the
partitions that have something new for it in `changed`; answering a request costs what has changed, not
what the session holds. A partition of it is a reader of its replica (`PartitionProgress`): the replica
touches and wakes it, and that wakes the request that waits.

A session (KIP-227) keeps its partitions, and each request names only changes.

Session ids and epochs are described in `sparklog.protocol.codec.fetch_metadata`. The cache has a fixed number
of slots. A full cache makes room for a new session only at the cost of one that is stale, or one of a client
where the new one is a follower's, or one with fewer partitions that has had its time; otherwise the request
is answered without a session, which every client understands.

A session is a follower's or a consumer's for good: permission, the readable end and quotas depend on that.
It is not bound to a connection: a reader that reconnects continues it. When the connection of its last
request ends it is paused, since most readers never return: its slot stays, and no partition refers to it.

Source: KIP-227, Kafka's FetchContext, CachedPartition and FetchSessionCache.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from uuid import UUID

from sparklog.node.serving.requests import Peer
from sparklog.protocol.codec.fetch_metadata import FINAL_EPOCH, FULL_EPOCH, NO_SESSION_ID, epoch_after
from sparklog.protocol.errors import ErrorCode, KafkaError
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

    @property
    def waits_long(self) -> bool:
        """Whether it would keep a follower too long from offsets that move without records."""

    def wake(self) -> None:
        """Check soon whether there is enough."""

    def hurry(self) -> None:
        """Answer after the usual wait of a follower, since an offset has moved."""

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
        context = self.context
        self.is_touched = True
        context.changed[self.key] = self
        if context.waiting is not None and context.waiting.waits_long:
            context.waiting.hurry()

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


class FetchSession(FetchContext):
    """A context that lives between its requests."""

    __slots__ = ("connection", "created_ms", "epoch", "last_used_ms", "uses_topic_ids")

    def __init__(
        self,
        session_id: int,
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        super().__init__(is_follower=is_follower, session_id=session_id)
        self.epoch = 1
        """The epoch of the next request."""
        self.uses_topic_ids = uses_topic_ids
        self.connection: Peer | None = None
        """By which its last request came."""
        self.created_ms = self.last_used_ms = now_ms


class FetchSessions:
    def __init__(self, new_session_id: Callable[[], int], *, slots: int, eviction_ms: int = 120_000) -> None:
        """`new_session_id` returns ids: any positive number of 31 bits, hard to guess."""
        self._new_session_id = new_session_id
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self._by_connection: dict[Peer, set[FetchSession]] = {}
        """Which sessions were last used over an open connection."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, body: Any, api_version: int, connection: Peer, *, is_follower: bool, now_ms: int
    ) -> FetchContext:
        """Return the context a request belongs to, brought up to date with what the request says.

        Raises:
            KafkaError: fetch_session_id_not_found, invalid_fetch_session_epoch, fetch_session_topic_id_error.
        """
        session_id = body.session_id if api_version >= 7 else NO_SESSION_ID
        epoch = body.session_epoch if api_version >= 7 else FINAL_EPOCH
        if epoch in (FULL_EPOCH, FINAL_EPOCH):
            self.remove(session_id)
            created = None
            if epoch == FULL_EPOCH:
                partition_count = sum(len(topic.partitions) for topic in body.topics)
                created = self._create(is_follower, api_version >= 13, partition_count, now_ms)
            if created is not None:
                self._use_over(connection, created)
            context = created or FetchContext(is_follower=is_follower)
            _update(context, body, api_version)
            return context
        session = self._sessions.get(session_id)
        if session is None or session.is_follower != is_follower:
            raise KafkaError(ErrorCode.fetch_session_id_not_found, f"no fetch session {session_id}")
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.invalid_fetch_session_epoch,
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}",
            )
        if session.uses_topic_ids != (api_version >= 13):
            raise KafkaError(
                ErrorCode.fetch_session_topic_id_error,
                f"fetch session {session_id} was begun {'with' if session.uses_topic_ids else 'without'} "
                f"topic ids, version {api_version} cannot continue it",
            )
        if session.waiting is not None:
            # The client gave its last request up and sent the next: the old one is answered as it is.
            session.waiting.expire()
        session.epoch = epoch_after(epoch)
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        if session.connection is not connection:
            self._use_over(connection, session)
        _update(session, body, api_version)
        if not session.partitions:
            self.remove(session_id)
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.session_id = NO_SESSION_ID
            if session.waiting is not None:
                session.waiting.expire()
            session.close()
            self._leave_connection(session)

    def not_begun(self, context: FetchContext) -> None:
        """Remove the session that a request would have begun, since its answer carries no session id."""
        if isinstance(context, FetchSession) and context.epoch == 1:
            self.remove(context.session_id)

    def _use_over(self, connection: Peer, session: FetchSession) -> None:
        self._leave_connection(session)
        session.connection = connection
        session.is_paused = False
        sessions = self._by_connection.get(connection)
        if sessions is not None:
            sessions.add(session)
        else:
            self._by_connection[connection] = {session}
            connection.on_close(lambda: self._connection_closed(connection))

    def _leave_connection(self, session: FetchSession) -> None:
        if session.connection is not None:
            self._by_connection[session.connection].discard(session)
            session.connection = None

    def _connection_closed(self, connection: Peer) -> None:
        for session in self._by_connection.pop(connection):
            session.connection = None
            session.pause()

    def _create(
        self, is_follower: bool, uses_topic_ids: bool, partition_count: int, now_ms: int
    ) -> FetchSession | None:
        if partition_count == 0:
            return None
        if len(self._sessions) >= self._slots and not self._make_room(is_follower, partition_count, now_ms):
            return None
        session_id = self._new_session_id()
        while session_id in self._sessions:
            session_id = self._new_session_id()
        session = FetchSession(
            session_id, is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        return session

    def _make_room(self, is_follower: bool, partition_count: int, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self.remove(oldest.session_id)
            return True
        evictable = [
            session
            for session in self._sessions.values()
            if (is_follower and not session.is_follower)
            or (
                session.is_follower <= is_follower
                and len(session.partitions) < partition_count
                and now_ms - session.created_ms > self._eviction_ms
            )
        ]
        if not evictable:
            return False
        self.remove(
            min(evictable, key=lambda session: (session.is_follower, len(session.partitions))).session_id
        )
        return True


def _update(context: FetchContext, body: Any, api_version: int) -> None:
    """Add the partitions that the request names and drop its forgotten ones."""
    by_id = api_version >= 13
    partitions = context.partitions
    for topic in body.topics:
        name = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            key = PartitionKey(name, asked.partition)
            partition = partitions.get(key)
            if partition is None:
                partition = partitions[key] = CachedPartition(key, context)
            elif context.is_follower:
                # It may have had no use for the last answer: it had to cut its log, or was in another epoch.
                partition.sent_high_watermark = partition.sent_log_start_offset = NEVER_SENT
            partition.is_named = True
            partition.fetch_offset = asked.fetch_offset
            partition.max_bytes = asked.partition_max_bytes
            if api_version >= 9:
                epoch = asked.current_leader_epoch
                partition.current_leader_epoch = epoch if epoch >= 0 else None
                if api_version >= 12:
                    epoch = asked.last_fetched_epoch
                    partition.last_fetched_epoch = epoch if epoch >= 0 else None
            if context.is_follower and api_version >= 5:
                partition.log_start_offset = asked.log_start_offset
            context.changed[key] = partition
    if api_version >= 7:
        for topic in body.forgotten_topics_data:
            name = topic.topic_id if by_id else topic.topic
            for number in topic.partitions:
                context.forget(PartitionKey(name, number))
