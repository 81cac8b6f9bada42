"""The tier of a broker: one object store, and a `LedTier` for each tiered partition that the broker leads.

Order for the caller: first among the role listeners, so that a replica whose manifest is not known is
suspended before coordinators load it; after `Roles` among the subscribers of metadata. `tick` from time to
time; `stop` before the logs are closed.

A partition that becomes tiered while it is led gets its tier then, one that is no longer tiered ends it: the
machine knows what its configuration says of the objects.

Source: Kafka's RemoteLogManager.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from sparklog.executor.fetching.tier_building import TierBuilding, TierState
from sparklog.executor.loop.slices import in_slices
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.tiering.adoption import TierAdoption, producers_of
from sparklog.executor.tiering.byte_turns import ByteTurns
from sparklog.executor.tiering.copy_threads import CopyThreads
from sparklog.executor.tiering.led_tier import LedTier, TierServices
from sparklog.executor.tiering.machine.events import PartitionIdentity, TierConfig
from sparklog.executor.tiering.machine.first_role import FirstRole
from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.executor.tiering.segment_copies import COPIES_AT_A_TIME, SegmentCopies, remove_left_files
from sparklog.executor.tiering.store_turns import StoreTurns
from sparklog.executor.tiering.tier_counts import TierError, TierLag, TierMetrics
from sparklog.node.config import BrokerConfig
from sparklog.node.config.dynamic import with_dynamic
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage, ResourceType
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import MetricRegistry, Sample
from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.object_store import ObjectStore
from sparklog.node.remote_log.stored_manifest import read_manifest
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId, LeaderEpoch

logger = logging.getLogger(__name__)

TICK_MS: Final = 1000
REQUESTS_AT_A_TIME: Final = 32
"""Requests to the store, copies not counted: a broker becomes leader of hundreds of partitions at once."""

ADOPTIONS_AT_A_TIME: Final = 16
"""They wait for the disk, which syncs many files at once about as fast as one."""
FOLLOWER_READS_AT_A_TIME: Final = 16


class RemoteLogManager(RoleListener[Replica]):
    def __init__(
        self,
        broker_id: BrokerId,
        store: ObjectStore,
        owner_epoch: int,
        table: PartitionTable,
        config: BrokerConfig,
        metrics: MetricRegistry,
        building: TierBuilding,
    ) -> None:
        """`owner_epoch` is that of this application in the store; `building` begins followers' logs."""
        self._building = building
        building.read_tier = self._read_tier
        self._broker_id = broker_id
        self._table = table
        self._owner_epoch = owner_epoch
        self._started_with = config
        self._config = config
        self._store = store
        self._threads = CopyThreads(COPIES_AT_A_TIME)
        self._byte_turns = ByteTurns(config.remote_log_copy_max_bytes_per_second)
        self._copies = SegmentCopies(store, self._threads, self._byte_turns)
        self._adoption_threads = CopyThreads(ADOPTIONS_AT_A_TIME, niceness=0)
        """Leaders do not serve before, and copies have their threads for long."""
        self._services = TierServices(
            store,
            self._copies,
            TierAdoption(store, self._adoption_threads),
            StoreTurns(REQUESTS_AT_A_TIME),
            StoreTurns(ADOPTIONS_AT_A_TIME),
        )
        self._follower_reads = asyncio.Semaphore(FOLLOWER_READS_AT_A_TIME)
        """Apart from the turns of leaders, which wait for none of them: a read may hang."""
        self._led: dict[Replica, LedTier] = {}
        self._first_roles: dict[Replica, FirstRole] = {}
        self._role_epochs: dict[Replica, LeaderEpoch] = {}
        """The leader epochs of the present roles."""
        self._last_role_epochs: dict[Replica, LeaderEpoch] = {}
        """Those of the roles before."""
        self._ending: set[asyncio.Task[None]] = set()
        """Each waits for the tasks of a tier that has ended; the ticks of the others go on."""
        self._next_tick_ms = 0
        self._ticking: asyncio.Task[None] | None = None
        self.metrics: Final = TierMetrics(self._states, self.errors, table.has_topic)
        metrics.add_source(self.metrics.samples)
        metrics.add_source(self._building_samples)
        metrics.gauge(
            remote_log.AWAITING_MANIFEST, lambda: sum(tier.awaits_manifest for tier in self._led.values())
        )
        metrics.gauge(remote_log.TASKS_IDLE, lambda: 1 - self._copies.under_way / COPIES_AT_A_TIME)

    async def start(self, directories: Sequence[Path]) -> None:
        """Remove from the data directories the files of copies that a crash has ended."""
        await asyncio.to_thread(remove_left_files, directories)

    # --- roles ----------------------------------------------------------------------------------

    def became_leader(self, replica: Replica) -> None:
        self._end(replica)
        self._note_role(replica)
        log = replica.settings.log
        # An earlier leader may not have deleted all that the topic had in its tier.
        if log.remote_storage_enable or (log.remote_delete_on_disable and replica.leader_epoch):
            self._begin(replica)

    def became_follower(self, replica: Replica) -> None:
        self._end(replica)
        self._note_role(replica)

    def stopped(self, replica: Replica) -> None:
        self._end(replica)
        for known in (self._first_roles, self._role_epochs, self._last_role_epochs):
            known.pop(replica, None)

    deleted = stopped

    def _note_role(self, replica: Replica) -> None:
        assert replica.leader_epoch is not None
        if replica in self._first_roles and not replica.is_recovering:
            self._last_role_epochs[replica] = self._role_epochs[replica]
        else:
            self._last_role_epochs.pop(replica, None)
            self._first_roles[replica] = FirstRole(replica.leader_epoch, replica.log.log_end_offset)
        self._role_epochs[replica] = replica.leader_epoch

    def _is_whole(self, replica: Replica) -> bool:
        """Return whether the log of a new leader evidently has everything that its tier has."""
        log, last_role_epoch = replica.log, self._last_role_epochs.get(replica)
        if last_role_epoch is None or replica.is_recovering:
            return False
        return self._first_roles[replica].is_outgrown(
            log.epochs.latest, log.log_end_offset, last_role_epoch, replica.complete_epoch
        )

    def _begin(self, replica: Replica) -> None:
        assert replica.leader_epoch is not None
        topic, partition = replica.topic_partition
        machine = PartitionTier(
            PartitionIdentity(topic, replica.topic_id, partition),
            replica.leader_epoch,
            self._owner_epoch,
            self._tier_config(replica),
            uuid4().hex[:12],
            is_whole=self._is_whole(replica),
        )
        tier = self._led[replica] = LedTier(replica, machine, self._services, self.metrics.of(topic))
        tier.tick()
        if self._config.sparklog_read_only:
            tier.copy_all()

    def _end(self, replica: Replica) -> None:
        tier = self._led.pop(replica, None)
        if tier is not None:
            tier.end()
            ending = asyncio.get_running_loop().create_task(tier.ended())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    # --- metadata and time ----------------------------------------------------------------------

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Obey changed configurations of topics and of this broker."""
        changed = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        if delta.reconfigures_broker(self._broker_id):
            was_read_only = self._config.sparklog_read_only
            configs = image.broker_configs(None), image.broker_configs(self._broker_id)
            self._config = with_dynamic(self._started_with, *configs)
            stops = self._config.sparklog_read_only
            self._byte_turns.limit(self._config.remote_log_copy_max_bytes_per_second, is_lifted=stops)
            changed = set(image.topics.by_name)
            if stops != was_read_only:
                for tier in list(self._led.values()):
                    tier.copy_all() if stops else tier.go_on()
        async for names in in_slices(changed):
            for name in names:
                if (topic := image.topics.by_name.get(name)) is not None:
                    for replica in list(self._table.of_topic(topic.topic_id)):
                        self._reconfigure(replica)

    def _reconfigure(self, replica: Replica) -> None:
        if replica.leadership is None:
            return
        tier = self._led.get(replica)
        if tier is not None:
            tier.reconfigure(self._tier_config(replica))
        elif replica.settings.log.remote_storage_enable:
            self._begin(replica)

    def _tier_config(self, replica: Replica) -> TierConfig:
        log = replica.settings.log
        return TierConfig(
            segment_bytes=log.segment_bytes,
            retention_ms=log.retention_ms,
            retention_bytes=log.retention_bytes,
            max_lag_ms=self._config.sparklog_remote_max_lag_ms,
            deletes=log.deletes,
            compacts=log.compacts,
            enabled=log.remote_storage_enable,
            copy_disabled=log.remote_copy_disable,
            delete_on_disable=log.remote_delete_on_disable,
            table_keeps_segments=log.table_keeps_segments,
            period_ms=log.table_period_ms,
        )

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self.tick_now()

    def tick_now(self) -> None:
        """Look at every led partition, without waiting for the interval."""
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick_all())

    async def _tick_all(self) -> None:
        async for part in in_slices(list(self._led.values())):
            for tier in part:
                try:
                    tier.tick()
                except Exception:  # of one partition; the others have their turn
                    logger.exception("%s: its tier failed, and is looked at again", tier.replica)

    async def stop(self) -> None:
        """End every tier; return when nothing reads a log or uses the store any more."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        for replica in list(self._led):
            self._end(replica)
        await asyncio.gather(*self._ending)
        self._threads.close()
        self._adoption_threads.close()
        await self._store.close()

    async def _read_tier(self, topic_id: UUID, partition: int) -> TierState:
        """Return the newest manifest of a partition, and the producers at its end.

        Raises:
            StoreError: they cannot be read.
            KafkaError: the manifest is damaged, or of an unknown format.
        """
        async with self._follower_reads:
            try:
                manifest, _ = await read_manifest(self._store, topic_id, partition)
            except ManifestFormatError as error:
                raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error
            return TierState(manifest, await producers_of(self._store, manifest))

    # --- metrics --------------------------------------------------------------------------------

    def _building_samples(self, now_ms: int) -> Iterator[Sample]:
        built, failed = self._building.built_count, self._building.failed_count
        yield Sample(remote_log.BUILD_AUX_STATE_REQUESTS.of(), Kind.METER, built + failed)
        yield Sample(remote_log.BUILD_AUX_STATE_ERRORS.of(), Kind.METER, failed)

    def _states(self, now_ms: int) -> Iterator[tuple[str, TierLag]]:
        for replica, tier in self._led.items():
            yield replica.topic_partition.topic, tier.state(now_ms)

    def errors(self) -> Iterator[TierError]:
        """Yield the errors by which tiers of led partitions stand still."""
        return (tier.error for tier in self._led.values() if tier.error is not None)
