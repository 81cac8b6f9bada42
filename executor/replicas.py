"""The replicas of one broker and what works on them, put together. Nothing is decided here.

Order for callers: `start()` loads the logs of all directories; then `subscribers` are told of every image,
as `Roles` says. Requests may be handled from the first on, and `run` lets time pass. `shutdown()` stops
fetchers, flushes, writes checkpoints and closes the logs. The caller then writes the clean-shutdown markers
and unlocks the directories.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from uuid import UUID

from sparklog.clocks import monotonic_ms, wall_clock_ms
from sparklog.config import BrokerConfig
from sparklog.endpoints import Endpoint
from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.coordinators import Coordinators
from sparklog.executor.coordinators.transactions.api.asking import NewProducerId, nobody_allocates
from sparklog.executor.fetching.fetchers import Fetchers
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.logs.log_store import LogStore
from sparklog.executor.logs.log_upkeep import LogUpkeep
from sparklog.executor.metadata.publisher import MetadataSubscriber
from sparklog.executor.moving.directory_copying import CopyServices
from sparklog.executor.moving.directory_moves import DirectoryMoves
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.isr_checks import IsrChecks
from sparklog.executor.partitions.isr_proposer import IsrProposer
from sparklog.executor.partitions.lease import Lease
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.partition_counts import PartitionCounts
from sparklog.executor.partitions.producer_loads import ProducerLoads
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.replica_host import ReplicaHost
from sparklog.executor.partitions.replication_quotas import ReplicationQuotas
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.roles import Roles
from sparklog.executor.partitions.settings import TopicSettings
from sparklog.executor.partitions.storage_failures import StorageFailures
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.partitions.traffic import BrokerTraffic, TrafficMeters
from sparklog.executor.verification.add_partitions_sender import AddPartitionsSender
from sparklog.executor.verification.transaction_verifier import TransactionVerifier
from sparklog.metrics import server
from sparklog.metrics.registry import MetricRegistry
from sparklog.security.inside import ApplicationSecret
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import BrokerEpoch, BrokerId, TopicIdPartition
from sparklog.wire.insider import STRANGER, Insider

logger = logging.getLogger(__name__)

TICK_MS: Final = 200
EXAMINERS: Final = 2
"""How many threads look into batches: so many are decompressed at a time, at most."""


class Replicas:
    """All replicas of one broker."""

    def __init__(
        self,
        node_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        directories: Sequence[LogDirectory],
        config: BrokerConfig,
        isr_proposer: IsrProposer,
        suspicions: BrokerSuspicions,
        *,
        assign: Callable[[TopicIdPartition, UUID], None] = lambda key, directory_id: None,
        on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None,
        holds_lease: Callable[[int], bool] = lambda now_ms: True,
        new_producer_id: NewProducerId = nobody_allocates,
        secret: ApplicationSecret | None = None,
    ) -> None:
        """Serve what lies in `directories`.

        `assign` tells the controller in which directory a replica lies; `on_directory_failed` hears once of
        each directory that goes offline; `new_producer_id` obtains an id that nobody has had. `holds_lease`
        is asked, with the monotonic time in milliseconds, before anything is done as a leader. By the
        `secret` other brokers know this one; None to those that do not ask.
        """
        insider = STRANGER if secret is None else Insider.to(config.inter_broker_protocol, secret)
        self.metrics = MetricRegistry()
        """The broker's instruments: whoever works on replicas adds its own."""
        self.executor = ThreadPoolExecutor(config.background_threads, "sparklog-log")
        """Waits for disks."""
        self.examiners = ThreadPoolExecutor(EXAMINERS, "sparklog-examiner")
        """Look into batches before they are appended."""
        self.delayed = DelayedOperations(asyncio.get_running_loop())
        self.table = PartitionTable(config.inter_broker_listener)
        self.reports = DirectoryReports(node_id, assign)
        self.store = LogStore(
            directories,
            self.executor,
            lambda failed, error: self.failures.directory_failed(failed, error),  # noqa: PLW0108
        )
        self.failures = StorageFailures(
            node_id, self.table, self.reports, self.store.directory_of, self._directory_failed
        )
        self._on_directory_failed = on_directory_failed
        self.lease = Lease(self.table, holds_lease, monotonic_ms)
        self._config = config
        self._settings = TopicSettings(config)
        self._upkeep = LogUpkeep(
            node_id,
            self.table,
            directories,
            self.store.directory_of,
            self.failures.directory_failed,
            config,
            self.metrics,
        )
        self._isr_checks = IsrChecks(self.table, isr_proposer, config.replica_lag_time_max_ms)
        self.replication_quotas = ReplicationQuotas(node_id, config)
        self._fetchers = Fetchers(
            node_id, broker_epoch, self.table, config, suspicions, self.replication_quotas.follower, insider
        )
        self._producer_loads = ProducerLoads(
            self.table,
            self.store.directory_of,
            self._upkeep.lower_checkpoints,
            self._fetchers.add,
            self.executor,
        )
        self.coordinators = Coordinators(
            node_id, config, self.executor, self.lease.obey, self.table, new_producer_id, insider
        )
        copied_at_a_time = config.num_replica_alter_log_dirs_threads or len(directories)
        self._copiers = ThreadPoolExecutor(copied_at_a_time, "sparklog-alter-log-dirs")
        self.directory_moves = DirectoryMoves(
            CopyServices(
                broker_id=node_id,
                table=self.table,
                store=self.store,
                reports=self.reports,
                quota=self.replication_quotas.alter_log_dirs,
                turns=asyncio.Semaphore(copied_at_a_time),
                executor=self._copiers,
                lower_checkpoints=self._upkeep.lower_checkpoints,
                checkpoint=self._upkeep.checkpoint,
                on_failed=self.failures.directory_failed,
            )
        )
        counts = PartitionCounts()
        self.listeners: list[RoleListener[Replica]] = [
            self._fetchers,
            self._isr_checks,
            self._producer_loads,
            counts,
            *self.coordinators.listeners,
            self.directory_moves,
        ]
        """Whoever hears of roles, in this order; more may be added before the first image."""

        def connections(purpose: str) -> BrokerConnections:
            client_id = f"broker-{node_id}-{purpose}"
            return BrokerConnections(client_id, self._endpoint_of, config.request_timeout_ms, insider)

        self.transaction_verifier = TransactionVerifier(
            AddPartitionsSender(
                connections("transactions"),
                connections("slow-transactions"),
                lambda: self.table.image,
                self.metrics,
            ),
            wall_clock_ms,
            retry_backoff_ms=config.add_partitions_to_txn_retry_backoff_ms,
            retry_timeout_ms=min(
                config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms
            ),
        )
        """Asks coordinators whether transactions may begin in partitions that are led here."""
        traffic = BrokerTraffic()
        host = ReplicaHost(
            broker_id=node_id,
            broker_epoch=broker_epoch,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            now_ms=monotonic_ms,
            listeners=self.listeners,
            propose_isr=self._isr_checks.propose,
            load_producers=self._producer_loads.start,
            log_failed=self.failures.log_failed,
            log_damaged=self.failures.log_damaged,
            traffic=traffic,
        )
        self.metrics.gauge(server.PARTITION_COUNT, lambda: len(self.table))
        self.metrics.gauge(server.PURGATORY_SIZE, lambda: len(self.delayed))
        meters = TrafficMeters(traffic, self.table.has_topic)
        for source in (
            counts,
            meters,
            self._isr_checks,
            self._fetchers,
            self.directory_moves,
            self.coordinators,
        ):
            self.metrics.add_source(source.samples)
        self._roles = Roles(host, self.table, self.store, self._settings, self.reports, self.lease)
        self.subscribers: Sequence[MetadataSubscriber] = (
            self.replication_quotas,
            self._roles,
            self._upkeep,
            self._fetchers,
            self.coordinators,
            self.directory_moves,
        )
        """Whoever is to be told of metadata, in this order."""

    def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        found = self.table.endpoint(broker_id)
        return None if found is None else found[0]

    async def start(self) -> None:
        """Load every log of every directory, off the loop."""
        # No image says yet what the topics' own configurations are.
        await self.store.load(
            lambda topic: self._settings.defaults.log, self._config.num_recovery_threads_per_data_dir
        )

    async def run(self) -> None:
        """Let time pass, until cancelled."""
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.tick(monotonic_ms())

    def tick(self, now_ms: int) -> None:
        """Do what is due; `now_ms` is the monotonic time."""
        self.lease.obey()
        self._isr_checks.tick(now_ms)
        self._roles.tick(now_ms)
        self._upkeep.tick(now_ms)

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
        await self.transaction_verifier.close()
        await self._producer_loads.stop()
        await self._upkeep.stop()
        started = time.monotonic()
        await self._upkeep.write_checkpoints()
        for replica in self.table:
            if replica.offline:
                self.store.directory_of(replica.log).has_unclosed_logs = True
        # Side by side: each waits for its disk, and Spark gives a worker little time.
        await asyncio.gather(
            *(self.store.close(replica.log) for replica in self.table if not replica.offline),
            *(self.store.close(log) for log in self.directory_moves.copies),
            self.store.close_unclaimed(),
        )
        await self._upkeep.write_checkpoints()
        self._upkeep.close()
        self.executor.shutdown(wait=False)
        self._copiers.shutdown(wait=False)
        self.examiners.shutdown(wait=False)
        logger.info("%d logs closed in %.1f s", len(self.table), time.monotonic() - started)
