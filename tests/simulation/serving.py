"""What a broker's process answers with production's handlers as they are, on asyncio in simulated time.

Requests are kio entities, of clients and of other brokers. A connection's next request waits for the last
step of the one before it, as `sparklog.node.serving` has it; other connections' requests come in between.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from sparklog.executor.api.produce.delayed_produce import ACKS_ALL
from sparklog.executor.api.write_txn_markers import WriteTxnMarkersHandler
from sparklog.executor.coordinators.groups.api.offset_fetch import OffsetFetchHandler
from sparklog.executor.coordinators.groups.api.txn_offset_commit import TxnOffsetCommitHandler, verify_in
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.machine.missing_leaders import awaits_leader
from sparklog.executor.coordinators.transactions.api.add_offsets_to_txn import AddOffsetsToTxnHandler
from sparklog.executor.coordinators.transactions.api.add_partitions_to_txn import AddPartitionsToTxnHandler
from sparklog.executor.coordinators.transactions.api.end_txn import EndTxnHandler
from sparklog.executor.coordinators.transactions.api.init_producer_id import InitProducerIdHandler
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.verification.add_partitions_sender import AddPartitionsSender
from sparklog.executor.verification.transaction_verifier import TransactionVerifier
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.serving.requests import Deferred, Handler, Request
from sparklog.node.serving.turns import Held, is_awaitable
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import Steps, steps_of
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import BrokerId, TopicIdPartition
from tests.simulation.coordinating import AskCoordinator, Asked, Coordinated, Coordinating
from tests.simulation.leading import START_MS, Leading
from tests.simulation.network import Connection, Link, Reply
from tests.simulation.sink_serving import sink_handlers

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

_MOST_BATCH_BYTES: Final = 1 << 20
_COPIES: Final = 0.05
"""How many markers arrive twice: by a connection that was given up, too,"""
_LATEST_MS: Final = 2_500
"""by so much later."""
_LET_OTHERS_GO_FIRST: Final = 0.1
"""How often a request with more steps to come is left for another turn,"""
_LINE_MS: Final = 300
"""which may be so much later."""


class ApiRequest(NamedTuple):
    """A request as a client or a broker sends it; the answer is a response, or None: the connection ends."""

    api_key: ApiKey
    version: int
    body: Any

    @classmethod
    def of(cls, body: Any) -> "ApiRequest":
        """Return what sends an entity."""
        return cls(ApiKey(body.__api_key__), body.__version__, body)


class BrokerLinks:
    """A broker's connections to others for one purpose, as `BrokerConnections` has them."""

    def __init__(self, broker: "BrokerProcess", timeout_ms: int) -> None:
        self._broker = broker
        self._timeout_ms = timeout_ms
        self._links: dict[BrokerId, Link] = {}

    async def request(self, broker_id: BrokerId, entity: Any) -> Any:
        """Send a request to a broker; return the response.

        Raises:
            KafkaError: NETWORK_EXCEPTION. The broker may have done what was asked.
        """
        link = self._links.get(broker_id)
        if link is None:
            link = self._links[broker_id] = Link(self._broker, f"broker-{broker_id}")
        self._copy_perhaps(broker_id, entity)
        answered = self._broker.loop.create_future()

        def take(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        link.request(ApiRequest.of(entity), self._timeout_ms, take)
        response = await answered
        if response is None:
            raise KafkaError(ErrorCode.network_exception, f"broker {broker_id} did not answer")
        return response

    def _copy_perhaps(self, broker_id: BrokerId, entity: Any) -> None:
        """Have markers arrive once more, those of transactions that have an epoch each."""
        broker = self._broker
        if (
            isinstance(entity, WriteTxnMarkersRequest)
            and broker.world.accepts_writes
            and all(marker.transaction_version >= 2 for marker in entity.markers)
            and broker.scheduler.random.random() < _COPIES
        ):
            late_ms = broker.scheduler.random.randrange(_LATEST_MS)
            broker.after(late_ms, self._send_copy, broker_id, entity)

    def _send_copy(self, broker_id: BrokerId, entity: Any) -> None:
        link = Link(self._broker, f"broker-{broker_id}")
        link.request(ApiRequest.of(entity), self._timeout_ms, lambda _: link.close())


def transaction_verifier(broker: "BrokerProcess", config: BrokerConfig) -> TransactionVerifier:
    """Return what has transactions verified, as `sparklog.executor.replicas` makes it."""
    links: Any = BrokerLinks(broker, config.request_timeout_ms)
    links_to_slow: Any = BrokerLinks(broker, config.request_timeout_ms)
    return TransactionVerifier(
        AddPartitionsSender(links, links_to_slow, lambda: broker.image, MetricRegistry()),
        lambda: START_MS + broker.scheduler.now_ms,
        retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_timeout_ms=min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms),
    )


