"""What a broker's process answers as a leader: produce and fetch requests over production replicas.

It mirrors the handlers `executor.api.produce` and `executor.api.fetch`, which decide nothing,
without their sessions, sizes and versions.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from executor.partitions.machine.events import FollowerFetched
from executor.partitions.machine.follower import PartitionFetch
from executor.partitions.replica import Replica
from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import validate_produced
from sparklog.storage.machine.epoch_checks import fetch_divergence
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.disk import MemoryLog
from tests.simulation.network import Reply

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

FETCH_WAIT_MS: Final = 500
START_MS: Final = 1_700_000_000_000
"""The wall clock's time when a simulation begins."""


class Produce(NamedTuple):
    """A client's batch for one partition."""

    key: TopicIdPartition
    records: bytes
    all_acks: bool
    timeout_ms: int


class Produced(NamedTuple):
    """The answer to `Produce`; the offset means something only without an error."""

    error_code: ErrorCode
    base_offset: Offset
    leader_epoch: LeaderEpoch


class FollowerFetch(NamedTuple):
    """A follower's fetch: of each partition what its machine asks for, and its log start offset."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None
    partitions: tuple[tuple[TopicIdPartition, PartitionFetch, Offset], ...]


class ConsumerFetch(NamedTuple):
    """A consumer's fetch of one partition."""

    key: TopicIdPartition
    leader_epoch: LeaderEpoch | None
    offset: Offset


class FetchedPartition(NamedTuple):
    """What a leader answered for one partition."""

    key: TopicIdPartition
    error_code: ErrorCode
    high_watermark: Offset | None
    log_start_offset: Offset | None
    diverging_epoch: tuple[LeaderEpoch, Offset] | None
    records: bytes
    leader_epoch: LeaderEpoch = -1
    """Under which it was read, for the invariants."""


class WaitingProduce:
    """A produce request that waits for its records to be committed."""

    def __init__(self, answer: Callable[[KafkaError | None], None]) -> None:
        self.settled = False
        self._answer = answer

    def settle(self, error: KafkaError | None) -> None:
        if not self.settled:
            self.settled = True
            self._answer(error)


class WaitingFetch:
    """A fetch that waits for something to be there; it stands in for production's `ReadPartition`."""

    def __init__(self, broker: "BrokerProcess", check: Callable[["WaitingFetch"], None]) -> None:
        self.is_answered = False
        self.watched: list[dict[Any, None]] = []
        self._broker = broker
        self._check = check
        self._woken = False

    def watch(self, readers: dict[Any, None]) -> None:
        readers[self] = None
        self.watched.append(readers)

    def wake(self) -> None:
        if not self._woken and not self.is_answered:
            self._woken = True
            self._broker.after(0, self._recheck)

    def touch(self) -> None:
        pass

    def unwatch(self) -> None:
        for readers in self.watched:
            readers.pop(self, None)
        self.watched.clear()

    def _recheck(self) -> None:
        self._woken = False
        if not self.is_answered:
            self._check(self)


