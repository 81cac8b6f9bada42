"""What a truncation leaves to be made out of the producers: how much is read for it, and when nothing is."""

import threading
from pathlib import Path

import pytest

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.producers.producer_loading import LoadingCancelledError
from sparklog.node.storage.producers.producer_snapshots import snapshot_offsets
from sparklog.node.storage.producers.producer_undo import MOST_BATCHES
from sparklog.protocol.records.batch import read_header
from tests.unit.sparklog.node.storage.batches import START_MS, load_producers_again, make_batch
from tests.unit.sparklog.node.storage.calls import calls_of

SEGMENT_BYTES = 500_000
CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
MANY = 2 * (MOST_BATCHES + 1)
"""The offsets of more batches than are taken back without loading."""


def open_log(directory: Path, stop: PreviousStop = PreviousStop.UNKNOWN) -> Log:
    return Log.open(directory, CONFIG, now_ms=START_MS, stop=stop)


def batch(sequence: int) -> bytes:
    return make_batch(2, value_bytes=200, producer_id=7, producer_epoch=0, base_sequence=sequence)


def fill(log: Log, segments: int) -> None:
    """Append an idempotent producer's batches, whose sequences are their offsets."""
    while len(log.segments.all) < segments or log.segments.active.size_bytes < SEGMENT_BYTES // 2:
        sent = batch(log.log_end_offset)
        log.append_as_leader(sent, read_header(sent), 0, START_MS)


def is_retry(log: Log, sequence: int) -> bool:
    sent = batch(sequence)
    return log.append_as_leader(sent, read_header(sent), 0, START_MS).duplicate


def test_truncation_reads_next_to_nothing_and_leaves_one_segment_to_be_read(tmp_path: Path) -> None:
    """A follower cuts on its loop, just after a failover: 5 s there are its lease and more."""
    log = open_log(tmp_path / "t-0")
    fill(log, 6)
    log.flush_rolled()
    cut = log.segments.all[4].base_offset + 800
    read = 0

    def count(path: str, content: bytes) -> None:
        nonlocal read
        read += len(content) if path.endswith(".log") else 0

    with calls_of("pread", count):
        log.truncate_to(cut)
        assert read < 64 * 1024
        assert log.loading is not None
        producers = log.loading.run(START_MS)
    assert read < SEGMENT_BYTES + 128 * 4096
    log.take_producers(log.loading, producers)
    assert is_retry(log, cut - 2)
    assert not is_retry(log, cut)
    log.close()


def test_log_whose_producers_are_being_loaded_takes_nothing(tmp_path: Path) -> None:
    """A retry would be appended twice."""
    log = open_log(tmp_path / "t-0")
    fill(log, 1)
    log.truncate_to(100)
    with pytest.raises(AssertionError, match="is still loading its producers"):
        is_retry(log, 98)
    with pytest.raises(AssertionError, match="is still loading its producers"):
        log.append_as_follower(make_batch(1, base_offset=100), START_MS)
    load_producers_again(log)
    assert is_retry(log, 98)
    log.close()


@pytest.mark.parametrize("batches", [1, 4, 5, 20, MOST_BATCHES])
def test_truncation_of_the_last_batches_leaves_nothing_to_load_and_the_next_one_is_due(
    tmp_path: Path, batches: int
) -> None:
    """A follower has to fetch at once after a change of its leader: writes with acks=all wait for it."""
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    read = 0

    def count(path: str, content: bytes) -> None:
        nonlocal read
        read += len(content) if path.endswith(".log") else 0

    end = log.log_end_offset - 2 * batches
    with calls_of("pread", count):
        log.truncate_to(end)
    assert (log.loading, log.log_end_offset) == (None, end)
    assert read < MOST_BATCHES * 1024
    assert is_retry(log, end - 2)
    assert not is_retry(log, end)
    assert is_retry(log, end)
    log.close()


def test_truncation_of_a_producers_first_batches_leaves_them_to_be_loaded(tmp_path: Path) -> None:
    """Whether it had written before, and has been forgotten, memory does not say."""
    log = open_log(tmp_path / "t-0")
    fill(log, 1)
    end = log.log_end_offset
    first = make_batch(1, producer_id=8, producer_epoch=0, base_sequence=0)
    log.append_as_leader(first, read_header(first), 0, START_MS)
    log.truncate_to(end)
    assert log.loading is not None
    load_producers_again(log)
    assert log.producers.producers.keys() == {7}
    log.close()


def test_truncation_of_what_no_producer_needs_to_be_remembered_for_leaves_nothing_to_do(
    tmp_path: Path,
) -> None:
    """Most records above a high watermark may well be of producers without ids."""
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    end = log.log_end_offset
    plain = make_batch(3)
    log.append_as_leader(plain, read_header(plain), 0, START_MS)
    log.truncate_to(end)
    assert log.loading is None
    assert is_retry(log, end - 2)
    log.truncate_to(end - MANY)
    assert log.loading is not None
    log.close()


