"""The `__cluster_metadata` log on the driver's disk: one batch a decision, many batches an fsync.

The rules this module keeps:

- A batch is committed when it is on disk. Only committed batches are served and acted upon.
- A leader epoch begins with a control record that says so (KIP-595); it is written before any other record
  of the epoch. Until there are voters the leader alone is the majority.

Order for callers: `open`, `replay` (both block), then on the event loop `append` and `flush_soon`; `close` in
the end. Whatever the disk refuses is final: the log must not be used after it.
"""

import asyncio
import io
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.serial import entity_writer

from driver.controller.cluster import CONTROLLER_ID
from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.framing import decode_record, encode_record
from sparklog.metadata.schemas import MetadataRecord
from sparklog.records.batch import iterate_headers, read_header
from sparklog.records.builder import SimpleRecord, build_batch, read_records
from sparklog.storage.file_region import FileRegion
from sparklog.storage.leader_epochs import EpochEndOffset
from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from sparklog.storage.log_directory import LogDirectory
from sparklog.storage.meta_properties import MetaProperties
from sparklog.types import CLUSTER_METADATA_TOPIC, LeaderEpoch, Offset, TopicPartition

__all__ = ["MetadataLog", "ReplayedBatch"]

_LEADER_CHANGE_KEY: Final = struct.pack(">hh", 0, 2)
"""Version 0 of a control record's key, and its type."""
_READ_BYTES: Final = 4 * 1024 * 1024


class ReplayedBatch(NamedTuple):
    """One batch of the log; `records` is empty for a control batch."""

    records: list[MetadataRecord]
    last_offset: Offset
    leader_epoch: LeaderEpoch


class MetadataLog:
    """The log, the leader epoch in which it is written, and how much of it is committed."""

    def __init__(self, directory: LogDirectory, log: Log) -> None:
        self._directory = directory
        self._log = log
        self.leader_epoch: LeaderEpoch = (log.epochs.latest or 0) + 1
        self.high_watermark: Offset = 0
        """The end of what is committed, exclusive."""

    @classmethod
    def open(cls, path: Path, cluster_id: str, config: BrokerConfig) -> "MetadataLog":
        """Lock the directory and recover the log in it, or begin one.

        Raises:
            DirectoryLockedError: another process holds the directory.
            KafkaError: INCONSISTENT_CLUSTER_ID: it is another cluster's; KAFKA_STORAGE_ERROR.
        """
        directory = LogDirectory.open(path)
        if directory.meta is None:
            directory.format(MetaProperties(cluster_id, CONTROLLER_ID, uuid4()))
        elif directory.meta.cluster_id != cluster_id:
            directory.close()
            raise KafkaError(
                ErrorCode.inconsistent_cluster_id,
                f"{path} belongs to cluster {directory.meta.cluster_id}, not to {cluster_id}",
            )
        log_config = LogConfig(
            segment_bytes=config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            retention_ms=None,
        )
        now_ms = time.time_ns() // 1_000_000
        logs = directory.load_all(lambda _: log_config, now_ms)
        log = logs.get(TopicPartition(CLUSTER_METADATA_TOPIC, 0))
        if log is None:
            log = directory.create_log(CLUSTER_METADATA_TOPIC, 0, None, log_config, now_ms)
        return cls(directory, log)

    @property
    def log_start_offset(self) -> Offset:
        """The first offset there is."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record, committed or not."""
        return self._log.log_end_offset

    def replay(self) -> Iterator[ReplayedBatch]:
        """Yield every batch in the log, which with it is committed: nobody else could have written it."""
        self._log.flush()
        self.high_watermark = self._log.log_end_offset
        offset = self._log.log_start_offset
        while (region := self._read(offset, _READ_BYTES)) is not None:
            data = region.read()
            for position, header in iterate_headers(data):
                records = [] if header.is_control else list(read_records(data, header, position))
                yield ReplayedBatch(
                    [decode_record(record.value or b"") for record in records],
                    header.last_offset,
                    header.partition_leader_epoch,
                )
                offset = header.next_offset

    def append_leader_change(self) -> Offset:
        """Append the control batch that begins this leader's epoch; return its offset."""
        value = io.BytesIO()
        message = LeaderChangeMessage(version=0, leader_id=CONTROLLER_ID, voters=(), granting_voters=())
        entity_writer(LeaderChangeMessage)(value, message)
        record = SimpleRecord(
            key=_LEADER_CHANGE_KEY, value=value.getvalue(), timestamp_ms=time.time_ns() // 1_000_000
        )
        return self._append([record], control=True)

    def append(self, records: Sequence[MetadataRecord]) -> Offset:
        """Append the records as one batch, not yet on disk; return the last one's offset.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        now_ms = time.time_ns() // 1_000_000
        return self._append(
            [SimpleRecord(value=encode_record(record), timestamp_ms=now_ms) for record in records]
        )

    def read(self, offset: Offset, max_bytes: int) -> FileRegion | None:
        """Return committed batches from the one with `offset` on, at least one; `None` if there is none."""
        return self._read(offset, max_bytes) if offset < self.high_watermark else None

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> EpochEndOffset | None:
        """Return where that leader epoch, or the one before it, ends in this log."""
        return self._log.epochs.end_offset_for(leader_epoch, self._log.log_end_offset)

    async def flush(self) -> Offset:
        """Make everything appended so far durable, off the loop; return the new high watermark.

        Raises:
            OSError, KafkaError: the disk refused.
        """
        end_offset = self._log.log_end_offset
        await asyncio.to_thread(self._log.flush)
        self.high_watermark = end_offset
        return end_offset

    def close(self, *, clean: bool = True) -> None:
        """Close the log and give up the directory; not `clean` after a failure. Blocks."""
        self._log.close(clean=clean)
        if clean:
            self._directory.write_checkpoints([self._log])
            self._directory.write_clean_shutdown(None)
        self._directory.close()

    def _read(self, offset: Offset, max_bytes: int) -> FileRegion | None:
        return self._log.read(offset, max_bytes=max_bytes, up_to_offset=self.high_watermark).region

    def _append(self, records: list[SimpleRecord], *, control: bool = False) -> Offset:
        batch = build_batch(
            records,
            base_offset=self._log.log_end_offset,
            leader_epoch=self.leader_epoch,
            control=control,
        )
        now_ms = records[0].timestamp_ms or 0
        return self._log.append_as_leader(batch, [read_header(batch)], self.leader_epoch, now_ms).last_offset
