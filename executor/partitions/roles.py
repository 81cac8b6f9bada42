"""The logs and roles of this broker's replicas, as the metadata assigns them.

Order for the caller: `apply` for every image, in order, one call at a time. The first image must
have caught up with the controller: a log that it does not give to this broker is set aside as stray.

Logs are opened and deleted off the loop; roles change on it. Work on many replicas is done in slices, so that
requests and heartbeats are served in between, by replicas some of which obey the new image already. A
replica's role and settings of one image change together, and work that must not come early follows all slices
of the work before it (`_apply_configs`).

Roles do not wait for disks: a leader that a slow disk keeps from learning of its election answers no
producer. So the replicas whose logs are open change their roles first, and replicas that move away refuse
requests. Then logs are deleted and opened, in the order of the images; the roles of an image wait for the
files of those before it for `FILES_WAIT_S` at most. A log that is open at last gets its role from the present
image.

A log that cannot be opened is reported as lost. Where the system refused it for a reason that may pass (no
descriptors, no memory), it is tried again until it is there: `tick`, and `stop` before the logs are closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from math import inf
from typing import Any, Final, Protocol
from uuid import UUID

from sparklog.executor.loop.slices import SLICE_ITEMS, in_slices
from sparklog.executor.partitions.lease import Lease
from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.machine.events import RegisteredBroker
from sparklog.executor.partitions.replica import Replica, ReplicaHost
from sparklog.executor.partitions.settings import PartitionSettings, TopicSettings
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.loop.garbage import without_collections
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import (
    EMPTY_IMAGE,
    MetadataImage,
    PartitionRegistration,
    ResourceType,
    TopicImage,
)
from sparklog.node.storage.files import is_transient
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId, Offset, TopicIdPartition, TopicPartition

logger = logging.getLogger(__name__)

FILES_WAIT_S: Final = 0.05
"""How long an image waits for its logs to be opened and deleted: a new topic is usually there with it."""
OPENED_TOGETHER: Final = 64
"""How many logs are opened or deleted side by side, or begin in a row: enough for the threads that do it."""
RECONFIGURED_TOGETHER: Final = 32
"""How many topics obey their new configurations in a row: to read one takes long."""
RETRY_INTERVAL_MS: Final = 1000
"""How often logs are tried again that the system would not open."""
_LOGGED_ROLES: Final = 100
"""The most partitions of one metadata change whose new roles are logged one by one."""


class PartitionLogs(Protocol):
    @property
    def online_ids(self) -> tuple[UUID, ...]:
        """The ids of the online directories."""

    def directory_id_of(self, log: Log) -> UUID | None:
        """Return the id of a log's directory."""

    def begin(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> Log | None:
        """Begin the log of a partition of which nothing is on a disk; None if something is, or may be."""

    async def open(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        assigned_directory: UUID | None,
    ) -> tuple[Log, Offset]:
        """Return the log of a partition and its last known high watermark.

        Raises:
            KafkaError, OSError: it cannot be opened.
        """

    async def delete(self, log: Log) -> None: ...

    def begin_work(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work on files, once all that was begun before is done."""

    async def end_work(self, timeout_s: float | None) -> None:
        """Wait until all work is done, for `timeout_s` at most if that is not None; raise its error."""

    async def remove_strays(self) -> None:
        """Delete the logs that no replica has opened."""

    async def side_by_side(self, work: Iterable[Awaitable[None]]) -> None:
        """Run jobs concurrently, each of which waits for a disk."""


class Roles:
    """The logs that one broker opens and drops, and the roles of its replicas."""

    def __init__(
        self,
        host: ReplicaHost,
        table: PartitionTable,
        logs: PartitionLogs,
        settings: TopicSettings,
        reports: DirectoryReports,
        lease: Lease,
    ) -> None:
        self._host = host
        self._table = table
        self._logs = logs
        self._settings = settings
        self._reports = reports
        self._lease = lease
        self._brokers: dict[BrokerId, RegisteredBroker] = {}
        self._changing = asyncio.Lock()
        self._refused: dict[TopicIdPartition, None] = {}
        """Partitions whose logs the system would not open for now."""
        self._retry_due_ms = 0
        self._retrying: asyncio.Task[None] | None = None

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply an image to this broker's replicas; `delta` names the changes since the last call."""
        first = self._table.image is EMPTY_IMAGE
        async with self._changing:
            await self._apply(image, delta, first=first)
        if first:
            await self._logs.end_work(None)
            await self._logs.remove_strays()
        else:
            await self._logs.end_work(FILES_WAIT_S)

    @property
    def next_due_ms(self) -> float:
        """The time at which refused logs are tried again; infinity if there are none."""
        return self._retry_due_ms if self._refused else inf

    def tick(self, now_ms: int) -> None:
        """Retry the opening of refused logs at intervals. `now_ms` is the loop's monotonic time."""
        if self._refused and now_ms >= self._retry_due_ms and (not self._retrying or self._retrying.done()):
            self._retry_due_ms = now_ms + RETRY_INTERVAL_MS
            self._retrying = asyncio.get_running_loop().create_task(self._open_refused())

    async def stop(self) -> None:
        """Return when no log is opened or deleted any more; an error of that work is logged."""
        self._refused.clear()
        if self._retrying is not None:
            await asyncio.gather(self._retrying, return_exceptions=True)  # its error is that of the work
        try:
            await self._logs.end_work(None)
        except Exception:
            logger.exception("Logs could not be opened or deleted; those that are open are closed now")

    async def _open_refused(self) -> None:
        """Open the refused logs one after the other, up to the next refusal."""
        while self._refused:
            key = next(iter(self._refused))
            self._logs.begin_work(self._work_on_files((), [key]))
            await self._logs.end_work(None)
            if self._assignment(self._table.image, key) is None:
                self._refused.pop(key, None)
            elif key in self._refused:
                return

    async def _apply(self, image: MetadataImage, delta: MetadataDelta, *, first: bool) -> None:
        self._table.image = image
        if delta.changed_brokers or first:
            await self._apply_brokers(image)
        reconfigured = {name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC}
        if delta.reconfigures_broker(self._host.broker_id):
            self._settings.reconfigure(image, self._host.broker_id)
            reconfigured = set(image.topics.by_name)
        for name in reconfigured:
            self._settings.forget(name)
        gone = await self._delete_topics(image, delta)
        assigned, moved_away = await self._assigned(_changed_partitions(image, delta, everything=first))
        gone += moved_away
        self._reports.own_directories = self._logs.online_ids
        in_new_epoch: list[Replica] = []
        missing = await self._take_up(image, assigned, in_new_epoch, begins=not gone)
        _log_roles(in_new_epoch)
        # Not before the roles of the same image: a leader that is none any more must not obey a smaller
        # min.insync.replicas that was decided after it.
        await self._apply_configs(image, reconfigured)
        if gone or missing:
            self._logs.begin_work(self._work_on_files(gone, missing))

    async def _take_up(
        self,
        image: MetadataImage,
        assigned: Sequence[tuple[TopicImage, int]],
        in_new_epoch: list[Replica],
        *,
        begins: bool = False,
    ) -> list[TopicIdPartition]:
        """Lead or follow the partitions whose logs are open, or need no file for now; return the others.

        Replicas in new leader epochs are added to `in_new_epoch`. With `begins` no log of this image has to
        be deleted before, whose topic may have had the same name.
        """
        missing: list[TopicIdPartition] = []
        async for part in in_slices(assigned, OPENED_TOGETHER if begins else SLICE_ITEMS):
            with without_collections() as step:
                missing += self._take_up_slice(image, part, in_new_epoch, begins=begins)
                step.lasting_count = len(part)
        return missing

    def _take_up_slice(
        self,
        image: MetadataImage,
        assigned: Sequence[tuple[TopicImage, int]],
        in_new_epoch: list[Replica],
        *,
        begins: bool,
    ) -> list[TopicIdPartition]:
        missing: list[TopicIdPartition] = []
        for topic, partition in assigned:
            key = TopicIdPartition(topic.topic_id, partition)
            replica = self._table.get(*key)
            if replica is None and begins:
                replica = self._begin(image, topic, partition)
            if replica is None:
                missing.append(key)
                continue
            registration = topic.partitions[partition]
            if not replica.offline:
                leader_epoch = replica.leader_epoch
                self._change_role(replica, registration, self._settings.of(image, topic.name))
                if replica.leader_epoch != leader_epoch:
                    in_new_epoch.append(replica)
            self._reports.image_changed(key, registration)
        return missing

    async def _apply_brokers(self, image: MetadataImage) -> None:
        self._brokers = {broker.broker_id: RegisteredBroker.of(broker) for broker in image.brokers.values()}
        async for part in in_slices(self._table):
            for replica in part:
                replica.brokers_changed(self._brokers)

    async def _apply_configs(self, image: MetadataImage, topics: Iterable[str]) -> None:
        """Apply changed topic configurations; a replica with a changed role has its own already."""
        async for names in in_slices(topics, RECONFIGURED_TOGETHER):
            for name in names:
                await self._reconfigure(image, name)

    async def _reconfigure(self, image: MetadataImage, name: str) -> None:
        topic = image.topics.by_name.get(name)
        if topic is None:
            return
        settings = self._settings.of(image, name)
        async for part in in_slices(self._table.of_topic(topic.topic_id)):
            for replica in part:
                if not replica.offline:
                    replica.reconfigure(settings)

    # --- which logs -----------------------------------------------------------------------------

    async def _delete_topics(self, image: MetadataImage, delta: MetadataDelta) -> list[Log]:
        """Give up the replicas of deleted topics; return their logs."""
        gone = await self._give_up(
            [replica for topic_id in delta.deleted_topics for replica in self._table.of_topic(topic_id)]
        )
        async for topics in in_slices(delta.deleted_topics.items()):
            for topic_id, name in topics:
                self._reports.forget_topic(topic_id)
                if name not in image.topics.by_name:
                    self._settings.forget(name)
        return gone

    async def _assigned(
        self, changed: Iterable[tuple[TopicImage, int]]
    ) -> tuple[list[tuple[TopicImage, int]], list[Log]]:
        """Return the changed partitions that this broker has, and the logs of those that it gives up."""
        assigned: list[tuple[TopicImage, int]] = []
        moved_away: list[Replica] = []
        async for part in in_slices(changed):
            for topic, partition in part:
                if self._host.broker_id in topic.partitions[partition].replicas:
                    assigned.append((topic, partition))
                elif (replica := self._table.get(topic.topic_id, partition)) is not None:
                    moved_away.append(replica)
                else:
                    self._reports.forget(TopicIdPartition(topic.topic_id, partition))
        return assigned, await self._give_up(moved_away)

    async def _give_up(self, replicas: Iterable[Replica]) -> list[Log]:
        """Let replicas refuse all requests; return their logs, which are to be deleted."""
        gone: list[Log] = []
        async for part in in_slices(replicas, OPENED_TOGETHER):
            for replica in part:
                self._table.remove(replica)
                replica.delete()
                self._reports.forget(replica.key)
                gone.append(replica.log)
        return gone

    # --- their files ----------------------------------------------------------------------------

    async def _work_on_files(self, gone: Sequence[Log], missing: Sequence[TopicIdPartition]) -> None:
        """Delete and open logs, and give the opened ones their roles."""
        async for logs in in_slices(gone, OPENED_TOGETHER):
            await self._logs.side_by_side(self._logs.delete(log) for log in logs)
        in_new_epoch: list[Replica] = []
        async for keys in in_slices(missing, OPENED_TOGETHER):
            await self._open_all([key for key in keys if self._table.get(*key) is None], in_new_epoch)
        _log_roles(in_new_epoch)

    async def _open_all(self, keys: Sequence[TopicIdPartition], in_new_epoch: list[Replica]) -> None:
        image = self._table.image
        assigned = [each for key in keys if (each := self._assignment(image, key)) is not None]
        await self._logs.side_by_side(self._open(image, *each) for each in assigned)
        async with self._changing:
            # Other images may have come meanwhile.
            image = self._table.image
            unwanted = [
                replica
                for key in keys
                if self._assignment(image, key) is None and (replica := self._table.get(*key)) is not None
            ]
            gone = await self._give_up(unwanted)
            assigned = [each for key in keys if (each := self._assignment(image, key)) is not None]
            for topic_id, partition in await self._take_up(image, assigned, in_new_epoch):
                # It could not be opened.
                registration = image.topics.by_id[topic_id].partitions[partition]
                self._reports.image_changed(TopicIdPartition(topic_id, partition), registration)
        await self._logs.side_by_side(self._logs.delete(log) for log in gone)

    def _assignment(self, image: MetadataImage, key: TopicIdPartition) -> tuple[TopicImage, int] | None:
        """Return the topic and the number of a partition that is assigned to this broker; None otherwise."""
        topic = image.topics.by_id.get(key.topic_id)
        registration = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or registration is None or self._host.broker_id not in registration.replicas:
            return None
        return topic, key.partition

    def _begin(self, image: MetadataImage, topic: TopicImage, partition: int) -> Replica | None:
        """Return the replica of a partition without a file; None if its log has to be opened."""
        key, name = TopicIdPartition(topic.topic_id, partition), TopicPartition(topic.name, partition)
        assigned_directory = topic.partitions[partition].directory_of(self._host.broker_id)
        settings = self._settings.of(image, topic.name)
        try:
            log = self._logs.begin(name, topic.topic_id, settings.log, assigned_directory)
        except KafkaError:
            return None
        return None if log is None else self._opened(key, log, settings, high_watermark=0)

    async def _open(self, image: MetadataImage, topic: TopicImage, partition: int) -> None:
        settings = self._settings.of(image, topic.name)
        key, name = TopicIdPartition(topic.topic_id, partition), TopicPartition(topic.name, partition)
        assigned_directory = topic.partitions[partition].directory_of(self._host.broker_id)
        try:
            opened = await self._logs.open(name, topic.topic_id, settings.log, assigned_directory)
        except (KafkaError, OSError) as error:
            if key not in self._refused:
                logger.error("%s is offline, its log cannot be opened: %s", name, error)
                self._reports.lost(key)
            if is_transient(error):
                self._refused[key] = None
            else:
                self._refused.pop(key, None)
            return
        if key in self._refused:
            del self._refused[key]
            logger.info("%s: its log could be opened at last", name)
        self._opened(key, opened[0], settings, high_watermark=opened[1])

    def _opened(
        self, key: TopicIdPartition, log: Log, settings: PartitionSettings, *, high_watermark: Offset
    ) -> Replica:
        directory_id = self._logs.directory_id_of(log)
        if directory_id is not None:
            self._reports.opened(key, directory_id, damaged=log.missing is not None)
        replica = Replica(key.topic_id, log, settings, self._host, high_watermark=high_watermark)
        if not self._lease.is_held:
            replica.suspend()
        self._table.add(replica)
        return replica

    # --- which role -----------------------------------------------------------------------------

    def _change_role(
        self, replica: Replica, registration: PartitionRegistration, settings: PartitionSettings
    ) -> None:
        if replica.partition_epoch is not None and registration.partition_epoch < replica.partition_epoch:
            # The controller's answer to a proposal has already told more than this image.
            return
        if replica.damage is not None:
            if registration.eligible == (self._host.broker_id,):
                replica.keep_damage()
                self._reports.kept_damage(replica.key)
            elif self._host.broker_id in (registration.leader, *registration.isr, *registration.elr):
                # The report is not committed yet: an election may still count on the whole log.
                self._reports.found_damage(replica.key)
                return
            elif registration.leader is not None and self._host.broker_id not in registration.last_known_elr:
                replica.repair()
            # Else it keeps its log: another one has no more for now, or this may be the longest yet.
            if replica.offline:
                return
        if registration.leader == self._host.broker_id:
            replica.lead(registration, settings, self._brokers)
        else:
            replica.follow(registration, settings)


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


def _log_roles(replicas: Sequence[Replica]) -> None:
    """Log the roles of replicas in new leader epochs; of many only the number: lines cost more than roles."""
    if len(replicas) <= _LOGGED_ROLES:
        for replica in replicas:
            logger.info("%s", _role(replica))
    else:
        led = sum(replica.leadership is not None for replica in replicas)
        logger.info("Leading %d partitions in new epochs, following %d", led, len(replicas) - led)


def _role(replica: Replica) -> str:
    if replica.leadership is not None:
        return (
            f"{replica}: leading in epoch {replica.leader_epoch} from offset "
            f"{replica.leadership.leader_epoch_start_offset}, high watermark {replica.high_watermark}, "
            f"ISR {sorted(replica.leadership.isr)}"
        )
    leader = "nobody" if replica.leader_id is None else f"broker {replica.leader_id}"
    end_offset = replica.log.log_end_offset
    return f"{replica}: following {leader} in epoch {replica.leader_epoch} from offset {end_offset}"
