"""What a log is after a crash, a bit flip, a lost file: everything sound, nothing that is not."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.node.storage.checkpoints import read_leader_epochs
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.producers.producer_snapshots import snapshot_offsets
from sparklog.node.storage.recovery.new_log import new_log
from sparklog.node.storage.recovery.recovery import LoadedLog, load_log
from sparklog.protocol.records.batch import read_header
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    headers_of,
    load_producers_again,
    make_batch,
    read_all,
)
from tests.unit.sparklog.node.storage.calls import calls_of

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, segment_index_bytes=4096)


def open_log(directory: Path, *, clean: bool = False, recovery_point: int = 0) -> Log:
    """Open the log in `directory`."""
    stop = PreviousStop.CLEAN if clean else PreviousStop.UNKNOWN
    return Log.open(directory, CONFIG, now_ms=START_MS, stop=stop, recovery_point=recovery_point)


def crashed_log(tmp_path: Path, batches: int, *, flush_at: int | None = None) -> tuple[Path, bytes]:
    """Leave a log behind as a killed process does; return its directory and content."""
    log = open_log(tmp_path / "t-0")
    for i in range(batches):
        batch = make_batch(
            2,
            timestamp_ms=START_MS + 2 * i,
            producer_id=7,
            producer_epoch=0,
            base_sequence=2 * i,
        )
        log.append_as_leader(batch, read_header(batch), i // 25, START_MS)
        if i == flush_at:
            log.flush()
    content = read_all(log)
    log.flush_rolled()
    log.close(clean=False)
    return log.directory, content


def last_log_file(directory: Path) -> Path:
    """Return the active segment's file."""
    return max(directory.glob("*.log"))


def index_contents(directory: Path) -> dict[str, bytes]:
    """Return what is in the indexes."""
    return {path.name: path.read_bytes() for path in directory.glob("*index")}


def check_usable(log: Log) -> None:
    """Look-ups agree with the content, and the log takes the next batch."""
    for header in headers_of(read_all(log)):
        result = log.read(header.base_offset, max_bytes=1, up_to_offset=log.log_end_offset)
        assert result.region is not None
        assert headers_of(result.region.read()) == [header]
        found = log.offset_for_timestamp(header.max_timestamp, log.log_end_offset)
        assert found is not None
        assert found.timestamp_ms == header.max_timestamp
    end = log.log_end_offset
    batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=end)
    assert log.append_as_leader(batch, read_header(batch), 9, START_MS).base_offset == end


def test_recovery_cuts_a_tail_torn_at_any_byte_and_keeps_it_aside(tmp_path: Path) -> None:
    """A crash may leave any part of the last batch; nothing before it may be lost."""
    directory, content = crashed_log(tmp_path, 24)
    last = headers_of(content)[-1]
    pristine = tmp_path / "pristine"
    shutil.copytree(directory, pristine)
    size = last_log_file(directory).stat().st_size
    for missing in range(1, last.size_bytes):
        shutil.rmtree(directory)
        shutil.copytree(pristine, directory)
        with last_log_file(directory).open("r+b") as file:
            file.truncate(size - missing)
        log = open_log(directory, recovery_point=40)
        assert log.log_end_offset == last.base_offset
        cut = directory / f"{last_log_file(directory).name}.cut-1"
        assert cut.read_bytes() == content[-last.size_bytes : -missing]
        if missing % 31 == 0:
            check_usable(log)
        log.close(clean=False)


@pytest.mark.parametrize("position", [0, 8, 11, 16, 17, 21, 26, 40, 60, 61, 70, -1])
def test_recovery_of_a_flipped_bit_ends_the_log_there(tmp_path: Path, position: int) -> None:
    """Damage in an unflushed part ends the log: later segments must not follow a gap."""
    directory, content = crashed_log(tmp_path, 60)
    victim = sorted(directory.glob("*.log"))[2]
    data = bytearray(victim.read_bytes())
    second = headers_of(bytes(data))[1]
    start = headers_of(bytes(data))[0].size_bytes
    data[start + (position if position >= 0 else second.size_bytes - 1)] ^= 0x10
    victim.write_bytes(data)
    log = open_log(directory)
    if position in (11,):
        # A length that is off by 16 takes in bytes of the next batch, or leaves bytes of this one.
        assert log.log_end_offset == second.base_offset
    if position == 0:
        # The base offset is outside the CRC: what gives it away is that it does not fit in.
        assert log.log_end_offset == second.base_offset
    assert log.log_end_offset == second.base_offset
    assert read_all(log) == content[: len(read_all(log))]
    assert max(directory.glob("*.log")) == victim
    check_usable(log)
    log.close()
    assert open_log(directory, clean=True).log_end_offset == second.base_offset + 2


