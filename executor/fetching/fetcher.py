"""Following: one task fetches from one leader, for all partitions (or a share of them) it leads.

Each request asks for what every partition needs next, in an incremental fetch session that names only
what changed; the leader holds it while there is nothing. A partition added meanwhile must not wait for
that: the next request of the session is sent behind the one that is held, which makes the leader answer
the held one. At most two are under way. A partition that was refused rests outside the session, and when
the connection fails the whole task rests: briefly at first, since right after an election the leader may
be a moment behind with its metadata, then longer each time up to `replica.fetch.backoff.ms`. The task ends
by `stop` only.
"""

import asyncio
import datetime
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.schema.fetch.v17.request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

from executor.fetching.suspected_brokers import BrokerSuspicions
from executor.partitions.machine.follower import AwaitMetadata, FetchAnswered, PartitionFetch
from executor.partitions.replica import Replica
from sparklog.clocks import wall_clock_ms
from sparklog.errors import ErrorCode, KafkaError
from sparklog.exponential_backoff import ExponentialBackoff
from sparklog.types import BrokerEpoch, BrokerId, Offset, TopicIdPartition
from sparklog.wire.channel import Channel

logger = logging.getLogger(__name__)

_MAX_UNDER_WAY: Final = 2
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The `replica.fetch...` and `replica.socket...` parts of the broker's configuration."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    backoff: ExponentialBackoff
    socket_timeout_ms: int
    socket_receive_buffer_bytes: int | None
    """None leaves it to the system."""
    warn_after_ms: int
    """How long a leader may be gone before that is worth a warning; see `Fetcher`."""


class _Asked(NamedTuple):
    """What the leader's session holds about a partition since the request of that number."""

    fetch: PartitionFetch
    log_start_offset: Offset
    since_request: int


class _UnderWay(NamedTuple):
    number: int
    answer: asyncio.Future[Any]


