"""The senders of one broker's requests to the controller, other than for its lifecycle and metadata.

Requests of clients go over a connection of their own. Answers come in the order of the requests, and theirs
may take long: topics by the thousand, or a driver that was just elected and waits for brokers. The broker's
own requests, its heartbeats first of all, must not wait behind them. (Kafka's broker has a channel for each
of them.)

Order for the caller: `run` until it is cancelled; `close`.
"""

from collections.abc import Callable

from sparklog.executor.control.alter_partition_sender import AlterPartitionSender
from sparklog.executor.control.assign_directories_sender import AssignDirectoriesSender
from sparklog.executor.control.auto_topic_creation import AutoTopicCreation
from sparklog.executor.control.broker_requests import BrokerRequests
from sparklog.executor.control.controller_link import ControllerLink
from sparklog.executor.control.forwarding import FORWARDING_TIMEOUT_MS, Forwarder
from sparklog.executor.control.producer_id_blocks import ProducerIdBlocks
from sparklog.node.config import BrokerConfig
from sparklog.protocol.types import BrokerEpoch, BrokerId


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