def test_recovery_reads_only_above_the_recovery_point(tmp_path: Path) -> None:
    """Start-up time must not grow with the log: what was flushed is trusted."""
    directory, _ = crashed_log(tmp_path, 60, flush_at=50)
    first = min(directory.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[80] ^= 1
    first.write_bytes(data)
    log = open_log(directory, recovery_point=102)
    assert log.log_end_offset == 120
    log.close()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.unlink(), id="lost"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-3]), id="odd length"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(bytes(len(path.read_bytes()))), id="zeros"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-24]), id="short"),
        pytest.param(lambda path: path.write_bytes(b"\x00\x00\x00\x05" * 12), id="wrong"),
        pytest.param(lambda path: path.write_bytes(b"\x7f" * 48), id="garbage"),
    ],
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_recovery_rebuilds_indexes_that_do_not_fit(
    tmp_path: Path, suffix: str, damage: Callable[[Path], object], clean: bool
) -> None:
    """An index is only a hint; a bad one must neither lose records nor find wrong ones."""
    log = open_log(tmp_path / "t-0")
    for i in range(60):
        batch = make_batch(2, timestamp_ms=START_MS + 2 * i)
        log.append_as_leader(batch, read_header(batch), 0, START_MS)
    content = read_all(log)
    log.close()
    sound = index_contents(log.directory)
    for path in log.directory.glob(f"*{suffix}"):
        damage(path)
    log = open_log(log.directory, clean=clean, recovery_point=120)
    assert read_all(log) == content
    assert log.log_end_offset == 120
    log.close()
    assert index_contents(log.directory) == sound
    log = open_log(log.directory, clean=True)
    check_usable(log)
    log.close()


def test_snapshots_of_a_roll_are_written_beside_it_and_none_of_what_was_cut_off(tmp_path: Path) -> None:
    """One that outlived a truncation would give the log that has grown again the producers of another one."""
    log = open_log(tmp_path / "t-0")
    for number in range(60):
        batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number)
        log.append_as_leader(batch, read_header(batch), 3, START_MS)
    bases = [segment.base_offset for segment in log.segments.all]
    assert len(bases) > 3
    assert (snapshot_offsets(log.directory), log.has_rolled) == ([], True)
    log.truncate_to(bases[2] + 2)
    log.flush_rolled()
    assert (snapshot_offsets(log.directory), log.has_rolled) == (bases[1:3], False)
    log.close()


def test_recovery_rebuilds_producers_from_snapshot_and_log(tmp_path: Path) -> None:
    """A retry that arrives after the crash must still be recognised."""
    for lost in ("none", "newest", "all", "corrupt"):
        directory, _ = crashed_log(tmp_path / lost, 60)
        snapshots = [directory / f"{offset:020d}.snapshot" for offset in snapshot_offsets(directory)]
        assert len(snapshots) > 2
        for path in {"none": [], "newest": snapshots[-1:], "all": snapshots}.get(lost, []):
            path.unlink()
        if lost == "corrupt":
            snapshots[-1].write_bytes(snapshots[-1].read_bytes()[:-1] + b"?")
        log = open_log(directory)
        retry = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=118)
        info = log.append_as_leader(retry, read_header(retry), 3, START_MS)
        assert (info.duplicate, info.base_offset) == (True, 118)
        log.close()


@pytest.mark.parametrize("batches", [4, 60])
@pytest.mark.parametrize("ending", ["clean", "crash", "truncation"])
def test_log_recognises_retries_of_the_last_five_batches_however_it_was_left(
    tmp_path: Path, ending: str, batches: int
) -> None:
    """When all brokers end at once, nobody but the log knows what their producers had under way."""
    directory, _ = crashed_log(tmp_path, batches)
    log = open_log(directory)
    end = log.log_end_offset
    if ending == "truncation":
        log.close()
        log = open_log(directory, clean=True)
        beyond = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=end)
        log.append_as_leader(beyond, read_header(beyond), 3, START_MS)
        log.truncate_to(end)
        load_producers_again(log)
    else:
        log.close(clean=ending == "clean")
        log = open_log(directory, clean=ending == "clean", recovery_point=end)
    for base_sequence in range(max(end - 10, 0), end, 2):
        retry = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=base_sequence)
        info = log.append_as_leader(retry, read_header(retry), 3, START_MS)
        assert (info.duplicate, info.base_offset) == (True, base_sequence)
    assert log.log_end_offset == end
    log.close()


