"""A broker's data directories: locks them, checks their owner, and formats blank ones.

All or nothing: if one is unavailable, the locked ones are released. Only a directory whose disk fails is left
out, as long as it is not that of the metadata log, and another works. A directory without `meta.properties`
is blank; if other directories of the broker name the cluster, it is formatted at once, else when the metadata
quorum has named the cluster (`format`). Blocking; off the loop.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self
from uuid import UUID, uuid4

from sparklog.node.limits.descriptors import DescriptorBudget
from sparklog.node.storage import ForeignDirectoryError, LogDirectory, MetaProperties
from sparklog.node.storage.files import LOG_SUFFIX, is_shortage, partition_of, storage_errors, system_error
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerEpoch, BrokerId

logger = logging.getLogger(__name__)


class DataDirectories:
    """The locked directories of one broker, created by `open`."""

    def __init__(
        self,
        node_id: BrokerId,
        logs: list[LogDirectory],
        metadata: LogDirectory,
        ids_per_rack: int | None = None,
    ) -> None:
        self.logs = logs
        """The directories of log.dirs."""
        self.metadata = metadata
        """The directory of the metadata log; often the first of `logs`."""
        self.node_id = node_id
        self._ids_per_rack = ids_per_rack
        self._new_ids = {
            directory.path: _new_directory_id() for directory in self._all if directory.meta is None
        }

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        metadata_path: Path | None,
        node_id: BrokerId,
        ids_per_rack: int | None = None,
    ) -> Self:
        """Lock the directories of broker `node_id`.

        The metadata log lies in the one at `metadata_path`, which may be one of `paths`; None for the first.
        `ids_per_rack` is noted in those that are blank.

        Raises:
            DirectoryLockedError: a live process holds one of them.
            ForeignDirectoryError: one belongs to another broker, two belong to different clusters, or one has
                logs and no meta.properties.
            KafkaError: KAFKA_STORAGE_ERROR: that of the metadata log, or every other one, is unusable; the
                system lacks a resource, which is not a disk's fault; or a meta.properties is incomplete.
        """
        opened: list[LogDirectory] = []
        failure: KafkaError | None = None
        metadata_path = metadata_path or paths[0]
        try:
            for path in paths if metadata_path in paths else (*paths, metadata_path):
                try:
                    opened.append(LogDirectory.open(path))
                except KafkaError as error:
                    if path == metadata_path or system_error(error) is None or is_shortage(error):
                        raise
                    failure = error
                    logger.critical("Starting without the log directory %s: %s", path, error)
            metadata = next(directory for directory in opened if directory.path == metadata_path)
            logs = [directory for directory in opened if directory.path in paths]
            if not logs and failure is not None:
                raise failure
            directories = cls(node_id, logs, metadata, ids_per_rack)
            directories._check()
            if directories.cluster_id is not None:
                directories.format(directories.cluster_id)
        except BaseException:
            for directory in opened:
                directory.close()
            raise
        return directories

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to; None while all are blank."""
        return next(
            (directory.meta.cluster_id for directory in self._all if directory.meta is not None), None
        )

    @property
    def metadata_id(self) -> UUID:
        """The id of the directory of the metadata log, which identifies the voter."""
        return self._id_of(self.metadata)

    @property
    def log_ids(self) -> list[UUID]:
        """The ids of the directories of log.dirs that are online."""
        return [self._id_of(directory) for directory in self.online]

    @property
    def online(self) -> list[LogDirectory]:
        return [directory for directory in self.logs if directory.failure is None]

    @property
    def previous_broker_epoch(self) -> BrokerEpoch | None:
        """The broker epoch of the clean shutdown of all of log.dirs; None if one was not clean."""
        first, *others = {directory.previous_broker_epoch for directory in self.logs}
        return None if others else first

    def needs(self, directory: LogDirectory) -> bool:
        """Whether the broker cannot go on without a directory that has failed."""
        return directory is self.metadata or not self.online

    def format(self, cluster_id: str) -> None:
        """Write broker `node_id` and the cluster into blank directories.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        for directory in self._all:
            if directory.meta is None:
                directory_id = self._new_ids[directory.path]
                directory.format(MetaProperties(cluster_id, self.node_id, directory_id, self._ids_per_rack))

    def note_running(self, broker_epoch: BrokerEpoch) -> None:
        """Write the current broker epoch into the directories of log.dirs.

        A failed write only makes the replicas of a killed broker count for less in elections.
        """
        for directory in self.online:
            try:
                directory.note_running(broker_epoch)
            except KafkaError as error:
                logger.warning("%s", error)

    def write_clean_shutdown(self, broker_epoch: BrokerEpoch | None) -> None:
        """Write the clean-shutdown file of each directory of log.dirs.

        A broker that has not registered, and so has changed nothing, writes the epoch of the process before.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        for directory in self.logs:
            if directory.meta is not None:
                directory.write_clean_shutdown(
                    directory.previous_broker_epoch if broker_epoch is None else broker_epoch
                )

    def descriptor_budget(self) -> DescriptorBudget:
        """Return the descriptors that the process may open; warn if the logs leave few of them."""
        budget = DescriptorBudget.of_process()
        self.check_descriptors(budget.limit)
        return budget

    def check_descriptors(self, limit: int) -> None:
        """Warn if the logs need so many file descriptors that few of `limit` are left for other uses."""
        partitions = segments = 0
        for directory in self.online:
            with contextlib.suppress(OSError):  # loading the logs reports the error
                for log in _logs(directory.path):
                    partitions += 1
                    segments += sum(entry.name.endswith(LOG_SUFFIX) for entry in log.iterdir())
        needed = segments + 2 * partitions
        if needed > limit // 2:
            logger.warning(
                "The %d partitions here need up to %d file descriptors, 3 each with records and 1 for every "
                "older segment, and RLIMIT_NOFILE is %d: raise it (ulimit -n), or what connections and new "
                "segments need may be lacking",
                partitions,
                needed,
                limit,
            )

    def close(self) -> None:
        for directory in self._all:
            directory.close()

    @property
    def _all(self) -> list[LogDirectory]:
        return self.logs if self.metadata in self.logs else [*self.logs, self.metadata]

    def _id_of(self, directory: LogDirectory) -> UUID:
        return self._new_ids[directory.path] if directory.meta is None else directory.meta.directory_id

    def _check(self) -> None:
        cluster_id = self.cluster_id
        for directory in self._all:
            meta = directory.meta
            if meta is None:
                if (log := _first_log(directory.path)) is not None:
                    raise ForeignDirectoryError(
                        f"{log} is a log, but {directory.path} has no meta.properties that says whose; "
                        "restore the file, or remove the directory if its records are not wanted"
                    )
            elif (meta.cluster_id, meta.node_id) != (cluster_id, self.node_id):
                raise ForeignDirectoryError(
                    f"{directory.path} belongs to broker {meta.node_id} of cluster {meta.cluster_id}; "
                    f"broker {self.node_id} of cluster {cluster_id} cannot use it"
                )


def _first_log(path: Path) -> Path | None:
    with storage_errors(f"list {path}"):
        return next(_logs(path), None)


def _logs(path: Path) -> Iterator[Path]:
    """Yield the directories of the logs in `path`, without the metadata log."""
    for entry in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        try:
            partition = partition_of(entry.name)
        except ValueError:
            continue
        if partition.topic != CLUSTER_METADATA_TOPIC:
            yield entry


def _new_directory_id() -> UUID:
    # Ids up to 99 are reserved (KIP-858).
    while (directory_id := uuid4()).int < 100:
        pass
    return directory_id
