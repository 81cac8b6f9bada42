"""What one broker asks of the controller besides its life and its metadata: the senders of these requests."""

from collections.abc import Callable

from executor.control.alter_partition_sender import AlterPartitionSender
from executor.control.assign_directories_sender import AssignDirectoriesSender
from executor.control.auto_topic_creation import AutoTopicCreation
from executor.control.broker_requests import BrokerRequests
from executor.control.controller_link import ControllerLink
from executor.control.forwarding import Forwarder
from executor.control.producer_id_blocks import ProducerIdBlocks
from sparklog.types import BrokerEpoch, BrokerId

__all__ = ["Senders"]


class Senders:
    """The senders of one broker, over one link; they belong to its event loop."""

    def __init__(
        self,
        link: ControllerLink,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        request_timeout_ms: int,
    ) -> None:
        """Send what a client waits for within `request_timeout_ms`."""
        requests = BrokerRequests(link, broker_id, broker_epoch)
        self.alter_partition = AlterPartitionSender(requests)
        self.assign_directories = AssignDirectoriesSender(requests)
        self.producer_id_blocks = ProducerIdBlocks(requests)
        self.topic_creation = AutoTopicCreation(link, request_timeout_ms)
        self.forwarder = Forwarder(link, request_timeout_ms)

    async def close(self) -> None:
        """Stop sending, whatever has not been answered."""
        for sender in (self.topic_creation, self.assign_directories, self.alter_partition):
            await sender.close()
