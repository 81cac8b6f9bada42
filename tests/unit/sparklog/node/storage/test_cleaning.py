"""What compaction promises, what it costs, and what is left of it when it is interrupted."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparklog.node.storage.cleaning.cleaner import clean
from sparklog.node.storage.cleaning.key_hashes import KeyHashes
from sparklog.node.storage.cleaning.offset_map import OffsetMap
from sparklog.node.storage.log import log as log_module
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log.log_cleaning import LogCleaning
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.segments.batch_walk import walk_headers
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import iterate_headers, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.unit.sparklog.node.storage.batches import START_MS, make_marker
from tests.unit.sparklog.node.storage.cleanings import (
    LIMITS,
    clean_round,
    records_from,
    state_of,
    take_over,
)

DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=200,
    segment_index_bytes=4096,
    compacts=True,
    deletes=False,
    delete_retention_ms=DAY_MS,
    file_delete_delay_ms=0,
)


def open_log(directory: Path, config: LogConfig = CONFIG) -> Log:
    return Log.open(directory, config, now_ms=START_MS)


def put(log: Log, *pairs: tuple[bytes, bytes | None], codec: Codec = Codec.NONE) -> None:
    records = [SimpleRecord(key, value, (), START_MS) for key, value in pairs]
    batch = build_batch(records, codec=codec)
    log.append_as_leader(batch, read_header(batch), 0, START_MS)


def fill(log: Log, count: int = 60) -> None:
    """Write ten keys over and over, three records to a batch."""
    for i in range(0, count, 3):
        put(log, *((b"key-%d" % ((i + j) % 10), b"%030d" % (i + j)) for j in range(3)))


def test_consumer_at_the_head_of_the_log_sees_every_record(tmp_path: Path) -> None:
    """Kafka's first guarantee: who keeps up is never affected, for the head is not cleaned."""
    log = open_log(tmp_path / "t-0")
    position, seen = 0, []
    for number in range(40):
        put(log, (b"key", b"%0100d" % number))
        found = records_from(log, position)
        seen += [record.value for record in found]
        position = found[-1].offset + 1
        clean_round(log, START_MS)
    assert seen == [b"%0100d" % number for number in range(40)]
    assert len(records_from(log, 0)) < 40


def test_order_of_records_is_never_changed(tmp_path: Path) -> None:
    """Kafka's second guarantee: cleaning takes records away and moves none."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    before = records_from(log, 0)
    clean_round(log, START_MS)
    after = records_from(log, 0)
    assert 10 <= len(after) < len(before)
    assert after == [record for record in before if record in after]


def test_offset_of_a_record_never_changes_and_every_position_stays_valid(tmp_path: Path) -> None:
    """Kafka's third guarantee: who has read up to an offset goes on there, whatever has gone since."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    before = {record.offset: record for record in records_from(log, 0)}
    clean_round(log, START_MS)
    after = records_from(log, 0)
    assert all(before[record.offset] == record for record in after)
    for position in before:
        assert records_from(log, position) == [record for record in after if record.offset >= position]


def test_consumer_from_the_start_sees_the_final_state_and_tombstones_of_the_last_day(tmp_path: Path) -> None:
    """Kafka's fourth guarantee: a table made of the log is right, and so is one that began before."""
    log = open_log(tmp_path / "t-0")
    fill(log, 30)
    put(log, (b"key-3", None), (b"key-4", None))
    fill(log, 3)
    expected = state_of(records_from(log, 0))
    log.roll(START_MS)
    clean_round(log, START_MS)
    # Between a first and a second cleaning a day goes by.
    clean_round(log, START_MS + DAY_MS - 1)
    kept = records_from(log, 0)
    assert {record.key for record in kept if record.value is None} == {b"key-3", b"key-4"}
    assert state_of(kept) == expected
    clean_round(log, START_MS + DAY_MS)
    kept = records_from(log, 0)
    assert [record for record in kept if record.value is None] == []
    assert state_of(kept) == expected


