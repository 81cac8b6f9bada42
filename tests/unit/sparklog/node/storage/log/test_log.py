"""Appending, reading, rolling, truncating and retaining, on real files."""

import errno
import gc
import os
from pathlib import Path

import pytest

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.leader_epochs import EpochEndOffset
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.results import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AppendInfo,
)
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import check_crc, read_header
from sparklog.protocol.types import AbortedTransaction
from tests.unit.sparklog.node.storage.batches import (
    START_MS,
    headers_of,
    load_producers_again,
    make_batch,
    make_marker,
    read_all,
)

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=1000)


def open_log(tmp_path: Path, config: LogConfig = SMALL, **arguments: object) -> Log:
    """Open the log of partition t-0 in `tmp_path`."""
    return Log.open(tmp_path / "t-0", config, now_ms=START_MS, **arguments)  # type: ignore[arg-type]


def append(log: Log, batch: bytes, leader_epoch: int = 0) -> AppendInfo:
    """Append as leader."""
    return log.append_as_leader(batch, read_header(batch), leader_epoch, START_MS)


def fill(log: Log, batches: int, count: int = 2, leader_epoch: int = 0) -> None:
    """Append batches of `count` records, timestamps rising with offsets."""
    for _ in range(batches):
        append(log, make_batch(count, timestamp_ms=START_MS + log.log_end_offset), leader_epoch)


def segment_bases(log: Log) -> list[int]:
    """Return the base offsets of the log files on disk."""
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))


def open_files(log: Log, suffix: str) -> int:
    """Count the descriptors that this process has of the log's files."""
    paths = [os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()]
    return sum(path.startswith(f"{log.directory}/") and path.endswith(suffix) for path in paths)


def test_append_as_leader_assigns_offsets_and_epoch_without_touching_the_rest(tmp_path: Path) -> None:
    """Stamping must not disturb what the CRC covers, or every consumer would refuse the batch."""
    log = open_log(tmp_path)
    sent = make_batch(3)
    assert append(log, make_batch(2), 4) == AppendInfo(0, 1, None, 0)
    assert append(log, sent, 4) == AppendInfo(2, 4, None, 0)
    result = log.read(2, max_bytes=10_000, up_to_offset=5)
    assert result.region is not None
    stored = result.region.read()
    (header,) = headers_of(stored)
    check_crc(stored, 0, header)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    assert stored[16:] == sent[16:]
    log.close()


def test_append_as_leader_with_log_append_time_gives_the_brokers_time(tmp_path: Path) -> None:
    """LogAppendTime is what retention and time look-ups then go by."""
    log = open_log(tmp_path, LogConfig(log_append_time=True))
    batch = make_batch(2)
    info = log.append_as_leader(batch, read_header(batch), 0, START_MS + 77)
    assert info.log_append_time_ms == START_MS + 77
    stored = read_all(log)
    (header,) = headers_of(stored)
    check_crc(stored, 0, header)
    assert (header.max_timestamp, header.timestamp_type) == (START_MS + 77, 1)
    log.close()


def test_append_as_leader_retried_answers_the_first_offset(tmp_path: Path) -> None:
    """An idempotent producer's retry must not be in the log twice, also after a restart."""
    log = open_log(tmp_path)
    first = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=0)
    second = make_batch(2, producer_id=9, producer_epoch=0, base_sequence=2)
    append(log, first)
    append(log, second)
    assert append(log, first) == AppendInfo(0, 1, None, 0, duplicate=True)
    log.close()
    log = open_log(tmp_path, stop=PreviousStop.CLEAN)
    assert append(log, second) == AppendInfo(2, 3, None, 0, duplicate=True)
    assert log.log_end_offset == 4
    with pytest.raises(KafkaError) as caught:
        append(log, make_batch(2, producer_id=9, producer_epoch=0, base_sequence=7))
    assert caught.value.error_code == ErrorCode.out_of_order_sequence_number
    log.close()


def test_append_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    """A batch that no segment holds must be refused by name, not loop over rolls."""
    log = open_log(tmp_path)
    with pytest.raises(KafkaError) as caught:
        append(log, make_batch(1, value_bytes=3000))
    assert caught.value.error_code == ErrorCode.record_list_too_large
    log.close()


