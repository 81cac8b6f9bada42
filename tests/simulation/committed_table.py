"""What is committed of a compacted partition, by key: what a cleaning may take away, and what it must not.

Kafka's promises (the documentation's "Log compaction"): the last record of every key stays; one that was
replaced may go; a tombstone may go after `delete.retention.ms`, and not before what it stands against; what
stays keeps its offset. What was written in a transaction counts when that is committed, and goes at any time
when it is aborted; markers go when nothing of their transaction is left. Records without a key never go here:
nothing writes them to a compacted topic.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.protocol.records.batch import BatchHeader, read_header
from sparklog.protocol.records.builder import SimpleRecord, read_records
from sparklog.protocol.types import Offset, ProducerId

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
        self._value_ms: dict[bytes, int] = {}
        """Since when that is the key's value."""
        self._open: dict[ProducerId, list[SimpleRecord]] = {}
        self._aborted: set[Offset] = set()
        self._has_lost = False

    def take(self, batch: bytes) -> None:
        """Take in a batch that is committed now."""
        header = read_header(batch)
        self._committed_ms[header.base_offset] = self._now_ms()
        if header.is_control:
            marker = read_marker(header, batch)
            assert marker is not None
            records = self._open.pop(header.producer_id, [])
            if marker.aborted:
                self._aborted.update(record.offset for record in records if record.offset is not None)
            else:
                self._count(records)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(read_records(batch, header))
        else:
            self._count(read_records(batch, header))

    def _count(self, records: Iterable[SimpleRecord]) -> None:
        for record in records:
            assert record.key is not None
            assert record.offset is not None
            if record.offset > self._last.get(record.key, -1):
                self._last[record.key] = record.offset
                self._value[record.key] = record.value
                self._value_ms[record.key] = self._now_ms()

    def allow_loss(self) -> None:
        """Records were lost that others were taken away for: nothing is held against anybody any more."""
        self._has_lost = True

    def complaint(self, original: bytes, cleaned: bytes | None) -> str | None:
        """Return what is wrong with what is left of a committed batch, None for nothing."""
        before, originals = _read(original)
        kept: dict[Offset | None, SimpleRecord] = {}
        if cleaned is not None:
            after, stayed = _read(cleaned)
            for field in _KEPT_FIELDS:
                if getattr(before, field) != getattr(after, field):
                    return f"{field} is {getattr(after, field)} and was {getattr(before, field)}"
            kept = {record.offset: record for record in stayed}
        for record in originals:
            stays = kept.pop(record.offset, None)
            if stays is None:
                if not before.is_control and not self._may_go(record, self._committed_ms[before.base_offset]):
                    return f"the record at offset {record.offset} is gone"
            elif stays != record:
                return f"the record at offset {record.offset} is another one"
        return f"there are records at offsets {list(kept)}" if kept else None

    def _may_go(self, record: SimpleRecord, committed_ms: int) -> bool:
        if record.key is None or record.offset is None:
            return False
        if self._has_lost or record.offset in self._aborted or self._last.get(record.key, -1) > record.offset:
            return True
        return record.value is None and self._now_ms() >= committed_ms + DELETE_RETENTION_MS

    def difference(self, batches: list[bytes], fetched_ms: Callable[[Offset], int]) -> str | None:
        """Return what a table made of a whole log has otherwise than what is committed, None for nothing.

        A replica that fetches a tombstone's place when that may have gone never sees it (`fetched_ms`), and
        keeps what it stood against: as in Kafka, none is to be away for `delete.retention.ms`.
        """
        if self._has_lost:
            return None
        made: dict[bytes, bytes] = {}
        # Where something was lost, a transaction may stay open.
        uncommitted = self._aborted | {each.offset for records in self._open.values() for each in records}
        for batch in batches:
            header, records = _read(batch)
            for record in () if header.is_control else records:
                if record.key is not None and record.offset not in uncommitted:
                    if record.value is None:
                        made.pop(record.key, None)
                    else:
                        made[record.key] = record.value
        expected = {key: value for key, value in self._value.items() if value is not None}
        for key in made.keys() - expected.keys():
            if key in self._last and fetched_ms(self._last[key]) >= self._value_ms[key] + DELETE_RETENTION_MS:
                del made[key]
        return None if made == expected else f"the log makes the table {made}, committed is {expected}"


@lru_cache(maxsize=10_000)
def _read(batch: bytes) -> tuple[BatchHeader, tuple[SimpleRecord, ...]]:
    """Return what is in a batch, which many ask for again and again."""
    header = read_header(batch)
    return header, tuple(read_records(batch, header))