class Leading:
    """The request handlers of one broker's process."""

    def __init__(self, broker: "BrokerProcess", fetch_batches: int) -> None:
        self._broker = broker
        self._fetch_batches = fetch_batches

    def _replica(self, key: TopicIdPartition) -> Replica:
        replica = self._broker.replicas.get(*key)
        if replica is None:
            if key.topic_id in self._broker.image.topics.by_id:
                raise KafkaError(ErrorCode.not_leader_or_follower, "not on this broker")
            raise KafkaError(ErrorCode.unknown_topic_id, "there is no such topic")
        return replica

    # --- produce --------------------------------------------------------------------------------

    def produce(self, request: Produce, reply: Reply) -> None:
        """Append, and answer when it is acknowledged."""
        broker = self._broker
        wall_ms = START_MS + broker.scheduler.now_ms
        try:
            replica = self._replica(request.key)
            leader_epoch = replica.leading().leader_epoch
            header = validate_produced(request.records, now_ms=wall_ms, max_message_bytes=1_000_000)
            appended = replica.append(
                request.records, header, broker.now_ms, wall_ms, all_acks=request.all_acks
            )
        except OSError:
            reply(Produced(ErrorCode.kafka_storage_error, -1, -1))
            return
        except KafkaError as error:
            reply(Produced(error.error_code, -1, -1))
            return
        end_offset = appended.last_offset + 1
        broker.world.appended(broker, replica, appended)

        def answer(error: KafkaError | None) -> None:
            if error is None:
                broker.world.acknowledging(broker, replica, end_offset, all_acks=request.all_acks)
            error_code = ErrorCode.none if error is None else error.error_code
            reply(Produced(error_code, appended.base_offset, leader_epoch))

        if not request.all_acks:
            answer(None)
            return
        waiting = WaitingProduce(answer)
        if replica.wait_until_committed(end_offset, waiting):
            waiting.settle(None)
        else:
            broker.after(request.timeout_ms, self._expire, replica, waiting)

    def _expire(self, replica: Replica, waiting: WaitingProduce) -> None:
        waiting.settle(KafkaError(ErrorCode.request_timed_out, "not all replicas in sync have it yet"))
        replica.drop_settled_appends()

    # --- fetch ----------------------------------------------------------------------------------

    def follower_fetch(self, request: FollowerFetch, reply: Reply) -> None:
        """Answer with news of the partitions, or hold the request."""

        def answer(waiting: WaitingFetch, *, first: bool = False, anyway: bool = False) -> None:
            if waiting.is_answered:
                return
            found = [self._read_for_follower(request, *asked, first=first) for asked in request.partitions]
            if anyway or any(_is_news(fetched) for fetched in found):
                waiting.is_answered = True
                waiting.unwatch()
                reply(found)

        waiting = WaitingFetch(self._broker, answer)
        answer(waiting, first=True)
        if not waiting.is_answered:
            for key, _, _ in request.partitions:
                waiting.watch(self._replica(key).follower_readers)
            self._broker.after(FETCH_WAIT_MS, lambda: answer(waiting, anyway=True))

    def _read_for_follower(
        self,
        request: FollowerFetch,
        key: TopicIdPartition,
        fetch: PartitionFetch,
        log_start_offset: Offset,
        *,
        first: bool,
    ) -> FetchedPartition:
        try:
            return self._read_one(request, key, fetch, log_start_offset, first=first)
        except KafkaError as error:
            # As production does: what is told beside an error is where the log starts.
            replica = self._broker.replicas.get(*key)
            start = None if replica is None else replica.log.log_start_offset
            return FetchedPartition(key, error.error_code, None, start, None, b"")

    def _read_one(
        self,
        request: FollowerFetch,
        key: TopicIdPartition,
        fetch: PartitionFetch,
        log_start_offset: Offset,
        *,
        first: bool,
    ) -> FetchedPartition:
        replica = self._replica(key)
        log = _memory(replica)
        replica.leading_in(fetch.leader_epoch)
        start = log.log_start_offset
        diverging = fetch_divergence(
            replica.log, fetch.last_fetched_epoch, fetch.offset, start, log.log_end_offset
        )
        if diverging is not None:
            return FetchedPartition(key, ErrorCode.none, replica.high_watermark, start, diverging, b"")
        if first:
            replica.handle(
                FollowerFetched(
                    request.broker_id,
                    request.broker_epoch,
                    fetch.offset,
                    log_start_offset,
                    self._broker.now_ms,
                )
            )
        records = log.read(fetch.offset, max_batches=self._fetch_batches, up_to_offset=log.log_end_offset)
        return FetchedPartition(key, ErrorCode.none, replica.high_watermark, start, None, records)

    def consumer_fetch(self, request: ConsumerFetch, reply: Reply) -> None:
        """Answer with committed records, or hold the request."""

        def read() -> FetchedPartition:
            try:
                replica = self._replica(request.key)
                log = _memory(replica)
                leader_epoch = replica.leading_in(request.leader_epoch).leader_epoch
                if not log.log_start_offset <= request.offset <= log.log_end_offset:
                    return FetchedPartition(
                        request.key, ErrorCode.offset_out_of_range, None, None, None, b"", leader_epoch
                    )
                high_watermark = replica.high_watermark
                records = log.read(
                    request.offset, max_batches=self._fetch_batches, up_to_offset=high_watermark
                )
            except KafkaError as error:
                return FetchedPartition(request.key, error.error_code, None, None, None, b"")
            return FetchedPartition(
                request.key,
                ErrorCode.none,
                high_watermark,
                log.log_start_offset,
                None,
                records,
                leader_epoch,
            )

        def answer(waiting: WaitingFetch, *, anyway: bool = False) -> None:
            if waiting.is_answered:
                return
            fetched = read()
            if fetched.records or fetched.error_code is not ErrorCode.none or anyway:
                waiting.is_answered = True
                waiting.unwatch()
                if fetched.records:
                    self._broker.world.serving(self._broker, request.key, fetched.records)
                reply(fetched)

        waiting = WaitingFetch(self._broker, answer)
        answer(waiting)
        if not waiting.is_answered:
            waiting.watch(self._replica(request.key).consumer_readers)
            self._broker.after(FETCH_WAIT_MS, lambda: answer(waiting, anyway=True))


def _is_news(fetched: FetchedPartition) -> bool:
    return (
        len(fetched.records) > 0
        or fetched.diverging_epoch is not None
        or fetched.error_code is not ErrorCode.none
    )


def _memory(replica: Replica) -> MemoryLog:
    log: Any = replica.log
    assert isinstance(log, MemoryLog)
    return log
