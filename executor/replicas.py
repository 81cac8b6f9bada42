"""The replicas of one broker and what works on them, put together. Nothing is decided here.

Order for callers: `start()` loads the logs of all directories; then every image is passed to `subscribers`,
as `Roles` says. Requests may be handled from the first on, while `run` ticks. `shutdown()` stops fetchers,
flushes, writes checkpoints and closes the logs. The caller then writes the clean-shutdown markers and unlocks
the directories.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.coordinators import Coordinators
from sparklog.executor.coordinators.transactions.api.producer_requests import NewProducerId, nobody_allocates
from sparklog.executor.fetching.fetchers import Fetchers, FollowerServices
from sparklog.executor.fetching.leader_offsets import LeaderOffsets
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.fetching.tiered_ends import TieredEnds
from sparklog.executor.log_dir_moves.directory_copying import CopyServices
from sparklog.executor.log_dir_moves.directory_moves import DirectoryMoves
from sparklog.executor.logs.log_store import LogStore
from sparklog.executor.logs.log_upkeep import LogUpkeep
from sparklog.executor.loop.concurrency import until_first_ends
from sparklog.executor.metadata.publisher import MetadataSubscriber
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.isr_checks import IsrChecks
from sparklog.executor.partitions.isr_proposer import IsrProposer
from sparklog.executor.partitions.lease import Lease
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.partition_counts import PartitionCounts
from sparklog.executor.partitions.producer_loads import ProducerLoads
from sparklog.executor.partitions.replica import Replica, ReplicaHost
from sparklog.executor.partitions.replication_quotas import ReplicationQuotas
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.roles import Roles
from sparklog.executor.partitions.settings import TopicSettings
from sparklog.executor.partitions.storage_failures import StorageFailures
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.partitions.traffic import BrokerTraffic, TrafficMeters
from sparklog.executor.verification.add_partitions_sender import AddPartitionsSender
from sparklog.executor.verification.transaction_verifier import TransactionVerifier
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metrics import remote_log, server
from sparklog.node.metrics.histogram import SECONDS
from sparklog.node.metrics.registry import MetricRegistry
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.types import BrokerEpoch, BrokerId, TopicIdPartition

if TYPE_CHECKING:
    from sparklog.executor.remote_reads.remote_reader import RemoteReader
    from sparklog.executor.tiering.remote_log_manager import RemoteLogManager

logger = logging.getLogger(__name__)

TICK_MS: Final = 200
EXAMINERS: Final = 2
"""How many threads look into batches: so many are decompressed at a time, at most."""


@dataclass(frozen=True, slots=True)
class ClusterMembership:
    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    holds_lease: Callable[[int], bool] = lambda now_ms: True
    """Asked, with the monotonic time in milliseconds, before anything is done as a leader."""
    secret: ApplicationSecret | None = None
    """By which other brokers know this one; None if they do not ask."""
    owner_epoch: int | None = None
    """Epoch of this application as owner of the tier's prefix; None without a tier."""

    def cluster_credentials(self, config: BrokerConfig) -> ClusterCredentials:
        """Return the settings of connections to other brokers."""
        return (
            NO_CREDENTIALS
            if self.secret is None
            else ClusterCredentials.to(config.inter_broker_protocol, self.secret)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRequests:
    isr_proposer: IsrProposer
    assign_directory: Callable[[TopicIdPartition, UUID], None] = lambda key, directory_id: None
    """Tells in which directory a replica lies."""
    new_producer_id: NewProducerId = nobody_allocates
    """Obtains an id that no producer has had."""


class ThreadPools:
    def __init__(self, config: BrokerConfig, directory_count: int) -> None:
        self.background = ThreadPoolExecutor(config.background_threads, "sparklog-log")
        """Waits for disks."""
        self.examiners = ThreadPoolExecutor(EXAMINERS, "sparklog-examiner")
        """Look into batches before they are appended."""
        self.copied_at_a_time: Final = config.num_replica_alter_log_dirs_threads or directory_count
        self.copiers = ThreadPoolExecutor(self.copied_at_a_time, "sparklog-alter-log-dirs")
        """Copy replicas into other directories."""

    def shutdown(self) -> None:
        """End all threads, without waiting for those that wait for a disk."""
        for pool in (self.background, self.copiers, self.examiners):
            pool.shutdown(wait=False)


class HostedPartitions(NamedTuple):
    broker_id: BrokerId
    table: PartitionTable
    tiered_ends: TieredEnds


class LogKeeping:
    """The logs of a broker in their directories: loaded, maintained, and given up with a failing disk."""

    def __init__(
        self,
        hosted: HostedPartitions,
        directories: Sequence[LogDirectory],
        config: BrokerConfig,
        reports: DirectoryReports,
        metrics: MetricRegistry,
        executor: Executor,
        on_directory_failed: Callable[[LogDirectory], None],
    ) -> None:
        broker_id, table, tiered_ends = hosted
        self.store = LogStore(
            directories,
            executor,
            lambda failed, error: self.failures.directory_failed(failed, error),  # noqa: PLW0108
        )
        self.failures = StorageFailures(
            broker_id, table, reports, self.store.directory_of, on_directory_failed
        )
        self.upkeep = LogUpkeep(
            broker_id,
            table,
            directories,
            self.store.directory_of,
            self.failures.directory_failed,
            config,
            metrics,
            tiered_ends,
        )


class Replicas:
    def __init__(
        self,
        membership: ClusterMembership,
        controller: ControllerRequests,
        directories: Sequence[LogDirectory],
        config: BrokerConfig,
        suspicions: BrokerSuspicions,
        *,
        on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None,
    ) -> None:
        """Serve the logs in `directories`; `on_directory_failed` is called once with each that fails."""
        broker_id, cluster_credentials = membership.broker_id, membership.cluster_credentials(config)
        self.metrics = MetricRegistry()
        """The broker's instruments: whoever works on replicas adds its own."""
        self._threads = threads = ThreadPools(config, len(directories))
        self.executor = threads.background
        self.examiners = threads.examiners
        self.delayed = DelayedOperations(asyncio.get_running_loop())
        self.table = table = PartitionTable(config.inter_broker_listener)
        offsets = LeaderOffsets(broker_id, table, config.replica_socket_timeout_ms, cluster_credentials)
        self.reports = DirectoryReports(broker_id, controller.assign_directory)
        self._on_directory_failed = on_directory_failed
        keeping = LogKeeping(
            HostedPartitions(broker_id, table, TieredEnds(offsets)),
            directories,
            config,
            self.reports,
            self.metrics,
            threads.background,
            self._directory_failed,
        )
        self.store, self.failures, self._upkeep = keeping.store, keeping.failures, keeping.upkeep
        self.lease = Lease(table, membership.holds_lease, monotonic_ms)
        self._config = config
        self._settings = TopicSettings(config)
        self._isr_checks = IsrChecks(table, controller.isr_proposer, config.replica_lag_time_max_ms)
        self.replication_quotas = ReplicationQuotas(broker_id, config)
        self._fetchers = Fetchers(
            broker_id,
            membership.broker_epoch,
            table,
            config,
            suspicions,
            self.replication_quotas.follower,
            FollowerServices(offsets, threads.background),
            cluster_credentials,
        )
        self.tier_building: Final = self._fetchers.tier_building
        """Set its `read_tier` before the first image if there is an object store."""
        self._producer_loads = ProducerLoads(
            table,
            self.store.directory_of,
            self._upkeep.lower_checkpoints,
            self._fetchers.add,
            threads.background,
        )
        self.remote_reader = _remote_reader(config, self.metrics)
        """Reads records that only the object store has; None without one."""
        self.coordinators = Coordinators(
            broker_id,
            config,
            threads.background,
            self.lease.obey,
            table,
            controller.new_producer_id,
            cluster_credentials,
        )
        self.directory_moves = DirectoryMoves(self._copy_services(broker_id))
        self._counts = PartitionCounts()
        self.remote_log = self._remote_log_manager(membership)
        """The tier of the partitions led here; None without an object store."""
        tier = () if self.remote_log is None else (self.remote_log,)
        self.listeners: list[RoleListener[Replica]] = [
            *tier,
            self._fetchers,
            self._isr_checks,
            self._producer_loads,
            self._counts,
            *self.coordinators.listeners,
            self.directory_moves,
        ]
        """The listeners of roles, in this order; more may be added before the first image."""
        self.transaction_verifier = _transaction_verifier(
            broker_id, table, config, self.metrics, cluster_credentials
        )
        """Verifies with coordinators that transactions may begin in partitions led here."""
        self.traffic = traffic = BrokerTraffic()
        host = ReplicaHost(
            broker_id=broker_id,
            broker_epoch=membership.broker_epoch,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            now_ms=monotonic_ms,
            listeners=self.listeners,
            propose_isr=self._isr_checks.propose,
            load_producers=self._producer_loads.start,
            log_failed=self.failures.log_failed,
            log_damaged=self.failures.log_damaged,
            is_in_sync_with_others=self.failures.is_in_sync_with_others,
            begins_at_tiered_end=lambda: self._settings.config.follower_fetch_last_tiered_offset_enable,
            traffic=traffic,
        )
        self._measure(traffic)
        self._roles = Roles(host, table, self.store, self._settings, self.reports, self.lease)
        self.subscribers: Sequence[MetadataSubscriber] = (
            self.replication_quotas,
            self._roles,
            *tier,
            self._upkeep,
            self._fetchers,
            self.coordinators,
            self.directory_moves,
        )
        """The subscribers of metadata, in this order."""

    def _remote_log_manager(self, membership: ClusterMembership) -> "RemoteLogManager | None":
        config = self._config
        if config.remote_uri is None or membership.owner_epoch is None:
            return None
        # Brokers without a tier do without the memory of Parquet's library.
        from sparklog.executor.tiering.remote_log_manager import RemoteLogManager
        from sparklog.node.remote_log.opened_store import open_store

        return RemoteLogManager(
            membership.broker_id,
            open_store(config.remote_uri, config.remote_options),
            membership.owner_epoch,
            self.table,
            config,
            self.metrics,
            self.tier_building,
        )

    def _copy_services(self, broker_id: BrokerId) -> CopyServices:
        return CopyServices(
            broker_id=broker_id,
            table=self.table,
            store=self.store,
            reports=self.reports,
            quota=self.replication_quotas.alter_log_dirs,
            semaphore=asyncio.Semaphore(self._threads.copied_at_a_time),
            executor=self._threads.copiers,
            lower_checkpoints=self._upkeep.lower_checkpoints,
            checkpoint=self._upkeep.checkpoint,
            on_failed=self.failures.directory_failed,
        )

    def _measure(self, traffic: BrokerTraffic) -> None:
        self.metrics.gauge(server.PARTITION_COUNT, lambda: len(self.table))
        self.metrics.gauge(server.PURGATORY_SIZE, lambda: len(self.delayed))
        for source in (
            self._counts,
            TrafficMeters(traffic, self.table.has_topic),
            self._isr_checks,
            self._fetchers,
            self.directory_moves,
            self.coordinators,
        ):
            self.metrics.add_source(source.samples)

    async def start(self) -> None:
        """Load every log of every directory, off the loop."""
        # No image says yet what the topics' own configurations are.
        await self.store.load(
            lambda topic: self._settings.defaults.log, self._config.num_recovery_threads_per_data_dir
        )
        if self.remote_log is not None:
            await self.remote_log.start([directory.path for directory in self.store.online])

    async def run(self) -> None:
        """Tick until cancelled.

        Raises:
            Exception: logs could not be opened or deleted, for a reason that is no disk's.
        """
        await until_first_ends(self._tick_on(), self.store.work_fails())

    async def _tick_on(self) -> None:
        while True:
            await asyncio.sleep(self._pause_ms(monotonic_ms()) / 1000)
            self.tick(monotonic_ms())

    def _pause_ms(self, now_ms: int) -> int:
        """Return the time to the next tick: a whole second of the clock, or `TICK_MS` if that may be late."""
        to_second_ms = 1_000 - now_ms % 1_000
        due_ms = min(each.next_due_ms for each in (self._isr_checks, self._roles, self._upkeep))
        if (
            due_ms < now_ms + to_second_ms
            or self.remote_log is not None
            or not self.lease.is_held
            or not self.lease.lasts_for(to_second_ms + TICK_MS)
        ):
            return min(to_second_ms, TICK_MS)
        return to_second_ms

    def tick(self, now_ms: int) -> None:
        """Do the periodic work that is due; `now_ms` is the monotonic time."""
        self.lease.obey()
        self._isr_checks.tick(now_ms)
        self._roles.tick(now_ms)
        # As due times are: those of every second would else be later each time, and missed by the next tick.
        self._upkeep.tick(now_ms - now_ms % TICK_MS)
        if self.remote_log is not None:
            self.remote_log.tick(now_ms)

    def _directory_failed(self, directory: LogDirectory) -> None:
        self.directory_moves.directory_failed(directory)
        self._on_directory_failed(directory)

    async def shutdown(self) -> None:
        """Stop fetching and serving, flush every log, write the checkpoints, close the logs."""
        await self._fetchers.stop()
        await self._isr_checks.stop()
        await self._roles.stop()
        await self.coordinators.stop()
        await self.directory_moves.stop()
        for replica in self.table:
            replica.stop()
        self.delayed.expire_all()
        if self.remote_reader is not None:
            await self.remote_reader.close()
        if self.remote_log is not None:
            await self.remote_log.stop()
        await self.transaction_verifier.close()
        await self._producer_loads.stop()
        await self._upkeep.stop()
        started = time.monotonic()
        await self._upkeep.write_checkpoints()
        for replica in self.table:
            if replica.offline:
                self.store.directory_of(replica.log).has_unclosed_logs = True
            elif not replica.log.has_files:
                replica.log.close()
        # Side by side: each waits for its disk, and Spark gives a worker little time.
        await asyncio.gather(
            *(
                self.store.close(replica.log)
                for replica in self.table
                if not (replica.offline or replica.log.is_closed)
            ),
            *(self.store.close(log) for log in self.directory_moves.copies),
            self.store.close_unclaimed(),
        )
        await self._upkeep.write_checkpoints()
        self._upkeep.close()
        self._threads.shutdown()
        logger.info("%d logs closed in %.1f s", len(self.table), time.monotonic() - started)


def _remote_reader(config: BrokerConfig, metrics: MetricRegistry) -> "RemoteReader | None":
    if config.remote_uri is None:
        return None
    from sparklog.executor.remote_reads.remote_reader import RemoteReader

    reader = RemoteReader(
        cache_bytes=config.sparklog_remote_cache_bytes,
        max_wait_ms=config.remote_fetch_max_wait_ms,
        now_ms=monotonic_ms,
        times=metrics.histogram(remote_log.READER_TIME, SECONDS, 1000.0),
        max_bytes_per_second=config.remote_log_fetch_max_bytes_per_second,
    )
    metrics.gauge(remote_log.READER_QUEUE, lambda: reader.waiting_count)
    metrics.gauge(remote_log.READER_IDLE, lambda: reader.idle_share)
    return reader


def _transaction_verifier(
    broker_id: BrokerId,
    table: PartitionTable,
    config: BrokerConfig,
    metrics: MetricRegistry,
    cluster_credentials: ClusterCredentials,
) -> TransactionVerifier:
    def endpoint_of(other_id: BrokerId) -> Endpoint | None:
        found = table.endpoint(other_id)
        return None if found is None else found[0]

    def connections(purpose: str) -> BrokerConnections:
        client_id = f"broker-{broker_id}-{purpose}"
        return BrokerConnections(client_id, endpoint_of, config.request_timeout_ms, cluster_credentials)

    return TransactionVerifier(
        AddPartitionsSender(
            connections("transactions"), connections("slow-transactions"), lambda: table.image, metrics
        ),
        wall_clock_ms,
        retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
        retry_timeout_ms=min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms),
    )
