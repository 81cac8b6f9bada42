"""A partition whose first records lie in an object store, with a manifest made by hand.

    tiered = await Tiered.create(brokers, [segment(range(0, 10)), segment(range(10, 30))])

The broker's log is empty and goes on where the manifest ends.
"""

import asyncio
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.executor.partitions.replica import Replica
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest, RemoteSegment
from sparklog.node.remote_log.segments.segment_footer import READ_WHOLE_BYTES
from sparklog.node.remote_log.segments.segment_format import SCHEMA, segment_metadata
from sparklog.protocol.types import Offset
from tests.faulty_store import MemoryStore
from tests.unit.executor.brokers import Brokers

REMOTE: Mapping[str, str] = {"sparklog.remote.uri": "file:///unused"}
"""The configuration of a broker with a tier; the tests give it another store."""
VALUE = bytes(100)


class GatedStore(MemoryStore):
    """A store that answers no ranged GET while `gate` is closed, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.gets: list[tuple[str, int, int]] = []
        self.errors: list[Exception] = []
        """Raised by the next GETs, one each."""
        self.damaged: set[str] = set()
        """Objects whose row groups are damaged on their way."""

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        self.gets.append((name, start, end))
        await self.gate.wait()
        if self.errors:
            raise self.errors.pop(0)
        data = await super().get_range(name, start, end)
        if name in self.damaged and end < len(self.objects[name].data):
            middle = len(data) // 2
            data = data[:middle] + bytes((~data[middle] & 0xFF,)) + data[middle + 1 :]
        return data


class Segment(NamedTuple):
    """Records to write: offsets and their timestamps; those in [base, end) count."""

    records: Mapping[int, int]
    base: int
    end: int
    row_group_rows: int
    value: bytes
    padding_bytes: int


def segment(
    offsets: Iterable[int],
    *,
    base: int | None = None,
    end: int | None = None,
    row_group_rows: int = 5,
    timestamps: Mapping[int, int] | None = None,
    value: bytes = VALUE,
    padding_bytes: int = READ_WHOLE_BYTES,
) -> Segment:
    """Return a segment with a record at each offset, whose timestamp is 1,000 + the offset by default.

    Bytes that mean nothing lie between the records and the footer: with the default of them both are read
    by requests of their own.
    """
    records = {offset: (timestamps or {}).get(offset, 1_000 + offset) for offset in offsets}
    first = min(records) if base is None and records else base or 0
    last = max(records) + 1 if end is None else end
    return Segment(records, first, last, row_group_rows, value, padding_bytes)


class Tiered:
    def __init__(self, replica: Replica, store: GatedStore, manifest: Manifest) -> None:
        self.replica = replica
        self.store = store
        self.manifest = manifest
        self.may_drop_local = True

    @property
    def tiered_end_offset(self) -> Offset | None:
        return self.manifest.end_offset if self.may_drop_local else None

    @property
    def topic_id(self) -> UUID:
        return self.replica.topic_id

    @classmethod
    async def create(
        cls,
        brokers: Brokers,
        segments: Sequence[Segment],
        *,
        end: int | None = None,
        log_start: int = 0,
        epochs: Sequence[tuple[int, int]] = ((0, 0),),
        name: str = "t",
        store: GatedStore | None = None,
    ) -> "Tiered":
        """Create a topic with one partition, whose log is empty and begins where the tier ends.

        Its leader epoch is the last of `epochs`.
        """
        store = store or GatedStore()
        # The broker itself keeps no tier of it.
        topic_id = await brokers.create_topic(name, [(0,)], {"remote.storage.enable": "false"})
        for _ in range(epochs[-1][0]):
            await brokers.elect(topic_id, 0, 0, (0,))
        replica = brokers.replica(0, topic_id)
        written = [
            await write_segment_object(store, name, number, part) for number, part in enumerate(segments)
        ]
        end_offset = (written[-1].end_offset if written else 0) if end is None else end
        manifest = Manifest(
            topic=name,
            topic_id=topic_id,
            partition=0,
            owner_epoch=1,
            leader_epoch=0,
            log_start_offset=log_start,
            end_offset=end_offset,
            segments=tuple(written),
            leader_epochs=tuple(EpochStart(*epoch) for epoch in epochs),
            producers=None,
            unreferenced=(),
            written_ms=0,
        )
        replica.log.adopt(
            leader_epochs=epochs,
            producers=None,
            log_start_offset=log_start,
            end_offset=end_offset,
            now_ms=int(time.time() * 1000),
        )
        replica.restart_at_log_end()
        tiered = cls(replica, store, manifest)
        replica.tier = tiered
        return tiered

    async def append(self, part: Segment) -> None:
        """Name one more segment in the manifest."""
        written = await write_segment_object(
            self.store, self.manifest.topic, len(self.manifest.segments), part
        )
        self.manifest = replace(
            self.manifest, segments=(*self.manifest.segments, written), end_offset=written.end_offset
        )

    def without_first(self) -> Manifest:
        """Return the manifest without its first segment."""
        return replace(self.manifest, segments=self.manifest.segments[1:])


def parquet(topic: str, part: Segment) -> bytes:
    """Return the object of a segment, with row groups of as many rows as the test wants."""
    count = len(part.records)
    columns = {
        "partition": [0] * count,
        "offset": list(part.records),
        "timestamp": [time_ms * 1000 for time_ms in part.records.values()],
        "timestampType": [0] * count,
        "key": [b"%d" % offset for offset in part.records],
        "value": [part.value] * count,
        "headers": [None] * count,
    }
    schema = SCHEMA.with_metadata(segment_metadata(topic, UUID(int=1), 0))
    table = pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        write_statistics=["offset", "timestamp"],
        write_page_checksum=True,
    ) as writer:
        writer.write_table(table, row_group_size=part.row_group_rows)
        sink.write(bytes(part.padding_bytes))
    return sink.getvalue()


async def write_segment_object(store: GatedStore, topic: str, number: int, part: Segment) -> RemoteSegment:
    name = f"segments/{topic}/{number}-{part.base:020}.parquet"
    counted = [time_ms for offset, time_ms in part.records.items() if part.base <= offset < part.end]
    data = b""
    if part.records:
        data = parquet(topic, part)
        await store.create(name, data)
    return RemoteSegment(
        name=name,
        base_offset=part.base,
        end_offset=part.end,
        record_count=len(counted),
        size_bytes=len(data),
        raw_bytes=len(counted) * len(part.value),
        first_timestamp_ms=min(counted, default=-1),
        max_timestamp_ms=max(counted, default=-1),
        crc32c=0,
    )
