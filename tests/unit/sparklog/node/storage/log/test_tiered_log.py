"""Logs whose first records are in the tier alone: local retention, starts, the adoption of a tier's end."""

from pathlib import Path
from uuid import UUID

import pytest

from sparklog.node.storage.checkpoints import LOG_START_OFFSET_CHECKPOINT
from sparklog.node.storage.directory.directory_checkpoints import log_start_offset_to_keep
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.files import LEADER_EPOCH_CHECKPOINT
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEntry
from sparklog.node.storage.machine.producer_states import ProducerState
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.producers.producer_snapshots import encode_snapshot
from sparklog.node.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    OffsetMovedToTierError,
)
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import TopicPartition
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch, make_marker

TIERED = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    retention_ms=None,
    remote_storage_enable=True,
    local_retention_ms=None,
    local_retention_bytes=0,
)


def open_log(tmp_path: Path, config: LogConfig = TIERED, **arguments: object) -> Log:
    """Open the log of partition t-0 in `tmp_path`."""
    return Log.open(tmp_path / "t-0", config, now_ms=START_MS, **arguments)  # type: ignore[arg-type]


def fill(log: Log, batches: int = 60, leader_epoch: int = 0) -> None:
    """Append batches of two records."""
    for _ in range(batches):
        batch = make_batch(2, timestamp_ms=START_MS + log.log_end_offset)
        log.append_as_leader(batch, read_header(batch), leader_epoch, START_MS)


def bases(log: Log) -> list[int]:
    """Return the base offsets of the segments."""
    return [segment.base_offset for segment in log.segments.all]


def cut(log: Log, tiered_end: int | None, **arguments: bool) -> int:
    """Let local retention delete what it may."""
    return log.delete_old_segments(START_MS, log.log_end_offset, tiered_end=tiered_end, **arguments)


@pytest.mark.parametrize("only_below_start", [False, True], ids=["leader", "follower"])
def test_local_retention_deletes_only_what_the_tier_has_and_keeps_the_start(
    tmp_path: Path, only_below_start: bool
) -> None:
    """A segment that is in the bucket in part, or whose tier is unknown, is the only copy of its records."""
    log = open_log(tmp_path)
    fill(log)
    second, third = bases(log)[1:3]
    assert cut(log, None, only_below_start=only_below_start) == 0
    assert cut(log, third - 1, only_below_start=only_below_start) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    assert log.epochs.entries == (EpochEntry(0, 0),)
    assert cut(log, log.log_end_offset, only_below_start=only_below_start) > 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, log.log_end_offset)
    fill(log, 1)
    assert (
        log.read(log.local_log_start_offset, max_bytes=1, up_to_offset=log.log_end_offset).region is not None
    )
    log.close()


def test_producers_of_deleted_files_survive_a_kill(tmp_path: Path) -> None:
    """The tier has their records, and they go on writing: a retry is still a retry."""
    log = open_log(tmp_path)
    batch = make_batch(2, producer_id=7, base_sequence=5)
    log.append_as_leader(batch, read_header(batch), 0, START_MS)
    assert cut(log, 2) == 1
    log.delete_files_due(START_MS)
    log.close(clean=False)
    log = open_log(tmp_path, stop=PreviousStop.KILLED)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)
    assert log.append_as_leader(batch, read_header(batch), 0, START_MS).duplicate
    log.close()


def test_local_retention_by_age_is_that_of_local_retention_ms(tmp_path: Path) -> None:
    """retention.ms is for the tier's part too, and longer."""
    config = LogConfig(segment_bytes=2000, remote_storage_enable=True, local_retention_ms=1000)
    log = open_log(tmp_path, config)
    fill(log)
    end = log.log_end_offset
    assert log.delete_old_segments(START_MS + 1000, end, tiered_end=end) == 0
    assert log.delete_old_segments(START_MS + 2000, end, tiered_end=end) > 1
    assert log.log_start_offset == 0
    log.close()


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(segment_bytes=2000, remote_storage_enable=True, local_retention_bytes=0, compacts=True),
        LogConfig(segment_bytes=2000, remote_storage_enable=True, remote_copy_disable=True),
        LogConfig(segment_bytes=2000, local_retention_bytes=0),
    ],
    ids=["compacted", "copied no further", "not tiered"],
)
def test_local_retention_is_for_logs_that_the_tier_goes_on_copying(tmp_path: Path, config: LogConfig) -> None:
    """Coordinators and cleaners read local files; a copy that ends is no reason to delete what follows it."""
    log = open_log(tmp_path, config)
    fill(log)
    assert cut(log, log.log_end_offset) == 0
    log.close()