@pytest.mark.parametrize("how", ["truncate", "empty"])
def test_cut_below_what_is_checkpointed_leaves_something_to_do_even_without_producers(
    tmp_path: Path, how: str
) -> None:
    """After a power failure recovery would trust what was written over what was cut."""
    log = open_log(tmp_path / "t-0")
    for _ in range(4):
        log.append_as_leader(make_batch(3), read_header(make_batch(3)), 0, START_MS)
    log.flush()
    log.checkpointed_recovery_point = 6
    cut = log.truncate_to if how == "truncate" else log.truncate_fully_and_start_at
    cut(9)
    assert (log.loading, log.is_checkpointed_too_high) == (None, False)
    cut(3)
    assert log.is_checkpointed_too_high
    assert log.loading is not None
    log.take_producers(log.loading, log.loading.run(START_MS))
    assert (log.loading, log.producers.producers, log.log_end_offset) == (None, {}, 3)
    log.close()


@pytest.mark.parametrize("how", ["truncate", "empty"])
def test_cut_below_what_is_said_to_be_clean_leaves_something_to_do(tmp_path: Path, how: str) -> None:
    """After a crash a cleaning would pass over what was written there since, and a tombstone in it would go
    before what it stands against."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(make_batch(3), read_header(make_batch(3)), 0, START_MS)
    log.append_as_leader(make_batch(3), read_header(make_batch(3)), 0, START_MS)
    log.close()
    log = Log.open(tmp_path / "t-0", CONFIG, now_ms=START_MS, stop=PreviousStop.CLEAN, cleaned_offset=6)
    assert (log.loading, log.is_checkpointed_too_high) == (None, False)
    cut = log.truncate_to if how == "truncate" else log.truncate_fully_and_start_at
    cut(3)
    assert log.loading is not None
    assert log.is_checkpointed_too_high
    assert (log.cleaned_offset, log.checkpointed_cleaned_offset) == (3, 6)
    log.close()


def test_snapshot_above_a_cut_is_gone_before_anything_is_appended(tmp_path: Path) -> None:
    """It tells of records that are not in the log any more, at an offset that comes again."""
    log = open_log(tmp_path / "t-0")
    plain = make_batch(100)
    log.append_as_leader(plain, read_header(plain), 0, START_MS)
    log.append_as_leader(plain, read_header(plain), 0, START_MS)
    log.close()
    assert snapshot_offsets(log.directory) == [200]
    log = open_log(tmp_path / "t-0", PreviousStop.CLEAN)
    log.truncate_to(100)
    assert (snapshot_offsets(log.directory), log.loading) == ([], None)
    log.close()


@pytest.mark.parametrize("how", ["close", "drop", "truncate", "empty"])
def test_loading_that_nobody_wants_any_more_ends(tmp_path: Path, how: str) -> None:
    """A shutdown has little time, and what was loaded for an end that is not the log's must not be taken."""
    log = open_log(tmp_path / "t-0")
    fill(log, 2)
    end = log.log_end_offset - MANY
    log.truncate_to(end)
    loading = log.loading
    assert loading is not None
    outcome: list[object] = []
    reading, may_go_on = threading.Event(), threading.Event()

    def hold(path: str, _: object) -> None:
        if threading.current_thread() is worker:
            reading.set()
            may_go_on.wait(20)

    def run() -> None:
        try:
            outcome.append(loading.run(START_MS))
        except LoadingCancelledError as error:
            outcome.append(error)

    worker = threading.Thread(target=run)
    with calls_of("pread", hold):
        worker.start()
        assert reading.wait(20)
        match how:
            case "close":
                log.close()
            case "drop":
                log.rename_with_suffix("-delete")
            case "truncate":
                log.truncate_to(end - 2)
            case "empty":
                log.truncate_fully_and_start_at(0)
        may_go_on.set()
        worker.join()
    assert [type(each) for each in outcome] == [LoadingCancelledError]
    if how == "close":
        log = open_log(tmp_path / "t-0", PreviousStop.CLEAN)
        assert is_retry(log, end - 2)
        assert not is_retry(log, end)
    if how == "truncate":
        load_producers_again(log)
        assert is_retry(log, end - 4)
        assert not is_retry(log, end - 2)
    if how == "empty":
        assert log.loading is None
        assert not is_retry(log, 0)


def test_retention_waits_for_producers_to_be_loaded(tmp_path: Path) -> None:
    """Where the loading begins must stay, and a roll must take no snapshot of what is not known."""
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    log.truncate_to(log.log_end_offset - MANY)
    log.reconfigure(LogConfig(segment_bytes=SEGMENT_BYTES, retention_ms=1))
    late_ms = START_MS + 10**9
    assert log.delete_old_segments(late_ms, log.log_end_offset) == 0
    load_producers_again(log)
    assert log.delete_old_segments(late_ms, log.log_end_offset) == 3
    log.close()


def test_producers_at_an_offset_within_the_log_are_those_of_a_log_that_ends_there(tmp_path: Path) -> None:
    """A piece of a log that is copied in time, not at a segment's end, needs the state of just that place."""
    log = open_log(tmp_path / "t-0")
    fill(log, 3)
    files = sorted(log.directory.iterdir())
    for end_offset in (0, 2, log.segments.all[1].base_offset, log.segments.all[2].base_offset + 6):
        producers = log.producers_at(end_offset, START_MS).producers
        last = {key: state.batches[-1].last_offset for key, state in producers.items()}
        assert last == ({7: end_offset - 1} if end_offset else {})
    assert set(files) <= set(log.directory.iterdir())
    assert is_retry(log, log.log_end_offset - 2)
