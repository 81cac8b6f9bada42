"""The driver's copy of `__cluster_metadata`: one batch a decision, never fsynced.

Only the voters' disks count, so this copy is a cache from which brokers are served: it begins empty, is
made equal to the longest copy among the voters, and is thrown away in the end. Snapshots lie beside it as
beside the brokers' copies: the one that was copied, and those that are written since.

Order for callers: `open`, `begin_at`, `append_copied` and `truncate_to` until the log is a copy, `voters` and
`replay`, then `begin_epoch`, and from there on `append`. `open`, `begin_at`, `replay` and `close` block.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kio.schema.voters_record.v0.data import VotersRecord

from sparklog.driver.controller.machine.voter_history import VoterHistory
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.config import BrokerConfig, SnapshotLimits
from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.log_serving import ServedLog
from sparklog.node.metadata_log.machine.control_records import (
    control_record,
    read_control_record,
    voter_set_of,
)
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.metadata_log.snapshot_taker import SnapshotTaker
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.epoch_checks import truncation_offset
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import iterate_headers, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId, LeaderEpoch, Offset, TimestampMs

_READ_BYTES: Final = 4 * 1024 * 1024


class ReplayedBatch(NamedTuple):
    """One batch of the log; `records` is empty for a control batch."""

    records: list[MetadataRecord]
    last_offset: Offset
    leader_epoch: LeaderEpoch


class MetadataLog:
    def __init__(self, log: Log, snapshots: SnapshotStore, limits: SnapshotLimits) -> None:
        self._log = log
        self.snapshots = snapshots
        self.snapshot_taker = SnapshotTaker(snapshots, log, limits, wall_clock_ms)
        self.snapshot: MetadataSnapshot | None = None
        """The snapshot at the start of the log, if one was copied."""
        self.appended_bytes = 0
        """The bytes of all appends, committed or not; never decreases."""
        self.last_timestamp_ms: TimestampMs = 0
        self._voters = VoterHistory()
        self.leader_epoch: LeaderEpoch = 0
        """Epoch of the driver's leadership; 0 before."""

    @classmethod
    def open(cls, directory: Path, config: BrokerConfig) -> "MetadataLog":
        """Begin a log in an empty directory of its own.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        path = directory / f"{CLUSTER_METADATA_TOPIC}-0"
        log_config = config.metadata_log_config()
        snapshots, _ = SnapshotStore.open(
            path, lambda start: Log.open(path, log_config, log_start_offset=start, now_ms=wall_clock_ms())
        )
        return cls(snapshots.log, snapshots, config.snapshot_limits())

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record, committed or not."""
        return self._log.log_end_offset

    @property
    def position(self) -> LogPosition:
        return LogPosition(self._log.epochs.latest or 0, self._log.log_end_offset)

    def append_copied(self, records: bytes | memoryview) -> None:
        """Append batches of another replica, unchanged.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        self._log.append_as_follower(records, wall_clock_ms())
        self.appended_bytes += len(records)

    def truncate_to(self, offset: Offset) -> None:
        """Remove the records from `offset` on.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR; UNKNOWN_SERVER_ERROR: it is in a snapshot, so it was committed.
        """
        newest = self.snapshots.newest
        if newest is not None and offset < newest.end_offset:
            raise KafkaError(
                ErrorCode.unknown_server_error,
                f"a copy of the metadata log diverges at offset {offset} from the snapshot {newest}",
            )
        self._log.truncate_to(offset)
        self.snapshots.mark_start()

    def begin_at(self, snapshot: MetadataSnapshot) -> None:
        """Begin the copy at the end of a snapshot that was downloaded into `snapshots`.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.snapshots.remove(self.snapshots.replace_log(snapshot.snapshot_id))
        self.snapshot = snapshot

    def replay(self) -> Iterator[ReplayedBatch]:
        for data, position, header in self._batches():
            records = [] if header.is_control else list(read_records(data, header, position))
            yield ReplayedBatch(
                [decode_record(record.value or b"") for record in records],
                header.last_offset,
                header.partition_leader_epoch,
            )

    def image(self) -> MetadataImage:
        """Return the image at the end of the log. Blocks."""
        image = EMPTY_IMAGE if self.snapshot is None else self.snapshot.image
        for batch in self.replay():
            image, _ = replay_records(image, batch.records, batch.last_offset, batch.leader_epoch)
        return image

    def voters(self) -> VoterSet | None:
        """Return the last voter set in the copied log; None if there is none."""
        self._voters = VoterHistory()
        if self.snapshot is not None:
            self._voters.begin_at(self.snapshot.image.end_offset, self.snapshot.voters)
        for data, position, header in self._batches():
            if header.is_control:
                for record in read_records(data, header, position):
                    entity = read_control_record(record)
                    if isinstance(entity, VotersRecord):
                        self._voters.append(header.base_offset, voter_set_of(entity))
        return self._voters.latest

    def voters_before(self, end_offset: Offset) -> VoterSet | None:
        return self._voters.before(end_offset)

    def begin_epoch(self, leader_epoch: LeaderEpoch, leader_change: Any) -> Offset:
        """Begin `leader_epoch` with that control record; return its offset."""
        self.leader_epoch = leader_epoch
        return self.append_control([leader_change])

    def append_control(self, entities: Sequence[Any]) -> Offset:
        """Append control records as one batch; return the last one's offset.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        now_ms = wall_clock_ms()
        for entity in entities:
            if isinstance(entity, VotersRecord):
                self._voters.append(self._log.log_end_offset, voter_set_of(entity))
        return self._append([control_record(entity, now_ms) for entity in entities], control=True)

    def append(self, records: Sequence[MetadataRecord]) -> Offset:
        """Append the records as one batch; return the last one's offset.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        now_ms = wall_clock_ms()
        return self._append(
            [SimpleRecord(value=encode_record(record), timestamp_ms=now_ms) for record in records]
        )

    def served(self, leader_id: BrokerId, high_watermark: Offset) -> ServedLog:
        return ServedLog(self._log, self.snapshots, leader_id, self.leader_epoch, high_watermark)

    def truncation_offset(self, diverging_epoch: tuple[LeaderEpoch, Offset]) -> Offset:
        """Return the offset at which to cut this log for a diverging epoch of another one."""
        log = self._log
        return truncation_offset(log, diverging_epoch, log.log_start_offset, log.log_end_offset)

    def close(self) -> None:
        """Close the log. Blocks."""
        self._log.close(clean=False)

    def _batches(self) -> Iterator[tuple[bytes, int, Any]]:
        offset = self._log.log_start_offset
        if self.snapshot is not None:
            offset = self.snapshot.image.end_offset
        end_offset = self._log.log_end_offset
        while offset < end_offset:
            region = self._log.read(offset, max_bytes=_READ_BYTES, up_to_offset=end_offset).region
            assert region is not None, "the log has no gaps"
            data = region.read()
            for position, header in iterate_headers(data):
                yield data, position, header
                offset = header.next_offset

    def _append(self, records: list[SimpleRecord], *, control: bool = False) -> Offset:
        batch = build_batch(
            records,
            base_offset=self._log.log_end_offset,
            leader_epoch=self.leader_epoch,
            control=control,
        )
        now_ms = self.last_timestamp_ms = records[0].timestamp_ms or 0
        self.appended_bytes += len(batch)
        return self._log.append_as_leader(batch, read_header(batch), self.leader_epoch, now_ms).last_offset