def test_log_that_is_copied_no_further_is_deleted_by_the_whole_retention(tmp_path: Path) -> None:
    """And its start moves over the tier's part, so that no hole is between the two."""
    config = LogConfig(
        segment_bytes=2000, remote_storage_enable=True, remote_copy_disable=True, retention_bytes=2000
    )
    log = open_log(tmp_path)
    fill(log)
    cut(log, bases(log)[1])
    log.reconfigure(config)
    assert cut(log, None, only_below_start=True) == 0
    assert cut(log, None) >= 1
    assert log.log_start_offset == log.local_log_start_offset
    log.close()


def test_log_without_its_tier_begins_with_its_files(tmp_path: Path) -> None:
    """remote.storage.enable=false deletes the tier's part: a start below would promise what is gone."""
    log = open_log(tmp_path)
    fill(log)
    cut(log, bases(log)[1])
    log.reconfigure(LogConfig(segment_bytes=2000, retention_ms=None, remote_delete_on_disable=True))
    cut(log, None, only_below_start=True)
    assert log.log_start_offset == 0
    cut(log, None)
    assert log.log_start_offset == log.local_log_start_offset > 0
    log.close()


def test_read_below_the_local_start_says_where_the_records_are(tmp_path: Path) -> None:
    """The caller looks in the tier, or answers OFFSET_MOVED_TO_TIERED_STORAGE."""
    log = open_log(tmp_path)
    fill(log)
    second = bases(log)[1]
    cut(log, second)
    with pytest.raises(OffsetMovedToTierError) as caught:
        log.read(second - 1, max_bytes=100, up_to_offset=log.log_end_offset)
    assert caught.value.local_log_start_offset == second
    assert caught.value.error_code is ErrorCode.offset_moved_to_tiered_storage
    assert log.read(second, max_bytes=100, up_to_offset=log.log_end_offset).region is not None
    log.advance_log_start_offset(1)
    with pytest.raises(KafkaError) as refused:
        log.read(0, max_bytes=100, up_to_offset=log.log_end_offset)
    assert refused.value.error_code is ErrorCode.offset_out_of_range
    for asked, expected in ((EARLIEST_TIMESTAMP, 1), (EARLIEST_LOCAL_TIMESTAMP, second)):
        found = log.offset_for_timestamp(asked, log.log_end_offset)
        assert found is not None
        assert found.offset == expected
    log.close()


def reopened(tmp_path: Path, log: Log, stop: PreviousStop, start: int | None) -> tuple[int, int]:
    """Stop so and open again; return log start and local log start."""
    end = log.log_end_offset
    log.close(clean=stop is PreviousStop.CLEAN)
    log = open_log(tmp_path, stop=stop, log_start_offset=start, recovery_point=end)
    starts = log.log_start_offset, log.local_log_start_offset
    assert log.epochs.entries[0].start_offset == starts[0]
    assert log.log_end_offset == end
    log.close()
    return starts


@pytest.mark.parametrize("stop", PreviousStop)
def test_start_in_the_tier_survives_a_stop(tmp_path: Path, stop: PreviousStop) -> None:
    """A replica that forgot it would have its leader delete the tier's part."""
    log = open_log(tmp_path)
    fill(log)
    fill(log, leader_epoch=3)
    cut(log, bases(log)[-2])
    log.delete_files_due(START_MS)
    log.advance_log_start_offset(4)
    assert log_start_offset_to_keep(log) == 4
    local = log.local_log_start_offset
    log.flush()
    assert reopened(tmp_path, log, stop, 4) == (4, local)


def test_start_in_the_tier_survives_a_kill_before_its_checkpoint(tmp_path: Path) -> None:
    """The epochs begin there."""
    log = open_log(tmp_path)
    fill(log)
    cut(log, bases(log)[1])
    log.delete_files_due(START_MS)
    local = log.local_log_start_offset
    assert reopened(tmp_path, log, PreviousStop.KILLED, None) == (0, local)


