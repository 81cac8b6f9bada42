"""One `log.dirs` entry: its lock, its identity, its checkpoints and the logs under it.

Order for callers: `LogDirectory.open` (takes the lock), `format` if `meta` is None, `load_all`, then
create and delete logs and write checkpoints; at the end close the logs, `write_clean_shutdown`, `close`.
All of it blocks and belongs off an event loop.

Rule kept: the lock is held by an open file (`fcntl`), so it goes with the process however that ends, and
nobody else can use the directory before.
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.storage.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from sparklog.storage.files import partition_of, replace_file, storage_errors, sync_directory
from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from sparklog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from sparklog.types import CLUSTER_METADATA_TOPIC, BrokerEpoch, Offset, TimestampMs, TopicPartition

logger = logging.getLogger(__name__)

CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"


class DirectoryLockedError(Exception):
    """Another live process, or another object of this one, holds the data directory."""


class ForeignDirectoryError(Exception):
    """The data directory has the identity of another cluster or another broker. Raised by who opens it."""


class LogDirectory:
    """A data directory under this process's exclusive lock. Made by `LogDirectory.open`."""

    def __init__(self, path: Path, lock_descriptor: int, meta: MetaProperties | None) -> None:
        self.path = path
        self.meta = meta
        """None: not formatted yet."""
        marker = path / CLEAN_SHUTDOWN_MARKER
        self.clean_shutdown = marker.exists()
        """The previous owner left by a clean shutdown."""
        self.previous_broker_epoch = _read_broker_epoch(marker)
        """From the clean-shutdown marker (KIP-966); None after a crash."""
        self._lock_descriptor: int | None = lock_descriptor
        self._to_delete: list[tuple[TimestampMs, Path]] = []

    @classmethod
    def open(cls, path: Path) -> "LogDirectory":
        """Create `path` if it is missing, lock it and read its identity.

        Raises:
            DirectoryLockedError: another process (or this one) holds it.
            KafkaError: KAFKA_STORAGE_ERROR: not writable, or a malformed meta.properties.
        """
        with storage_errors(f"lock the log directory {path}"):
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                # flock belongs to the open file, not to the process: it excludes this process's others too.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                meta = read_meta_properties(path)
            except BlockingIOError as error:
                os.close(descriptor)
                raise DirectoryLockedError(
                    f"{path} is in use by another broker: stop that one, or give this one its own log.dirs"
                ) from error
            except BaseException:
                os.close(descriptor)
                raise
        return cls(path, descriptor, meta)

    def format(self, meta: MetaProperties) -> None:
        """Give an unformatted directory its identity (meta.properties, fsynced).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        assert self.meta is None, f"{self.path} belongs to {self.meta}"
        write_meta_properties(self.path, meta)
        self.meta = meta

    def load_all(
        self, config_for: Callable[[str], LogConfig], now_ms: TimestampMs
    ) -> dict[TopicPartition, Log]:
        """Open every log below, recovering what an unclean stop left. `config_for` is asked by topic name.

        Removes the clean-shutdown marker and half-deleted `-delete` directories; leaves `-stray` ones, and
        the metadata log, which is opened by whoever follows the controller (`create_log`).

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        logs: dict[TopicPartition, Log] = {}
        with storage_errors(f"load {self.path}"):
            entries = sorted(entry for entry in self.path.iterdir() if entry.is_dir())
            try:
                for directory in entries:
                    if directory.name.endswith(DELETE_SUFFIX):
                        shutil.rmtree(directory)
                        continue
                    if directory.name.endswith(STRAY_SUFFIX):
                        continue
                    try:
                        partition = partition_of(directory.name)
                    except ValueError:
                        logger.warning("Leaving %s alone: its name is not <topic>-<partition>", directory)
                        continue
                    if partition.topic != CLUSTER_METADATA_TOPIC:
                        logs[partition] = self._open_log(directory, config_for(partition.topic), None, now_ms)
            except BaseException:
                for log in logs.values():
                    log.close(clean=False)
                raise
            # A crash from now on is unclean.
            (self.path / CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)
            sync_directory(self.path)
        return logs

    def create_log(
        self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig, now_ms: TimestampMs
    ) -> Log:
        """Create (or open, when the directory exists) the log of a partition.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, INCONSISTENT_TOPIC_ID.
        """
        directory = self.path / str(TopicPartition(topic, partition))
        return self._open_log(directory, config, topic_id, now_ms)

    def _open_log(
        self, directory: Path, config: LogConfig, topic_id: UUID | None, now_ms: TimestampMs
    ) -> Log:
        partition = partition_of(directory.name)
        return Log.open(
            directory,
            config,
            recovery_point=self._checkpointed(RECOVERY_POINT_CHECKPOINT).get(partition, 0),
            log_start_offset=self._checkpointed(LOG_START_OFFSET_CHECKPOINT).get(partition, 0),
            clean=self.clean_shutdown,
            now_ms=now_ms,
            topic_id=topic_id,
        )

    def _checkpointed(self, name: str) -> dict[TopicPartition, Offset]:
        try:
            return read_offsets(self.path / name)
        except CorruptCheckpointError as error:
            # Without it recovery reads more, and nothing is lost.
            logger.warning("Doing without a checkpoint: %s", error)
            return {}

    def delete_log(self, log: Log, now_ms: TimestampMs) -> None:
        """Rename the log's directory with `-delete`; `remove_directories_due` removes it.

        That is after `file.delete.delay.ms`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._to_delete.append(
            (now_ms + log.config.file_delete_delay_ms, log.rename_with_suffix(DELETE_SUFFIX))
        )

    def mark_stray(self, log: Log) -> Path:
        """Close the log and rename its directory with `-stray`: it is not this broker's, but is kept.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        return log.rename_with_suffix(STRAY_SUFFIX)

    def remove_directories_due(self, now_ms: TimestampMs) -> int:
        """Remove `-delete` directories whose delay is over; return how many.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        due = [entry for entry in self._to_delete if entry[0] <= now_ms]
        for entry in due:
            with storage_errors(f"remove {entry[1]}"):
                shutil.rmtree(entry[1])
            self._to_delete.remove(entry)
        return len(due)

    def write_checkpoints(
        self, logs: Iterable[Log], high_watermarks: Mapping[TopicPartition, Offset] | None = None
    ) -> None:
        """Write the recovery-point and log-start-offset checkpoints of `logs`, and the high watermarks.

        `logs` are all those of this directory. A log start offset is written where it is not that of the
        first segment, as in Kafka.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        recovery_points: dict[TopicPartition, Offset] = {}
        start_offsets: dict[TopicPartition, Offset] = {}
        for log in logs:
            recovery_points[log.topic_partition] = log.recovery_point
            if log.log_start_offset > log.first_segment_base_offset:
                start_offsets[log.topic_partition] = log.log_start_offset
        write_offsets(self.path / RECOVERY_POINT_CHECKPOINT, recovery_points)
        write_offsets(self.path / LOG_START_OFFSET_CHECKPOINT, start_offsets)
        if high_watermarks is not None:
            write_offsets(self.path / REPLICATION_OFFSET_CHECKPOINT, high_watermarks)

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """Return the last checkpointed high watermarks; empty when there are none that can be read."""
        return self._checkpointed(REPLICATION_OFFSET_CHECKPOINT)

    def write_clean_shutdown(self, broker_epoch: BrokerEpoch | None) -> None:
        """Say that every log was closed properly. Call it last.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        content = {"version": 0, "brokerEpoch": -1 if broker_epoch is None else broker_epoch}
        with storage_errors(f"write the clean-shutdown marker of {self.path}"):
            replace_file(
                self.path / CLEAN_SHUTDOWN_MARKER, json.dumps(content, separators=(",", ":")).encode()
            )

    @property
    def free_bytes(self) -> int:
        """Usable bytes of the volume."""
        return shutil.disk_usage(self.path).free

    @property
    def total_bytes(self) -> int:
        """Size of the volume in bytes."""
        return shutil.disk_usage(self.path).total

    def close(self) -> None:
        """Give up the lock. Logs must be closed before."""
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None


def _read_broker_epoch(marker: Path) -> BrokerEpoch | None:
    try:
        broker_epoch = json.loads(marker.read_bytes())["brokerEpoch"]
    except (OSError, ValueError, KeyError, TypeError):
        # Written by something older, or not written to the end: the stop was clean, the epoch is unknown.
        return None
    return broker_epoch if isinstance(broker_epoch, int) and broker_epoch >= 0 else None
