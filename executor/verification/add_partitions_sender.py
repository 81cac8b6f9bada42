"""AddPartitionsToTxn requests to transactions' coordinators; `WaitingAdditions` batches them.

A transaction's coordinator is the leader of its partition of `__transaction_state`, wherever that is; this
broker is asked like any other. Answers come in the order of the requests, so slow coordinators
(`SlowCoordinators`) are asked over a connection of their own.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

from kio.schema.add_partitions_to_txn.v5 import AddPartitionsToTxnRequest

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.control.single_flight import SingleFlight
from sparklog.executor.verification.machine.slow_coordinators import SlowCoordinators
from sparklog.executor.verification.machine.waiting_additions import (
    Addition,
    TransactionOperation,
    Unverified,
    WaitingAdditions,
)
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.node.metrics import coordinators
from sparklog.node.metrics.histogram import SECONDS
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import MetricRegistry, Sample
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, ProducerEpoch, ProducerId, TopicPartition

logger = logging.getLogger(__name__)


class _Lane(NamedTuple):
    """The requests to one broker that wait for each other."""

    waiting: WaitingAdditions
    flight: SingleFlight


class AddPartitionsSender:
    """The requests of one broker; belongs to its event loop."""

    def __init__(
        self,
        connections: BrokerConnections,
        connections_to_slow: BrokerConnections,
        image: Callable[[], MetadataImage],
        metrics: MetricRegistry,
    ) -> None:
        self._failure_count = 0
        self._times = metrics.histogram(coordinators.VERIFICATION_TIME, SECONDS, 1000.0)
        metrics.add_source(self._samples)
        self._connections = {False: connections, True: connections_to_slow}
        self._image = image
        self._slow = SlowCoordinators()
        self._lanes: dict[tuple[BrokerId, bool], _Lane] = {}
        """By broker, and whether its coordinators are slow."""

    async def ask(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        operation: TransactionOperation,
    ) -> Unverified:
        """Return the error of each partition that may not be appended to.

        Raises:
            KafkaError: invalid_request: no transaction has such an id.
        """
        partition, broker_id = self._coordinator_of(transactional_id)
        if broker_id is None:
            return dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        answer: asyncio.Future[Unverified] = asyncio.get_running_loop().create_future()

        def answered(unverified: Unverified) -> None:
            if not answer.done():
                answer.set_result(unverified)

        lane = self._lane(broker_id, is_slow=self._slow.is_slow(partition))
        addition = Addition(transactional_id, producer_id, producer_epoch, partitions, operation, answered)
        lane.waiting.add(addition)
        lane.flight.begin()
        began_s = perf_counter()
        try:
            unverified = await answer
        except BaseException:  # its caller waits no more
            lane.waiting.forget(addition)
            raise
        self._slow.answered(partition, unverified.values())
        self._times.record(perf_counter() - began_s)
        self._failure_count += len(unverified)
        return unverified

    def _samples(self, now_ms: int) -> Iterator[Sample]:
        yield Sample(coordinators.VERIFICATION_FAILURES.of(), Kind.METER, self._failure_count)

    async def close(self) -> None:
        """Stop sending, without answers to what waits."""
        for lane in self._lanes.values():
            await lane.flight.close()
        for connections in self._connections.values():
            await connections.close()

    def _coordinator_of(self, transactional_id: str) -> tuple[int, BrokerId | None]:
        """Return the coordinator's partition of a transaction, and that partition's leader."""
        image = self._image()
        found = coordinator_partition(image, TRANSACTION_STATE_TOPIC, transactional_id)
        if found is None:
            return -1, None
        partition, registration = found
        leader = registration.leader
        broker = None if leader is None else image.brokers.get(leader)
        return partition, None if broker is None or broker.fenced else leader

    def _lane(self, broker_id: BrokerId, *, is_slow: bool) -> _Lane:
        lane = self._lanes.get((broker_id, is_slow))
        if lane is None:
            waiting = WaitingAdditions()
            send = partial(self._send_waiting, broker_id, waiting, self._connections[is_slow])
            lane = self._lanes[broker_id, is_slow] = _Lane(waiting, SingleFlight(send))
        return lane

    async def _send_waiting(
        self, broker_id: BrokerId, waiting: WaitingAdditions, connections: BrokerConnections
    ) -> None:
        while transactions := waiting.next_transactions():
            try:
                response = await connections.request(
                    broker_id, AddPartitionsToTxnRequest(transactions=transactions)
                )
            except KafkaError as error:
                logger.warning("Broker %d may not have been asked about transactions: %s", broker_id, error)
                response = None
            waiting.answered(response)
