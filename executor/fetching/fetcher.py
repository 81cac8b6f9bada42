"""A fetcher: one connection that fetches from one leader, for all partitions (or a share of them) it leads.

`leader_fetches.py` decides on requests and pauses. This is the connection, with at most two requests in
flight: each answer is taken in as it comes and followed by the next request, and a partition that is added,
or whose pause is over, causes the next request at once. A task connects, and connects again after a failure;
it ends by `stop` only.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

from sparklog.executor.fetching.copies import Copies
from sparklog.executor.fetching.leader_fetches import FetchLimits, LeaderFetches
from sparklog.executor.fetching.machine.copy_pace import Copied
from sparklog.executor.fetching.machine.turn_size import MEASURED_BYTES
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.partitions.machine.follower import AskLeaderOffsets
from sparklog.executor.partitions.replica import Replica
from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId

logger = logging.getLogger(__name__)


class _ClosedIdleError(Exception):
    """The leader has closed a connection on which it owed no answer, as brokers do after a while."""


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    limits: FetchLimits
    socket_timeout_ms: int
    socket_receive_buffer_bytes: int | None
    """None leaves it to the system."""
    warn_after_ms: int
    """How long a leader may be unreachable before a warning; see `Fetcher`."""
    cluster_credentials: ClusterCredentials = NO_CREDENTIALS
    """The protocol and credentials of the connection."""
    processor_ns: Callable[[], int] = time.thread_time_ns
    """The processor time of the loop's thread, by which the size of answers is bounded."""


class LogWork(NamedTuple):
    """Work on a replica's log, during which nothing is fetched for it. Each ends with `Fetcher.go_on`."""

    build_from_tier: Callable[[Replica], None]
    """Begin the log again where its tier ends."""
    sync_topic_id: Callable[[Replica], None]
    """Put the log's topic id on the disk, before its first records."""


NO_LOG_WORK: Final = LogWork(lambda replica: None, lambda replica: None)
"""For logs without a tier whose topic ids are on the disk."""


