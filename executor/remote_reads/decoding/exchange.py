"""The messages between a broker and its decoder process.

Both have one memory file, the exchange file. The broker writes the parts of a request into it, one after the
other, and sends their sizes over a socket; a request for batches carries the descriptor of the memory file
that they go into. Then the process writes its answer into the exchange file, and sends its size. So there is
one request at a time, and nothing larger than a few bytes goes through the socket.
"""

import json
import mmap
import os
import socket
from array import array
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple, Self

from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.segments.row_group_batches import BatchPosition
from sparklog.node.remote_log.segments.segment_footer import RowGroup
from sparklog.node.storage.file_region import Buffer
from sparklog.protocol.types import Offset

REQUEST: Final = Struct("<cQQQ")
"""Kind, and the sizes of the arguments, the footer and the row group."""
ANSWER: Final = Struct("<cQ")
"""Kind, and size."""


class RequestKind(Enum):
    FOOTER = b"F"
    """The row groups of a footer; without a row group."""
    BATCHES = b"B"


class AnswerKind(Enum):
    DONE = b"D"
    CORRUPT = b"C"
    """A `CorruptSegmentError`; with the message."""
    FAILED = b"F"
    """An OSError or MemoryError; with the message."""


class BatchesRequest(NamedTuple):
    """The arguments of `row_group_batches` beside footer and bytes."""

    name: str
    row_group: int
    start_offset: Offset
    end_offset: Offset
    leader_epochs: Sequence[EpochStart]
    max_batch_bytes: int

    def encode(self) -> bytes:
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        fields = json.loads(data)
        fields[4] = [EpochStart(*epoch) for epoch in fields[4]]
        return cls(*fields)


class BatchList(NamedTuple):
    """Where the batches of a row group are in their file."""

    last_offsets: Sequence[Offset]
    """Inclusive."""
    positions: Sequence[int]
    """Position of each batch, and of the end."""
    max_timestamps: Sequence[int]

    @classmethod
    def of(cls, batches: Sequence[BatchPosition], size_bytes: int) -> Self:
        return cls(
            array("q", [batch.last_offset for batch in batches]),
            array("q", [*(batch.position for batch in batches), size_bytes]),
            array("q", [batch.max_timestamp_ms for batch in batches]),
        )

    def encode(self) -> bytes:
        return b"".join(array("q", numbers).tobytes() for numbers in self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        numbers = array("q", data)
        count = len(numbers) // 3
        return cls(numbers[:count], numbers[count : 2 * count + 1], numbers[2 * count + 1 :])


def encode_row_groups(row_groups: Iterable[RowGroup]) -> bytes:
    return b"".join(array("q", group).tobytes() for group in row_groups)


def decode_row_groups(data: bytes) -> tuple[RowGroup, ...]:
    numbers = iter(array("q", data))
    return tuple(map(RowGroup._make, zip(*[numbers] * len(RowGroup._fields), strict=True)))


def channel() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a socket that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def write_parts(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write parts to the beginning of an exchange file."""
    position = 0
    for part in parts:
        left = memoryview(part)
        while left:
            written = os.pwrite(descriptor, left, position)
            position += written
            left = left[written:]


def mapped_parts(descriptor: int, sizes: Sequence[int]) -> list[memoryview]:
    """Return the parts at the beginning of an exchange file without a copy, until the next is written."""
    whole = memoryview(mmap.mmap(descriptor, sum(sizes), prot=mmap.PROT_READ))
    ends = list(accumulate(sizes))
    return [whole[end - size : end] for size, end in zip(sizes, ends, strict=True)]