def test_batch_is_copied_as_it_is_when_all_of_it_stays(tmp_path: Path) -> None:
    """What need not change is not compressed anew: cleaning a clean log costs copying."""
    log = open_log(tmp_path / "t-0")
    put(log, *((b"%d" % i, b"x" * 50) for i in range(30)), codec=Codec.ZSTD)
    put(log, (b"0", b"y"), codec=Codec.GZIP)
    put(log, (b"z", b"y"))
    log.roll(START_MS)
    path = tmp_path / "t-0" / f"{0:020}.log"
    first, second = (data_of(path, number) for number in (0, 1))
    clean_round(log, START_MS)
    assert data_of(path, 0) != first
    assert data_of(path, 1) == second
    header = read_header(data_of(path, 0))
    assert (header.codec, header.record_count, header.last_offset_delta) == (Codec.ZSTD, 29, 29)


def data_of(path: Path, number: int) -> bytes:
    data = path.read_bytes()
    position, header = list(iterate_headers(data))[number]
    return data[position : position + header.size_bytes]


def test_small_segments_become_one(tmp_path: Path) -> None:
    """A log of a few keys must not consist of thousands of files."""
    log = open_log(tmp_path / "t-0")
    for _ in range(20):
        fill(log, 30)
        clean_round(log, START_MS)
    assert len(log.segments.all) <= 4
    log.delete_files_due(START_MS)
    assert len(list((tmp_path / "t-0").glob("*.log"))) == len(log.segments.all)


def test_log_with_more_keys_than_the_buffer_holds_is_cleaned_in_several_rounds(tmp_path: Path) -> None:
    """The buffer is a bound, not a wish; what does not fit waits for the next round."""
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        for i in range(0, 60, 3):
            put(log, *((b"key-%d" % (i + j), b"%020d" % j) for j in range(3)))
    log.roll(START_MS)
    expected = state_of(records_from(log, 0))
    limits = LIMITS._replace(dedupe_buffer_bytes=24 * 25)
    rounds = 0
    while (log.cleaned_offset or 0) < log.log_end_offset:
        outcome = clean_round(log, START_MS, limits=limits)
        assert outcome is not None
        assert outcome.keys <= 22
        rounds += 1
    assert rounds >= 180 // 25
    assert state_of(records_from(log, 0)) == expected
    assert len(records_from(log, 0)) == 60


def test_aborted_records_above_the_end_of_a_round_stay(tmp_path: Path) -> None:
    """An abort that is not replicated yet may be undone by the next leader, and so may what it aborted."""
    log = open_log(tmp_path / "t-0")
    put(log, (b"key", b"value"))
    for end_of_transaction in (False, True):
        offset = log.log_end_offset
        of_producer = {"base_offset": offset, "producer_id": 1, "producer_epoch": 0}
        log.append_as_follower(
            make_marker(**of_producer, commit=False)
            if end_of_transaction
            else build_batch(
                [SimpleRecord(b"key", b"aborted")], base_sequence=0, transactional=True, **of_producer
            ),
            START_MS,
        )
    log.roll(START_MS)
    clean_round(log, START_MS, high_watermark=1)
    assert [record.offset for record in records_from(log, 0)] == [0, 1, 2]
    clean_round(log, START_MS, high_watermark=3)
    assert [record.offset for record in records_from(log, 0)] == [0, 2]


def test_tombstones_of_a_batch_that_the_buffer_has_no_room_for_wait_together(tmp_path: Path) -> None:
    """One whose key no round has met must not go with those that have had their time."""
    log = open_log(tmp_path / "t-0")
    for key in (b"a", b"b", b"c"):
        put(log, (key, b"value"))
    put(log, (b"a", None), (b"b", None), (b"c", None))
    log.roll(START_MS)
    for _ in range(8):
        # Two keys a round.
        clean_round(log, START_MS, limits=LIMITS._replace(dedupe_buffer_bytes=24 * 3))
    clean_round(log, START_MS + DAY_MS - 1, limits=LIMITS._replace(dedupe_buffer_bytes=24 * 3))
    assert [record.key for record in records_from(log, 0) if record.value is None] == [b"a", b"b", b"c"]


