"""Every partition replica of this broker, and the handlers of the requests that touch them.

Order for callers: `start()` loads the logs of all directories; then `apply` for every image, in
order, one call at a time. The first image must have caught up with the controller: a log that it does not
give to this broker is set aside as stray. Requests may be handled from then on. `tick` runs every few
hundred milliseconds. `shutdown()` stops fetchers, flushes, writes checkpoints and closes the logs; the
caller then writes the clean-shutdown markers and unlocks the directories.

Logs are created, recovered and deleted off the loop; roles change on it. Whatever is done for many replicas
is done in slices, so that requests and heartbeats are served in between, by replicas some of which obey the
new image already. What must keep together is one replica's (its role and settings of one image), and what
must not come early comes after all slices of what goes before (`_apply_configs`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom
from types import GeneratorType
from typing import Any, Final
from uuid import UUID

from executor.api.delete_records import DeleteRecordsHandler
from executor.api.describe_log_dirs import describe_log_dirs
from executor.api.fetch import FetchHandler
from executor.api.list_offsets import ListOffsetsHandler
from executor.api.machine.fetch_sessions import LARGEST, FetchSessions
from executor.api.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from executor.api.produce import ProduceHandler
from executor.control.suspected_brokers import BrokerSuspicions
from executor.fetching.fetchers import Fetchers
from executor.logs.log_checkpoints import CheckpointIntervals
from executor.logs.log_store import LogStore
from executor.logs.maintenance import Maintenance, MaintenanceIntervals
from executor.partitions.delayed_operations import DelayedOperations
from executor.partitions.isr_proposer import IsrProposer
from executor.partitions.log_end import log_end
from executor.partitions.machine.directory_reports import DirectoryReports
from executor.partitions.machine.events import (
    BrokersChanged,
    BrokerStatus,
    IsrProposalAnswered,
    ProposeIsr,
    Ticked,
)
from executor.partitions.producer_loads import ProducerLoads
from executor.partitions.replica import Replica
from executor.partitions.settings import PartitionSettings
from executor.partitions.table import PartitionTable
from sparklog.config import BrokerConfig, topic_config
from sparklog.errors import KafkaError
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import MetadataImage, PartitionRegistration, ResourceType, TopicImage
from sparklog.metadata_log.machine.log_position import LogPosition
from sparklog.slices import in_slices
from sparklog.storage.log_config import LogConfig
from sparklog.storage.log_directory import LogDirectory
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, TopicIdPartition, TopicPartition
from sparklog.wire.requests import Request, Steps

logger = logging.getLogger(__name__)

OPENED_TOGETHER: Final = 64
"""How many logs are opened or deleted side by side: enough for the threads that do it."""
EXAMINERS: Final = 2
"""How many threads look into batches: so many are decompressed at a time, at most."""
_LOGGED_ROLES: Final = 100
"""The most partitions of one metadata change whose new roles are logged one by one."""


class Replicas:
    """All replicas of one broker."""

    def __init__(
        self,
        node_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        directories: Sequence[LogDirectory],
        broker_config: BrokerConfig,
        isr_proposer: IsrProposer,
        suspicions: BrokerSuspicions,
        loop: asyncio.AbstractEventLoop,
        *,
        inter_broker_listener_name: str | None = None,
        assign: Callable[[TopicIdPartition, UUID], None] = lambda key, directory_id: None,
        on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None,
        holds_lease: Callable[[int], bool] = lambda now_ms: True,
    ) -> None:
        """Serve what lies in `directories`.

        `assign` tells the controller in which directory a replica lies; `on_directory_failed` hears once of
        each directory that goes offline. `holds_lease` is asked, with the loop's monotonic time in
        milliseconds, before anything is done as a leader.
        """
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._config = broker_config
        self._isr_proposer = isr_proposer
        listener_name = inter_broker_listener_name or broker_config.inter_broker_listener
        self._executor = ThreadPoolExecutor(broker_config.background_threads, "sparklog-log")
        self._delayed = delayed = DelayedOperations(loop)
        self._table = table = PartitionTable(listener_name)
        self._store = LogStore(directories, self._executor, self.directory_failed)
        self._reports = DirectoryReports(node_id, assign)
        self._on_directory_failed = on_directory_failed
        self._brokers: dict[BrokerId, BrokerStatus] = {}
        self._default_settings = PartitionSettings.of(topic_config(broker_config, {}))
        self._settings: dict[str, PartitionSettings] = {}
        """Of the topics with a configuration of their own."""
        self._wants_tick: dict[Replica, None] = {}
        self._isr_check_due_ms = 0
        self._isr_check: asyncio.Task[None] | None = None
        self._holds_lease = holds_lease
        self._leads = True
        self._has_image = False
        self._fetchers = Fetchers(node_id, broker_epoch, table, broker_config, suspicions)
        sessions = FetchSessions(
            lambda: SystemRandom().randint(1, LARGEST),
            slots=broker_config.max_incremental_fetch_session_cache_slots,
        )
        self.examiners = ThreadPoolExecutor(EXAMINERS, "sparklog-examiner")
        """Look into batches before they are appended."""
        self._produce = ProduceHandler(
            table,
            delayed,
            self.examiners,
            max_decompressed_bytes=broker_config.message_max_decompressed_bytes,
        )
        self._fetch = FetchHandler(
            table,
            delayed,
            sessions,
            self._executor,
            max_response_bytes=broker_config.fetch_max_bytes,
        )
        self._list_offsets = ListOffsetsHandler(table, self._executor)
        self._offset_for_leader_epoch = OffsetForLeaderEpochHandler(table)
        self._delete_records = DeleteRecordsHandler(table, delayed)
        self._maintenance = Maintenance(
            table,
            directories,
            self._store.directory_of,
            self.directory_failed,
            MaintenanceIntervals(
                retention_ms=broker_config.log_retention_check_interval_ms,
                producer_expiration_ms=broker_config.producer_id_expiration_check_interval_ms,
                checkpoints=CheckpointIntervals(
                    high_watermarks_ms=broker_config.replica_high_watermark_checkpoint_interval_ms,
                    recovery_points_ms=broker_config.log_flush_offset_checkpoint_interval_ms,
                    log_start_offsets_ms=broker_config.log_flush_start_offset_checkpoint_interval_ms,
                ),
                flush_by_time_ms=broker_config.flush_check_interval_ms,
            ),
            self._executor,
        )
        self._producer_loads = ProducerLoads(
            table,
            self._store.directory_of,
            self._maintenance.lower_recovery_point,
            self._fetchers.add,
            self._executor,
        )

    async def start(self) -> None:
        """Load every log of every directory, off the loop."""
        await self._store.load(self._settings_for_unknown, self._config.num_recovery_threads_per_data_dir)

    # --- requests -------------------------------------------------------------------------------

    def handle_produce(self, request: Request) -> Any:
        """Answer Produce 3 to 13."""
        self._obey_lease()
        return self._under_lease(self._produce.handle(request))

    def handle_fetch(self, request: Request) -> Any:
        """Answer Fetch 4 to 18."""
        self._obey_lease()
        return self._under_lease(self._fetch.handle(request))

    def handle_list_offsets(self, request: Request) -> Any:
        """Answer ListOffsets 1 to 11."""
        self._obey_lease()
        return self._under_lease(self._list_offsets.handle(request))

    def handle_offset_for_leader_epoch(self, request: Request) -> Any:
        """Answer OffsetForLeaderEpoch 2 to 4."""
        self._obey_lease()
        return self._under_lease(self._offset_for_leader_epoch.handle(request))

    def handle_delete_records(self, request: Request) -> Any:
        """Answer DeleteRecords 0 to 2."""
        self._obey_lease()
        return self._under_lease(self._delete_records.handle(request))

    def handle_describe_log_dirs(self, request: Request) -> Any:
        """Answer DescribeLogDirs 1 to 5."""
        return describe_log_dirs(request, self._table, self._store)

    def _under_lease(self, answer: Any) -> Any:
        """Have the lease looked at before each step of an answer that is made in steps."""
        return self._steps_under_lease(answer) if isinstance(answer, GeneratorType) else answer

    def _steps_under_lease(self, steps: Steps) -> Steps:
        while True:
            try:
                step = next(steps)
            except StopIteration as last:
                return self._under_lease(last.value)
            yield step
            self._obey_lease()

    def replica(self, topic_id: UUID, partition: int) -> Replica | None:
        """Return this broker's replica of a partition, if it has one."""
        return self._table.get(topic_id, partition)

    def log_end(self, topic: str, partition: int, leader_epoch: LeaderEpoch) -> LogPosition:
        """Return how far a replica's log reaches (`executor.partitions.log_end`)."""
        return log_end(self._table, topic, partition, leader_epoch)

    @property
    def leader_count(self) -> int:
        """How many partitions this broker leads."""
        return sum(replica.leader is not None for replica in self._table)

    @property
    def offline_partitions(self) -> list[TopicPartition]:
        """The partitions whose logs failed."""
        return [replica.topic_partition for replica in self._table if replica.offline]

    @property
    def undeclared_damage(self) -> int:
        """How many replicas the controller may still take for whole that are not (`DirectoryReports`)."""
        return self._reports.undeclared

    # --- metadata -------------------------------------------------------------------------------

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Make this broker's replicas what `image` says; `delta` names what changed since the last call."""
        first = not self._has_image
        self._has_image = True
        self._table.image = image
        if delta.changed_brokers or first:
            await self._apply_brokers(image)
        reconfigured = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        for name in reconfigured:
            self._settings.pop(name, None)
        await self._delete(image, delta)
        changed: list[tuple[TopicImage, int]] = []
        async for part in in_slices(_changed_partitions(image, delta, everything=first)):
            for topic, partition in part:
                replica = self._table.get(topic.topic_id, partition)
                if self._node_id in topic.partitions[partition].replicas:
                    changed.append((topic, partition))
                elif replica is not None:
                    await self._drop(replica)
                else:
                    self._reports.forget(TopicIdPartition(topic.topic_id, partition))
        self._reports.own_directories = tuple(
            directory.meta.directory_id for directory in self._store.online if directory.meta is not None
        )
        await self._open_missing(changed)
        in_new_epoch: list[Replica] = []
        async for part in in_slices(changed):
            for topic, partition in part:
                replica = self._table.get(topic.topic_id, partition)
                if replica is not None and not replica.offline:
                    leader_epoch = replica.leader_epoch
                    settings = self._settings_of(image, topic.name)
                    self._change_role(replica, topic.partitions[partition], settings)
                    if replica.leader_epoch != leader_epoch:
                        in_new_epoch.append(replica)
                key = TopicIdPartition(topic.topic_id, partition)
                self._reports.image_changed(key, topic.partitions[partition])
        # Not before the roles of the same image: a leader that is none any more must not obey a smaller
        # min.insync.replicas that was decided after it.
        await self._apply_configs(image, reconfigured)
        _log_roles(in_new_epoch)
        if first:
            await self._store.remove_strays()
            self._maintenance.start(self._delayed.now_ms())
        await self._fetchers.reconcile()

    async def _apply_brokers(self, image: MetadataImage) -> None:
        self._brokers = {broker.broker_id: BrokerStatus.of(broker) for broker in image.brokers.values()}
        async for part in in_slices(self._table):
            for replica in part:
                replica.handle(BrokersChanged(self._brokers, self._delayed.now_ms()))
        self._delete_records.brokers_changed()

    async def _apply_configs(self, image: MetadataImage, topics: Iterable[str]) -> None:
        """Obey changed topic configurations; who has changed its role knows its own already."""
        for name in topics:
            topic = image.topics.by_name.get(name)
            if topic is None:
                continue
            settings = self._settings_of(image, name)
            async for part in in_slices(self._table.of_topic(topic.topic_id)):
                for replica in part:
                    if not replica.offline:
                        replica.reconfigure(settings, self._delayed.now_ms())

    async def _delete(self, image: MetadataImage, delta: MetadataDelta) -> None:
        gone = (replica for topic_id in delta.deleted_topics for replica in self._table.of_topic(topic_id))
        async for part in in_slices(gone, OPENED_TOGETHER):
            await asyncio.gather(*(self._drop(replica) for replica in part))
        async for topics in in_slices(delta.deleted_topics.items()):
            for topic_id, name in topics:
                self._reports.forget_topic(topic_id)
                if name not in image.topics.by_name:
                    self._settings.pop(name, None)

    async def _drop(self, replica: Replica) -> None:
        """The replica is no longer this broker's."""
        self._fetchers.remove(replica)
        self._table.remove(replica)
        self._wants_tick.pop(replica, None)
        replica.resign()
        replica.close_readers()
        self._delete_records.low_watermark_moved(replica)
        self._reports.forget(replica.key)
        await self._store.delete(replica.log)

    async def _open_missing(self, partitions: Sequence[tuple[TopicImage, int]]) -> None:
        """Open the logs that are not open yet, side by side."""
        missing = [
            (topic, partition)
            for topic, partition in partitions
            if self._table.get(topic.topic_id, partition) is None
        ]
        async for part in in_slices(missing, OPENED_TOGETHER):
            await asyncio.gather(*(self._open(topic, partition) for topic, partition in part))

    async def _open(self, topic: TopicImage, partition: int) -> None:
        settings = self._settings_of(self._table.image, topic.name)
        topic_partition = TopicPartition(topic.name, partition)
        key = TopicIdPartition(topic.topic_id, partition)
        told_directory = topic.partitions[partition].directory_of(self._node_id)
        try:
            log, high_watermark = await self._store.open(
                topic_partition, topic.topic_id, settings.log, told_directory
            )
        except (KafkaError, OSError) as error:
            logger.error("%s is offline, its log cannot be opened: %s", topic_partition, error)
            self._reports.lost(key)
            return
        directory = self._store.directory_of(log)
        if directory.meta is not None:
            self._reports.opened(key, directory.meta.directory_id, damaged=log.missing is not None)
        replica = Replica(
            topic.topic_id, log, settings, self, high_watermark=high_watermark, broker_id=self._node_id
        )
        if not self._leads:
            replica.suspend()
        self._table.add(replica)

    def _change_role(
        self, replica: Replica, registration: PartitionRegistration, settings: PartitionSettings
    ) -> None:
        if replica.partition_epoch is not None and registration.partition_epoch < replica.partition_epoch:
            # The controller's answer to a proposal has already told more than this image.
            return
        if replica.damage is not None:
            if self._node_id in (registration.leader, *registration.isr):
                # The controller has not heard of it yet.
                return
            replica.repair()
            if replica.offline:
                return
        self._fetchers.remove_if_changed(replica, registration)
        if registration.leader == self._node_id:
            replica.lead(
                registration,
                settings,
                self._brokers,
                self._broker_epoch(),
                self._config.replica_lag_time_max_ms,
                self._delayed.now_ms(),
            )
        else:
            replica.follow(registration, settings)
            self._fetchers.add(replica)
        self._delete_records.low_watermark_moved(replica)

    def _settings_of(self, image: MetadataImage, topic: str) -> PartitionSettings:
        own = image.topic_configs(topic)
        if not own:
            return self._default_settings
        settings = self._settings.get(topic)
        if settings is None:
            settings = self._settings[topic] = PartitionSettings.of(topic_config(self._config, own))
        return settings

    def _settings_for_unknown(self, _: str) -> LogConfig:
        """What a log is loaded with before the first image: the broker's defaults."""
        return self._default_settings.log

    # --- what replicas ask for ------------------------------------------------------------------

    def propose_isr(self, replica: Replica, proposal: ProposeIsr) -> None:
        """Send a leader's proposal to the controller."""

        def answered(answer: IsrProposalAnswered) -> None:
            replica.isr_proposal_answered(answer)
            if replica.leader is not None and replica.leader.wants_tick:
                self._wants_tick[replica] = None

        logger.info("%s: proposing the ISR %s", replica, [broker_id for broker_id, _ in proposal.new_isr])
        self._isr_proposer.propose(replica.key, proposal, answered)

    def low_watermark_moved(self, replica: Replica) -> None:
        """A follower of a leader here reported another log start offset."""
        self._delete_records.low_watermark_moved(replica)

    def went_offline(self, replica: Replica, error: BaseException) -> None:
        """The log of a replica failed; with it, if the disk is why, the directory.

        Whatever worked on the log beside the loop may tell so after the replica was given up.
        """
        directory = self._store.directory_of(replica.log)
        key = replica.key
        if replica in self._table:
            self._fetchers.remove(replica)
            self._note_failure(replica, error, key, directory)
        if directory.is_failed_by(error):
            self.directory_failed(directory, error)

    def _note_failure(
        self, replica: Replica, error: BaseException, key: TopicIdPartition, directory: LogDirectory
    ) -> None:
        registration = self._table.image.topics.partition(*key)
        told = None if registration is None else registration.directory_of(self._node_id)
        if not directory.is_failed_by(error) or directory.meta is None or told != directory.meta.directory_id:
            # The controller does not learn of it by the directory.
            self._reports.lost(key)
            if registration is not None:
                self._reports.image_changed(key, registration)

    def load_producers(self, replica: Replica) -> None:
        """A log was cut, and its producers are to be made out anew."""
        self._producer_loads.start(replica)

    def gave_up_leading(self, replica: Replica) -> None:
        """A leader found its log damaged: the controller is to elect another one."""
        key = replica.key
        self._reports.damaged(key)
        registration = self._table.image.topics.partition(*key)
        if registration is not None:
            self._reports.image_changed(key, registration)

    def directory_failed(self, directory: LogDirectory, error: BaseException) -> None:
        """The disk of a directory failed; whatever lies in it is offline until the broker starts anew."""
        if not directory.fail(error):
            return
        for replica in self._table:
            if not replica.offline and self._store.directory_of(replica.log) is directory:
                self._fetchers.remove(replica)
                replica.go_offline()
        self._on_directory_failed(directory)

    # --- time -----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Check lease and ISRs, start the maintenance that is due. `now_ms` is the loop's monotonic time."""
        self._obey_lease()
        if self._isr_check is not None and self._isr_check.done():
            self._isr_check.result()
            self._isr_check = None
        if self._isr_check is None:
            is_due = now_ms >= self._isr_check_due_ms
            if is_due:
                self._isr_check_due_ms = now_ms + max(1, self._config.replica_lag_time_max_ms // 2)
            to_check = tuple(self._table if is_due else self._wants_tick)
            self._wants_tick.clear()
            if to_check:
                self._isr_check = asyncio.get_running_loop().create_task(_check_isrs(to_check, now_ms))
        self._maintenance.tick(now_ms)

    def _obey_lease(self) -> None:
        """Lead while the lease holds: acknowledge and serve nothing when it has run out, others may lead.

        Ticks alone would not do: a process that was stopped finds its requests before its timers. Once the
        lease holds again, what no later metadata gave to others is led on.
        """
        leads = self._holds_lease(self._delayed.now_ms())
        if leads is self._leads:
            return
        self._leads = leads
        if not leads:
            logger.warning("The lease has run out: %d partitions are led no more for now", self.leader_count)
        for replica in self._table:
            if leads:
                replica.resume()
            else:
                replica.suspend()

    async def shutdown(self) -> None:
        """Stop fetching and serving, flush every log, write the checkpoints, close the logs."""
        await self._fetchers.stop()
        if self._isr_check is not None:
            await asyncio.gather(self._isr_check, return_exceptions=True)
        for replica in self._table:
            replica.resign()
        self._delayed.expire_all()
        await self._producer_loads.stop()
        await self._maintenance.stop()
        started = time.monotonic()
        await self._maintenance.write_checkpoints()
        for replica in self._table:
            if replica.offline:
                self._store.directory_of(replica.log).has_unclosed_logs = True
        # Side by side: each waits for its disk, and Spark gives a worker little time.
        await asyncio.gather(
            *(self._store.close(replica.log) for replica in self._table if not replica.offline),
            self._store.close_unclaimed(),
        )
        await self._maintenance.write_checkpoints()
        self._executor.shutdown(wait=False)
        self.examiners.shutdown(wait=False)
        logger.info("%d logs closed in %.1f s", len(self._table), time.monotonic() - started)


async def _check_isrs(replicas: Iterable[Replica], now_ms: int) -> None:
    async for part in in_slices(replicas):
        for replica in part:
            replica.handle(Ticked(now_ms))


def _log_roles(replicas: Sequence[Replica]) -> None:
    """Log what replicas do in their new leader epochs; of many only how many: lines cost more than roles."""
    if len(replicas) <= _LOGGED_ROLES:
        for replica in replicas:
            logger.info("%s", replica.role())
    else:
        led = sum(replica.leader is not None for replica in replicas)
        logger.info("Leading %d partitions in new epochs, following %d", led, len(replicas) - led)


def _changed_partitions(
    image: MetadataImage, delta: MetadataDelta, *, everything: bool
) -> list[tuple[TopicImage, int]]:
    if everything:
        return [(topic, partition) for topic in image.topics.by_id.values() for partition in topic.partitions]
    changed = []
    for topic_id, partitions in delta.changed_topics.items():
        topic = image.topics.by_id[topic_id]
        changed += [(topic, partition) for partition in sorted(partitions) if partition in topic.partitions]
    return changed
