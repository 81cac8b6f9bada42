"""The decoder process: `python -m ... <socket> <exchange file>`, both as inherited descriptors (`exchange`).

It has one thread, and the broker's priority: at a lower one a reader of the store would get nothing beside
other work on the machine. It ends when the broker's end of the socket is closed, on purpose or by the death
of the broker.
"""

import signal
import socket
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa

from sparklog.executor.remote_reads.decoding.exchange import (
    ANSWER,
    REQUEST,
    AnswerKind,
    BatchesRequest,
    BatchList,
    RequestKind,
    encode_row_groups,
    mapped_parts,
    write_parts,
)
from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.row_group_batches import BatchPosition, row_group_batches
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.storage.file_region import LogFile

_FOOTERS: Final = 4
"""Parsed footers that are kept: readers come back for the next row group."""


def main() -> None:
    """Answer requests until the broker is gone."""
    # Ctrl+C is meant for the application; the broker ends its decoder.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    exchange_file = int(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as channel, suppress(ConnectionError):
        while True:
            message, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, maxfds=1)
            if not message:
                return
            kind, *sizes = REQUEST.unpack(message)
            file = LogFile(Path("batches"), descriptors[0]) if descriptors else None
            answer_kind, answer = _answer(RequestKind(kind), exchange_file, sizes, file)
            write_parts(exchange_file, [answer])
            channel.send(ANSWER.pack(answer_kind.value, len(answer)))
            # The pool would keep several times a row group, for the next one that may not come.
            pa.default_memory_pool().release_unused()


def _answer(
    kind: RequestKind, exchange_file: int, sizes: list[int], file: LogFile | None
) -> tuple[AnswerKind, bytes]:
    try:
        arguments, footer, row_group = mapped_parts(exchange_file, sizes)
        if kind is RequestKind.FOOTER:
            row_groups = _footer(bytes(footer), bytes(arguments).decode()).row_groups
            return AnswerKind.DONE, encode_row_groups(row_groups)
        assert file is not None, "batches go into a file"
        batches = BatchesRequest.decode(bytes(arguments))
        return AnswerKind.DONE, _write_batches(batches, bytes(footer), row_group, file).encode()
    except CorruptSegmentError as error:
        return AnswerKind.CORRUPT, str(error).encode()
    except (OSError, MemoryError) as error:
        return AnswerKind.FAILED, (str(error) or repr(error)).encode()


def _write_batches(request: BatchesRequest, footer: bytes, row_group: memoryview, file: LogFile) -> BatchList:
    steps = row_group_batches(
        row_group,
        _footer(footer, request.name),
        request.row_group,
        start_offset=request.start_offset,
        end_offset=request.end_offset,
        leader_epochs=request.leader_epochs,
        max_batch_bytes=request.max_batch_bytes,
    )
    positions: list[BatchPosition] = []
    size_bytes = 0
    for step in steps:
        file.pwrite(list(step.parts), step.size_bytes, size_bytes)
        positions += step.positions
        size_bytes += step.size_bytes
    return BatchList.of(positions, size_bytes)


@lru_cache(_FOOTERS)
def _footer(data: bytes, name: str) -> SegmentFooter:
    return SegmentFooter.parse(data, name)


if __name__ == "__main__":
    main()