@pytest.mark.parametrize("with_records", [False, True], ids=["empty", "with records"])
def test_log_of_which_nothing_was_fsynced_starts_below_its_files(tmp_path: Path, with_records: bool) -> None:
    """A leader with a later start deletes the tier's part; the tier says afterwards where it begins."""
    log = open_log(tmp_path)
    log.adopt(leader_epochs=[(3, 5)], producers=None, log_start_offset=5, end_offset=9, now_ms=START_MS)
    if with_records:
        fill(log, 1, leader_epoch=4)
    log.close(clean=False)
    (tmp_path / "t-0" / LEADER_EPOCH_CHECKPOINT).write_bytes(b"")
    log = open_log(tmp_path, stop=PreviousStop.UNKNOWN)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 9)
    assert log.log_start_is_guessed
    log.advance_log_start_offset(5)
    assert not log.log_start_is_guessed
    # The epochs, which begin with the batches now, are no evidence of a later start.
    for stop in (PreviousStop.KILLED, PreviousStop.CLEAN, PreviousStop.UNKNOWN):
        log.close(clean=stop is PreviousStop.CLEAN)
        log = open_log(tmp_path, stop=stop, log_start_offset=5)
        assert (log.log_start_offset, log.local_log_start_offset) == (5, 9)
    log.close()


def test_start_in_the_tier_is_checkpointed_while_files_of_deleted_segments_remain(tmp_path: Path) -> None:
    """A clean stop renames them: without an entry the next start would begin at the first segment."""
    log = open_log(tmp_path)
    fill(log)
    cut(log, bases(log)[1])
    assert log.segments.first_named_offset == 0
    assert log_start_offset_to_keep(log) == 0
    local = log.local_log_start_offset
    assert reopened(tmp_path, log, PreviousStop.CLEAN, 0) == (0, local)


def test_log_without_a_tier_begins_with_its_files_whatever_an_old_checkpoint_says(tmp_path: Path) -> None:
    """The file may be of before the last retention."""
    config = LogConfig(segment_bytes=2000, retention_bytes=2000)
    for stop in PreviousStop:
        log = open_log(tmp_path, config)
        fill(log)
        log.advance_log_start_offset(log.log_start_offset + 1)
        old = log.log_start_offset
        assert cut(log, None) > 0
        log.delete_files_due(START_MS + 100_000)
        start = log.log_start_offset
        log.close(clean=stop is PreviousStop.CLEAN)
        log = open_log(tmp_path, config, stop=stop, log_start_offset=old)
        assert (log.log_start_offset, log.local_log_start_offset) == (start, start)
        log.close()


def producers_of(log: Log) -> bytes:
    """Return the log's producers as the tier keeps them."""
    return encode_snapshot(log.producers.capture())


def tier_of_another(tmp_path: Path) -> tuple[Log, bytes]:
    """Return a log with two leaderships and an idempotent producer, and its producers."""
    other = Log.open(tmp_path / "other-0", TIERED, now_ms=START_MS)
    fill(other, 3)
    batch = make_batch(2, producer_id=7, base_sequence=5)
    other.append_as_leader(batch, read_header(batch), 4, START_MS)
    return other, producers_of(other)


def test_adopted_log_goes_on_at_the_tiers_end_with_epochs_and_producers(tmp_path: Path) -> None:
    """A retry is still a retry, and followers' and consumers' epochs still fit, after all disks are lost."""
    other, producers = tier_of_another(tmp_path)
    log = open_log(tmp_path)
    fill(log, 1)
    log.adopt(
        leader_epochs=other.epochs.entries,
        producers=producers,
        log_start_offset=2,
        end_offset=8,
        now_ms=START_MS,
    )
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 8, 8)
    assert log.epochs.entries == (EpochEntry(0, 2), EpochEntry(4, 6))
    assert log.end_offset_for(0) == (0, 6)
    for _ in range(2):
        retry = make_batch(2, producer_id=7, base_sequence=5)
        assert log.append_as_leader(retry, read_header(retry), 5, START_MS).duplicate
        log.close(clean=False)
        log = open_log(tmp_path, stop=PreviousStop.KILLED)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 8, 8)
    following = make_batch(2, producer_id=7, base_sequence=7)
    assert log.append_as_leader(following, read_header(following), 5, START_MS).base_offset == 8
    assert log.epochs.entries == (EpochEntry(0, 2), EpochEntry(4, 6), EpochEntry(5, 8))
    log.close()
    other.close()