class Fetcher:
    """Follows one leader for some partitions.

    When a whole cluster stops, leaders exit before their followers are asked to stop. So a lost or refused
    connection is logged at INFO first; the warning follows if it lasts longer than the controller needs to
    stop this broker too, or to name another leader.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        leader_id: BrokerId,
        address: tuple[str, int],
        settings: FetcherSettings,
        suspicions: BrokerSuspicions,
        copies: Copies,
        log_work: LogWork = NO_LOG_WORK,
    ) -> None:
        """Fetch from a leader at a host and port; `copies` holds back replicas that are not in sync."""
        self.leader_id = leader_id
        self.address = address
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._suspicions = suspicions
        self._copies = copies
        self._log_work = log_work
        self._fetches = LeaderFetches(broker_id, settings.limits)
        self._changed = asyncio.Event()
        """Set when a request may have become due."""
        self._channel: Channel | None = None
        self._failure: asyncio.Future[Exception] | None = None
        """The end of the channel's service; None or done while there is none."""
        self._in_flight = 0
        """The number of requests whose answers are processed,"""
        self._unwanted = 0
        """and of those before them whose answers are dropped: their session has ended."""
        self._failing = _Failing(leader_id, settings.warn_after_ms)
        self._will_send_more = False
        self._task: asyncio.Task[None] | None = None
        self._waking: asyncio.TimerHandle | None = None
        """The timer of the next end of a pause."""
        self._lags: dict[Replica, int] = {}
        """The records that lagging replicas have yet to fetch, as of their last answers."""
        self.bytes_fetched = self.requests_answered = 0

    def __len__(self) -> int:
        return len(self._fetches.replicas)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return tuple(self._fetches.replicas.values())

    @property
    def max_lag(self) -> int:
        """The most records by which a partition lags its leader's high watermark."""
        return max(self._lags.values(), default=0)

    @property
    def refused_count(self) -> int:
        """The number of partitions that pause because of an error."""
        return self._fetches.refused_count

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop fetching; returns when the task has ended."""
        self._stop_waking()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._disconnect()

    def add(self, replica: Replica) -> None:
        self._fetches.add(replica)
        self._changed.set()
        if not self._will_send_more:
            self._will_send_more = True
            asyncio.get_running_loop().call_soon(self._send_more)

    def remove(self, replica: Replica) -> None:
        self._fetches.remove(replica)
        self._lags.pop(replica, None)

    def go_on(self, replica: Replica, *, succeeded: bool) -> None:
        """Fetch for the replica again, after a pause if its log could not be built or synced."""
        if self._fetches.replicas.get(replica.key) is not replica:
            return
        if succeeded:
            self._fetches.go_on(replica)
            self._changed.set()
            self._send_more()
        else:
            self._rest(self._fetches.refused(replica, monotonic_ms()))

    async def _run(self) -> None:
        fetches = self._fetches
        while True:
            if not fetches.replicas or not fetches.may_send:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                self._channel = channel = await Channel.connect(
                    *self.address,
                    f"broker-{self._broker_id}-fetcher",
                    connect_timeout_ms=self._settings.socket_timeout_ms,
                    request_timeout_ms=self._settings.socket_timeout_ms,
                    receive_buffer_bytes=self._settings.socket_receive_buffer_bytes,
                    login=self._settings.cluster_credentials.login,
                    tls=self._settings.cluster_credentials.tls,
                )
                self._failure = asyncio.get_running_loop().create_future()
                channel.closed.add_done_callback(partial(self._closed, channel))
                self._send_more()
                raise await self._failure
            except _ClosedIdleError:
                # The leader is no more suspect than before, and its session goes on over the next connection.
                self._disconnect()
                continue
            except KafkaError as error:
                self._failing.failed(error)
                if error.error_code is ErrorCode.network_exception:
                    self._suspicions.connection_lost(self.leader_id)
            except Exception:
                # Any other error: the partitions must be followed all the same.
                logger.exception("fetching from broker %d failed and is retried", self.leader_id)
            pause_ms = fetches.failed()
            self._disconnect()
            await asyncio.sleep(pause_ms / 1000)

    @property
    def _is_serving(self) -> bool:
        """Whether there is a connection that has not failed."""
        channel = self._channel
        return (
            channel is not None
            and not channel.closed.done()
            and self._failure is not None
            and not self._failure.done()
        )

    def _disconnect(self) -> None:
        channel, self._channel, self._failure = self._channel, None, None
        if channel is not None:
            channel.close()
        self._in_flight = self._unwanted = 0

    def _answered(self, response: Any) -> None:
        """Process the answer of the oldest request, and send the next one."""
        if not self._is_serving:
            return
        if self._unwanted:
            self._unwanted -= 1
            return
        self._in_flight -= 1
        try:
            self._suspicions.connection_serves(self.leader_id)
            self._take_in(response)
            self._failing.over()
            if not self._fetches.under_way:
                # The session may have ended, and with it the requests after this one.
                self._unwanted, self._in_flight = self._in_flight, 0
            self._send_more()
        except Exception as error:  # the task logs it, and connects again
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(error)

    def _closed(self, channel: Channel, _: asyncio.Future[None]) -> None:
        if channel is self._channel and channel.closed_idle:
            self._failed(_ClosedIdleError())

    def _send_more(self) -> None:
        """Send the next request, perhaps behind one that the leader holds, if one is due."""
        self._will_send_more = False
        if self._is_serving and self._fetches.replicas and self._fetches.may_send:
            self._send()

    def _send(self) -> None:
        channel = self._channel
        assert channel is not None, "it serves"
        timeout_ms = self._fetches.wait_ms + self._settings.socket_timeout_ms
        self._in_flight += 1
        try:
            request = self._fetches.next_request(self._broker_epoch())
            channel.request_then(request, self._answered, self._failed, timeout_ms)
        except Exception as error:  # the task logs it, and connects again
            self._failed(error)

    def _take_in(self, response: Any) -> None:
        wall_ms = wall_clock_ms()
        self.requests_answered += 1
        began_ns: int | None = None
        began_us = appended_bytes = copied_bytes = 0
        copied: dict[Replica, Copied] = {}
        for replica, answered, records in self._fetches.answered(response):
            if records and replica.log.identity_unsynced:
                self._fetches.hold(replica)
                self._log_work.sync_topic_id(replica)
                continue
            if began_ns is None and len(records) >= MEASURED_BYTES:
                began_ns, began_us = self._settings.processor_ns(), self._copies.clock_us()
            if began_ns is not None:
                appended_bytes += len(records)
            try:
                advice = replica.take_fetched(answered, records, wall_ms)
            except (KafkaError, OSError) as error:
                if not replica.offline:
                    logger.error("%s: data from broker %d was rejected: %s", replica, self.leader_id, error)
                self._rest(self._fetches.refused(replica, monotonic_ms()))
                continue
            self.bytes_fetched += len(records)
            lag = (answered.high_watermark or 0) - replica.log.log_end_offset
            if lag > 0:
                self._lags[replica] = lag
            elif self._lags:
                self._lags.pop(replica, None)
            if isinstance(advice, AskLeaderOffsets):
                self._log_work.build_from_tier(replica)
            elif advice is not None:
                logger.log(
                    logging.DEBUG if self._fetches.was_refused(replica) else logging.INFO,
                    "%s: broker %d answered a fetch in leader epoch %d with %s",
                    replica,
                    self.leader_id,
                    answered.leader_epoch,
                    advice.error_code.name,
                )
            rest_ms = self._fetches.taken(replica, advice, 0 if advice is None else monotonic_ms())
            if rest_ms is not None:
                self._rest(rest_ms)
            elif records and advice is None:
                if began_ns is not None and self._copies.may_pause(replica):
                    record_count = replica.log.log_end_offset - answered.fetch_offset
                    copied[replica] = Copied(replica.key, record_count, max(lag, 0))
                    copied_bytes += len(records)
                self._hold_back(replica, self._copies.fetched(replica, len(records)))
        if began_ns is not None:
            processor_ns = self._settings.processor_ns() - began_ns
            self._fetches.size.took(appended_bytes, processor_ns // 1_000)
        if copied:
            self._copies.took(copied.values(), began_us, copied_bytes / appended_bytes)
            for replica in copied:
                self._hold_back(replica, self._copies.rest_ms(replica))

    def _hold_back(self, replica: Replica, rest_ms: int | None) -> None:
        if rest_ms is not None:
            self._fetches.rest(replica, monotonic_ms() + rest_ms)
            self._rest(rest_ms)

    def _rest(self, rest_ms: float) -> None:
        loop = asyncio.get_running_loop()
        wakes_s = loop.time() + rest_ms / 1000
        if self._waking is None or wakes_s < self._waking.when():
            self._stop_waking()
            self._waking = loop.call_at(wakes_s, self._send_rested)

    def _stop_waking(self) -> None:
        if self._waking is not None:
            self._waking.cancel()
            self._waking = None

    def _send_rested(self) -> None:
        self._waking = None
        now_ms = monotonic_ms() + 1  # a timer may be early by what its clock is rounded
        for replica in self._fetches.wake_rested(now_ms):
            # Others may have been fetched for meanwhile.
            self._hold_back(replica, self._copies.rest_ms(replica))
        if self._fetches.next_rested_ms < inf:
            self._rest(max(self._fetches.next_rested_ms - now_ms, 1))
        self._changed.set()
        self._send_more()


class _Failing:
    """The log of a series of failed rounds: the first one, and one warning when it lasts."""

    def __init__(self, leader_id: BrokerId, warn_after_ms: int) -> None:
        self._leader_id = leader_id
        self._warn_after_ms = warn_after_ms
        self._since_ms: int | None = None
        self._warned = False

    def failed(self, error: KafkaError) -> None:
        now_ms = monotonic_ms()
        first = self._since_ms is None
        if self._since_ms is None:
            self._since_ms = now_ms
        level = logging.INFO if first else logging.DEBUG
        lasts = now_ms - self._since_ms >= self._warn_after_ms
        if not self._warned and (lasts or error.error_code is not ErrorCode.network_exception):
            self._warned = True
            level = logging.WARNING
        logger.log(level, "fetching from broker %d failed: %s", self._leader_id, error)

    def over(self) -> None:
        self._since_ms = None
        self._warned = False
