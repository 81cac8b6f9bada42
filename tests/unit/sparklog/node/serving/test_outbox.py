"""Responses on their way out: every byte once and in order, however they are cut, in few system calls."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.node.serving.outbox import Flushed, Outbox, RegionTruncatedError
from sparklog.node.storage.file_region import FileRegion, LogFile
from sparklog.protocol.codec.encoder import Chunk
from tests.examples import FEW

CONTENT = bytes(range(256)) * 256


@pytest.fixture
def log_file(tmp_path: Path) -> LogFile:
    path = tmp_path / "0.log"
    path.write_bytes(CONTENT)
    return LogFile.open(path)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with ours, theirs:
        yield ours, theirs


def received(outbox: Outbox, theirs: socket.socket) -> bytes:
    """Flush until all is sent, and return it."""
    parts = []
    while outbox.flush() is not Flushed.EMPTY:
        parts.append(theirs.recv(1 << 16))
    theirs.setblocking(False)
    try:
        while part := theirs.recv(1 << 16):
            parts.append(part)
    except BlockingIOError:
        theirs.setblocking(True)
    return b"".join(parts)


@settings(max_examples=FEW, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(
        st.one_of(st.integers(1, 9_000), st.tuples(st.integers(0, 40_000), st.integers(1, 20_000))),
        max_size=12,
    )
)
def test_outbox_sends_every_byte_of_bytes_and_regions_in_order(
    chunks: list[Any], log_file: LogFile, sockets: tuple[socket.socket, socket.socket]
) -> None:
    """A region that is read, and one that is not, leave in their places, also where the socket blocks."""
    outbox = Outbox(sockets[0])
    queued: list[Chunk] = []
    expected = b""
    for chunk in chunks:
        if isinstance(chunk, int):
            queued.append(b"m" * chunk)
            expected += b"m" * chunk
        else:
            queued.append(FileRegion(log_file, *chunk))
            expected += CONTENT[chunk[0] : sum(chunk)]
    outbox.append(queued)
    assert received(outbox, sockets[1]) == expected
    assert outbox.pending_memory_bytes == 0


def test_outbox_sends_a_small_region_with_the_bytes_around_it(
    log_file: LogFile, sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One record's answer took four system calls, and woke its reader twice."""
    monkeypatch.setattr(os, "sendfile", None)
    outbox = Outbox(sockets[0])
    outbox.append([b"before", FileRegion(log_file, 10, 100), b"behind"])
    assert outbox.flush() is Flushed.EMPTY
    assert sockets[1].recv(1 << 16) == b"before" + CONTENT[10:110] + b"behind"
    assert outbox.pending_memory_bytes == 0


def test_outbox_with_a_small_region_that_is_not_in_memory_waits_for_no_disk(
    log_file: LogFile, sockets: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections would wait with it."""

    def not_cached(*arguments: Any) -> int:
        raise BlockingIOError(errno.EAGAIN, "not in the page cache")

    outbox = Outbox(sockets[0])
    outbox.append([b"before", FileRegion(log_file, 10, 100), b"behind"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "preadv", not_cached)
        assert outbox.flush() is Flushed.COLD
    outbox.warm()()
    assert received(outbox, sockets[1]) == b"before" + CONTENT[10:110] + b"behind"


def test_outbox_with_a_small_region_of_a_truncated_file_raises(
    log_file: LogFile, sockets: tuple[socket.socket, socket.socket]
) -> None:
    """The frame was announced with more bytes than there are; zeros instead would be worse than an end."""
    outbox = Outbox(sockets[0])
    outbox.append([b"before", FileRegion(log_file, 10, 100), b"behind"])
    os.ftruncate(log_file.fileno(), 10)
    with pytest.raises(RegionTruncatedError, match="100 bytes early"):
        outbox.flush()
