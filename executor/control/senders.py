"""The senders of one broker's requests to the controller, other than for its lifecycle and metadata.

Requests of clients go over a connection of their own. Answers come in the order of the requests, and theirs
may take long: topics by the thousand, or a driver that was just elected and waits for brokers. The broker's
own requests, its heartbeats first of all, must not wait behind them. (Kafka's broker has a channel for each
of them.)

Order for the caller: `run` until it is cancelled; `close`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from kio.schema.allocate_producer_ids.v0 import AllocateProducerIdsRequest
from kio.schema.alter_partition.v3 import AlterPartitionRequest
from kio.schema.assign_replicas_to_dirs.v0.request import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

from sparklog.executor.control.auto_topic_creation import AutoTopicCreation
from sparklog.executor.control.controller_link import REQUEST_TIMEOUT_MS, ControllerLink
from sparklog.executor.control.forwarding import FORWARDING_TIMEOUT_MS, Forwarder
from sparklog.executor.control.machine.waiting_proposals import WaitingProposals
from sparklog.executor.control.single_flight import SingleFlight
from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import ProposeIsr
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, ProducerId, TopicIdPartition, or_minus_one

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100


class BrokerRequests:
    """Requests to the controller that carry the broker's id and current epoch."""

    def __init__(
        self, link: ControllerLink, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch | None]
    ) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def send(
        self, request_type: Callable[..., Any], timeout_ms: int = REQUEST_TIMEOUT_MS, **content: Any
    ) -> Any:
        """Send a request of that type and content; return the response.

        Raises:
            KafkaError: see `ControllerLink.request`.
        """
        request = request_type(
            broker_id=self._broker_id,
            broker_epoch=or_minus_one(self._broker_epoch()),
            **content,
        )
        return await self._link.request(request, timeout_ms)


class AssignDirectoriesSender:
    """Reports the directories of replicas to the controller, many in one AssignReplicasToDirs (KIP-858).

    At most one request is in flight; later reports go into the next one, the latest for each replica. Failed
    reports are sent again as long as this broker lives: the caller, which sees the result in the metadata,
    replaces those that are outdated. Belongs to the broker's event loop.
    """

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._waiting: dict[TopicIdPartition, UUID] = {}
        self._flight = SingleFlight(self._send_waiting)

    def assign(self, key: TopicIdPartition, directory_id: UUID) -> None:
        self._waiting[key] = directory_id
        self._flight.begin()

    async def close(self) -> None:
        await self._flight.close()

    async def _send_waiting(self) -> None:
        while self._waiting:
            reported, self._waiting = self._waiting, {}
            try:
                response = await self._requests.send(
                    AssignReplicasToDirsRequest, directories=_directories(reported)
                )
                if response.error_code is not ErrorCode.none:
                    raise KafkaError(response.error_code, "the controller refused it")
            except KafkaError as error:
                logger.warning(
                    "The directories of %d replicas could not be reported: %s", len(reported), error
                )
                self._waiting = reported | self._waiting
                await asyncio.sleep(RETRY_MS / 1000)
            else:
                _log_refused(response)


def _directories(reported: Mapping[TopicIdPartition, UUID]) -> tuple[DirectoryData, ...]:
    by_directory: dict[UUID, dict[UUID, list[PartitionData]]] = {}
    for key, directory_id in reported.items():
        topics = by_directory.setdefault(directory_id, {})
        topics.setdefault(key.topic_id, []).append(PartitionData(partition_index=key.partition))
    return tuple(
        DirectoryData(
            id_=directory_id,
            topics=tuple(
                TopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )
        for directory_id, topics in by_directory.items()
    )


def _log_refused(response: Any) -> None:
    for directory in response.directories:
        for topic in directory.topics:
            for partition in topic.partitions:
                if partition.error_code is not ErrorCode.none:
                    logger.info(
                        "The controller refuses directory %s for %s-%d: %s",
                        directory.id_,
                        topic.topic_id,
                        partition.partition_index,
                        partition.error_code.name,
                    )


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