class Coordinators:
    """The coordinators of one topic, as handlers ask them (`CoordinatorRuntime`)."""

    def __init__(self, broker: "BrokerProcess", coordinating: Coordinating, topic: str) -> None:
        self._broker = broker
        self._coordinating = coordinating
        self._topic = topic

    @property
    def image(self) -> MetadataImage:
        """The cluster as its coordinators know it."""
        return self._broker.image

    def submit(
        self,
        key: str,
        decide: Callable[..., Any],
        refuse: Callable[[ErrorCode], Any],
        *event: Any,
        waits_for_others: bool = False,
    ) -> Deferred:
        """Have the coordinator of a key decide about a request."""
        return self.submit_to(self._partition_of(key), decide, refuse, *event)

    def read(
        self, key: str, decide: Callable[..., Any], refuse: Callable[[ErrorCode], Any], *event: Any
    ) -> Any:
        """Return the reply of a key's coordinator to a request that writes nothing, or its promise."""
        return self.read_from(self._partition_of(key), decide, refuse, *event)

    def read_from(
        self, partition: int, decide: Callable[..., Any], refuse: Callable[[ErrorCode], Any], *event: Any
    ) -> Any:
        """Return the reply of a partition's coordinator to a request that writes nothing, or its promise."""
        machine = self._coordinating.settled_machine(self._topic, partition)
        if machine is None:
            return self.submit_to(partition, decide, refuse, *event)
        [reply] = decide(machine, *event, None, self._coordinating.now()).replies
        return reply.response

    def _partition_of(self, key: str) -> int:
        topic = self.image.topics.by_name.get(self._topic)
        return -1 if topic is None else partition_for(key, len(topic.partitions))

    @property
    def partitions(self) -> dict[int, CoordinatorState]:
        """The state of each coordinator here, by partition."""
        return self._coordinating.states(self._topic)

    def is_complete(self) -> bool:
        """Whether no partition of the topic is without a coordinator, as far as this broker knows."""
        return self._broker.has_lease and not awaits_leader(self.image, self._topic)

    def submit_to(
        self, partition: int, decide: Callable[..., Any], refuse: Callable[[ErrorCode], Any], *event: Any
    ) -> Deferred:
        """Have the coordinator of a partition decide about a request."""
        deferred = Deferred()

        def answer(told: Coordinated) -> None:
            refused = told.error_code is not ErrorCode.none
            deferred.complete(refuse(told.error_code) if refused else told.response)

        def decide_about(machine: Any, event: tuple[Any, ...], token: Any, now: Any) -> Any:
            return decide(machine, *event, token, now)

        message = AskCoordinator(self._topic, partition, event, decide_about)
        deferred.on_abandoned = self._coordinating.submit(Asked(message, answer))
        return deferred


