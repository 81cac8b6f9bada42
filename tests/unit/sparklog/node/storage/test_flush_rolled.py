"""What a roll leaves to be fsynced, how far the recovery point follows, and how little a crash costs then."""

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.node.storage.checkpoints import read_topic_id
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import read_header
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    load_producers_again,
    make_batch,
    read_all,
)
from tests.unit.sparklog.node.storage.calls import calls_of

SEGMENT_BYTES = 200_000
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
TOPIC_ID = UUID(int=7)


def open_log(directory: Path, recovery_point: int = 0) -> Log:
    return Log.open(
        directory, CONFIG, now_ms=START_MS, stop=PreviousStop.UNKNOWN, recovery_point=recovery_point
    )


def fill(log: Log, count: int) -> None:
    """Append batches of about 10 kB of an idempotent producer."""
    for _ in range(count):
        sequence = log.log_end_offset
        batch = make_batch(5, value_bytes=2000, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, read_header(batch), 0, START_MS)


def append_as_leader(log: Log) -> None:
    fill(log, 1)


def append_as_follower(log: Log) -> None:
    log.append_as_follower(make_batch(5), START_MS)


def fails(path: str, _: object) -> None:
    raise OSError(errno.EIO, "the disk fails", path)


def bytes_read_by_recovery(directory: Path, recovery_point: int) -> int:
    """Open a log that was not closed; return how much of its `.log` files was read."""
    read = 0

    def count(path: str, content: bytes) -> None:
        nonlocal read
        if path.endswith(".log"):
            read += len(content)

    with calls_of("pread", count):
        log = open_log(directory, recovery_point)
    log.close(clean=False)
    return read


@pytest.mark.parametrize("segments", [10, 60])
def test_recovery_reads_one_segment_however_many_there_are(tmp_path: Path, segments: int) -> None:
    """An unclean start of 20 GB must not cost 160 s: what rolled is on the disk, and the log says so."""
    log = open_log(tmp_path / "t-0")
    while len(log.segments.all) < segments:
        fill(log, 1)
    fill(log, 10)
    content = read_all(log)
    assert log.has_rolled
    log.flush_rolled()
    assert not log.has_rolled
    assert log.recovery_point == log.segments.active.base_offset
    log.close(clean=False)
    # Beside the active segment: where the others end, and the producers' last batches before it.
    peeks = 128 * 4096 + segments * 3 * 8192
    assert bytes_read_by_recovery(log.directory, log.recovery_point) < SEGMENT_BYTES + peeks
    assert bytes_read_by_recovery(log.directory, 0) > len(content)
    log = open_log(tmp_path / "t-0", log.recovery_point)
    assert read_all(log) == content
    again = make_batch(
        5, value_bytes=2000, producer_id=7, producer_epoch=0, base_sequence=log.log_end_offset - 5
    )
    assert log.append_as_leader(again, read_header(again), 0, START_MS).duplicate
    log.close(clean=False)


def test_flush_rolled_syncs_what_recovery_will_not_look_at_and_leaves_the_active_segment(
    tmp_path: Path,
) -> None:
    """The recovery point may only say what a crash of the machine leaves: data, indexes, names."""
    log = open_log(tmp_path / "t-0")
    fill(log, 45)
    first, second, active = (f"{segment.base_offset:020d}" for segment in log.segments.all)
    with calls_of("fdatasync", lambda *_: None) as data, calls_of("fsync", lambda *_: None) as others:
        log.flush_rolled()
        log.flush_rolled()
    names = [Path(path).name for path in (*data, *others)]
    assert sorted(names) == sorted(
        [f"{base}{suffix}" for base in (first, second) for suffix in (".log", ".index", ".timeindex")]
        + [f"{base}.snapshot.tmp" for base in (second, active)]
        + ["leader-epoch-checkpoint", "t-0", tmp_path.name]
    )
    assert sorted(path.name for path in log.directory.glob("*.snapshot")) == [
        f"{second}.snapshot",
        f"{active}.snapshot",
    ]
    log.close(clean=False)