@pytest.mark.parametrize("is_filled", [False, True], ids=["adopted", "filled"])
def test_transactions_that_are_open_in_the_tiers_snapshot_are_decided(
    tmp_path: Path, is_filled: bool
) -> None:
    """Their markers were lost with all disks: readers of committed records would wait for ever."""
    state = ProducerState(0, START_MS)
    state.transaction_first_offset = 3
    producers = encode_snapshot({7: state})
    log = open_log(tmp_path)
    if is_filled:
        log.append_as_follower(make_batch(8), START_MS)
        log.take_tier_state(leader_epochs=[(0, 0)], producers=producers, now_ms=START_MS)
    else:
        log.adopt(
            leader_epochs=[(0, 0)], producers=producers, log_start_offset=0, end_offset=8, now_ms=START_MS
        )
    for stop in (PreviousStop.CLEAN, PreviousStop.KILLED):
        assert log.last_stable_offset(8) == 8
        assert log.producers.producers[7].producer_epoch == 0
        log.flush()
        log.close(clean=stop is PreviousStop.CLEAN)
        log = open_log(tmp_path, stop=stop, recovery_point=8)
    log.append_as_follower(make_marker(base_offset=8, producer_id=7, producer_epoch=0, commit=True), START_MS)
    assert log.last_stable_offset(9) == 9
    log.close()


def test_adoption_leaves_out_epochs_beyond_the_tiers_end(tmp_path: Path) -> None:
    """Another leader's manifest may know more than the copy has; and none before the start count."""
    log = open_log(tmp_path)
    log.adopt(
        leader_epochs=[(1, 0), (2, 5), (3, 9)],
        producers=None,
        log_start_offset=6,
        end_offset=9,
        now_ms=START_MS,
    )
    assert log.epochs.entries == (EpochEntry(2, 6),)
    log.close()


def test_adoption_of_a_damaged_snapshot_changes_nothing(tmp_path: Path) -> None:
    """Without its producers a leader would take retries for new records."""
    log = open_log(tmp_path)
    fill(log, 1)
    with pytest.raises(KafkaError, match="t-0: the tier's producer snapshot at 8") as caught:
        log.adopt(leader_epochs=[], producers=b"damaged", log_start_offset=0, end_offset=8, now_ms=START_MS)
    assert caught.value.error_code is ErrorCode.corrupt_message
    assert log.log_end_offset == 2
    log.close()


def test_log_that_was_filled_from_the_tier_takes_its_epochs_and_producers(tmp_path: Path) -> None:
    """Compacted logs are brought back whole, of batches that name no producers."""
    other, producers = tier_of_another(tmp_path)
    log = open_log(tmp_path, LogConfig(compacts=True))
    log.append_as_follower(make_batch(6, leader_epoch=0), START_MS)
    log.skip_to(8, START_MS)
    log.take_tier_state(leader_epochs=[(0, 0), (4, 6)], producers=producers, now_ms=START_MS)
    retry = make_batch(2, producer_id=7, base_sequence=5)
    for stop in (PreviousStop.CLEAN, PreviousStop.KILLED):
        log.flush()
        log.close(clean=stop is PreviousStop.CLEAN)
        log = open_log(tmp_path, LogConfig(compacts=True), stop=stop, recovery_point=8)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 0, 8)
        assert log.epochs.entries == (EpochEntry(0, 0), EpochEntry(4, 6))
        assert log.append_as_leader(retry, read_header(retry), 5, START_MS).duplicate
    log.close()
    other.close()


def test_truncation_below_the_local_start_keeps_the_tiers_part(tmp_path: Path) -> None:
    """The records before the divergence are in the tier: the log's start is not where it was cut."""
    log = open_log(tmp_path)
    fill(log, 10)
    fill(log, leader_epoch=2)
    cut(log, bases(log)[-1])
    assert log.local_log_start_offset > 20
    log.truncate_to(20)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 20, 20)
    assert log.epochs.entries == (EpochEntry(0, 0),)
    log.close()


def test_directory_opens_a_tiered_log_where_it_starts(tmp_path: Path) -> None:
    """The checkpoint of a broker's directory has its start."""
    directory = LogDirectory.open(tmp_path / "data")
    log = directory.begin_log(TopicPartition("t", 0), UUID(int=7), TIERED, START_MS)
    fill(log)
    cut(log, bases(log)[1])
    name, local = log.topic_partition, log.local_log_start_offset
    log.close()
    start = log_start_offset_to_keep(log)
    assert start == 0
    directory.checkpoints.write(LOG_START_OFFSET_CHECKPOINT, {name: start}, {name})
    directory.write_clean_shutdown(None)
    directory.close()
    directory = LogDirectory.open(tmp_path / "data")
    log = directory.load_all(lambda topic: TIERED, START_MS)[name]
    assert (log.log_start_offset, log.local_log_start_offset) == (0, local)
    log.close()
    directory.close()
