"""Kafka's default partitioner over a column of keys: murmur2 of the key, modulo the partition count."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["NO_KEY", "murmur2", "partition_for_keys"]

NO_KEY = -1


def murmur2(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """Return murmur2 of each key."""
    raise NotImplementedError


def partition_for_keys(keys: pa.Array | pa.ChunkedArray, partition_count: int) -> npt.NDArray[np.int32]:
    """Return each key's partition, -1 where the key is null."""
    raise NotImplementedError
