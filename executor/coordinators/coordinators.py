"""Composition of a broker's coordinators, without decisions.

Each kind is a runtime of its own. Roles and metadata reach them through `executor/replicas.py`, requests
through handlers of modules in `executor/api`.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.coordinator_metrics import group_samples, transaction_samples
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import NewProducerId
from sparklog.executor.coordinators.transactions.coordination import TransactionCoordination
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.metrics.registry import Sample
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import BrokerId

_REST_S: Final = 0.0005
"""A million offsets are some thousand slices: the pauses add a second or two to their load."""


def group_coordinator(config: BrokerConfig, metrics: GroupMetrics) -> CoordinatorKind:
    return CoordinatorKind(
        topic=CONSUMER_OFFSETS_TOPIC,
        records=CONSUMER_OFFSETS_RECORDS,
        new_machine=lambda partition: GroupMachine(config, metrics),
        write_timeout_ms=config.offsets_commit_timeout_ms,
        load_buffer_bytes=config.offsets_load_buffer_size,
        rest_s=_REST_S,
        leads_on=True,
        codec=Codec(config.offsets_topic_compression_codec),
    )


class Coordinators:
    def __init__(
        self,
        node_id: BrokerId,
        config: BrokerConfig,
        executor: Executor,
        obey_lease: Callable[[], None],
        table: PartitionTable,
        new_producer_id: NewProducerId,
        cluster_credentials: ClusterCredentials,
    ) -> None:
        """`executor` reads logs and does heavy work; `obey_lease` comes before work without a request.

        `new_producer_id` allocates an unused id; `cluster_credentials` are those of connections to other
        brokers.
        """
        self._metrics = GroupMetrics()
        self.groups = CoordinatorRuntime(group_coordinator(config, self._metrics), executor, obey_lease)
        self.transactions = TransactionCoordination(
            node_id, config, table, executor, obey_lease, new_producer_id, cluster_credentials
        )
        self.listeners: Sequence[RoleListener[Replica]] = (self.groups, *self.transactions.listeners)

    def samples(self, now_ms: int) -> Iterator[Sample]:
        yield from group_samples(self.groups, self._metrics, now_ms)
        yield from transaction_samples(self.transactions.runtime, self.transactions.sender, now_ms)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        await self.groups.apply(image, delta)
        await self.transactions.apply(image, delta)

    async def stop(self) -> None:
        """Close all coordinators; call before the replicas are stopped."""
        await self.transactions.stop()
        await self.groups.stop()
