"""Kafka's default partitioner over a column of keys: murmur2 of the key, modulo the partition count.

The hash works on words of four bytes. All keys advance word by word together; they are sorted by length,
longest first, so the keys that still have a word are a prefix. The caller distributes null keys (the sticky
partitioner).
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_KEY: Final = -1
"""Placeholder for the partition of a null key."""

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_SHIFT: Final = np.uint32(24)
_WORD_BYTES: Final = 4


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the 32-bit murmur2 hash, with Kafka's seed, of each key; a null hashes like an empty key."""
    wide = keys.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    if wide.null_count:
        lengths = np.where(wide.is_null().to_numpy(zero_copy_only=False), 0, lengths)
    data_buffer = wide.buffers()[2]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", dtype=np.uint8)
    by_length = _longest_first(lengths)
    starts, lengths = starts[by_length], lengths[by_length]
    hashes = _SEED ^ lengths.astype(np.uint32)
    word_counts = lengths // _WORD_BYTES
    for index in range(int(word_counts[0]) if len(lengths) else 0):
        rows = int(np.searchsorted(-word_counts, -index, side="left"))  # those with more than index words
        at = starts[:rows] + index * _WORD_BYTES
        word = data[at].astype(np.uint32)
        for byte in range(1, _WORD_BYTES):
            word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
        word *= _MULTIPLIER
        word ^= word >> _SHIFT
        word *= _MULTIPLIER
        hashes[:rows] *= _MULTIPLIER
        hashes[:rows] ^= word
    _mix_rest(hashes, data, starts + word_counts * _WORD_BYTES, lengths % _WORD_BYTES)
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    in_order = np.empty_like(hashes)
    in_order[by_length] = hashes
    return in_order


def _longest_first(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | slice:
    """Return the order of the keys by falling length; all rows if they are equally long."""
    if not len(lengths) or lengths.min() == lengths.max():
        return slice(None)
    return np.argsort(-lengths, kind="stable")


def _mix_rest(
    hashes: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    for byte in range(_WORD_BYTES - 2, -1, -1):
        rows = np.flatnonzero(lengths > byte)
        hashes[rows] ^= data[starts[rows] + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(lengths)
    hashes[rows] *= _MULTIPLIER


def partition_for_keys(keys: pa.Array | pa.ChunkedArray, partition_count: int) -> npt.NDArray[np.int32]:
    """Return each key's partition by Kafka's default partitioner, `NO_KEY` for a null key.

    `keys` are binary or string, of any width. An empty key is hashed like any other.

    >>> partition_for_keys(pa.array([b"21", None, b"foobar"]), 10).tolist()
    [0, -1, 6]
    """
    assert partition_count > 0, "a topic has at least one partition"
    if isinstance(keys, pa.ChunkedArray):
        pieces = [partition_for_keys(chunk, partition_count) for chunk in keys.chunks]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int32)
    if pa.types.is_null(keys.type):
        return np.full(len(keys), NO_KEY, dtype=np.int32)
    positive = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int32)
    partitions: npt.NDArray[np.int32] = positive % np.int32(partition_count)
    if keys.null_count:
        partitions[keys.is_null().to_numpy(zero_copy_only=False)] = NO_KEY
    return partitions