def test_time_is_looked_up_past_batches_of_which_only_the_header_is_left(tmp_path: Path) -> None:
    """ListOffsets must name a record that is there, not the place of one that was."""
    log = open_log(tmp_path / "t-0")
    for number, key in enumerate((b"a", b"b", b"a", b"b")):
        record = SimpleRecord(key, b"value", (), START_MS + 10 * (3 - number))
        batch = build_batch([record], producer_id=number, producer_epoch=0, base_sequence=0)
        log.append_as_leader(batch, read_header(batch), 0, START_MS)
    log.roll(START_MS)
    clean_round(log, START_MS)
    assert [record.offset for record in records_from(log, 0)] == [2, 3]
    found = log.offset_for_timestamp(START_MS + 5, log.log_end_offset)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (2, START_MS + 10)
    assert log.offset_for_timestamp(START_MS + 25, log.log_end_offset) is None


def test_reader_of_a_segment_that_is_replaced_reads_on_undisturbed(tmp_path: Path) -> None:
    """A response that is being sent keeps the bytes it has announced."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    result = log.read(0, max_bytes=10_000, up_to_offset=log.log_end_offset)
    assert result.region is not None
    before = result.region.read()
    clean_round(log, START_MS)
    log.delete_files_due(START_MS)
    assert result.region.read() == before
    assert records_from(log, result.next_offset) != []


@pytest.mark.parametrize("change", ["truncated", "dropped", "closed"])
def test_what_was_cleaned_is_not_taken_over_by_a_log_that_has_changed(tmp_path: Path, change: str) -> None:
    """A truncation or a deletion in the meantime counts more than an hour of cleaning."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    end = log.segments.active.base_offset
    request, truncations = LogCleaning(log).request(0, end, LIMITS, START_MS)
    outcome = clean(request)
    group = outcome.groups[0]
    segment = LogCleaning(log).open_cleaned(group, START_MS)
    match change:
        case "truncated":
            log.truncate_to(end + 1)
        case "dropped":
            log.advance_log_start_offset(end)
            log.delete_old_segments(START_MS, end)
            assert LogCleaning(log).is_gone(group)
        case "closed":
            log.close()
    assert not LogCleaning(log).replace(group, segment, truncations, START_MS)
    LogCleaning(log).remove_unwanted([group.base_offset for group in outcome.groups])
    assert list((tmp_path / "t-0").glob("*.cleaned")) == []


@contextmanager
def stopped_at_each_file_operation(
    directory: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Path]]:
    """Keep a copy of a directory as it is before each change of a name in it."""
    found: list[Path] = []

    def copying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def copied(*arguments: Any, **options: Any) -> Any:
            target = copies / f"{len(found)}" / directory.name
            shutil.copytree(directory, target)
            found.append(target)
            return operation(*arguments, **options)

        return copied

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "unlink", "touch"):
            patched.setattr(Path, name, copying(getattr(Path, name)))
        patched.setattr(os, "fsync", copying(os.fsync))
        yield found


