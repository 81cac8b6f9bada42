"""What is committed of a compacted partition, by key: what a cleaning may take away, and what it must not.

Kafka's promises (the documentation's "Log compaction"): the last record of every key stays; one that was
replaced may go; a tombstone may go after `delete.retention.ms`, and not before what it stands against; what
stays keeps its offset. Records without a key never go here: nothing writes them to a compacted topic.
"""

from collections.abc import Callable

from sparklog.records.batch import read_header
from sparklog.records.builder import SimpleRecord, read_records
from sparklog.types import Offset

DELETE_RETENTION_MS = 200
_KEPT_FIELDS = (
    "base_offset",
    "last_offset",
    "partition_leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


class CommittedTable:
    """The last committed offset of every key."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._last: dict[bytes, Offset] = {}
        self._committed_ms: dict[Offset, int] = {}
        """Of the batch with that base offset."""
        self._value: dict[bytes, bytes | None] = {}
        self._has_lost = False

    def take(self, batch: bytes) -> None:
        """Take in a batch that is committed now."""
        header = read_header(batch)
        self._committed_ms[header.base_offset] = self._now_ms()
        for record in read_records(batch, header):
            if record.key is not None and record.offset is not None:
                self._last[record.key] = max(record.offset, self._last.get(record.key, -1))
                self._value[record.key] = record.value

    def allow_loss(self) -> None:
        """Records were lost that others were taken away for: nothing is held against anybody any more."""
        self._has_lost = True

    def complaint(self, original: bytes, cleaned: bytes | None) -> str | None:
        """Return what is wrong with what is left of a committed batch, None for nothing."""
        before = read_header(original)
        kept: dict[Offset | None, SimpleRecord] = {}
        if cleaned is not None:
            after = read_header(cleaned)
            for field in _KEPT_FIELDS:
                if getattr(before, field) != getattr(after, field):
                    return f"{field} is {getattr(after, field)} and was {getattr(before, field)}"
            kept = {record.offset: record for record in read_records(cleaned, after)}
        for record in read_records(original, before):
            stays = kept.pop(record.offset, None)
            if stays is None:
                if not self._may_go(record, self._committed_ms[before.base_offset]):
                    return f"the record at offset {record.offset} is gone"
            elif stays != record:
                return f"the record at offset {record.offset} is another one"
        return f"there are records at offsets {list(kept)}" if kept else None

    def _may_go(self, record: SimpleRecord, committed_ms: int) -> bool:
        if record.key is None or record.offset is None:
            return False
        if self._has_lost or self._last.get(record.key, -1) > record.offset:
            return True
        return record.value is None and self._now_ms() >= committed_ms + DELETE_RETENTION_MS

    def difference(self, batches: list[bytes]) -> str | None:
        """Return what a table made of a whole log has otherwise than what is committed, None for nothing."""
        if self._has_lost:
            return None
        made: dict[bytes, bytes] = {}
        for batch in batches:
            for record in read_records(batch, read_header(batch)):
                if record.key is not None:
                    if record.value is None:
                        made.pop(record.key, None)
                    else:
                        made[record.key] = record.value
        expected = {key: value for key, value in self._value.items() if value is not None}
        return None if made == expected else f"the log makes the table {made}, committed is {expected}"
