"""The requests of a producer, made before they are sent: acks=all, idempotent, one batch each."""

import datetime
import random
import socket
import struct
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

import zstandard
from crc32c import crc32c
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.codec.frames import request_encoder
from sparklog.protocol.records.batch import CRC_START, HEADER_BYTES, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec

BATCH_BYTES: Final = 65_536
_LETTERS: Final = bytes(range(ord("A"), ord("Z") + 1))
_WORDS: Final = [b"%08x" % (number * number) for number in range(200)]
_CORRELATION_AT: Final = 8
_SEQUENCE_AT: Final = 53
_TIMESTAMPS_AT: Final = 27
_INT32: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_TIMESTAMPS: Final = struct.Struct(">qq")
_ANSWER_WITHIN_S: Final = 60.0


class Case(NamedTuple):
    """The batches of a case: as many records as fill one, or `records` of them."""

    record_bytes: int
    codec: Codec = Codec.NONE
    records: int | None = None
    are_events: bool = False
    """Whether they are JSON of sizes around `record_bytes`, as zstd in the way of Java's producer, and not
    letters."""


CASES: Final[Mapping[str, Case]] = {
    "1 KB": Case(1_000),
    "100 B": Case(100),
    "1 KB zstd": Case(1_000, Codec.ZSTD),
    "100 B zstd": Case(100, Codec.ZSTD),
    "100 B gzip": Case(100, Codec.GZIP),
    "100 B lz4": Case(100, Codec.LZ4),
    "one record": Case(100, records=1),
    "ten records": Case(300, records=10, codec=Codec.ZSTD, are_events=True),
    "events zstd": Case(300, Codec.ZSTD, are_events=True),
}


class Stream:
    """The requests for one partition, each a copy of the first with its own id, sequence and timestamps."""

    def __init__(self, address: tuple[str, int], topic: str, partition: int, case: Case, seed: int) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_ANSWER_WITHIN_S)
        batch, self._record_count = make_batch(case, seed)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=datetime.timedelta(seconds=30),
            topic_data=(
                TopicProduceData(
                    name=topic,
                    partition_data=(PartitionProduceData(index=partition, records=batch),),
                ),
            ),
        )
        self._frame = bytearray(b"".join(bytes(chunk) for chunk in request_encoder("microscope")(request, 0)))
        self._batch_at = self._frame.index(batch)
        self._batch_bytes = len(batch)
        self._sent = 0

    def send(self) -> None:
        frame, at = self._frame, self._batch_at
        _INT32.pack_into(frame, _CORRELATION_AT, self._sent)
        _INT32.pack_into(frame, at + _SEQUENCE_AT, self._sent * self._record_count)
        now_ms = wall_clock_ms()
        _TIMESTAMPS.pack_into(frame, at + _TIMESTAMPS_AT, now_ms, now_ms + 3)
        with memoryview(frame)[at + CRC_START : at + self._batch_bytes] as covered:
            crc = crc32c(covered)
        _CRC.pack_into(frame, at + CRC_START - 4, crc)
        self._sent += 1
        self._socket.sendall(frame)

    def receive(self) -> None:
        """Wait for the answer of the oldest request.

        Raises:
            RuntimeError: it is an error.
        """
        size = _INT32.unpack(self._exactly(4))[0]
        answer = self._exactly(size)
        # The error code is behind the header's id and tags, two counts, the topic's name and two numbers.
        name_bytes = answer[6] - 1
        code_at = 7 + name_bytes + 1 + 4
        error_code = int.from_bytes(answer[code_at : code_at + 2], "big", signed=True)
        if error_code:
            raise RuntimeError(f"a batch was refused with error code {error_code}: {answer!r}")

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise RuntimeError("a broker closed the connection")
            parts += part
        return parts


def produce(streams: list[Stream], batches: int, in_flight: int) -> float:
    """Produce as many batches to each partition, waiting for the answers; return the seconds it took."""
    began_s = time.monotonic()
    for number in range(batches + in_flight):
        for stream in streams:
            if number >= in_flight:
                stream.receive()
        for stream in streams:
            if number < batches:
                stream.send()
    return time.monotonic() - began_s


def make_batch(case: Case, seed: int) -> tuple[bytes, int]:
    """Return a batch of at most `BATCH_BYTES` and how many records it has."""
    chosen = random.Random(seed)
    now_ms = wall_clock_ms()

    def value() -> bytes:
        if case.are_events:
            return _event(chosen, case.record_bytes)
        return bytes(chosen.choices(_LETTERS, k=case.record_bytes))

    def made(count: int) -> bytes:
        records = [SimpleRecord(value=value(), timestamp_ms=now_ms) for _ in range(count)]
        records[-1] = records[-1]._replace(timestamp_ms=now_ms + 3)
        codec = Codec.NONE if case.are_events else case.codec
        batch = build_batch(records, producer_id=seed, producer_epoch=0, base_sequence=0, codec=codec)
        return _streamed(batch) if case.are_events else batch

    if case.records is not None:
        return made(case.records), case.records
    few = 256
    count = int(few * BATCH_BYTES / len(made(few)) * 0.98)
    return made(count), count


def _event(chosen: random.Random, about_bytes: int) -> bytes:
    """Return JSON of half to one and a half times the size, of which zstd leaves about a fifth."""
    words = chosen.choices(_WORDS, k=chosen.randint(about_bytes // 20, about_bytes * 3 // 20))
    number = chosen.randrange(10**6)
    return b'{"flight":%d,"carrier":"UA","words":"%s"}' % (number, b" ".join(words))


def _streamed(batch: bytes) -> bytes:
    """Return the batch in zstd as Java's producer writes it: without its size, its last block empty."""
    stream = zstandard.ZstdCompressor().compressobj()
    parts = (stream.compress(batch[HEADER_BYTES:]), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    payload = b"".join((*parts, stream.flush()))
    return header_bytes(read_header(batch)._replace(attributes=Codec.ZSTD), payload) + payload
