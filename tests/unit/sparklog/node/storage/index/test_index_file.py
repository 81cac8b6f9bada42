"""New index entries are in memory first: a look-up may not miss them, nor a truncation, a seal or a crash."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.storage.index.index_file import read_used
from sparklog.node.storage.index.offset_index import OffsetIndex, OffsetPosition
from sparklog.node.storage.index.time_index import TimeIndex
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import read_header
from tests.examples import examples
from tests.open_files import open_below
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch, read_all
from tests.unit.sparklog.node.storage.calls import calls_of

CONFIG = LogConfig(index_interval_bytes=1)


def append(log: Log, number: int) -> None:
    batch = make_batch(2, timestamp_ms=START_MS + 10 * number)
    log.append_as_leader(batch, read_header(batch), 1, START_MS)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)


@examples(100)
@given(
    steps=st.lists(
        st.one_of(st.just("append"), st.just("write"), st.tuples(st.just("truncate"), st.integers(0, 40))),
        max_size=60,
    )
)
def test_index_entries_wherever_they_are_are_found_as_in_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """Entries in the file and entries in memory are one index, for each look-up and each truncation."""
    path = tmp_path_factory.mktemp("index") / "00000000000000000100.index"
    index = OffsetIndex(path.parent, 100, ".index")
    index.make_writable(80 * 8)
    expected: list[OffsetPosition] = []
    for step in steps:
        if step == "append":
            last = expected[-1] if expected else OffsetPosition(100, 0)
            expected.append(OffsetPosition(last.last_offset + 3, last.position + 70))
            index.append(*expected[-1])
        elif step == "write":
            index.write()
            assert index.unwritten_bytes == 0
        else:
            offset = 100 + 3 * step[1]
            index.truncate_to(offset)
            expected = [entry for entry in expected if entry.last_offset < offset]
        assert index.entry_count == len(expected)
        assert index.last_entry() == (expected[-1] if expected else None)
        for number in (0, len(expected) // 2, len(expected)):
            offset = 100 + 3 * number + 1
            below = [entry for entry in expected if entry.last_offset <= offset]
            assert index.lookup(offset) == (below[-1] if below else None)
    index.trim(is_needed=True)
    index.end_appending()
    content = b"".join(OffsetIndex.ENTRY.pack(entry[0] - 100, entry[1]) for entry in expected)
    assert path.read_bytes() == content


def test_indexes_of_an_active_segment_are_written_for_many_batches_at_once(log: Log) -> None:
    """Two small writes a produced batch were a twentieth of all that it cost."""
    with calls_of("pwrite", lambda path, result: None) as paths:
        for number in range(100):
            append(log, number)
    assert 2 <= sum("index" in path for path in paths) <= 2 * 100 // 32
    for number in range(1, 100):  # nor is any batch hidden meanwhile
        result = log.read(2 * number, max_bytes=1, up_to_offset=log.log_end_offset)
        assert result.region is not None
        assert read_header(result.region.read()).base_offset == 2 * number
        found = log.offset_for_timestamp(START_MS + 10 * number, log.log_end_offset)
        assert found is not None
        assert found.offset == 2 * number


def test_index_files_of_a_log_are_there_when_it_has_entries_and_no_earlier(log: Log, tmp_path: Path) -> None:
    """Ten thousand partitions, most of them empty, took thirty thousand files and descriptors."""
    assert sorted(path.suffix for path in log.directory.iterdir() if path.stem.isdigit()) == [".log"]
    assert [Path(path).suffix for path in open_below(log.directory)] == [".log"]
    for number in range(100):
        append(log, number)
    assert sorted(Path(path).suffix for path in open_below(log.directory)) == [".index", ".log", ".timeindex"]
    assert log.segments.active.offset_index.path.stat().st_size == CONFIG.segment_index_bytes
    log.close()
    again = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)
    assert again.segments.active.offset_index.entry_count == 99
    again.close(clean=False)


@pytest.mark.parametrize("stop", [PreviousStop.CLEAN, PreviousStop.KILLED, PreviousStop.UNKNOWN])
def test_log_without_records_is_opened_again_without_index_files(
    log: Log, tmp_path: Path, stop: PreviousStop, caplog: pytest.LogCaptureFixture
) -> None:
    """It has lost nothing, and a start of thousands of them creates no file."""
    log.close(clean=stop is PreviousStop.CLEAN)
    again = Log.open(tmp_path / "t-0", CONFIG, stop=stop, now_ms=START_MS)
    assert {Path(path).suffix for path in open_below(again.directory)} == {".log"}
    assert not list(again.directory.glob("*index"))
    assert (again.log_end_offset, again.missing, caplog.messages) == (0, None, [])
    append(again, 0)
    assert again.log_end_offset == 2
    again.close()
    assert sorted(path.suffix for path in again.directory.glob("*index")) == [".index", ".timeindex"]


def test_rolled_segment_has_its_index_files_even_without_entries(log: Log) -> None:
    """Kafka, and a start after a kill, would read a whole segment without them."""
    log.reconfigure(LogConfig())
    append(log, 0)
    log.roll(START_MS)
    sealed = log.segments.all[0]
    assert sealed.offset_index.path.read_bytes() == b""
    assert sealed.time_index.path.stat().st_size == TimeIndex.ENTRY.size


def test_time_index_is_written_before_the_offset_index(log: Log) -> None:
    """Recovery reads a segment from its start where the last offset entry's batch has no time entry."""
    active = log.segments.active

    def look(path: str, result: Any) -> None:
        offsets = list(OffsetIndex.ENTRY.iter_unpack(read_used(active.offset_index.path)[:800]))
        times = list(TimeIndex.ENTRY.iter_unpack(read_used(active.time_index.path)[:1200]))
        assert max((entry[0] for entry in offsets), default=0) <= max(entry[1] for entry in times)

    with calls_of("pwrite", look) as paths:
        for number in range(100):
            append(log, number)
    assert paths


