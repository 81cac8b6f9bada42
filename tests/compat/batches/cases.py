"""Record batches at random, good ones and ones that were changed in one way or another.

A case is a batch and the kind of topic that it goes to. What was done to it is in its name: that is how
differences are told from each other. A seed always gives the same cases, but for the time in them.
"""

import gzip
import random
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard

from sparklog.protocol.records.batch import HEADER_BYTES, BatchHeader, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec, compress
from sparklog.protocol.records.varints import append_varint

HOUR_MS: Final = 3_600_000
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "keyed": {"cleanup.policy": "compact"},
    "bounded": {"message.timestamp.before.max.ms": str(HOUR_MS)},
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "recompressed": {"compression.type": "gzip"},
}
"""The kinds of topics, and their configurations."""

Change = Callable[[random.Random, "Draft"], None]


class Case(NamedTuple):
    """A batch, as a client sends it."""

    name: str
    topic: str
    batch: bytes


class Field:
    """A record that can be written wrongly."""

    def __init__(self, index: int, record: SimpleRecord, base_timestamp: int) -> None:
        self.timestamp_delta = (record.timestamp_ms or 0) - base_timestamp
        self.offset_delta = index
        self.key, self.value = record.key, record.value
        self.headers: list[tuple[bytes | None, bytes | None]] = [
            (name.encode(), value) for name, value in record.headers
        ]
        self.lies: dict[str, int] = {}
        """What is added to a length."""
        self.padding: dict[str, int] = {}
        """How many bytes a varint has more than it needs."""
        self.behind = b""

    def written(self) -> bytes:
        """Return its bytes."""
        body = bytearray(1)
        self._varint(body, "timestamp", self.timestamp_delta)
        self._varint(body, "offset", self.offset_delta)
        self._bytes(body, "key", self.key)
        self._bytes(body, "value", self.value)
        self._varint(body, "headers", len(self.headers))
        for name, value in self.headers:
            self._bytes(body, "header key", name)
            self._bytes(body, "header value", value)
        body += self.behind
        found = bytearray()
        self._varint(found, "record", len(body))
        return bytes(found + body)

    def _bytes(self, target: bytearray, what: str, data: bytes | None) -> None:
        self._varint(target, what, -1 if data is None else len(data))
        target += data or b""

    def _varint(self, target: bytearray, what: str, value: int) -> None:
        append_varint(target, value + self.lies.get(what, 0))
        for _ in range(self.padding.get(what, 0)):
            target[-1] |= 0x80
            target.append(0)


class Draft:
    """A batch in the making."""

    def __init__(self, chance: random.Random, codec: Codec, now_ms: int) -> None:
        self.codec = codec
        self.now_ms = now_ms
        count = chance.choice([1, 2, 3, 12, 40, 70, 150])
        size, spread = chance.choice([(0, 1), (20, 1), (20, 9), (300, 60)])
        keyed, with_headers = chance.random() < 0.8, chance.random() < 0.3
        step = chance.choice([0, 1, 30])
        records = [
            SimpleRecord(
                b"key-%d" % (index % 7) if keyed else None,
                None if chance.random() < 0.03 else chance.randbytes(size + chance.randrange(spread)),
                (("trace", b"12345678"), ("flag", None))[: chance.randrange(3)] if with_headers else (),
                now_ms + index * step,
            )
            for index in range(count)
        ]
        self.header: BatchHeader = read_header(build_batch(records))
        self.records = [Field(index, record, now_ms) for index, record in enumerate(records)]
        self.payload: bytes | None = None
        """What the records are written as, where that was changed."""
        self.compressed: bytes | None = None
        self.fields: dict[str, int] = {}
        """What the header says otherwise."""
        self.raw: Callable[[bytes], bytes] = lambda batch: batch

    def written(self) -> bytes:
        """Return the batch."""
        payload = self.plain()
        compressed = compress(self.codec, payload) if self.compressed is None else self.compressed
        fields = {"attributes": int(self.codec), **self.fields}
        header = self.header._replace(**fields)
        return self.raw(header_bytes(header, compressed) + compressed)

    def plain(self) -> bytes:
        """Return the records, not compressed."""
        return self.payload if self.payload is not None else b"".join(each.written() for each in self.records)

    def some(self, chance: random.Random) -> Field:
        """Return one of the records."""
        return chance.choice(self.records)


def _length_lies(chance: random.Random, draft: Draft) -> None:
    what = chance.choice(["record", "key", "value", "headers", "header key", "header value"])
    draft.some(chance).lies[what] = chance.choice([-2, -1, 1, 2, 40, 100_000])


def _length_below_null(chance: random.Random, draft: Draft) -> None:
    record = draft.some(chance)
    what = chance.choice(["key", "value"])
    setattr(record, what, None)
    record.lies[what] = -chance.randrange(1, 5)


