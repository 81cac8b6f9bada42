"""Fetch sessions (KIP-227): a session keeps its partitions, and each request names only changes.

Session ids and epochs are described in `sparklog.protocol.codec.fetch_metadata`. The cache has a fixed number
of slots. A full cache makes room for a new session only at the cost of one that is stale, or one of a client
where the new one is a follower's, or one with fewer partitions that has had its time; otherwise the request
is answered without a session, which every client understands.

A session is a follower's or a consumer's for good: permission, the readable end and quotas depend on that.
It is not bound to a connection: a reader that reconnects continues it. When the connection of its last
request ends it is paused, since most readers never return: its slot stays, and no partition refers to it.

Pure. `new_session_id` returns ids: any positive number of 31 bits, hard to guess.
"""

from collections.abc import Callable
from typing import Any

from sparklog.executor.api.fetch.fetch_context import NEVER_SENT, CachedPartition, FetchContext, PartitionKey
from sparklog.node.serving.requests import Peer
from sparklog.protocol.codec.fetch_metadata import FINAL_EPOCH, FULL_EPOCH, NO_SESSION_ID, epoch_after
from sparklog.protocol.errors import ErrorCode, KafkaError


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