def test_log_opens_with_its_snapshot_alone_if_what_is_before_it_cannot_be_read(tmp_path: Path) -> None:
    """Recognising a retry is not worth a log that does not open."""
    directory, content = crashed_log(tmp_path, 8)
    open_log(directory).close()
    with last_log_file(directory).open("r+b") as file:
        file.seek(headers_of(content)[0].size_bytes * 2)
        file.write(bytes(61))
    log = open_log(directory, clean=True, recovery_point=16)
    fresh = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=16)
    assert log.append_as_leader(fresh, read_header(fresh), 3, START_MS).base_offset == 16
    log.close()


@pytest.mark.parametrize("content", [None, "", "0\n9\n0 0\n", "nonsense"])
def test_recovery_rebuilds_leader_epochs_from_the_batches(tmp_path: Path, content: str | None) -> None:
    """Followers truncate by the epochs; they may not be lost with their small file."""
    directory, _ = crashed_log(tmp_path, 60)
    path = directory / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_text(content)
    log = open_log(directory, recovery_point=120)
    assert log.epochs.entries == ((0, 0), (1, 50), (2, 100))
    assert read_leader_epochs(path) == [(0, 0), (1, 50), (2, 100)]
    log.close()


def test_recovery_truncates_leader_epochs_to_the_log_end(tmp_path: Path) -> None:
    """An epoch whose records were cut off was never written, as far as this replica knows."""
    directory, content = crashed_log(tmp_path, 51)
    with last_log_file(directory).open("r+b") as file:
        file.truncate(file.seek(0, 2) - headers_of(content)[-1].size_bytes - 1)
    log = open_log(directory)
    assert log.log_end_offset == 98
    assert log.epochs.entries == ((0, 0), (1, 50))
    log.close()


def test_recovery_removes_leftovers_and_keeps_few_cut_tails(tmp_path: Path) -> None:
    """Files of interrupted deletions go; kept tails are bounded."""
    directory, _ = crashed_log(tmp_path, 4)
    (directory / "00000000000000000000.log.deleted").write_bytes(b"x")
    (directory / "00000000000000000099.index").write_bytes(b"x")
    (directory / "leader-epoch-checkpoint.tmp").write_bytes(b"x")
    for _ in range(6):
        with last_log_file(directory).open("ab") as file:
            file.write(b"garbage")
        log = open_log(directory)
        assert log.log_end_offset == 8
        log.close(clean=False)
    assert len(list(directory.glob("*.cut-*"))) == 3
    names = {path.name for path in directory.iterdir()}
    assert not {name for name in names if name.endswith((".deleted", ".tmp"))}
    assert "00000000000000000099.index" not in names