def _padding(chance: random.Random, draft: Draft) -> None:
    what = chance.choice(["record", "timestamp", "offset", "key", "value", "headers"])
    draft.some(chance).padding[what] = chance.choice([1, 2, 4, 5, 9, 10])


def _header_key_null(chance: random.Random, draft: Draft) -> None:
    draft.some(chance).headers.append((None, b"v"))


def _header_key_no_text(chance: random.Random, draft: Draft) -> None:
    draft.some(chance).headers.append((b"\xff\xfe\x80", b"v"))


def _bytes_in_record(chance: random.Random, draft: Draft) -> None:
    draft.some(chance).behind = bytes(chance.choice([1, 7]))


def _offset(chance: random.Random, draft: Draft) -> None:
    draft.some(chance).offset_delta += chance.choice([-1, 1, 5, 100_000])


def _null_keys(chance: random.Random, draft: Draft) -> None:
    for _ in range(chance.choice([1, 3])):
        draft.some(chance).key = None


def _timestamps(chance: random.Random, draft: Draft) -> None:
    for _ in range(chance.choice([1, 3])):
        draft.some(chance).timestamp_delta += chance.choice(
            [-5, -2 * HOUR_MS, 2 * HOUR_MS, 100 * HOUR_MS, -draft.now_ms - 1, -draft.now_ms - 1_000]
        )


def _no_timestamps(chance: random.Random, draft: Draft) -> None:
    for record in draft.records:
        record.timestamp_delta = 0
    draft.fields |= {"base_timestamp": -1, "max_timestamp": -1}


def _max_timestamp(chance: random.Random, draft: Draft) -> None:
    draft.fields["max_timestamp"] = chance.choice(
        [-1, -2, 0, draft.now_ms - 9_000, draft.now_ms + 100 * HOUR_MS, 2**63 - 1]
    )


def _base_timestamp(chance: random.Random, draft: Draft) -> None:
    draft.fields["base_timestamp"] = chance.choice([-1, -2, 0, draft.now_ms - 2 * HOUR_MS, 10**14])


def _count(chance: random.Random, draft: Draft) -> None:
    count = len(draft.records) + chance.choice([-1, 1, 2, 1_000])
    draft.fields |= {"record_count": count, "last_offset_delta": count - 1}


def _counts_differ(chance: random.Random, draft: Draft) -> None:
    draft.fields[chance.choice(["record_count", "last_offset_delta"])] = chance.choice([-2, -1, 0, 7, 10**6])


def _attributes(chance: random.Random, draft: Draft) -> None:
    bit = chance.choice([0x20, 0x40, 0x80, 0x100, 0x4000])
    draft.fields["attributes"] = draft.codec | bit


def _append_time(chance: random.Random, draft: Draft) -> None:
    draft.fields["attributes"] = draft.codec | 0x08


def _codec_number(chance: random.Random, draft: Draft) -> None:
    draft.fields["attributes"] = chance.choice([5, 6, 7])


def _other_codec(chance: random.Random, draft: Draft) -> None:
    draft.fields["attributes"] = chance.choice([each for each in Codec if each is not draft.codec])


def _producer(chance: random.Random, draft: Draft) -> None:
    draft.fields["producer_id"] = chance.choice([-5, -2, chance.getrandbits(40)])
    draft.fields["producer_epoch"] = chance.choice([0, 0, 0, -1, -2])
    draft.fields["base_sequence"] = chance.choice([0, 0, 0, -1, -3])


def _base_offset(chance: random.Random, draft: Draft) -> None:
    draft.fields["base_offset"] = chance.choice([-1, 1, 2**40])


def _frame(chance: random.Random, draft: Draft) -> None:
    draft.raw = chance.choice(
        [
            lambda batch: batch * 2,
            lambda batch: batch[:-1],
            lambda batch: batch + b"\0",
            lambda batch: batch[:40],
            lambda batch: b"",
            lambda batch: batch[:16] + b"\1" + batch[17:],
            lambda batch: batch[:17] + b"\0\0\0\0" + batch[21:],
        ]
    )


def _plain_bytes(chance: random.Random, draft: Draft) -> None:
    """Bytes of the records, before they are compressed."""
    data = bytearray(draft.plain())
    for _ in range(chance.choice([1, 1, 4])):
        data[chance.randrange(min(len(data), chance.choice([30, 10**9])))] = chance.choice(
            [0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)]
        )
    draft.payload = bytes(data)


def _behind(chance: random.Random, draft: Draft) -> None:
    draft.payload = draft.plain() + chance.choice([b"\0", bytes(12), draft.records[0].written()])


