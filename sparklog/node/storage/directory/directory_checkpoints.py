"""Checkpoint files of a data directory: one offset for each of its logs, one file for each kind.

Contents are cached, since opening a log reads each of them. Blocks; thread-safe.
"""

import logging
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from threading import Lock

from sparklog.node.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


class DirectoryCheckpoints:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._known: dict[str, Mapping[TopicPartition, Offset]] = {}

    def read(self, name: str) -> Mapping[TopicPartition, Offset]:
        """Return the offsets of a checkpoint; none if it is missing or malformed: recovery then reads more.

        Raises:
            OSError: the disk fails.
        """
        known = self._known.get(name)
        if known is None:
            try:
                known = read_offsets(self._path / name)
            except CorruptCheckpointError as error:
                logger.warning("Ignoring a checkpoint: %s", error)
                known = {}
            self._known[name] = known
        return known

    def write(
        self, name: str, offsets: Mapping[TopicPartition, Offset], hosted: Set[TopicPartition]
    ) -> Mapping[TopicPartition, Offset]:
        """Write the offsets of the logs in `hosted`, all of them; return all entries of the file.

        A log that lies here but is not hosted is offline by itself, or unreadable. Its entry is kept:
        otherwise deleted records would reappear after its repair, and its lack of records would go unnoticed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with self._lock:
            kept = {
                partition: offset
                for partition, offset in self.read(name).items()
                if partition not in hosted and (self._path / str(partition)).exists()
            }
            self._replace(name, {**kept, **offsets})
            return self._known[name]

    def _replace(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        write_offsets(self._path / name, offsets)
        self._known[name] = offsets

    def forget(self, partition: TopicPartition) -> None:
        """Remove the entries of a partition from all files: its log is new.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        for name in (
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
            REPLICATION_OFFSET_CHECKPOINT,
            CLEANER_OFFSET_CHECKPOINT,
        ):
            with self._lock:
                known = self.read(name)
                if partition in known:
                    left = {other: offset for other, offset in known.items() if other != partition}
                    self._replace(name, left)

    def lower(self, logs: Iterable[Log]) -> None:
        """Lower the checkpoints of truncated logs to their new ends, before anything is appended to them.

        Otherwise records appended in place of the truncated ones would be left unchecked, or uncleaned, after
        a crash.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        too_high = [log for log in logs if log.is_checkpointed_too_high]
        if too_high:
            self._lower(
                RECOVERY_POINT_CHECKPOINT, {log.topic_partition: log.recovery_point for log in too_high}
            )
            self._lower(
                CLEANER_OFFSET_CHECKPOINT, {log.topic_partition: log.cleaned_offset or 0 for log in too_high}
            )
            for log in too_high:
                log.checkpointed_recovery_point = log.recovery_point
                log.checkpointed_cleaned_offset = log.cleaned_offset or 0

    def _lower(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        with self._lock:
            known = self.read(name)
            lower = {
                partition: offset for partition, offset in offsets.items() if offset < known.get(partition, 0)
            }
            if lower:
                self._replace(name, {**known, **lower})


def log_start_offset_to_keep(log: Log) -> Offset | None:
    """Return the log start offset unless it is that of the first segment: Kafka writes only others.

    A dropped segment counts until its files are renamed: a start after a kill would find them. The start of a
    tiered log may lie below its first segment.
    """
    first_offsets = {log.first_segment_base_offset, log.segments.first_named_offset}
    return None if first_offsets == {log.log_start_offset} else log.log_start_offset
