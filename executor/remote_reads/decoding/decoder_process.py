"""The broker's side of its decoder process: starts it, sends requests, and starts another when it has ended.

Decoding a row group takes tens of milliseconds of numpy and Arrow, much of it with the interpreter, for which
the event loop would wait. So it belongs into another process: one a broker, started by the first request,
since a broker whose tier is not read needs none. Rules kept: it ends with the broker, and its memory is that
of one row group at a time.

A process that has ended, for want of memory say, is replaced, and the request is made once more. If the next
one ends as well the row group may be the cause, and the request has failed.
"""

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Final

from sparklog.executor.python_process import start_module
from sparklog.executor.remote_reads.decoding.exchange import (
    ANSWER,
    REQUEST,
    AnswerKind,
    BatchesRequest,
    BatchList,
    RequestKind,
    channel,
    decode_row_groups,
    write_parts,
)
from sparklog.executor.remote_reads.decoding.failure import DecodingFailedError
from sparklog.executor.remote_reads.memory_file import MemoryFile
from sparklog.executor.remote_reads.row_group import RowGroup
from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter, footer_bytes
from sparklog.node.storage.file_region import Buffer, LogFile

_MODULE: Final = "sparklog.executor.remote_reads.decoding.process"
_KEPT_MEMORY_BYTES: Final = 32 * 1024 * 1024
"""The most that stays with the process between requests, of what they used."""
_LITTLE_MEMORY: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(_KEPT_MEMORY_BYTES),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT_MEMORY_BYTES),
}
"""Arrow's other allocators keep more memory; without any kept, a third of the time goes into its pages."""
_KEPT_EXCHANGE_BYTES: Final = 8 * 1024 * 1024
_ANSWER_TIMEOUT_S: Final = 25.0
"""After which a process counts as dead: stopped, or thrashing."""


class DecoderProcess:
    """Belongs to one thread, but for `end`; requests block."""

    def __init__(self) -> None:
        self._running: _Running | None = None
        self._is_ended = False

    @property
    def process_id(self) -> int | None:
        """None before the first request."""
        return None if self._running is None else self._running.process.pid

    def footer(self, tail: bytes, name: str) -> SegmentFooter:
        """Return the footer at the end of `tail`.

        Raises:
            CorruptSegmentError: it is not a segment's, or begins before `tail`.
            DecodingFailedError.
        """
        data = tail[-footer_bytes(tail, name) :]
        answer = self._ask(RequestKind.FOOTER, (name.encode(), data, b""))
        return SegmentFooter(name, data, decode_row_groups(answer))

    def row_group(self, request: BatchesRequest, footer: SegmentFooter, data: bytes) -> RowGroup:
        """Return the batches of a row group, of whose bytes `data` is all.

        Raises:
            CorruptSegmentError: the bytes are not the row group's, or damaged.
            DecodingFailedError: as above, or there is no memory or descriptor for the batches.
        """
        try:
            file = MemoryFile(f"{request.name}#{request.row_group}")
            answer = self._ask(RequestKind.BATCHES, (request.encode(), footer.data, data), file)
        except OSError as error:
            raise DecodingFailedError(f"row group {request.row_group} of {request.name}: {error}") from error
        batches = BatchList.decode(answer)
        file.length = batches.positions[-1]
        return RowGroup(file, *batches)

    def end(self) -> None:
        """Kill the process, in any thread; a request under way fails."""
        self._is_ended = True
        running = self._running
        if running is not None:
            running.end()

    def _ask(self, kind: RequestKind, parts: Sequence[Buffer], file: LogFile | None = None) -> bytes:
        ended: ConnectionError | TimeoutError | None = None
        for _ in range(2):
            running = self._running = self._running or _start()
            if self._is_ended:
                running.end()
                raise DecodingFailedError("the broker shuts down")
            try:
                return running.ask(kind, parts, file)
            except (ConnectionError, TimeoutError) as error:
                ended = error
                running.end()
                self._running = None
        raise DecodingFailedError(f"two decoder processes have ended, one after the other: {ended!r}")


class _Running:
    def __init__(self, process: "subprocess.Popen[bytes]", ours: socket.socket, exchange: LogFile) -> None:
        self.process: Final = process
        self._channel: Final = ours
        self._exchange: Final = exchange

    def ask(self, kind: RequestKind, parts: Sequence[Buffer], file: LogFile | None) -> bytes:
        descriptor = self._exchange.fileno()
        write_parts(descriptor, parts)
        message = REQUEST.pack(kind.value, *map(len, parts))
        if file is None:
            self._channel.send(message)
        else:
            socket.send_fds(self._channel, [message], [file.fileno()])
        received = self._channel.recv(ANSWER.size)
        if not received:
            raise ConnectionResetError(f"decoder process {self.process.pid} has ended")
        answer_kind, size_bytes = ANSWER.unpack(received)
        answer = os.pread(descriptor, size_bytes, 0)
        if max(sum(map(len, parts)), size_bytes) > _KEPT_EXCHANGE_BYTES:
            os.ftruncate(descriptor, 0)
        match AnswerKind(answer_kind):
            case AnswerKind.CORRUPT:
                raise CorruptSegmentError(answer.decode())
            case AnswerKind.FAILED:
                raise DecodingFailedError(answer.decode())
        return answer

    def end(self) -> None:
        self.process.kill()
        Thread(target=self.process.wait, daemon=True).start()


def _start() -> _Running:
    exchange = LogFile(Path("exchange"), os.memfd_create("sparklog-decoder", os.MFD_CLOEXEC))
    ours, theirs = channel()
    with theirs:
        descriptors = theirs.fileno(), exchange.fileno()
        try:
            process = start_module(
                _MODULE,
                *map(str, descriptors),
                environment=_LITTLE_MEMORY,
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
            )
        except OSError as error:
            ours.close()
            raise DecodingFailedError(f"no decoder process can be started: {error}") from error
    ours.settimeout(_ANSWER_TIMEOUT_S)
    return _Running(process, ours, exchange)
