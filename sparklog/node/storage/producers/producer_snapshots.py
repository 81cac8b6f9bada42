"""Producer state on disk: `<offset>.snapshot` has a log's producers as of `offset`.

Layout, big-endian: version 1 (int16), CRC-32C of what follows it (uint32), number of entries (int32), and 46
bytes an entry: producer id (int64), epoch (int16), last sequence (int32), last offset (int64), offset delta
of the last batch (int32), timestamp (int64), coordinator epoch (int32), first offset of the open transaction
(int64). -1 stands for a missing value. Only the last batch of a producer is kept, as in Kafka.

A producer expires by the timestamp. Kafka (ProducerStateManager) writes the largest timestamp of its last
batch, and expires producers by it when it reads the file; here it is the time of that batch's append. Each
can read the other's files: a Kafka broker keeps a producer of ours as long as it should. An unknown or future
time (Kafka's may be, or the clock was set back) is replaced by the time of reading.
"""

from collections.abc import Mapping
from pathlib import Path
from struct import Struct
from typing import Final

from crc32c import crc32c

from sparklog.node.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_of
from sparklog.node.storage.machine.producer_states import BatchMetadata, ProducerState, ProducerStates
from sparklog.protocol.types import Offset, ProducerId, TimestampMs, or_minus_one

_VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
assert (_PREFIX.size, _ENTRY.size) == (6, 46)
_SEQUENCE_MASK: Final = 2**31 - 1


class CorruptSnapshotError(ValueError):
    """The bytes are not a valid producer snapshot."""


def encode_snapshot(producers: Mapping[ProducerId, ProducerState]) -> bytes:
    """Return the content of a snapshot file for producers from `ProducerStates.capture`."""
    entries = bytearray(_COUNT.pack(len(producers)))
    for producer_id, state in producers.items():
        last = state.batches[-1] if state.batches else None
        entries += _ENTRY.pack(
            producer_id,
            state.producer_epoch,
            -1 if last is None else last.last_sequence,
            -1 if last is None else last.last_offset,
            0 if last is None else last.offset_delta,
            state.last_append_ms,
            or_minus_one(state.coordinator_epoch),
            or_minus_one(state.transaction_first_offset),
        )
    return _PREFIX.pack(_VERSION, crc32c(entries)) + entries


def decode_snapshot(content: bytes, now_ms: TimestampMs) -> ProducerStates:
    """Return the states of a snapshot by `encode_snapshot` or by Kafka.

    Raises:
        CorruptSnapshotError: another version, a wrong CRC or length.
    """
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshotError(f"{len(content)} bytes are too few")
    version, crc = _PREFIX.unpack_from(content)
    body = memoryview(content)[_PREFIX.size :]
    if version != _VERSION:
        raise CorruptSnapshotError(f"version {version}, not {_VERSION}")
    if crc32c(body) != crc:
        raise CorruptSnapshotError("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries in {len(body)} bytes")
    producers: dict[ProducerId, ProducerState] = {}
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, producer_epoch, last_sequence, last_offset, offset_delta = entry[:5]
        timestamp_ms, coordinator_epoch, transaction_first_offset = entry[5:]
        state = ProducerState(producer_epoch, timestamp_ms if 0 <= timestamp_ms <= now_ms else now_ms)
        state.coordinator_epoch = coordinator_epoch if coordinator_epoch >= 0 else None
        state.transaction_first_offset = transaction_first_offset if transaction_first_offset >= 0 else None
        if last_offset >= 0:
            first_sequence = (last_sequence - offset_delta) & _SEQUENCE_MASK if last_sequence >= 0 else -1
            state.batches.append(
                BatchMetadata(first_sequence, last_sequence, last_offset, offset_delta, timestamp_ms)
            )
        producers[producer_id] = state
    states = ProducerStates()
    states.restore(producers)
    return states


def snapshot_offsets(directory: Path) -> list[Offset]:
    """Return the offsets of the snapshot files in a log's directory, rising."""
    offsets = (
        offset_of(path.name) for path in directory.iterdir() if path.name.endswith(PRODUCER_SNAPSHOT_SUFFIX)
    )
    return sorted(offset for offset in offsets if offset is not None)