def test_append_whose_index_cannot_be_written_leaves_all_before_it_readable(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batches whose entries wait for the failing write were acknowledged before it."""
    pwrite = os.pwrite

    def fails(*arguments: Any) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "pwrite", fails)
    appended = 0
    with pytest.raises(KafkaError, match="append to"):
        for appended in range(100):
            append(log, appended)
    assert 10 < appended < 100
    assert log.log_end_offset == 2 * appended
    monkeypatch.setattr(os, "pwrite", pwrite)
    for number in range(appended, appended + 50):
        append(log, number)
    for number in range(appended + 50):
        result = log.read(2 * number, max_bytes=1, up_to_offset=log.log_end_offset)
        assert result.region is not None
        assert read_header(result.region.read()).base_offset == 2 * number


def test_append_whose_index_files_cannot_be_opened_leaves_no_entries_of_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors run out, and are there again: another batch takes its place, with another time."""
    real = os.open

    def fails(path: Any, *arguments: Any) -> int:
        if str(path).endswith("index"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", fails)
    appended = 0
    with pytest.raises(KafkaError, match="append to"):
        for appended in range(100):
            append(log, appended)
    monkeypatch.setattr(os, "open", real)
    active, end, late_ms = log.segments.active, log.log_end_offset, START_MS + 10 * appended + 5
    assert end == 2 * appended
    assert active.offset_index.entry_count == active.time_index.entry_count == appended - 1
    late = make_batch(1, timestamp_ms=late_ms)
    log.append_as_leader(late, read_header(late), 1, START_MS)
    append(log, appended + 1)
    found = log.offset_for_timestamp(late_ms - 1, log.log_end_offset)
    assert found is not None
    assert found.offset == end


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_segment_is_appended_to_when_its_indexes_could_not_be_trimmed_for_a_roll(
    log: Log, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """For lack of a descriptor one of them was closed for appending and the other was not."""
    for number in range(10):
        append(log, number)
    real = os.open

    def fails(path: Any, *arguments: Any) -> int:
        if str(path).endswith(suffix):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", fails)
    with pytest.raises(KafkaError, match="roll"):
        log.roll(START_MS)
    monkeypatch.setattr(os, "open", real)
    for number in range(10, 20):
        append(log, number)
    log.roll(START_MS)
    sealed = log.segments.all[0]
    for index in (sealed.offset_index, sealed.time_index):
        assert index.entry_count == 19
        assert index.path.stat().st_size == 19 * index.ENTRY.size


@pytest.mark.parametrize("is_clean", [True, False])
def test_index_of_a_log_that_was_closed_is_complete_when_it_is_opened(
    log: Log, tmp_path: Path, is_clean: bool
) -> None:
    """Entries in memory are written at a clean stop, and made again after a kill."""
    for number in range(50):
        append(log, number)
    content, entry_count = read_all(log), log.segments.active.offset_index.entry_count
    assert entry_count == 49
    log.close(clean=is_clean)
    again = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS)
    assert read_all(again) == content
    assert again.segments.active.offset_index.entry_count == entry_count
    assert [entry.last_offset for entry in (again.segments.active.offset_index.last_entry(),) if entry] == [
        99
    ]
