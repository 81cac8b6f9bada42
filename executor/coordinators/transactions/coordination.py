"""Composition of a broker's transaction coordinators, without decisions.

Order for the caller: register the listeners for roles and `apply` for metadata before the first image; `stop`
before the replicas are stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.add_offsets_to_txn import AddOffsetsToTxnHandler
from sparklog.executor.coordinators.transactions.api.add_partitions_to_txn import AddPartitionsToTxnHandler
from sparklog.executor.coordinators.transactions.api.describe_transactions import DescribeTransactionsHandler
from sparklog.executor.coordinators.transactions.api.end_txn import EndTxnHandler
from sparklog.executor.coordinators.transactions.api.init_producer_id import InitProducerIdHandler
from sparklog.executor.coordinators.transactions.api.list_transactions import ListTransactionsHandler
from sparklog.executor.coordinators.transactions.api.producer_requests import NewProducerId
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.executor.coordinators.transactions.transaction_coordinator import transaction_coordinator
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.types import BrokerId


class TransactionCoordination:
    def __init__(
        self,
        node_id: BrokerId,
        config: BrokerConfig,
        table: PartitionTable,
        executor: Executor,
        obey_lease: Callable[[], None],
        new_producer_id: NewProducerId,
        cluster_credentials: ClusterCredentials,
    ) -> None:
        self._config = config
        self._new_producer_id = new_producer_id

        def endpoint_of(broker_id: BrokerId) -> Endpoint | None:
            found = table.endpoint(broker_id)
            return None if found is None else found[0]

        connections = BrokerConnections(
            f"broker-{node_id}-markers", endpoint_of, config.request_timeout_ms, cluster_credentials
        )
        self.sender = MarkerSender(connections, lambda: table.image, obey_lease)
        kind = transaction_coordinator(config, self.sender, new_producer_id)
        self.runtime = CoordinatorRuntime(kind, executor, obey_lease)
        self.listeners: Sequence[RoleListener[Replica]] = (self.runtime, self.sender)

    def handlers(self) -> Mapping[ApiKey, Handler]:
        runtime, new_producer_id = self.runtime, self._new_producer_id
        return {
            ApiKey.INIT_PRODUCER_ID: InitProducerIdHandler(runtime, new_producer_id).handle,
            ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnHandler(runtime).handle,
            ApiKey.ADD_OFFSETS_TO_TXN: AddOffsetsToTxnHandler(runtime, self._offsets_partition_for).handle,
            ApiKey.END_TXN: EndTxnHandler(runtime, new_producer_id).handle,
            ApiKey.DESCRIBE_TRANSACTIONS: DescribeTransactionsHandler(runtime, self.sender.missing).handle,
            ApiKey.LIST_TRANSACTIONS: ListTransactionsHandler(runtime).handle,
        }

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        await self.runtime.apply(image, delta)
        await self.sender.apply(image, delta)

    async def stop(self) -> None:
        await self.sender.stop()
        await self.runtime.stop()

    def _offsets_partition_for(self, group_id: str) -> int:
        """Return the partition of a group's offsets; FindCoordinator creates a missing topic."""
        topic = self.runtime.image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        count = self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)
        return partition_for(group_id, count)
