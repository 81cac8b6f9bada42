"""Sends the ISR proposals of partition leaders to the controller, batched by `WaitingProposals`."""

import logging

from kio.schema.alter_partition.v3 import AlterPartitionRequest

from sparklog.executor.control.broker_requests import BrokerRequests
from sparklog.executor.control.machine.waiting_proposals import WaitingProposals
from sparklog.executor.control.single_flight import SingleFlight
from sparklog.executor.partitions.isr_proposer import IsrAnswered
from sparklog.executor.partitions.machine.events import ProposeIsr
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TopicIdPartition

logger = logging.getLogger(__name__)


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