def test_new_log_is_made_without_a_sync_and_the_next_flush_keeps_its_identity(tmp_path: Path) -> None:
    """A broker makes thousands at a time, and a sync waits for the disk: these came one after the other."""
    with calls_of("fsync", lambda *_: None) as synced:
        log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
        assert (synced, log.is_new) == ([], True)
        log.flush_rolled()
        log.flush_rolled()
    names = ["partition.metadata", "t-0", tmp_path.name]
    assert [Path(path).name for path in synced] == names
    assert not log.is_new
    log.close(clean=False)


def test_first_record_of_a_log_is_written_once_its_topic_id_is_on_the_disk(tmp_path: Path) -> None:
    """A power cut left records without an owner, and the next topic of that name served them as its own."""
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
    written: list[int] = []
    with calls_of("fsync", lambda *_: written.append(log.segments.active.file.path.stat().st_size)) as synced:
        fill(log, 2)
        fill(log, 1)
    names = ["partition.metadata", "t-0", tmp_path.name]
    assert ([Path(path).name for path in synced], written) == (names, [0, 0, 0])
    log.close(clean=False)


def test_first_record_of_a_reopened_empty_log_waits_for_its_topic_id_too(tmp_path: Path) -> None:
    """The process before was killed between the making of the log and its flush: no one else syncs the id."""
    Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID).close(clean=False)
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
    with calls_of("fsync", lambda *_: None) as synced:
        fill(log, 2)
    assert [Path(path).name for path in synced] == ["partition.metadata", "t-0", tmp_path.name]
    log.close(clean=False)
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
    assert not log.identity_unsynced
    log.close(clean=False)


@pytest.mark.parametrize("appends", [append_as_leader, append_as_follower])
def test_record_is_refused_while_its_topic_id_cannot_be_brought_to_the_disk(
    tmp_path: Path, appends: Callable[[Log], object]
) -> None:
    """An append that went on without it would leave what the test before is about."""
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
    with calls_of("fsync", fails) as synced, pytest.raises(KafkaError, match="topic id"):
        appends(log)
    assert [Path(path).name for path in synced] == ["partition.metadata"]
    assert (log.log_end_offset, log.size_bytes, log.identity_unsynced) == (0, 0, True)
    log.close(clean=False)


def test_log_whose_identity_a_power_cut_has_taken_gets_it_from_the_metadata(tmp_path: Path) -> None:
    """Nothing of a new log was synced yet: its file is there with a name and without content, or is not."""
    path = tmp_path / "t-0" / "partition.metadata"
    for left in (b"", b"\0" * 43, None):
        Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID).close(clean=False)
        path.unlink() if left is None else path.write_bytes(left)
        log = open_log(tmp_path / "t-0")
        assert (log.topic_id, log.is_new) == (None, False)
        log.assign_topic_id(TOPIC_ID)
        assert (log.topic_id, read_topic_id(path), log.is_new) == (TOPIC_ID, TOPIC_ID, True)
        log.close(clean=False)


def test_truncation_while_a_segment_is_flushed_has_the_segment_flushed_again(tmp_path: Path) -> None:
    """What is appended after the cut is not on the disk, though the segment's flush comes to a good end."""
    log = open_log(tmp_path / "t-0")
    fill(log, 25)
    cut = 5 * 10
    truncated = []

    def truncate_once(path: str, _: object) -> None:
        if not truncated:
            truncated.append(path)
            log.truncate_to(cut)

    with calls_of("fdatasync", truncate_once):
        log.flush_rolled()
    assert truncated
    assert log.recovery_point <= cut
    load_producers_again(log)
    fill(log, 3)
    with calls_of("fdatasync", lambda *_: None) as synced:
        log.flush()
    assert [Path(path).name for path in synced] == [f"{0:020d}.log"]
    assert log.recovery_point == log.log_end_offset == cut + 15
    log.close(clean=False)


def test_log_that_is_deleted_while_it_is_flushed_has_no_failed_disk(tmp_path: Path) -> None:
    """Its directory has another name in the middle of the flush: the other logs of the disk go on."""
    log = open_log(tmp_path / "t-0")
    fill(log, 25)
    renamed = log.directory.with_name("t-0.0123-delete")

    def delete(*_: object) -> None:
        log.close(clean=False)
        log.directory.rename(renamed)

    with calls_of("fdatasync", delete):
        log.flush_rolled()
    log.flush()
    assert renamed.exists()