def test_append_after_a_failed_write_leaves_the_log_consistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk takes part of a batch: the part must go, and the next append must succeed."""
    log = open_log(tmp_path)
    fill(log, 8)
    before = read_all(log)
    pwritev, calls = os.pwritev, []

    def full_disk(descriptor: int, parts: list[bytes | memoryview], position: int) -> int:
        calls.append(position)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwritev(descriptor, [bytes(parts[0])[:10]], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", full_disk)
        with pytest.raises(KafkaError) as caught:
            append(log, make_batch(2))
    assert caught.value.error_code == ErrorCode.kafka_storage_error
    assert (log.log_end_offset, read_all(log)) == (16, before)
    fill(log, 3)
    log.close(clean=False)
    assert open_log(tmp_path).log_end_offset == 22


def test_append_written_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take fewer bytes than it is given, even with nothing wrong."""
    log = open_log(tmp_path)
    pwritev = os.pwritev

    def short(descriptor: int, parts: list[bytes | memoryview], position: int) -> int:
        return pwritev(descriptor, [b"".join(parts)[:7]], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", short)
        fill(log, 3)
    assert [header.base_offset for header in headers_of(read_all(log))] == [0, 2, 4]
    log.close()
    assert open_log(tmp_path).log_end_offset == 6


def test_append_as_follower_keeps_offsets_epochs_and_gaps(tmp_path: Path) -> None:
    """A follower's log must equal the leader's, compaction gaps included."""
    log = open_log(tmp_path)
    records = (
        make_batch(2, base_offset=0, leader_epoch=1)
        + make_batch(1, base_offset=10, leader_epoch=3)
        + make_batch(1, base_offset=11, leader_epoch=3)
    )
    assert log.append_as_follower(records + make_batch(1)[:-5], START_MS) == AppendInfo(0, 11, None, 0)
    assert read_all(log) == records
    assert log.epochs.entries == ((1, 0), (3, 10))
    result = log.read(5, max_bytes=1, up_to_offset=12)
    assert result.region is not None
    assert headers_of(result.region.read())[0].base_offset == 10
    log.close()


@pytest.mark.parametrize(
    ("records", "error_code"),
    [
        (make_batch(2, base_offset=3), ErrorCode.offset_out_of_range),
        (
            make_batch(2, base_offset=4) + make_batch(1, base_offset=5),
            ErrorCode.offset_out_of_range,
        ),
        (make_batch(2, base_offset=4)[:-1] + b"!", ErrorCode.corrupt_message),
    ],
    ids=["below the end", "not rising", "wrong CRC"],
)
def test_append_as_follower_of_wrong_batches_appends_nothing(
    tmp_path: Path, records: bytes, error_code: ErrorCode
) -> None:
    """A confused or damaged leader response must not get into the log."""
    log = open_log(tmp_path)
    fill(log, 2)
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(records, START_MS)
    assert caught.value.error_code == error_code
    assert (log.log_end_offset, log.epochs.latest) == (4, 0)
    log.close()


def test_append_as_follower_of_more_than_a_segment_rolls_in_between(tmp_path: Path) -> None:
    """A fetch may bring more than one segment holds; segments still begin at batch boundaries."""
    log = open_log(tmp_path)
    records = b"".join(make_batch(1, base_offset=i, value_bytes=500) for i in range(10))
    log.append_as_follower(records, START_MS)
    assert read_all(log) == records
    assert all(path.stat().st_size <= 2000 for path in log.directory.glob("*.log"))
    assert len(segment_bases(log)) > 2
    log.close()


@pytest.mark.parametrize("value_bytes", [5, 900], ids=["one segment", "over rolls"])
def test_append_as_follower_leaves_out_batches_of_a_later_epoch(tmp_path: Path, value_bytes: int) -> None:
    """A deposed leader may send its successor's records; they are not fetched under its epoch."""
    log = open_log(tmp_path)
    batches = [
        make_batch(1, base_offset=number, leader_epoch=epoch, value_bytes=value_bytes)
        for number, epoch in enumerate((1, 2, 2, 3, 2))
    ]
    appended = log.append_as_follower(b"".join(batches), START_MS, up_to_leader_epoch=2)
    assert appended == AppendInfo(0, 2, None, 0)
    assert read_all(log) == b"".join(batches[:3])
    assert log.epochs.entries == ((1, 0), (2, 1))
    assert log.append_as_follower(batches[3], START_MS, up_to_leader_epoch=2) is None
    assert log.log_end_offset == 3
    log.close()


def test_append_with_far_offsets_rolls(tmp_path: Path) -> None:
    """Index entries hold offsets relative to the base in 31 bits."""
    log = open_log(tmp_path)
    log.append_as_follower(make_batch(1, base_offset=2**32), START_MS)
    log.append_as_follower(make_batch(1, base_offset=2**32 + 2**31 + 5), START_MS)
    assert segment_bases(log) == [2**32, 2**32 + 2**31 + 5]
    log.close()


def test_roll_by_time_counts_from_the_first_batch(tmp_path: Path) -> None:
    """segment.ms bounds how long expired records stay beside fresh ones."""
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    for timestamp_ms in (START_MS, START_MS + 1000, START_MS + 1001):
        append(log, make_batch(1, timestamp_ms=timestamp_ms))
    assert segment_bases(log) == [0, 2]
    log.close()


def test_roll_happens_when_the_index_is_full(tmp_path: Path) -> None:
    """An index that is full would make look-ups scan without bound."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1, segment_index_bytes=40))
    fill(log, 12)
    assert len(segment_bases(log)) > 2
    log.close()


@pytest.mark.parametrize("max_bytes", [1, 150, 333, 5000])
def test_read_at_every_offset_returns_the_batch_that_contains_it(tmp_path: Path, max_bytes: int) -> None:
    """Consumers may seek anywhere; the first batch may begin below the offset, never above."""
    log = open_log(tmp_path)
    fill(log, 60, count=3)
    for offset in range(180):
        result = log.read(offset, max_bytes=max_bytes, up_to_offset=180)
        assert result.region is not None
        data = result.region.read()
        headers = headers_of(data)
        assert headers[0].base_offset == offset // 3 * 3
        assert sum(header.size_bytes for header in headers) == len(data)
        assert len(data) <= max_bytes or len(headers) == 1
        assert result.next_offset == headers[-1].next_offset
    log.close()


def test_read_never_returns_what_is_not_below_the_limit(tmp_path: Path) -> None:
    """Above the high watermark are records that may yet disappear."""
    log = open_log(tmp_path)
    fill(log, 40, count=3)
    for limit in range(121):
        for offset in range(max(0, limit - 8), limit + 1):
            result = log.read(offset, max_bytes=100_000, up_to_offset=limit)
            headers = headers_of(result.region.read()) if result.region else []
            assert all(header.next_offset <= limit for header in headers)
            # Nothing only when the batch with `offset` is not whole below the limit.
            assert bool(headers) == (offset < limit // 3 * 3)
    log.close()


def test_read_without_min_one_batch_respects_max_bytes(tmp_path: Path) -> None:
    """Only the first partition of a fetch may exceed its limits (KIP-74)."""
    log = open_log(tmp_path)
    fill(log, 2)
    assert log.read(0, max_bytes=20, up_to_offset=4, min_one_batch=False) == (None, 0)
    log.close()


@pytest.mark.parametrize("offset", [-1, 3, 21])
def test_read_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    """Clients reset by auto.offset.reset on exactly this error."""
    log = open_log(tmp_path)
    fill(log, 10)
    log.advance_log_start_offset(4)
    with pytest.raises(KafkaError) as caught:
        log.read(offset, max_bytes=1, up_to_offset=20)
    assert caught.value.error_code == ErrorCode.offset_out_of_range
    assert log.read(20, max_bytes=1, up_to_offset=20).region is None
    log.close()


def test_region_of_a_deleted_segment_can_still_be_read(tmp_path: Path) -> None:
    """Retention must not break a response that is being sent."""
    log = open_log(tmp_path)
    fill(log, 40)
    result = log.read(0, max_bytes=500, up_to_offset=80)
    assert result.region is not None
    expected = result.region.read()
    log.truncate_fully_and_start_at(100)
    assert log.delete_files_due(START_MS + 10_000) > 0
    assert result.region.read() == expected
    log.close()


def test_region_above_a_truncation_yields_fewer_bytes(tmp_path: Path) -> None:
    """The sender notices by the missing bytes that it must close the connection."""
    log = open_log(tmp_path)
    fill(log, 4)
    result = log.read(0, max_bytes=10_000, up_to_offset=8)
    assert result.region is not None
    log.truncate_to(4)
    assert len(result.region.read()) == len(result.region) // 2
    log.close()


def test_truncate_cuts_whole_batches_epochs_and_producers(tmp_path: Path) -> None:
    """After a truncation log, epochs and sequences must again tell the same story."""
    log = open_log(tmp_path)
    for i in range(60):
        sent = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=2 * i)
        append(log, sent, leader_epoch=i // 20)
    log.flush()
    assert log.truncate_to(51)
    load_producers_again(log)
    assert log.log_end_offset == 50
    assert log.epochs.entries == ((0, 0), (1, 40))
    assert log.recovery_point == 50, "or the next start would miss what was cut"
    again = make_batch(2, producer_id=5, producer_epoch=0, base_sequence=50)
    assert append(log, again, leader_epoch=9) == AppendInfo(50, 51, None, 0)
    assert log.epochs.entries == ((0, 0), (1, 40), (9, 50))
    assert [header.base_offset for header in headers_of(read_all(log))] == list(range(0, 52, 2))
    assert not log.truncate_to(52)
    log.close()
    reopened = open_log(tmp_path)
    assert reopened.log_end_offset == 52
    reopened.close()


def test_truncate_below_the_first_segment_starts_anew(tmp_path: Path) -> None:
    """A follower whose log begins above the leader's divergence has nothing in common with it."""
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(100)
    fill(log, 2)
    assert log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (50, 50, b"")
    log.close()


def test_epochs_of_a_new_leader_begin_at_the_log_end(tmp_path: Path) -> None:
    """A follower asks for the end of the old epoch before the new leader has appended anything."""
    log = open_log(tmp_path)
    fill(log, 3, leader_epoch=2)
    log.assign_leader_epoch(5)
    assert log.epochs.end_offset_for(4, log.log_end_offset) == EpochEndOffset(2, 6)
    assert log.epochs.end_offset_for(5, log.log_end_offset) == EpochEndOffset(5, 6)
    assert log.epochs.end_offset_for(6, log.log_end_offset) is None
    log.close()
    assert open_log(tmp_path, stop=PreviousStop.CLEAN).epochs.latest == 2, (
        "an epoch without records is not kept"
    )


def test_retention_by_bytes_deletes_whole_old_segments_below_the_high_watermark(tmp_path: Path) -> None:
    """What is not replicated is never deleted, however large the log."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=2500, file_delete_delay_ms=1000))
    fill(log, 60)
    assert log.delete_old_segments(START_MS, 0) == 0
    assert log.delete_old_segments(START_MS, log.log_end_offset) > 0
    assert 2500 <= log.size_bytes < 3600
    assert log.log_start_offset == log.first_segment_base_offset
    assert segment_bases(log)[0] == 0, "renaming is for who may wait for a disk"
    assert log.delete_files_due(START_MS + 999) == 0
    assert log.log_start_offset == segment_bases(log)[0]
    assert list(log.directory.glob("*.deleted"))
    assert log.delete_files_due(START_MS + 1000) > 0
    assert not list(log.directory.glob("*.deleted"))
    log.close()


def test_log_emptied_after_retention_begins_with_nothing_of_the_segments_that_went(tmp_path: Path) -> None:
    """A follower may be told to begin anew where a segment began whose files are still to be renamed."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=2500))
    fill(log, 60)
    assert log.delete_old_segments(START_MS, log.log_end_offset) > 0
    log.truncate_fully_and_start_at(0)
    fill(log, 2)
    log.delete_files_due(START_MS)
    log.flush()
    assert read_all(log) == read_all(open_log(tmp_path))
    assert (log.log_start_offset, log.log_end_offset, segment_bases(log)) == (0, 4, [0])
    log.close()


def test_retention_by_time_empties_a_log_but_keeps_its_end(tmp_path: Path) -> None:
    """Offsets must go on where they were, even when every record has expired."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_ms=1000))
    fill(log, 30)
    assert log.delete_old_segments(START_MS + 500, 60) == 0
    assert log.delete_old_segments(START_MS + 2000, 60) > 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (60, 60, 0)
    log.close()
    assert open_log(tmp_path, stop=PreviousStop.CLEAN).log_end_offset == 60


def test_log_start_offset_lets_segments_below_go(tmp_path: Path) -> None:
    """DeleteRecords frees space only when segments go, and works on topics that retain for ever."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_ms=None, deletes=False))
    fill(log, 60)
    assert log.advance_log_start_offset(61)
    assert not log.advance_log_start_offset(60)
    assert log.delete_old_segments(START_MS, 120) > 0
    log.delete_files_due(START_MS)
    assert segment_bases(log)[0] <= 61 < segment_bases(log)[1]
    with pytest.raises(KafkaError):
        log.advance_log_start_offset(121)
    log.close()
    assert open_log(tmp_path, log_start_offset=61).log_start_offset == 61


def test_offset_for_timestamp_finds_the_first_record_not_earlier(tmp_path: Path) -> None:
    """Rewinding to a time must neither skip a record nor begin a batch early."""
    log = open_log(tmp_path)
    fill(log, 60, count=3, leader_epoch=2)
    for offset in range(180):
        assert log.offset_for_timestamp(START_MS + offset, 180) == (offset, START_MS + offset, 2)
    assert log.offset_for_timestamp(START_MS - 5, 180) == (0, START_MS, 2)
    assert log.offset_for_timestamp(START_MS + 180, 180) is None
    assert log.offset_for_timestamp(START_MS + 100, 100) is None
    log.close()


def test_offset_for_timestamp_finds_what_is_left_of_a_batch_with_the_brokers_time(tmp_path: Path) -> None:
    """All of its records have one time; those below the start of the log are no more."""
    log = open_log(tmp_path, LogConfig(log_append_time=True))
    for _ in range(2):
        append(log, make_batch(10))
    log.advance_log_start_offset(5)
    assert log.offset_for_timestamp(0, 20) == (5, START_MS, 0)
    log.advance_log_start_offset(10)
    assert log.offset_for_timestamp(0, 20) == (10, START_MS, 0)
    log.close()


def test_offset_for_timestamp_answers_special_times(tmp_path: Path) -> None:
    """Every client asks for these by negative numbers (KIP-734, KIP-405, KIP-1005)."""
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(MAX_TIMESTAMP, 0) is None
    fill(log, 10, leader_epoch=1)
    append(log, make_batch(1, timestamp_ms=START_MS + 9999), 2)
    append(log, make_batch(1, timestamp_ms=START_MS), 2)
    log.advance_log_start_offset(3)
    assert log.offset_for_timestamp(LATEST_TIMESTAMP, 21) == (21, None, 2)
    assert log.offset_for_timestamp(EARLIEST_TIMESTAMP, 21) == (3, None, 1)
    assert log.offset_for_timestamp(EARLIEST_LOCAL_TIMESTAMP, 21) == (3, None, 1)
    assert log.offset_for_timestamp(LATEST_TIERED_TIMESTAMP, 21) is None
    assert log.offset_for_timestamp(MAX_TIMESTAMP, 21) == (20, START_MS + 9999, 2)
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(-9, 21)
    assert caught.value.error_code == ErrorCode.unsupported_version
    log.close()


def test_aborted_transactions_are_found_after_recovery(tmp_path: Path) -> None:
    """read_committed consumers skip by this list; a crash must not lose an entry of it."""
    log = open_log(tmp_path)
    data = [
        make_batch(2, base_offset=0, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        make_batch(2, base_offset=2, producer_id=2, producer_epoch=0, base_sequence=0, transactional=True),
        make_marker(base_offset=4, producer_id=1, producer_epoch=0, commit=False),
    ]
    log.append_as_follower(b"".join(data), START_MS)
    assert log.last_stable_offset(5) == 2
    log.append_as_follower(make_marker(base_offset=5, producer_id=2, producer_epoch=0, commit=True), START_MS)
    assert log.last_stable_offset(5) == 2, "markers at or above the high watermark do not count"
    assert log.last_stable_offset(6) == 6
    assert log.aborted_transactions(0, 6) == [AbortedTransaction(1, 0)]
    log.close(clean=False)
    (log.directory / "00000000000000000000.txnindex").unlink()
    log = open_log(tmp_path)
    assert log.aborted_transactions(0, 6) == [AbortedTransaction(1, 0)]
    assert log.aborted_transactions(5, 6) == []
    log.close()


def test_aborted_transactions_are_looked_for_in_what_was_fetched_and_nowhere_else(tmp_path: Path) -> None:
    """read_committed must not cost a file a segment: most have no aborted transaction."""
    log = open_log(tmp_path, LogConfig(segment_bytes=500))
    for number in range(60):
        end = log.log_end_offset
        data = make_batch(
            2, base_offset=end, producer_id=number, producer_epoch=0, base_sequence=0, transactional=True
        )
        marker = make_marker(
            base_offset=end + 2, producer_id=number, producer_epoch=0, commit=number % 10 != 5
        )
        log.append_as_follower(data + marker, START_MS)
    assert len(log.segments.all) > 15
    log.close()
    log = open_log(tmp_path, LogConfig(segment_bytes=500), stop=PreviousStop.CLEAN)
    assert log.aborted_transactions(168, 180) == []
    assert open_files(log, ".txnindex") == 0
    assert log.aborted_transactions(0, 18) == [AbortedTransaction(5, 15)]
    assert open_files(log, ".txnindex") == 1
    assert len(log.aborted_transactions(0, 180)) == 6
    assert open_files(log, ".txnindex") == 6
    log.close()


@pytest.mark.parametrize("stop", [PreviousStop.CLEAN, PreviousStop.UNKNOWN])
def test_log_holds_a_descriptor_a_segment_and_two_more_at_most_until_somebody_looks_something_up(
    tmp_path: Path, stop: PreviousStop
) -> None:
    """Descriptors are what a broker with many partitions runs out of first."""
    log = open_log(tmp_path)
    fill(log, 60)
    log.flush()
    segments = len(log.segments.all)
    assert segments > 3
    assert [open_files(log, suffix) for suffix in (".log", "index")] == [segments, 0]
    log.close(clean=stop is PreviousStop.CLEAN)
    del log
    gc.collect()
    log = open_log(tmp_path, stop=stop)
    assert open_files(log, ".log") == segments
    assert open_files(log, "index") <= 2
    log.close()


def test_flush_moves_the_recovery_point_and_close_leaves_trimmed_indexes(tmp_path: Path) -> None:
    """Recovery begins where the disk is known to be right; Kafka expects indexes without slack."""
    log = open_log(tmp_path, LogConfig(segment_bytes=2000, index_interval_bytes=200, flush_messages=10))
    fill(log, 4)
    assert not log.flush_due
    fill(log, 30)
    assert log.flush_due
    assert not (log.directory / f"{segment_bases(log)[-1]:020d}.index").exists()
    log.flush()
    assert (log.recovery_point, log.flush_due) == (68, False)
    log.close()
    for path in log.directory.glob("*.index"):
        assert path.stat().st_size < 200
    assert (log.directory / f"{68:020d}.snapshot").exists()


def test_rename_for_deletion_frees_the_name(tmp_path: Path) -> None:
    """A topic may be created again while the old one's files are still being removed."""
    log = open_log(tmp_path)
    fill(log, 2)
    renamed = log.rename_with_suffix("-delete")
    assert renamed.name.startswith("t-0.")
    assert renamed.name.endswith("-delete")
    assert open_log(tmp_path).log_end_offset == 0