def test_open_below_the_log_start_offset_begins_there(tmp_path: Path) -> None:
    """Files lost below a checkpointed start must not bring deleted offsets back."""
    directory, _ = crashed_log(tmp_path, 4)
    log = Log.open(directory, CONFIG, now_ms=START_MS, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    log.close()


def test_checkpoint_of_a_log_that_had_the_name_before_wipes_nothing(tmp_path: Path) -> None:
    """A topic was made again, and its broker killed before the checkpoints were: the records are there."""
    directory, content = crashed_log(tmp_path, 4)
    log = Log.open(directory, CONFIG, now_ms=START_MS, log_start_offset=50, stop=PreviousStop.KILLED)
    assert (log.log_start_offset, log.log_end_offset, log.missing) == (0, 8, None)
    assert read_all(log) == content
    log.close(clean=False)
    log = Log.open(directory, CONFIG, now_ms=START_MS, log_start_offset=5, stop=PreviousStop.KILLED)
    assert (log.log_start_offset, read_all(log)) == (0, content)
    log.advance_log_start_offset(5)
    log.close(clean=False)
    log = Log.open(directory, CONFIG, now_ms=START_MS, log_start_offset=5, stop=PreviousStop.KILLED)
    assert log.log_start_offset == 5
    log.close(clean=False)
    log = Log.open(directory, CONFIG, now_ms=START_MS, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.missing is not None, "after a crash of the machine nobody knows"
    log.close()


def test_clean_stop_with_damage_all_the_same_is_recovered(tmp_path: Path) -> None:
    """A marker is a promise, and a disk may break it."""
    directory, content = crashed_log(tmp_path, 4)
    open_log(directory).close()
    with last_log_file(directory).open("ab") as file:
        file.write(content[:30])
    log = open_log(directory, clean=True)
    assert read_all(log) == content
    check_usable(log)
    log.close()


def test_follower_of_a_compacted_topic_is_whole_after_a_crash_though_nobody_knows_the_topic_yet(
    tmp_path: Path,
) -> None:
    """Logs are loaded before there is metadata, which says that offsets may be missing between batches."""
    compacted = replace(CONFIG, compacts=True)
    log = Log.open(tmp_path / "t-0", compacted, now_ms=START_MS)
    for base_offset in (3, 9):
        log.append_as_follower(make_batch(2, base_offset=base_offset), START_MS)
    log.close(clean=False)
    opened = open_log(tmp_path / "t-0")
    assert (opened.log_end_offset, opened.missing) == (11, None)
    opened.close()


@pytest.mark.parametrize("stop", list(PreviousStop))
@pytest.mark.parametrize("log_start_offset", [None, 40])
@pytest.mark.parametrize(
    "config",
    [CONFIG, replace(CONFIG, compacts=True), replace(CONFIG, remote_storage_enable=True)],
)
def test_log_begun_in_an_empty_directory_is_the_one_that_loading_it_finds(
    tmp_path: Path, stop: PreviousStop, log_start_offset: int | None, config: LogConfig
) -> None:
    """A broker makes thousands at a time, and looks for nothing where nothing can be."""
    made = [tmp_path / "made-0", tmp_path / "found-0"]
    for directory in made:
        directory.mkdir()
    begun = new_log(made[0], config, log_start_offset=log_start_offset, stop=stop, now_ms=START_MS)
    loaded = load_log(
        made[1],
        config,
        recovery_point=0,
        log_start_offset=log_start_offset,
        high_watermark=0,
        cleaned_offset=None,
        stop=stop,
        now_ms=START_MS,
    )
    for field in LoadedLog._fields:
        if field not in ("segments", "epochs", "producers"):
            assert getattr(begun, field) == getattr(loaded, field), field
    assert begun.epochs.entries == loaded.epochs.entries == ()
    assert begun.producers.producers == loaded.producers.producers == {}
    assert [(each.base_offset, each.tail, each.synced) for each in begun.segments] == [
        (each.base_offset, each.tail, each.synced) for each in loaded.segments
    ]
    assert [[path.name for path in directory.iterdir()] for directory in made] == [
        [f"{log_start_offset or 0:020d}.log"]
    ] * 2


def test_log_that_never_had_records_costs_a_stop_and_a_start_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten thousand such logs each fsync and each file is seconds of a restart."""
    log = Log.open(tmp_path / "t-0", CONFIG, topic_id=UUID(int=7), now_ms=START_MS)
    log.assign_leader_epoch(3)
    files = {path.name: path.read_bytes() for path in log.directory.iterdir()}
    written: list[object] = []
    for name in ("fsync", "fdatasync", "ftruncate", "pwrite"):
        monkeypatch.setattr(os, name, lambda *arguments: written.append(arguments))
    for name in ("replace", "rename", "unlink"):
        monkeypatch.setattr(Path, name, lambda *arguments, **_: written.append(arguments))
    log.close()
    again = Log.open(tmp_path / "t-0", CONFIG, stop=PreviousStop.CLEAN, now_ms=START_MS)
    assert written == []
    assert {path.name: path.read_bytes() for path in again.directory.iterdir()} == files
    assert again.identity_unsynced
    again.close()


def test_log_that_has_lost_its_records_again_is_flushed_when_it_is_closed(tmp_path: Path) -> None:
    """A power cut after a clean stop must not bring back what a truncation has removed."""
    log = Log.open(tmp_path / "t-0", CONFIG, topic_id=UUID(int=7), now_ms=START_MS)
    batch = make_batch(2)
    log.append_as_leader(batch, read_header(batch), 3, START_MS)
    log.truncate_to(0)
    with calls_of("fdatasync", lambda path, result: None) as paths:
        log.close()
    assert [Path(path).suffix for path in paths] == [".log"]