@pytest.mark.parametrize("stop", [PreviousStop.KILLED, PreviousStop.UNKNOWN])
def test_cleaning_that_is_stopped_at_any_file_operation_leaves_a_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: PreviousStop
) -> None:
    """At every moment the directory says what the log is, old or cleaned, and nothing in between."""
    log = open_log(tmp_path / "t-0")
    fill(log, 90)
    put(log, (b"key-3", None))
    fill(log, 9)
    log.roll(START_MS)
    log.flush()
    expected, end = state_of(records_from(log, 0)), log.log_end_offset
    with stopped_at_each_file_operation(tmp_path / "t-0", tmp_path / "copies", monkeypatch) as copies:
        clean_round(log, START_MS)
        # The second one has cleaned segments to replace.
        log.delete_files_due(START_MS)
        clean_round(log, START_MS + 2 * DAY_MS)
        log.delete_files_due(START_MS)
    cleaned = len(records_from(log, 0))
    counts = set()
    assert len(copies) > 40
    for copy in copies:
        again = Log.open(copy, CONFIG, recovery_point=end, high_watermark=end, stop=stop, now_ms=START_MS)
        assert again.missing is None, copy
        assert again.log_end_offset == end
        assert state_of(records_from(again, 0)) == expected, copy
        assert [path for path in copy.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")] == []
        counts.add(len(records_from(again, 0)))
        again.close()
    assert {100, cleaned} <= counts


@pytest.mark.parametrize(
    ("swapped", "in_place", "is_cleaned"),
    [
        ((), (), False),
        ((".log",), (), False),
        ((".log", ".index", ".timeindex"), (), True),
        ((".index", ".timeindex"), (".log",), True),
        ((".timeindex",), (".log", ".index"), True),
    ],
    ids=["cleaned", "half renamed", "swap", "log in place", "all but one in place"],
)
def test_swap_that_kafka_was_stopped_in_is_settled_as_kafka_does(
    tmp_path: Path, swapped: tuple[str, ...], in_place: tuple[str, ...], is_cleaned: bool
) -> None:
    """A directory of Kafka's after a power cut: what was begun is finished if all of it was written."""
    log = open_log(tmp_path / "t-0")
    fill(log, 90)
    log.roll(START_MS)
    log.flush()
    expected, end = state_of(records_from(log, 0)), log.log_end_offset
    bases = [segment.base_offset for segment in log.segments.all]
    outcome = clean(LogCleaning(log).request(0, end, LIMITS, START_MS)[0])
    group = outcome.groups[0]
    log.close(clean=False)
    for suffix in (".log", ".index", ".timeindex"):
        cleaned = tmp_path / "t-0" / f"{group.base_offset:020}{suffix}.cleaned"
        if suffix in swapped:
            cleaned.rename(cleaned.with_suffix(".swap"))
        elif suffix in in_place:
            cleaned.rename(cleaned.with_suffix(""))
    if in_place:
        # It has renamed what was there before.
        for base_offset in group.sources[1:]:
            for path in (tmp_path / "t-0").glob(f"{base_offset:020}.*"):
                path.rename(path.with_name(path.name + ".deleted"))
    for later in outcome.groups[1:]:
        for path in (tmp_path / "t-0").glob(f"{later.base_offset:020}.*.cleaned"):
            path.unlink()
    again = Log.open(
        tmp_path / "t-0",
        CONFIG,
        recovery_point=end,
        cleaned_offset=0,
        stop=PreviousStop.UNKNOWN,
        now_ms=START_MS,
    )
    assert (again.missing, again.log_end_offset) == (None, end)
    assert state_of(records_from(again, 0)) == expected
    gone = group.sources[1:] if is_cleaned else []
    assert [segment.base_offset for segment in again.segments.all] == [b for b in bases if b not in gone]
    assert len(records_from(again, 0)) < 90 or not is_cleaned


def test_disk_that_is_full_while_cleaning_costs_the_attempt_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaning is what makes room: it must not be what breaks a full disk's broker."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    names = {path.name for path in (tmp_path / "t-0").iterdir()}
    before = records_from(log, 0)
    request, truncations = LogCleaning(log).request(0, log.segments.active.base_offset, LIMITS, START_MS)
    pwritev = os.pwritev

    def full(descriptor: int, parts: list[bytes], position: int) -> int:
        pwritev(descriptor, [bytes(parts[0])[:10]], position)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", full)
        with pytest.raises(OSError, match="No space left"):
            clean(request)
    assert {path.name for path in (tmp_path / "t-0").iterdir()} == names
    assert records_from(log, 0) == before
    take_over(log, clean(request), truncations, START_MS)
    assert len(records_from(log, 0)) < len(before)


def test_damaged_batch_ends_the_cleaning_and_its_log_stays(tmp_path: Path) -> None:
    """What cannot be read must not be copied as if it could, nor left out."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    path = tmp_path / "t-0" / f"{0:020}.log"
    with path.open("r+b") as file:
        file.seek(300)
        file.write(b"\xff")
    request, _ = LogCleaning(log).request(0, log.segments.active.base_offset, LIMITS, START_MS)
    with pytest.raises(KafkaError, match="CRC"):
        clean(request)
    assert list((tmp_path / "t-0").glob("*.cleaned")) == []


def test_log_that_kafka_has_cleaned_opens_without_our_marker(tmp_path: Path) -> None:
    """Kafka says in cleaner-offset-checkpoint which logs it has cleaned; a gap is no damage there."""
    log = open_log(tmp_path / "t-0")
    fill(log)
    clean_round(log, START_MS)
    expected, end, cleaned_offset = records_from(log, 0), log.log_end_offset, log.cleaned_offset
    log.close()
    (tmp_path / "t-0" / "offset-gaps").unlink()
    again = Log.open(
        tmp_path / "t-0",
        LogConfig(segment_bytes=2000),
        recovery_point=0,
        cleaned_offset=cleaned_offset,
        stop=PreviousStop.UNKNOWN,
        now_ms=START_MS,
    )
    assert (again.log_end_offset, again.missing) == (end, None)
    assert records_from(again, 0) == expected


def test_epochs_of_a_cleaned_log_that_begins_inside_a_batch_are_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Epochs whose batches have been compacted away are in their file alone: it must not be made anew."""
    log = open_log(tmp_path / "t-0")
    put(log, *((b"%d" % i, b"x" * 50) for i in range(10)))
    for leader_epoch in (1, 2):
        log.assign_leader_epoch(leader_epoch)
        batch = build_batch([SimpleRecord(b"key", b"value", (), START_MS)])
        log.append_as_leader(batch, read_header(batch), leader_epoch, START_MS)
    log.roll(START_MS)
    clean_round(log, START_MS)
    assert {record.leader_epoch for record in records_from(log, 0)} == {0, 2}
    log.advance_log_start_offset(5)
    epochs = log.epochs.entries
    assert [entry.leader_epoch for entry in epochs] == [0, 1, 2]
    log.close()
    again = Log.open(
        tmp_path / "t-0",
        CONFIG,
        log_start_offset=5,
        cleaned_offset=0,
        stop=PreviousStop.CLEAN,
        now_ms=START_MS,
    )
    assert again.epochs.entries == epochs
    assert "Rebuilding" not in caplog.text


def test_headers_of_a_cleaned_log_lead_from_index_to_batch(tmp_path: Path) -> None:
    """Indexes are made with the segment, not found to be missing at the next start."""
    log = open_log(tmp_path / "t-0")
    fill(log, 600)
    clean_round(log, START_MS)
    for segment in log.segments.all[:-1]:
        for position, header in walk_headers(segment.file, 0, segment.size_bytes):
            assert segment.position_of(header.last_offset) == position


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 31, 64, 127, 128, 129, 1000])
def test_key_hash_is_that_of_the_keys_bytes_wherever_they_lie(length: int) -> None:
    """A key at the very end of what was read is the same key."""
    hashes = KeyHashes()
    key = bytes(range(1, 251))[: length % 250] + b"k" * (length // 250 * 250)
    data = np.frombuffer(key + b"--" + key + b"\0" + key, dtype=np.uint8)
    positions = np.array([0, len(key) + 2, 2 * len(key) + 3])
    high, low = hashes.of(data, positions, np.full(3, len(key)))
    assert len(set(zip(high.tolist(), low.tolist(), strict=True))) == 1
    if length:
        ends = np.array([length, length - 1])
        high, low = hashes.of(data, np.zeros(2, dtype=np.int64), ends)
        assert high[0] != high[1]
        assert low[0] != low[1]


def test_offset_map_takes_known_keys_when_it_is_full() -> None:
    """A full table still learns newer offsets of what it has, so that a round ends at a new key."""
    offset_map = OffsetMap(24 * 10, 0.9, 1000)
    keys = np.arange(1, 101, dtype=np.uint64)
    taken = offset_map.put(keys[:50], keys[:50], np.arange(50))
    assert taken == offset_map.count < 10
    again = np.concatenate((keys[:taken], keys[:taken], keys[60:61]))
    assert offset_map.put(again, again, np.arange(100, 100 + len(again))) == 2 * taken
    assert offset_map.get(keys[: taken + 1], keys[: taken + 1]).tolist() == [
        *range(100 + taken, 100 + 2 * taken),
        -1,
    ]


def test_load_factor_above_one_leaves_the_map_a_free_slot() -> None:
    """A search ends at a free slot: in a full table the cleaner would run for ever."""
    hashes = KeyHashes()
    keys = np.arange(100, dtype=np.uint64).view(np.uint8)
    positions = np.arange(100, dtype=np.int64) * 8
    offset_map = OffsetMap(24 * 7, 5.0, 100)
    high, low = hashes.of(keys, positions, np.full(100, 8, dtype=np.int64))
    assert offset_map.put(high, low, np.arange(100, dtype=np.int64)) == 6
    assert (offset_map.get(high[6:], low[6:]) == -1).all()
    with pytest.raises(ValueError, match=r"load\.factor"):
        OffsetMap(24 * 7, 0.0, 100)


def test_log_that_is_cut_into_a_gap_is_clean_no_further_than_it_goes(tmp_path: Path) -> None:
    """What is written into the gap is new: a tombstone that no map knows would go before what it deletes."""
    log = open_log(tmp_path / "t-0")
    put(log, (b"other", b"1"))
    for _ in range(5):
        put(log, (b"key", b"1"))
    log.roll(START_MS)
    put(log, (b"last", b"1"))
    clean_round(log, START_MS)
    assert [record.offset for record in records_from(log, 0)] == [0, 5, 6]
    log.truncate_to(4)
    assert (log.log_end_offset, log.cleaned_offset) == (1, 1)


def test_oldest_segment_of_which_nothing_is_left_does_not_hold_up_retention_by_size(tmp_path: Path) -> None:
    """With compact,delete the log would grow above retention.bytes."""
    config = replace(CONFIG, deletes=True, segment_bytes=1000, retention_bytes=1500, retention_ms=None)
    log = open_log(tmp_path / "t-0", config)
    for _ in range(2):
        for number in range(6):
            put(log, (b"key-%d" % number, b"x" * 800))
    log.roll(START_MS)
    clean_round(log, START_MS)
    assert log.segments.all[0].size_bytes == 0
    log.delete_old_segments(START_MS, log.log_end_offset)
    assert log.size_bytes <= 1500 + 1000


def test_follower_has_on_the_disk_that_its_log_has_gaps_before_it_trusts_what_is_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a topic that is compacted no more nothing else says so: recovery would cut the log at the gap."""
    leader = open_log(tmp_path / "leader" / "t-0")
    put(leader, (b"first", b"1"))
    fill(leader)
    leader.roll(START_MS)
    clean_round(leader, START_MS)
    follower = open_log(tmp_path / "follower" / "t-0", replace(CONFIG, compacts=False, segment_bytes=10_000))
    result = leader.read(0, max_bytes=1, up_to_offset=leader.log_end_offset)
    assert result.region is not None
    follower.append_as_follower(result.region.read(), START_MS)
    follower.flush()
    assert not (follower.directory / "offset-gaps").exists()
    while result.next_offset < leader.log_end_offset:
        result = leader.read(result.next_offset, max_bytes=400, up_to_offset=leader.log_end_offset)
        assert result.region is not None
        follower.append_as_follower(result.region.read(), START_MS)
    assert (follower.directory / "offset-gaps").exists()
    synced: list[Path] = []
    monkeypatch.setattr(log_module, "sync_directory", synced.append)
    follower.flush()
    assert follower.directory in synced


def test_batch_beyond_what_is_decompressed_is_named_with_the_key_that_bounds_it(tmp_path: Path) -> None:
    """It may have come from elsewhere, where nothing bounds it: the operator is to know what to raise."""
    log = open_log(tmp_path / "t-0")
    put(log, (b"key", b"value"))
    batch = build_batch([SimpleRecord(b"key", b"0" * 200_000)], base_offset=1, codec=Codec.ZSTD)
    log.append_as_follower(batch, START_MS)
    log.roll(START_MS)
    bound = "offset 1: .* more than 100000 bytes; message.max.decompressed.bytes"
    with pytest.raises(KafkaError, match=bound):
        clean_round(log, START_MS, limits=LIMITS._replace(max_decompressed_bytes=100_000))
    assert list((tmp_path / "t-0").glob("*.cleaned")) == []
    clean_round(log, START_MS, limits=LIMITS._replace(max_decompressed_bytes=300_000))
    assert [record.offset for record in records_from(log, 0)] == [1]