def _cut(chance: random.Random, draft: Draft) -> None:
    data = draft.plain()
    draft.payload = data[: -chance.randrange(1, len(data))]


def _compressed_bytes(chance: random.Random, draft: Draft) -> None:
    data = bytearray(compress(draft.codec, draft.plain()))
    for _ in range(chance.choice([1, 1, 4])):
        data[chance.randrange(min(len(data), chance.choice([16, 10**9])))] = chance.randrange(256)
    draft.compressed = bytes(data)


def _compressed_cut(chance: random.Random, draft: Draft) -> None:
    data = compress(draft.codec, draft.plain())
    draft.compressed = data[: -chance.randrange(1, min(len(data), 20))]


def _compressed_behind(chance: random.Random, draft: Draft) -> None:
    draft.compressed = compress(draft.codec, draft.plain()) + chance.choice([b"\0", b"\0\0\0\0", bytes(20)])


def _compressed_twice(chance: random.Random, draft: Draft) -> None:
    """Two frames, one behind the other."""
    data = draft.plain()
    middle = chance.randrange(len(data) + 1)
    draft.compressed = compress(draft.codec, data[:middle]) + compress(draft.codec, data[middle:])


def _compressed_otherwise(chance: random.Random, draft: Draft) -> None:
    """In ways that other libraries than Kafka's have."""
    data = draft.plain()
    match draft.codec:
        case Codec.LZ4:
            draft.compressed = bytes(
                lz4.frame.compress(
                    data,
                    block_linked=chance.random() < 0.3,
                    block_size=chance.choice([0, 4, 5, 6, 7]),
                    content_checksum=chance.random() < 0.5,
                    block_checksum=chance.random() < 0.5,
                    store_size=chance.random() < 0.5,
                )
            )
        case Codec.GZIP:
            draft.compressed = gzip.compress(data, chance.choice([0, 1, 9]))
        case Codec.SNAPPY:
            raw = bytes(cramjam.snappy.compress_raw(data))
            xerial = bytearray(compress(Codec.SNAPPY, data))
            xerial[15] = chance.choice([0, 1, 2, 0x7F])
            draft.compressed = chance.choice([raw, bytes(xerial)])
        case Codec.ZSTD:
            parameters = zstandard.ZstdCompressionParameters(
                window_log=chance.choice([10, 20, 27, 28]), write_checksum=chance.random() < 0.5
            )
            writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
            draft.compressed = writer.compress(data) + writer.flush()
            if chance.random() < 0.3:
                draft.compressed = b"\x50\x2a\x4d\x18\x03\0\0\0abc" + draft.compressed
        case Codec.NONE:
            pass


def _nothing(chance: random.Random, draft: Draft) -> None:
    """A good batch, as they mostly are."""


CHANGES: Final[dict[str, Change]] = {
    "nothing": _nothing,
    "length lies": _length_lies,
    "length below null": _length_below_null,
    "padded varint": _padding,
    "header key null": _header_key_null,
    "header key no text": _header_key_no_text,
    "bytes in a record": _bytes_in_record,
    "offset": _offset,
    "null keys": _null_keys,
    "timestamps": _timestamps,
    "no timestamps": _no_timestamps,
    "max timestamp": _max_timestamp,
    "base timestamp": _base_timestamp,
    "count": _count,
    "counts differ": _counts_differ,
    "attributes": _attributes,
    "append time": _append_time,
    "codec number": _codec_number,
    "other codec": _other_codec,
    "producer": _producer,
    "base offset": _base_offset,
    "frame": _frame,
    "bytes": _plain_bytes,
    "behind": _behind,
    "cut": _cut,
}
COMPRESSED_CHANGES: Final[dict[str, Change]] = {
    "compressed bytes": _compressed_bytes,
    "compressed and cut": _compressed_cut,
    "bytes behind": _compressed_behind,
    "compressed twice": _compressed_twice,
    "compressed otherwise": _compressed_otherwise,
}


def cases(seed: int, count: int, now_ms: int) -> Iterator[Case]:
    """Yield `count` cases; the clocks of those who are asked are at about `now_ms`."""
    chance = random.Random(seed)
    for number in range(count):
        codec = chance.choice(list(Codec))
        draft = Draft(chance, codec, now_ms)
        changes = CHANGES if codec is Codec.NONE else CHANGES | COMPRESSED_CHANGES
        what = chance.choice(list(changes))
        changes[what](chance, draft)
        if chance.random() < 0.1:
            draft.header = draft.header._replace(max_timestamp=-1)
        topic = chance.choice(list(TOPICS))
        batch = draft.written()
        yield Case(f"{number}: {topic}, {codec.name.lower()}, {what}", topic, batch)


assert HEADER_BYTES == 61, "positions in `_frame` are those of format 2"
