"""The process that makes batches of row groups: it ends with its broker, and another follows a dead one."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparklog.executor.remote_reads.decoding import decoder_process
from sparklog.executor.remote_reads.decoding.decoder_process import DecoderProcess
from sparklog.executor.remote_reads.decoding.exchange import BatchesRequest
from sparklog.executor.remote_reads.decoding.failure import DecodingFailedError
from sparklog.executor.remote_reads.row_group import RowGroup
from sparklog.node.remote_log.machine.manifest import EpochStart
from sparklog.node.remote_log.object_store import CorruptSegmentError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from tests.cluster import wait_for
from tests.unit.sparklog.node.remote_log.segments.rows import (
    END,
    Record,
    batches_of,
    footer_of,
    group_bytes,
    records_of,
    write,
)

STARTER = """
import sys
from sparklog.executor.remote_reads.decoding.decoder_process import DecoderProcess
from sparklog.node.remote_log.object_store import CorruptSegmentError

decoder = DecoderProcess()
try:
    decoder.footer(b"\\0\\0\\0\\0PAR1", "nothing")
except CorruptSegmentError:
    print(decoder.process_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def decoder() -> Iterator[DecoderProcess]:
    process = DecoderProcess()
    yield process
    process.end()


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    write(path, [Record(3, value=b"three"), Record(9, headers=(("h", b"x"),)), Record(2**40, key=b"k")])
    return path


def read(decoder: DecoderProcess, segment: Path, data: bytes | None = None) -> RowGroup:
    """Return the records of the first row group, from its own bytes or others."""
    footer = decoder.footer(segment.read_bytes(), segment.name)
    request = BatchesRequest(segment.name, 0, 4, END, [EpochStart(0, 0), EpochStart(2, 2**39)], 1024)
    return decoder.row_group(request, footer, group_bytes(segment, footer, 0) if data is None else data)


def is_gone(process_id: int) -> bool:
    return not psutil.pid_exists(process_id) or (psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE)


def test_decoder_gives_what_decoding_in_this_process_gives(decoder: DecoderProcess, segment: Path) -> None:
    """Records, offsets, epochs and the places of batches cross from one process to the other."""
    group = read(decoder, segment)
    expected = batches_of(
        segment, start_offset=4, leader_epochs=(EpochStart(0, 0), EpochStart(2, 2**39)), max_batch_bytes=1024
    )
    data = os.pread(group.file.fileno(), group.size_bytes, 0)
    assert data == expected.data
    assert [epoch for epoch, _ in records_of(data)] == [0, 2]
    assert group.end_offset == 2**40 + 1
    assert decoder.footer(segment.read_bytes(), "s").row_groups == footer_of(segment).row_groups


def test_decoder_gives_memory_back_after_each_row_group(decoder: DecoderProcess, tmp_path: Path) -> None:
    """It is counted beside the broker's cache, and there may be no next row group for long."""
    path = tmp_path / "large"
    noise = os.urandom(1 << 16)
    write(path, [Record(at, value=noise[at % 60_000 :][:400] + b"." * 600) for at in range(20_000)])
    footer = decoder.footer(path.read_bytes(), path.name)
    process_id = decoder.process_id
    assert process_id is not None
    process = psutil.Process(process_id)
    before_bytes = private_bytes(process)
    for row_group in [0, 1] * 4:
        request = BatchesRequest(path.name, row_group, 0, END, [EpochStart(0, 0)], 256 * 1024)
        decoder.row_group(request, footer, group_bytes(path, footer, row_group))
    wait_for(lambda: private_bytes(process) < before_bytes + (8 << 20), "memory given back", 10.0)


def private_bytes(process: psutil.Process) -> int:
    """Return the memory that is the process's alone: not that of files which it maps."""
    found = process.memory_info()
    return int(found.rss - found.shared)


def test_decoder_ends_with_a_broker_that_is_killed() -> None:
    """Nothing else would ever end it, and each broker that starts again would leave one more."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    ) as broker:
        assert broker.stdout is not None
        process_id = int(broker.stdout.readline())
        assert not is_gone(process_id)
        broker.send_signal(signal.SIGKILL)
        wait_for(lambda: is_gone(process_id), "its end")


def test_reader_notices_nothing_of_a_decoder_that_was_killed(decoder: DecoderProcess, segment: Path) -> None:
    """The system kills the process that takes memory: the request is made again, of another process."""
    size_bytes = read(decoder, segment).size_bytes
    killed = decoder.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    assert read(decoder, segment).size_bytes == size_bytes
    assert decoder.process_id != killed
    wait_for(lambda: is_gone(killed), "its end")


def test_decoder_that_is_killed_under_a_request_is_followed_by_one_that_answers(
    decoder: DecoderProcess, segment: Path
) -> None:
    """A request must not wait for an answer that never comes."""
    read(decoder, segment)
    killed = decoder.process_id
    assert killed is not None
    os.kill(killed, signal.SIGSTOP)
    before_ns = request_time_ns(killed)
    read_again: list[RowGroup] = []
    thread = threading.Thread(target=lambda: read_again.append(read(decoder, segment)))
    thread.start()
    wait_for(lambda: request_time_ns(killed) != before_ns, "the request")
    os.kill(killed, signal.SIGKILL)
    thread.join(30)
    assert [group.end_offset for group in read_again] == [2**40 + 1]


def request_time_ns(process_id: int) -> int:
    """Return when the last request or answer was written, by the file in which both are."""
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        if "sparklog-decoder" in str(descriptor.readlink()):
            return descriptor.stat().st_mtime_ns
    raise AssertionError("the process has no exchange file")


def test_row_group_that_kills_two_decoders_is_an_error(
    decoder: DecoderProcess, segment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of one row group that needs all the memory must not keep processes starting for ever."""
    (tmp_path / "deadly_decoder.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(decoder_process, "_MODULE", "deadly_decoder")
    with pytest.raises(DecodingFailedError, match="two decoder processes"):
        read(decoder, segment)
    monkeypatch.undo()
    assert read(decoder, segment).end_offset == 2**40 + 1


def test_damage_is_an_error_after_which_the_same_process_goes_on(
    decoder: DecoderProcess, segment: Path
) -> None:
    """Damaged bytes are the store's fault: clients are answered CORRUPT_MESSAGE, and others read on."""
    process_id = read(decoder, segment) and decoder.process_id
    data = bytearray(group_bytes(segment, footer_of(segment), 0))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(CorruptSegmentError, match="row group 0"):
        read(decoder, segment, bytes(data))
    with pytest.raises(CorruptSegmentError, match="bytes"):
        read(decoder, segment, b"short")
    with pytest.raises(CorruptSegmentError, match="Parquet"):
        decoder.footer(b"nothing like it", "s")
    assert read(decoder, segment).size_bytes
    assert decoder.process_id == process_id


def test_decoder_of_a_broker_that_shuts_down_starts_no_more(decoder: DecoderProcess, segment: Path) -> None:
    """A request may come between the end of the broker's reader and that of its thread."""
    footer = footer_of(segment)
    read(decoder, segment)
    process_id = decoder.process_id
    decoder.end()
    request = BatchesRequest(segment.name, 0, 0, END, [EpochStart(0, 0)], 1024)
    with pytest.raises(DecodingFailedError, match="shuts down"):
        decoder.row_group(request, footer, group_bytes(segment, footer, 0))
    assert process_id is not None
    wait_for(lambda: is_gone(process_id), "its end")


def memory_bytes(process_id: int) -> int:
    """Return the memory that a process alone has; what it maps of libraries, all processes share."""
    full = psutil.Process(process_id).memory_full_info()
    return int(full.uss)


def test_memory_of_a_decoder_is_that_of_one_row_group(decoder: DecoderProcess, tmp_path: Path) -> None:
    """However many row groups it has decoded: what is not used any more goes back to the system."""
    path = tmp_path / "segment"
    noise = os.urandom(1 << 20)
    write(path, *([Record(number, value=noise[number:])] for number in range(15)))
    footer: SegmentFooter = decoder.footer(path.read_bytes(), path.name)
    request = BatchesRequest(path.name, 0, 0, END, [EpochStart(0, 0)], 1 << 20)
    used_bytes = []
    for _ in range(4):
        decoder.row_group(request, footer, group_bytes(path, footer, 0))
        assert decoder.process_id is not None
        used_bytes.append(memory_bytes(decoder.process_id))
    assert max(used_bytes) < 72 * 1024 * 1024
