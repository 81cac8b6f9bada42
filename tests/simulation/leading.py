"""What a broker's process answers as a leader: the production handlers of Produce and Fetch, with sessions.

A client's messages are put into the requests of the newest versions, and the answers are told to the observer
as they leave.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.executor.api.fetch.fetch import FetchHandler
from sparklog.executor.api.fetch.fetch_sessions import FetchSessions
from sparklog.executor.api.fetch.partition_reads import FetchServices
from sparklog.executor.api.produce.delayed_produce import ACKS_ALL, ACKS_LEADER
from sparklog.executor.api.produce.produce import ProduceHandler
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.node.rates import QuotaWindows
from sparklog.node.serving.requests import Handler, Request
from sparklog.node.serving.turns import give_up, is_awaitable
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.fetch_metadata import FINAL_EPOCH, LARGEST
from sparklog.protocol.codec.fixed.fetch import FollowerFetchRequest
from sparklog.protocol.codec.steps import steps_of
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.loop import ProcessLoop
from tests.simulation.network import Connection, Reply

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

FETCH_WAIT_MS: Final = 500
START_MS: Final = 1_700_000_000_000
"""The wall clock's time when a simulation begins."""
SESSION_SLOTS: Final = 3
"""Fewer than there may be followers, so that some do without."""
_ANY_BYTES: Final = 1 << 20
_NO_EXECUTOR: Any = None
"""Nothing is looked into by a thread here, nor on a disk that is waited for."""


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


class ConsumerFetch(NamedTuple):
    """A consumer's fetch of one partition."""

    key: TopicIdPartition
    leader_epoch: LeaderEpoch | None
    offset: Offset


class Fetched(NamedTuple):
    """The answer to `ConsumerFetch`."""

    error_code: ErrorCode
    records: bytes
    leader_epoch: LeaderEpoch
    """Under which it was read, for the invariants; -1 if by none."""


class Leading:
    """The request handlers of one broker's process."""

    def __init__(self, broker: "BrokerProcess", verifier: Any) -> None:
        """`verifier` is None where nobody writes in transactions."""
        self._broker = broker
        random = broker.scheduler.random
        delayed = DelayedOperations(ProcessLoop(broker))
        self.produce_handler: Final = ProduceHandler(
            broker.replicas,
            delayed,
            _NO_EXECUTOR,
            _NO_EXECUTOR,
            verifier,
            max_decompressed_bytes=_ANY_BYTES,
            wall_ms=lambda: START_MS + broker.scheduler.now_ms,
        )
        reads = FetchServices(
            broker.replicas,
            delayed,
            _NO_EXECUTOR,
            FetchSessions(lambda: random.randint(1, LARGEST), slots=SESSION_SLOTS),
            ReplicationQuota(broker.broker_id, QuotaWindows(11, 1_000)),
        )
        self.fetch_handler: Final = FetchHandler(reads, max_response_bytes=_ANY_BYTES)

    def produce(self, connection: Connection, message: Produce, reply: Reply) -> None:
        """Append, and answer when it is acknowledged."""
        broker, key = self._broker, message.key
        replica = broker.replicas.get(*key)
        leader_epoch = None if replica is None else replica.leader_epoch
        before = 0 if replica is None else replica.log.log_end_offset

        def answered(response: Any) -> None:
            ((row,),) = [topic.partition_responses for topic in response.responses]
            if row.error_code is ErrorCode.none:
                assert replica is not None
                end_offset = row.base_offset + read_header(message.records).record_count
                broker.world.acknowledging(broker, replica, end_offset, all_acks=message.all_acks)
            reply(Produced(row.error_code, row.base_offset, -1 if leader_epoch is None else leader_epoch))

        data = PartitionProduceData(index=key.partition, records=message.records)
        request = ProduceRequest(
            transactional_id=None,
            acks=ACKS_ALL if message.all_acks else ACKS_LEADER,
            timeout=timedelta(milliseconds=message.timeout_ms),
            topic_data=(TopicProduceData(topic_id=key.topic_id, partition_data=(data,)),),
        )
        self._handle(connection, ApiKey.PRODUCE, 13, request, self.produce_handler.handle, answered)
        if replica is not None and replica.log.log_end_offset > before:
            broker.world.appended(broker, replica, before)

    def fetch(self, connection: Connection, request: FollowerFetchRequest, reply: Reply) -> None:
        """Answer a follower, or hold the request."""
        self._handle(connection, ApiKey.FETCH, 17, request, self.fetch_handler.handle, reply)

    def consumer_fetch(self, connection: Connection, message: ConsumerFetch, reply: Reply) -> None:
        """Answer with committed records, or hold the request."""
        broker, key = self._broker, message.key

        def answered(response: Any) -> None:
            ((row,),) = [topic.partitions for topic in response.responses]
            replica = broker.replicas.get(*key)
            leads = replica is not None and replica.leadership is not None
            if row.records:
                broker.world.serving(broker, key, row.records)
            leader_epoch = replica.leader_epoch if replica is not None and leads else None
            reply(Fetched(row.error_code, row.records, -1 if leader_epoch is None else leader_epoch))

        partition = FetchPartition(
            partition=key.partition,
            current_leader_epoch=-1 if message.leader_epoch is None else message.leader_epoch,
            fetch_offset=message.offset,
            log_start_offset=-1,
            partition_max_bytes=broker.world.fetch_max_bytes,
        )
        request = FetchRequest(
            max_wait=timedelta(milliseconds=FETCH_WAIT_MS),
            min_bytes=1,
            max_bytes=_ANY_BYTES,
            session_epoch=FINAL_EPOCH,
            topics=(FetchTopic(topic_id=key.topic_id, partitions=(partition,)),),
            forgotten_topics_data=(),
        )
        self._handle(connection, ApiKey.FETCH, 17, request, self.fetch_handler.handle, answered)

    def _handle(
        self,
        connection: Any,
        api_key: ApiKey,
        api_version: int,
        body: Any,
        handler: Handler,
        answered: Callable[[Any], None],
    ) -> None:
        request = Request(api_key, api_version, 0, None, body, memoryview(b""), connection, "PLAINTEXT")
        self._take(connection, handler(request), answered)

    def _take(self, connection: Any, response: Any, answered: Callable[[Any], None]) -> None:
        if not is_awaitable(response):
            answered(response)
            return
        steps = steps_of(response)
        lost = False

        def lose() -> None:
            nonlocal lost
            lost = True
            steps.close()

        def go_on(answer: Any = None) -> None:
            try:
                awaited = steps.send(answer)
                while awaited is None:
                    awaited = steps.send(None)
            except StopIteration as last:
                self._take(connection, last.value, answered)
            else:
                awaited.bind(go_on)

        connection.on_close(lose)
        if lost:
            give_up(response)
        else:
            go_on()
