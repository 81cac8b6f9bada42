"""The fetches from one leader: the partitions of the next request, the session's content, and pauses.

Rules kept
- A request names only partitions whose fetch differs from the one in the leader's session (KIP-227); the
  leader holds the request while it has no records. A partition added meanwhile must not wait for that: the
  next request of the session is sent behind the held one, which makes the leader answer the held one. At most
  two are in flight. The request that begins a session does not wait at the leader, so that later requests can
  pass the waiting ones. If the leader has just refused a session (no slot is free), requests wait without
  one.
- Once an answer in a session was empty, requests wait for `idle_wait_ms`, until one is not: each empty answer
  wakes two brokers. Where an offset moves without records, or records are held back, the leader answers after
  the usual wait all the same (`DelayedFetch.hurry`), so that no follower hears of it later than that.
- A refused partition pauses outside the session: for 0.1 s at most in the first second, since after an
  election the leader's metadata may lag, and a pause that had grown with the lag would double the time in
  which nothing is committed; then longer each time. A partition that needs new metadata pauses until it is
  added again. After a failed connection all partitions pause.
- An answer is ignored for a partition whose fetch has changed since its request.

Pure. Order for the caller: while `may_send`, send `next_request`; pass each answer, in the order of the
requests, to `answered`, and for each partition that this yields call `taken`, or `refused`. Those return the
partition's pause; call `wake_rested` after it. `failed` when the connection is lost: the next request goes
over another one, after the pause that it returns.
"""

from collections import deque
from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from sparklog.executor.fetching.machine.turn_size import TurnSize
from sparklog.executor.partitions.machine.follower import (
    AskLeaderOffsets,
    AwaitMetadata,
    FetchAnswered,
    PartitionFetch,
)
from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.codec.fetch_metadata import FULL_EPOCH, NO_SESSION_ID, epoch_after
from sparklog.protocol.codec.fixed.fetch import (
    AskedPartition,
    AskedTopic,
    FollowerFetchRequest,
    ForgottenTopic,
    ReplicaState,
)
from sparklog.protocol.codec.fixed.message import milliseconds
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, Offset, TopicIdPartition, or_minus_one

if TYPE_CHECKING:
    from sparklog.executor.partitions.following import FetcherAdvice
    from sparklog.executor.partitions.replica import Replica

_MAX_UNDER_WAY: Final = 2
_BRIEF_PAUSES: Final = 12
_BRIEF_PAUSE_MS: Final = 100
"""The longest of the first pauses."""
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class FetchLimits(NamedTuple):
    max_wait_ms: int
    idle_wait_ms: int
    """The wait of a session whose last answer was empty."""
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff: ExponentialBackoff


class PartitionAnswer(NamedTuple):
    replica: "Replica"
    answered: FetchAnswered
    records: bytes | memoryview


class _Asked(NamedTuple):
    """A partition's fetch in the leader's session since the request of that number."""

    fetch: PartitionFetch
    log_start_offset: Offset
    since_request: int


