"""Contents of a `.checkpoint` file: record batches, as in a log, from offset 0 on without a gap.

    a control batch   SnapshotHeader, KRaftVersion, Voters (the last two if the log has named voters)
    batches           the image's records, some `BATCH_BYTES` each
    a control batch   SnapshotFooter

Every batch has the leader epoch of the snapshot's id. All timestamps are that of the last log record in the
snapshot, so two brokers write the same bytes for the same snapshot.

The rules this module keeps:

- A snapshot without its footer, with a wrong CRC, or with anything before the header or behind the footer is
  not one: `DamagedSnapshotError`.
- No batch is larger than `MAX_BATCH_BYTES`, and none is believed to be.

Pure: bytes in, bytes out. Source: KIP-630, KIP-853.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0.data import VotersRecord

from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine.control_records import (
    control_record,
    kraft_version,
    read_control_record,
    voter_set_of,
    voters_record,
)
from sparklog.node.metadata_log.machine.snapshot_records import (
    image_of_snapshot,
    snapshot_id_of,
    snapshot_records,
)
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader, batch_at, check_crc
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.types import SnapshotId, TimestampMs

BATCH_BYTES: Final = 1024 * 1024
"""Size from which the next batch is begun."""
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch of the metadata log, and of Kafka's snapshots."""
_RECORD_OVERHEAD_BYTES: Final = 16
"""Approximate size of a record without its value: lengths, deltas."""


class DamagedSnapshotError(KafkaError):
    """The bytes of a snapshot are damaged, or of another kind of file."""

    def __init__(self, snapshot_id: SnapshotId, reason: str) -> None:
        super().__init__(ErrorCode.corrupt_message, f"snapshot {snapshot_id}: {reason}")


class MetadataSnapshot(NamedTuple):
    image: MetadataImage
    voters: VoterSet | None
    """The voters in force; `None` if the log has not named any."""
    last_timestamp_ms: TimestampMs
    """Timestamp of the last log record in the image."""

    @property
    def snapshot_id(self) -> SnapshotId:
        return snapshot_id_of(self.image)


def encode_snapshot(snapshot: MetadataSnapshot) -> Iterator[bytes]:
    """Yield the batches of a snapshot, whose image has no open transaction."""
    timestamp_ms = snapshot.last_timestamp_ms
    leader_epoch = snapshot.image.leader_epoch
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp_ms)
    begin = [control_record(header, timestamp_ms)]
    if snapshot.voters is not None:
        begin.append(control_record(kraft_version(), timestamp_ms))
        begin.append(control_record(voters_record(snapshot.voters), timestamp_ms))
    yield build_batch(begin, base_offset=0, leader_epoch=leader_epoch, control=True)
    offset = len(begin)
    pending: list[SimpleRecord] = []
    pending_bytes = 0
    for record in snapshot_records(snapshot.image):
        value = encode_record(record)
        if pending and pending_bytes + len(value) > BATCH_BYTES:
            yield build_batch(pending, base_offset=offset, leader_epoch=leader_epoch)
            offset += len(pending)
            pending, pending_bytes = [], 0
        pending.append(SimpleRecord(value=value, timestamp_ms=timestamp_ms))
        pending_bytes += len(value) + _RECORD_OVERHEAD_BYTES
    if pending:
        yield build_batch(pending, base_offset=offset, leader_epoch=leader_epoch)
        offset += len(pending)
    end = [control_record(SnapshotFooterRecord(version=0), timestamp_ms)]
    yield build_batch(end, base_offset=offset, leader_epoch=leader_epoch, control=True)


def decode_snapshot(snapshot_id: SnapshotId, batches: Iterable[bytes]) -> MetadataSnapshot:
    """Return the snapshot in `batches`, each of them one whole batch, together a whole file.

    Raises:
        DamagedSnapshotError: they are not the output of `encode_snapshot`.
    """
    reading = _Reading(snapshot_id)
    try:
        for batch in batches:
            reading.read(batch)
        return reading.finish()
    except DamagedSnapshotError:
        raise
    except KafkaError as error:  # a CRC, a frame, a record that contradicts those before it
        raise DamagedSnapshotError(snapshot_id, error.message) from error


def read_last_timestamp(snapshot_id: SnapshotId, first_batch: bytes) -> TimestampMs:
    """Return `MetadataSnapshot.last_timestamp_ms` of a snapshot from its first batch.

    Raises:
        DamagedSnapshotError: the batch is not the first of a snapshot.
    """
    reading = _Reading(snapshot_id)
    try:
        reading.read(first_batch)
    except DamagedSnapshotError:
        raise
    except KafkaError as error:
        raise DamagedSnapshotError(snapshot_id, error.message) from error
    return reading.last_timestamp_ms


class _Reading:
    def __init__(self, snapshot_id: SnapshotId) -> None:
        self._snapshot_id = snapshot_id
        self._next_offset = 0
        self._records: list[MetadataRecord] = []
        self._voters: VoterSet | None = None
        self._header: SnapshotHeaderRecord | None = None
        self._footer: SnapshotFooterRecord | None = None

    def read(self, batch: bytes) -> None:
        header = batch_at(batch)
        if header is None or header.size_bytes != len(batch):
            raise self._damaged(f"{len(batch)} bytes behind record {self._next_offset} are not a batch")
        check_crc(batch, 0, header)
        if self._footer is not None:
            raise self._damaged(f"{len(batch)} bytes follow its footer")
        if header.base_offset != self._next_offset:
            raise self._damaged(f"a batch at offset {header.base_offset} follows offset {self._next_offset}")
        if header.partition_leader_epoch != self._snapshot_id.leader_epoch:
            raise self._damaged(f"it holds records of leader epoch {header.partition_leader_epoch}")
        self._next_offset = header.next_offset
        if header.is_control:
            self._read_control(batch, header)
        elif self._header is None:
            raise self._damaged("it does not begin with a header")
        else:
            self._records += [decode_record(record.value or b"") for record in read_records(batch, header)]

    @property
    def last_timestamp_ms(self) -> TimestampMs:
        if self._header is None:
            raise self._damaged("it does not begin with a header")
        timestamp_ms: TimestampMs = self._header.last_contained_log_timestamp
        return timestamp_ms

    def finish(self) -> MetadataSnapshot:
        if self._footer is None:
            raise self._damaged(f"it ends at record {self._next_offset} without a footer")
        image = image_of_snapshot(self._snapshot_id, self._records)
        return MetadataSnapshot(image, self._voters, self.last_timestamp_ms)

    def _read_control(self, batch: bytes, header: BatchHeader) -> None:
        for record in read_records(batch, header):
            match read_control_record(record):
                case SnapshotHeaderRecord() as snapshot_header if record.offset == 0:
                    self._header = snapshot_header
                case _ if self._header is None:
                    raise self._damaged("it does not begin with a header")
                case VotersRecord() as voters:
                    self._voters = voter_set_of(voters)
                case SnapshotFooterRecord() as footer:
                    self._footer = footer
                case SnapshotHeaderRecord():
                    raise self._damaged(f"a second header at record {record.offset}")
                case _:
                    pass

    def _damaged(self, reason: str) -> DamagedSnapshotError:
        return DamagedSnapshotError(self._snapshot_id, reason)