class Serving:
    """The requests of one broker's process."""

    def __init__(
        self,
        broker: "BrokerProcess",
        config: BrokerConfig,
        leading: Leading,
        coordinating: Coordinating,
        verifier: TransactionVerifier,
    ) -> None:
        self._broker = broker
        self._lines: dict[Connection, deque[Callable[[], None]]] = {}
        """What waits for the steps of another request of the connection."""
        of_transactions: Any = Coordinators(broker, coordinating, TRANSACTION_STATE_TOPIC)
        of_groups: Any = Coordinators(broker, coordinating, CONSUMER_OFFSETS_TOPIC)
        self._handlers: dict[ApiKey, Handler] = {
            ApiKey.PRODUCE: leading.produce_handler.handle,
            ApiKey.FETCH: leading.fetch_handler.handle,
            ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(of_transactions, broker.new_producer_id).handle,
            ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnHandler(of_transactions).handle,
            ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxnHandler(
                of_transactions, self._offsets_partition_for
            ).handle,
            ApiKey.END_TXN: EndTxnHandler(of_transactions, broker.new_producer_id).handle,
            ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitHandler(
                of_groups,
                lambda: broker.image,
                verify_in(broker.replicas, verifier),
                max_batch_bytes=_MOST_BATCH_BYTES,
            ).handle,
            ApiKey.OFFSET_FETCH: OffsetFetchHandler(of_groups, lambda: broker.image).handle,
            ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkersHandler(
                broker.replicas,
                DelayedOperations(broker.loop),
                config.request_timeout_ms,
                complete_group_transaction=coordinating.complete_group_transaction,
                wall_ms=lambda: START_MS + broker.scheduler.now_ms,
            ).handle,
            **(sink_handlers(broker, of_transactions) if broker.world.has_sinks else {}),
        }

    def ask(self, connection: Connection, message: ApiRequest, reply: Reply) -> None:
        """Answer a request, when it is its turn."""
        line = self._lines.get(connection)
        if line is None:
            _Call(self, self._broker, connection, message, reply).begin(self._handlers[message.api_key])
        else:
            line.append(lambda: self.ask(connection, message, reply))

    def hold(self, connection: Connection) -> None:
        """Take no other request of a connection for now."""
        self._lines[connection] = deque()

    def release(self, connection: Connection) -> None:
        """Take those that have come meanwhile, up to one that takes steps itself."""
        line = self._lines.pop(connection, deque())
        while line and connection not in self._lines:
            line.popleft()()
        if line:
            self._lines[connection] = line

    def answered(self, message: ApiRequest, response: Any) -> None:
        """Have the observer look at what is about to leave."""
        if message.api_key is ApiKey.PRODUCE:
            self._acknowledging(message.body, response)
        elif message.api_key is ApiKey.FETCH:
            for topic in response.responses:
                for row in topic.partitions:
                    if row.records:
                        key = TopicIdPartition(topic.topic_id, row.partition_index)
                        self._broker.world.serving(self._broker, key, row.records)

    def _acknowledging(self, body: Any, response: Any) -> None:
        broker = self._broker
        for topic, answers in zip(body.topic_data, response.responses, strict=True):
            for data, row in zip(topic.partition_data, answers.partition_responses, strict=True):
                named = broker.image.topics.by_name.get(topic.name)
                replica = None if named is None else broker.replicas.get(named.topic_id, data.index)
                if row.error_code is ErrorCode.none and replica is not None:
                    end_offset = row.base_offset + read_header(data.records).record_count
                    broker.world.acknowledging(broker, replica, end_offset, all_acks=body.acks == ACKS_ALL)

    def _offsets_partition_for(self, group_id: str) -> int:
        topic = self._broker.image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        return 0 if topic is None else partition_for(group_id, len(topic.partitions))


class _Call:
    """One request, until it is answered or its connection is lost."""

    def __init__(
        self,
        serving: Serving,
        broker: "BrokerProcess",
        connection: Connection,
        message: ApiRequest,
        reply: Reply,
    ) -> None:
        self._serving = serving
        self._broker = broker
        self._connection = connection
        self._message = message
        self._reply = reply
        self._steps: Steps[Any] | None = None
        self._holds = False

    def begin(self, handler: Handler) -> None:
        """Have the handler answer."""
        api_key, version, body = self._message
        connection: Any = self._connection
        request = Request(api_key, version, 0, None, body, memoryview(b""), connection, "PLAINTEXT")
        connection.on_close(self._abandon)
        try:
            response = handler(request)
        except KafkaError:
            self._reply(None)
            return
        self._take(response)

    def _take(self, response: Any) -> None:
        if is_awaitable(response):
            self._steps = steps_of(response)
            self._go_on()
        else:
            self._end()
            self._serving.answered(self._message, response)
            self._reply(response)

    def _go_on(self, answer: Any = None) -> None:
        steps = self._steps
        if steps is None:
            return
        self._broker.obey_lease()
        random = self._broker.scheduler.random
        while True:
            try:
                awaited = steps.send(answer)
            except StopIteration as last:
                self._take(last.value)
                return
            except KafkaError:
                self._end()
                self._reply(None)
                return
            answer = None
            if awaited is not None:
                self._wait_for(awaited)
                return
            if random.random() < _LET_OTHERS_GO_FIRST:
                self._hold()
                self._broker.loop.call_soon(self._go_on)
                return

    def _wait_for(self, awaited: Any) -> None:
        if isinstance(awaited, Held):
            awaited = awaited.awaited
            self._hold()
        else:
            self._release()
        if isinstance(awaited, Deferred):
            awaited.bind(self._go_on)
        else:
            awaited._asyncio_future_blocking = False
            awaited.add_done_callback(self._go_on_later)

    def _go_on_later(self, _: Any) -> None:
        """What was waited for is there; others may be first."""
        random = self._broker.scheduler.random
        if random.random() < _LET_OTHERS_GO_FIRST:
            self._broker.after(random.randrange(_LINE_MS), self._go_on)
        else:
            self._go_on()

    def _hold(self) -> None:
        if not self._holds:
            self._holds = True
            self._serving.hold(self._connection)

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            self._serving.release(self._connection)

    def _end(self) -> None:
        self._steps = None
        self._release()

    def _abandon(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._end()