class LeaderFetches:
    def __init__(self, broker_id: BrokerId, limits: FetchLimits) -> None:
        self.replicas: dict[TopicIdPartition, Replica] = {}
        self.size: Final = TurnSize(limits.max_bytes, limits.partition_max_bytes)
        self._broker_id = broker_id
        self._limits = limits
        self._due: dict[TopicIdPartition, None] = {}
        """Partitions whose next fetch may differ from the session's."""
        self._resting: dict[TopicIdPartition, float] = {}
        """Paused partitions by the end of their pause; `inf` until new metadata."""
        self._held: set[TopicIdPartition] = set()
        """Partitions whose logs are not ready for records yet: until `go_on` or `refused`."""
        self._refusals: dict[TopicIdPartition, int] = {}
        """The number of refusals in a row by partition; none after a success."""
        self._failures = 0
        """The number of failures of the connection in a row."""
        self._session_id = NO_SESSION_ID
        self._session_epoch = FULL_EPOCH
        self._has_slot = True
        """Whether the leader may grant a session, by its last answer."""
        self._asked: dict[TopicIdPartition, _Asked] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self._is_idle = False
        """Whether the last answer was empty."""
        self._requests_sent = 0
        self._under_way: deque[int] = deque()
        """The numbers of the requests in flight."""

    def add(self, replica: "Replica") -> None:
        key = replica.key
        self.replicas[key] = replica
        self._held.discard(key)
        self._resting.pop(key, None)
        self._refusals.pop(key, None)
        self._due[key] = None

    def remove(self, replica: "Replica") -> None:
        key = replica.key
        if self.replicas.get(key) is replica:
            del self.replicas[key]
            self._held.discard(key)
            self._resting.pop(key, None)
            self._refusals.pop(key, None)
            self._leave_out(key)

    @property
    def refused_count(self) -> int:
        """The number of partitions that pause after an error of either side."""
        return len(self._refusals)

    # --- requests -------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def may_send(self) -> bool:
        under_way = len(self._under_way)
        if under_way == 0:
            return bool(self._due or self._asked)
        return bool(self._due) and self._session_id != NO_SESSION_ID and under_way < _MAX_UNDER_WAY

    @property
    def wait_ms(self) -> int:
        """How long the leader may hold the next request."""
        if self._session_id == NO_SESSION_ID and self._has_slot:
            return 0
        return self._limits.idle_wait_ms if self._is_idle else self._limits.max_wait_ms

    def next_request(self, broker_epoch: BrokerEpoch | None) -> FollowerFetchRequest:
        """Return the next request, and note it as in flight."""
        wait_ms = self.wait_ms
        self._requests_sent += 1
        self._under_way.append(self._requests_sent)
        topics: dict[UUID, list[AskedPartition]] = {}
        due, self._due = self._due, {}
        for key in due:
            partition = self._ask(key)
            if partition is not None:
                topics.setdefault(key.topic_id, []).append(partition)
        forgotten: dict[UUID, list[int]] = {}
        for key in self._forgotten:
            forgotten.setdefault(key.topic_id, []).append(key.partition)
        self._forgotten = {}
        limits, session_id, session_epoch = self._limits, self._session_id, self._session_epoch
        if session_id != NO_SESSION_ID:
            self._session_epoch = epoch_after(session_epoch)
        return FollowerFetchRequest(
            ReplicaState(self._broker_id, or_minus_one(broker_epoch)),
            milliseconds(wait_ms),
            limits.min_bytes,
            self.size.max_bytes,
            session_id,
            session_epoch,
            [AskedTopic(topic_id, partitions) for topic_id, partitions in topics.items()],
            tuple(
                [ForgottenTopic(topic_id, tuple(partitions)) for topic_id, partitions in forgotten.items()]
            ),
        )

    def _ask(self, key: TopicIdPartition) -> AskedPartition | None:
        """Return the fetch of a partition, or None if it equals the session's."""
        fetch = self._next_fetch(key)
        if fetch is None:
            self._leave_out(key)
            return None
        before = self._asked.get(key)
        log_start_offset = self.replicas[key].log.log_start_offset
        if before is not None and before.fetch == fetch and before.log_start_offset == log_start_offset:
            return None
        self._asked[key] = _Asked(fetch, log_start_offset, self._requests_sent)
        self._forgotten.pop(key, None)
        return AskedPartition(
            key.partition,
            fetch.leader_epoch,
            fetch.offset,
            or_minus_one(fetch.last_fetched_epoch),
            log_start_offset,
            self.size.partition_max_bytes,
        )

    # --- answers --------------------------------------------------------------------------------

    def answered(self, response: Any) -> Iterator[PartitionAnswer]:
        """Process the answer of the oldest request; yield the answers of its partitions.

        Raises:
            KafkaError: the request was refused as a whole.
        """
        number = self._under_way.popleft()
        if response.error_code is not ErrorCode.none:
            self._end_session()
            if response.error_code not in _SESSION_ERRORS:
                raise KafkaError(response.error_code, "the fetch was refused")
            self._failures = 0
            return
        self._failures = 0
        if self._session_id == NO_SESSION_ID:
            self._session_epoch = epoch_after(FULL_EPOCH)
            self._has_slot = response.session_id != NO_SESSION_ID
            self._is_idle = False
        else:
            self._is_idle = not response.responses
        self._session_id = response.session_id
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(topic.topic_id, partition.partition_index)
                asked = self._asked.get(key)
                replica = self.replicas.get(key)
                if asked is None or replica is None or asked.since_request > number:
                    continue
                self._due[key] = None
                diverging = partition.diverging_epoch
                records = partition.records or b""
                answered = FetchAnswered(
                    leader_epoch=asked.fetch.leader_epoch,
                    fetch_offset=asked.fetch.offset,
                    error_code=partition.error_code,
                    high_watermark=_known(partition.high_watermark),
                    log_start_offset=_known(partition.log_start_offset),
                    diverging_epoch=(diverging.epoch, diverging.end_offset)
                    if diverging.end_offset >= 0
                    else None,
                    has_records=len(records) > 0,
                )
                yield PartitionAnswer(replica, answered, records)
        if self._session_id == NO_SESSION_ID:
            # The leader has no slot for a session: every request is a full one.
            self._end_session()

    def was_refused(self, replica: "Replica") -> bool:
        """Whether the answer before this one refused it, too."""
        return replica.key in self._refusals

    def taken(self, replica: "Replica", advice: "FetcherAdvice | None", now_ms: int) -> int | None:
        """Note a processed answer and its `advice`; return the partition's pause in milliseconds, if any."""
        key = replica.key
        if advice is None:
            if self._refusals:
                self._refusals.pop(key, None)
            return None
        if isinstance(advice, AskLeaderOffsets):
            # Its refusals before count, lest it asks without a pause.
            self.hold(replica)
            return None
        if isinstance(advice, AwaitMetadata):
            self._resting[key] = inf
            self._leave_out(key)
            return None
        return self.refused(replica, now_ms)

    def hold(self, replica: "Replica") -> None:
        """Fetch nothing for a replica until its log is ready: `go_on` or `refused`."""
        self._held.add(replica.key)
        self._leave_out(replica.key)

    def go_on(self, replica: "Replica") -> None:
        """Fetch again for a replica that was held."""
        if self.replicas.get(replica.key) is replica:
            self._held.discard(replica.key)
            self._due[replica.key] = None

    def refused(self, replica: "Replica", now_ms: int) -> int:
        key = replica.key
        refusals = self._refusals.get(key, 0)
        rest_ms = self._limits.backoff.pause_ms(refusals)
        if refusals < _BRIEF_PAUSES:
            rest_ms = min(rest_ms, _BRIEF_PAUSE_MS)
        self._held.discard(key)
        self._refusals[key] = refusals + 1
        self._resting[key] = now_ms + rest_ms
        self._leave_out(key)
        return rest_ms

    def rest(self, replica: "Replica", until_ms: int) -> None:
        """Pause a replica until then, without a refusal."""
        self._resting[replica.key] = until_ms
        self._leave_out(replica.key)

    def wake_rested(self, now_ms: int) -> list["Replica"]:
        """End the pauses that are over; return their replicas."""
        rested = [key for key, until_ms in self._resting.items() if until_ms <= now_ms]
        for key in rested:
            del self._resting[key]
            self._due[key] = None
        return [replica for key in rested if (replica := self.replicas.get(key)) is not None]

    @property
    def next_rested_ms(self) -> float:
        """The end of the next pause; infinity if no such time is known."""
        return min(self._resting.values(), default=inf)

    def failed(self) -> int:
        """Note a lost connection or a refused request; return the pause in milliseconds."""
        self._end_session()
        self._has_slot = True
        self._failures += 1
        return self._limits.backoff.pause_ms(self._failures - 1)

    def _leave_out(self, key: TopicIdPartition) -> None:
        self._due.pop(key, None)
        if self._asked.pop(key, None) is not None and (
            self._session_id != NO_SESSION_ID
            # The answer in flight may begin a session that holds it.
            or self._under_way
        ):
            self._forgotten[key] = None

    def _end_session(self) -> None:
        self._is_idle = False
        self._session_id, self._session_epoch = NO_SESSION_ID, FULL_EPOCH
        self._asked.clear()
        self._forgotten.clear()
        self._under_way.clear()
        # Not the paused and held ones, or those without a next fetch (`wake_rested`, `go_on` and `add` make
        # them due): a request without partitions is answered at once and begins no session, over and over.
        self._due = {key: None for key in self.replicas if self._next_fetch(key) is not None}

    def _next_fetch(self, key: TopicIdPartition) -> PartitionFetch | None:
        replica = self.replicas.get(key)
        if replica is None or replica.follower_state is None or key in self._resting or key in self._held:
            return None
        return replica.follower_state.next_fetch


def _known(offset: Offset) -> Offset | None:
    return offset if offset >= 0 else None
