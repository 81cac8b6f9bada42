"""Sends partition leaders' ISR proposals to the controller; `WaitingProposals` says which go together."""

import asyncio
import logging
from collections.abc import Callable

from executor.control.controller_link import ControllerLink
from executor.control.machine.waiting_proposals import WaitingProposals
from executor.control.single_flight import SingleFlight
from executor.partitions.isr_proposer import IsrAnswered
from executor.partitions.machine.events import ProposeIsr
from sparklog.errors import KafkaError
from sparklog.types import BrokerEpoch, BrokerId, TopicIdPartition

__all__ = ["AlterPartitionSender"]

logger = logging.getLogger(__name__)


class AlterPartitionSender:
    """The `IsrProposer` of one broker; belongs to its event loop."""

    def __init__(
        self, link: ControllerLink, broker_id: BrokerId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._waiting = WaitingProposals()
        self._flight = SingleFlight(self._send_waiting)

    def propose(self, partition: TopicIdPartition, proposal: ProposeIsr, answered: IsrAnswered) -> None:
        """Queue the proposal; `answered` is called once, never before this returns."""
        self._waiting.add(partition, proposal, answered)
        self._flight.begin()

    async def close(self) -> None:
        """Stop sending; proposals that were not answered stay so, since nobody is left to act on them."""
        self._waiting.clear()
        await self._flight.close()

    async def _send_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        while (request := self._waiting.next_request(self._broker_id, self._broker_epoch())) is not None:
            try:
                response = await self._link.request(request)
            except KafkaError as error:
                logger.warning("ISR proposals may not have reached the controller: %s", error)
                response = None
            self._waiting.answered(response, int(loop.time() * 1000))
