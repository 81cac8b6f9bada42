"""The senders of one broker's requests to the controller, other than for its lifecycle and metadata.

Requests of clients go over a connection of their own. Answers come in the order of the requests, and theirs
may take long: topics by the thousand, or a driver that was just elected and waits for brokers. The broker's
own requests, its heartbeats first of all, must not wait behind them. (Kafka's broker has a channel for each
of them.)

Order for the caller: `run` until it is cancelled; `close`.
"""

import asyncio
import logging
from collections.abc import Callable

from kio.schema.allocate_producer_ids.v0 import AllocateProducerIdsRequest
from kio.schema.alter_partition.v3 import AlterPartitionRequest

from sparklog.executor.control.assign_directories_sender import AssignDirectoriesSender
from sparklog.executor.control.auto_topic_creation import AutoTopicCreation
from sparklog.executor.control.broker_requests import BrokerRequests
from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.forwarding import FORWARDING_TIMEOUT_MS, Forwarder
from sparklog.executor.control.machine.waiting_proposals import WaitingProposals
from sparklog.executor.control.single_flight import SingleFlight
from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import ProposeIsr
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, ProducerId, TopicIdPartition

logger = logging.getLogger(__name__)


class ProducerIdBlocks:
    """Producer ids from blocks that the controller allocates to this broker (KIP-730).

    An id is given to one producer ever: a block is committed to the metadata log before it gets here, and
    the rest of a broker's block is never used after the broker ends.
    """

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._block = iter(range(0))
        self._allocation = asyncio.Lock()

    async def next(self, timeout_ms: int) -> ProducerId:
        """Return an unused id; requests a new block when the current one is used up.

        Raises:
            KafkaError: the controller did not answer in time, or refused.
        """
        while True:
            producer_id = next(self._block, None)
            if producer_id is not None:
                return producer_id
            async with self._allocation:
                producer_id = next(self._block, None)
                if producer_id is not None:
                    return producer_id
                self._block = iter(await self._allocate(timeout_ms))

    async def _allocate(self, timeout_ms: int) -> range:
        response = await self._requests.send(AllocateProducerIdsRequest, timeout_ms)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, "the controller allocates no producer ids to this broker")
        first = response.producer_id_start
        return range(first, first + response.producer_id_len)


class AlterPartitionSender:
    """The `IsrProposer` of one broker; belongs to its event loop."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._waiting = WaitingProposals()
        self._flight = SingleFlight(self._send_waiting)

    def propose(self, partition: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        """Queue the proposal; `answered` is called once, never before this returns."""
        self._waiting.add(partition, proposal, answered)
        self._flight.begin()

    async def close(self) -> None:
        await self._flight.close()

    async def _send_waiting(self) -> None:
        while topics := self._waiting.next_topics():
            try:
                response = await self._requests.send(AlterPartitionRequest, topics=topics)
            except KafkaError as error:
                logger.warning("ISR proposals may not have reached the controller: %s", error)
                response = None
            self._waiting.answered(response, monotonic_ms())


class Senders:
    def __init__(
        self,
        link: ControllerLink,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        config: BrokerConfig,
    ) -> None:
        self._for_clients = link.sibling(f"broker-{broker_id}-forwarding", "controller, for clients,")
        requests = BrokerRequests(link, broker_id, broker_epoch)
        self.alter_partition = AlterPartitionSender(requests)
        self.assign_directories = AssignDirectoriesSender(requests)
        self.producer_id_blocks = ProducerIdBlocks(requests)
        self.topic_creation = AutoTopicCreation(self._for_clients, config)
        self.forwarder = Forwarder(self._for_clients, FORWARDING_TIMEOUT_MS)

    async def run(self) -> None:
        """Keep the connection for clients' requests open; ends only by cancellation."""
        await self._for_clients.run()

    async def close(self) -> None:
        """Stop sending; requests without an answer fail."""
        for sender in (self.topic_creation, self.assign_directories, self.alter_partition):
            await sender.close()