class Fetcher:
    """Follows one leader for some partitions.

    When a whole cluster is stopped, leaders go while their followers have not been told yet. So a lost or
    refused connection is only noted at first; it is warned of when it lasts longer than it takes the
    controller to tell this broker to go too, or to follow another.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        leader_id: BrokerId,
        host: str,
        port: int,
        settings: FetcherSettings,
        suspicions: BrokerSuspicions,
    ) -> None:
        self.leader_id = leader_id
        self.address = (host, port)
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._suspicions = suspicions
        self._replicas: dict[TopicIdPartition, Replica] = {}
        self._due: dict[TopicIdPartition, None] = {}
        """Partitions whose next fetch may differ from what the session holds."""
        self._resting: dict[TopicIdPartition, float] = {}
        """Partitions left out of the session, until when (monotonic seconds); `inf` until new metadata."""
        self._refusals: dict[TopicIdPartition, int] = {}
        """How often in a row a partition was refused; one that was answered well is not in it."""
        self._session_id = 0
        self._session_epoch = 0
        self._asked: dict[TopicIdPartition, _Asked] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self._has_work = asyncio.Event()
        self._added = asyncio.Event()
        """A partition was added since the task last looked."""
        self._channel: Channel | None = None
        self._under_way: deque[_UnderWay] = deque()
        self._requests_sent = 0
        self._will_send_more = False
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """What is fetched for."""
        return tuple(self._replicas.values())

    def start(self) -> None:
        """Begin to fetch."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop fetching; returns when the task has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._channel is not None:
            self._channel.close()

    def add(self, replica: Replica) -> None:
        """Fetch for `replica` too, from the state its follower is in now."""
        key = replica.key
        self._replicas[key] = replica
        self._resting.pop(key, None)
        self._refusals.pop(key, None)
        self._due[key] = None
        self._has_work.set()
        self._added.set()
        if self._under_way and not self._will_send_more:
            self._will_send_more = True
            asyncio.get_running_loop().call_soon(self._send_more)

    def remove(self, replica: Replica) -> None:
        """Fetch no more for `replica`."""
        key = replica.key
        if self._replicas.get(key) is replica:
            del self._replicas[key]
            self._resting.pop(key, None)
            self._refusals.pop(key, None)
            self._leave_out(key)

    # --- the task -------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        failing = _Failing(self.leader_id, self._settings.warn_after_ms)
        while True:
            await self._has_work.wait()
            if not self._replicas:
                self._has_work.clear()
                continue
            try:
                if self._channel is None:
                    self._channel = await Channel.connect(
                        *self.address,
                        f"broker-{self._broker_id}-fetcher",
                        connect_timeout_ms=self._settings.socket_timeout_ms,
                        request_timeout_ms=self._settings.socket_timeout_ms,
                        receive_buffer_bytes=self._settings.socket_receive_buffer_bytes,
                    )
                await self._round(self._channel)
                failures = 0
                failing.over()
            except KafkaError as error:
                failing.failed(error)
                if error.error_code is ErrorCode.network_exception:
                    self._suspicions.connection_lost(self.leader_id)
                self._end_session()
                if self._channel is not None:
                    self._channel.close()
                    self._channel = None
                await asyncio.sleep(self._settings.backoff.pause_ms(failures) / 1000)
                failures += 1

    async def _round(self, channel: Channel) -> None:
        """Have a request under way, and take the answer of the oldest in."""
        self._wake_rested()
        if not self._under_way:
            if not self._due and not self._asked:
                self._added.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._rest_seconds()):
                        await self._added.wait()
                return
            self._send(channel)
        number, answer = self._under_way[0]
        response = await answer
        self._suspicions.connection_serves(self.leader_id)
        if not self._under_way or self._under_way[0].number != number:
            return
        self._under_way.popleft()
        if response.error_code is not ErrorCode.none:
            self._end_session()
            if response.error_code not in _SESSION_ERRORS:
                raise KafkaError(response.error_code, "the fetch was refused")
            return
        begins_session = self._session_id == 0
        self._session_id = response.session_id
        self._take_in(response, number)
        if self._session_id == 0:
            # The leader has no slot for a session: everything is said again each time.
            self._end_session()
        elif begins_session:
            self._session_epoch = 1
        if self._due and self._under_way and self._session_id:
            self._send(channel)

    def _send_more(self) -> None:
        self._will_send_more = False
        channel = self._channel
        if (
            channel is not None
            and self._due
            and self._session_id
            and 0 < len(self._under_way) < _MAX_UNDER_WAY
            and not channel.closed.done()
        ):
            self._send(channel)

    def _send(self, channel: Channel) -> None:
        self._requests_sent += 1
        number = self._requests_sent
        request = self._request(number)
        timeout_ms = self._settings.max_wait_ms + self._settings.socket_timeout_ms
        self._under_way.append(_UnderWay(number, channel.request(request, timeout_ms=timeout_ms)))
        if self._session_id:
            self._session_epoch = 1 if self._session_epoch == 2**31 - 1 else self._session_epoch + 1

    def _request(self, number: int) -> FetchRequest:
        due, self._due = self._due, {}
        topics: dict[UUID, list[FetchPartition]] = {}
        for key in due:
            replica = self._replicas.get(key)
            follower = None if replica is None else replica.follower
            fetch = None if follower is None else follower.next_fetch
            if replica is None or fetch is None or key in self._resting:
                self._leave_out(key)
                continue
            before = self._asked.get(key)
            log_start_offset = replica.log.log_start_offset
            if before is not None and before.fetch == fetch and before.log_start_offset == log_start_offset:
                continue
            self._asked[key] = _Asked(fetch, log_start_offset, number)
            self._forgotten.pop(key, None)
            topics.setdefault(key.topic_id, []).append(
                FetchPartition(
                    partition=key.partition,
                    current_leader_epoch=fetch.leader_epoch,
                    fetch_offset=fetch.offset,
                    last_fetched_epoch=-1 if fetch.last_fetched_epoch is None else fetch.last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for key in self._forgotten:
            forgotten.setdefault(key.topic_id, []).append(key.partition)
        self._forgotten = {}
        broker_epoch = self._broker_epoch()
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._broker_id, replica_epoch=-1 if broker_epoch is None else broker_epoch
            ),
            # A session is begun without waiting, so that later requests can pass the ones that wait.
            max_wait=datetime.timedelta(milliseconds=self._settings.max_wait_ms if self._session_id else 0),
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=tuple(
                FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
            forgotten_topics_data=tuple(
                ForgottenTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in forgotten.items()
            ),
        )

    def _take_in(self, response: Any, number: int) -> None:
        wall_ms = wall_clock_ms()
        for topic in response.responses:
            for partition in topic.partitions:
                key = TopicIdPartition(topic.topic_id, partition.partition_index)
                asked = self._asked.get(key)
                replica = self._replicas.get(key)
                if asked is None or replica is None or asked.since_request > number:
                    continue
                self._due[key] = None
                records = partition.records or b""
                try:
                    advice = replica.take_fetched(
                        _answered(partition, asked.fetch, has_records=len(records) > 0), records, wall_ms
                    )
                except (KafkaError, OSError) as error:
                    if not replica.offline:
                        logger.error(
                            "%s: what broker %d sent was refused: %s", replica, self.leader_id, error
                        )
                    self._rest(key)
                    continue
                if advice is None:
                    if self._refusals:
                        self._refusals.pop(key, None)
                else:
                    level = logging.DEBUG if key in self._refusals else logging.INFO
                    logger.log(
                        level,
                        "%s: broker %d answered a fetch in leader epoch %d with %s",
                        replica,
                        self.leader_id,
                        asked.fetch.leader_epoch,
                        advice.error_code.name,
                    )
                    self._rest(key, until_metadata=isinstance(advice, AwaitMetadata))

    # --- partitions that rest, sessions that end ------------------------------------------------

    def _rest(self, key: TopicIdPartition, *, until_metadata: bool = False) -> None:
        if until_metadata:
            self._resting[key] = float("inf")
        else:
            refusals = self._refusals.get(key, 0)
            self._refusals[key] = refusals + 1
            rest_ms = self._settings.backoff.pause_ms(refusals)
            self._resting[key] = time.monotonic() + rest_ms / 1000
            asyncio.get_running_loop().call_later(rest_ms / 1000, self._send_rested)
        self._leave_out(key)

    def _send_rested(self) -> None:
        self._wake_rested()
        self._send_more()

    def _leave_out(self, key: TopicIdPartition) -> None:
        self._due.pop(key, None)
        if self._asked.pop(key, None) is not None and self._session_id:
            self._forgotten[key] = None

    def _wake_rested(self) -> None:
        if self._resting:
            now = time.monotonic()
            for key in [key for key, until in self._resting.items() if until <= now]:
                del self._resting[key]
                self._due[key] = None

    def _rest_seconds(self) -> float:
        soonest = min(self._resting.values(), default=float("inf"))
        return max(0.0, min(soonest - time.monotonic(), self._settings.backoff.max_ms / 1000))

    def _end_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._asked.clear()
        self._forgotten.clear()
        self._under_way.clear()
        self._due.update(dict.fromkeys(self._replicas))


class _Failing:
    """What is logged of a series of failed rounds: the first, and once that it is worth a warning."""

    def __init__(self, leader_id: BrokerId, warn_after_ms: int) -> None:
        self._leader_id = leader_id
        self._warn_after_s = warn_after_ms / 1000
        self._since_s: float | None = None
        self._warned = False

    def failed(self, error: KafkaError) -> None:
        now_s = time.monotonic()
        first = self._since_s is None
        if self._since_s is None:
            self._since_s = now_s
        level = logging.INFO if first else logging.DEBUG
        lasts = now_s - self._since_s >= self._warn_after_s
        if not self._warned and (lasts or error.error_code is not ErrorCode.network_exception):
            self._warned = True
            level = logging.WARNING
        logger.log(level, "fetching from broker %d failed: %s", self._leader_id, error)

    def over(self) -> None:
        self._since_s = None
        self._warned = False


def _answered(partition: Any, asked: PartitionFetch, *, has_records: bool) -> FetchAnswered:
    diverging = partition.diverging_epoch
    return FetchAnswered(
        leader_epoch=asked.leader_epoch,
        fetch_offset=asked.offset,
        error_code=partition.error_code,
        high_watermark=partition.high_watermark if partition.high_watermark >= 0 else None,
        log_start_offset=partition.log_start_offset if partition.log_start_offset >= 0 else None,
        diverging_epoch=(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        has_records=has_records,
    )
