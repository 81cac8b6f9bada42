"""Composition of a broker's transaction coordinators, without decisions.

Order for the caller: register the listeners for roles and `apply` for metadata before the first image; `stop`
before the replicas are stopped.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind, EffectOrigin
from sparklog.executor.coordinators.records.framing import TRANSACTION_STATE_RECORDS
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.add_offsets_to_txn import AddOffsetsToTxnHandler
from sparklog.executor.coordinators.transactions.api.add_partitions_to_txn import AddPartitionsToTxnHandler
from sparklog.executor.coordinators.transactions.api.describe_transactions import DescribeTransactionsHandler
from sparklog.executor.coordinators.transactions.api.end_txn import EndTxnHandler
from sparklog.executor.coordinators.transactions.api.init_producer_id import InitProducerIdHandler
from sparklog.executor.coordinators.transactions.api.list_transactions import ListTransactionsHandler
from sparklog.executor.coordinators.transactions.api.producer_requests import (
    ALLOCATION_TIMEOUT_MS,
    NewProducerId,
)
from sparklog.executor.coordinators.transactions.machine.events import AbortWithNewProducerId, SendMarkers
from sparklog.executor.coordinators.transactions.machine.time_outs import TransactionLimits
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId

logger = logging.getLogger(__name__)


def transaction_coordinator(
    config: BrokerConfig, sender: MarkerSender, new_producer_id: NewProducerId
) -> CoordinatorKind:
    """Return the kind; `new_producer_id` allocates ids for time-out aborts."""
    limits = TransactionLimits(
        max_timeout_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        two_phase_commit_prefixes=config.sparklog_two_phase_commit_transactional_id_prefixes,
    )
    return CoordinatorKind(
        topic=TRANSACTION_STATE_TOPIC,
        records=TRANSACTION_STATE_RECORDS,
        new_machine=lambda partition: TransactionMachine(limits),
        effects={SendMarkers: sender.send, AbortWithNewProducerId: _Aborts(new_producer_id).begin},
        write_timeout_ms=config.request_timeout_ms,
        load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        skips_unknown_versions=True,
    )


class _Aborts:
    def __init__(self, new_producer_id: NewProducerId) -> None:
        self._new_producer_id = new_producer_id
        self._aborts: set[asyncio.Task[None]] = set()

    def begin(self, effect: AbortWithNewProducerId, origin: EffectOrigin) -> None:
        abort = asyncio.get_running_loop().create_task(self._abort(effect.transactional_id, origin))
        self._aborts.add(abort)
        abort.add_done_callback(self._aborts.discard)

    async def _abort(self, transactional_id: str, origin: EffectOrigin) -> None:
        """Abort a transaction with a new producer id; without one, retry at the next interval."""
        try:
            producer_id = await self._new_producer_id(ALLOCATION_TIMEOUT_MS)
        except KafkaError as error:
            logger.warning(
                "No producer id for the abort of the transaction of %s: %s", transactional_id, error
            )
            return
        origin.decide(TransactionMachine.abort_timed_out, transactional_id, producer_id)


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
