"""Sequences and epochs of idempotent producers, and their snapshot on disk."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from sparklog.node.storage.machine.producer_states import (
    EXAMINED_AT_A_TIME,
    BatchMetadata,
    Duplicate,
    Fresh,
    ProducerStates,
)
from sparklog.node.storage.producers.producer_snapshots import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
    snapshot_offsets,
)
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader
from tests.unit.sparklog.node.storage.batches import START_MS, headers_of, make_batch, make_marker

NOW_MS = 1_800_000_000_000
"""When everything is appended; the batches' own timestamps are another time's."""


def header(
    sequence: int, count: int = 1, *, offset: int = 0, producer_epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    """Return the header of a batch of producer 1."""
    (made,) = headers_of(
        make_batch(
            count,
            base_offset=offset,
            producer_id=1,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    return made


def states_after(*headers: BatchHeader) -> ProducerStates:
    """Return the states after these batches."""
    states = ProducerStates()
    for each in headers:
        assert states.check(each) == Fresh()
        states.update(each, NOW_MS)
    return states


def refusal(states: ProducerStates, refused: BatchHeader) -> ErrorCode:
    """Return the error that `check` raises."""
    with pytest.raises(KafkaError) as caught:
        states.check(refused)
    return caught.value.error_code


def test_check_of_the_next_sequence_is_fresh_and_of_a_gap_is_refused() -> None:
    """A lost request must not let later ones be written before it."""
    states = states_after(header(0, 5), header(5, 5, offset=5))
    assert states.check(header(10)) == Fresh()
    assert refusal(states, header(11)) == ErrorCode.out_of_order_sequence_number
    assert refusal(states, header(6)) == ErrorCode.out_of_order_sequence_number


def test_check_recognises_the_last_five_batches() -> None:
    """A client may have five requests in flight, and retry any of them."""
    states = states_after(*(header(2 * i, 2, offset=10 + 2 * i) for i in range(7)))
    for i in range(2, 7):
        assert states.check(header(2 * i, 2)) == Duplicate(10 + 2 * i, 11 + 2 * i, START_MS + 1)
    assert refusal(states, header(2, 2)) == ErrorCode.out_of_order_sequence_number
    assert refusal(states, header(12, 1)) == ErrorCode.out_of_order_sequence_number


def test_check_wraps_sequences_after_the_largest_int32() -> None:
    """A long-lived producer gets there in earnest."""
    largest = 2**31 - 1
    states = states_after(header(largest - 1, 2, offset=7))
    assert states.check(header(0)) == Fresh()
    assert refusal(states, header(1)) == ErrorCode.out_of_order_sequence_number
    states = states_after(header(largest, 3, offset=7))
    assert states.check(header(2)) == Fresh()
    assert states.check(header(largest, 3)) == Duplicate(7, 9, START_MS + 2)


def test_check_fences_old_epochs_and_begins_new_ones_at_zero() -> None:
    """A zombie instance of a producer must write nothing."""
    states = states_after(header(0, producer_epoch=3))
    assert refusal(states, header(1, producer_epoch=2)) == ErrorCode.invalid_producer_epoch
    assert refusal(states, header(1, producer_epoch=4)) == ErrorCode.out_of_order_sequence_number
    assert states.check(header(0, producer_epoch=4)) == Fresh()
    states.update(header(0, producer_epoch=4), NOW_MS)
    assert states.check(header(1, producer_epoch=4)) == Fresh()


def test_check_of_an_unknown_producer_takes_any_sequence() -> None:
    """Its records may have been deleted by retention; it must be able to go on."""
    assert ProducerStates().check(header(77)) == Fresh()


def test_check_inside_a_transaction_refuses_what_is_outside_of_it() -> None:
    """Mixing would make the records' fate undecidable."""
    states = states_after(header(0, offset=4, transactional=True))
    assert refusal(states, header(1)) == ErrorCode.invalid_txn_state
    assert states.first_unstable_offset(5) == 4
    (marker,) = headers_of(make_marker(base_offset=5, producer_id=1, producer_epoch=1, commit=True))
    completed = states.end_transaction(marker, NOW_MS, aborted=False, coordinator_epoch=3)
    assert completed == (1, 4, 5, False, 6)
    assert states.end_transaction(marker, NOW_MS, aborted=False, coordinator_epoch=3) is None
    assert states.first_unstable_offset(5) == 4
    assert states.first_unstable_offset(6) is None
    assert states.check(header(0, producer_epoch=1)) == Fresh()


def test_remove_expired_spares_open_transactions() -> None:
    """State must not grow for ever, nor forget what is still going on."""
    states = states_after(header(0, transactional=True))
    assert sum(states.remove_expired(NOW_MS + 10_000, 1000)) == 0
    states = states_after(header(0))
    assert sum(states.remove_expired(NOW_MS + 999, 1000)) == 0
    assert sum(states.remove_expired(NOW_MS + 1000, 1000)) == 1
    assert states.check(header(55)) == Fresh()


def test_remove_expired_looks_at_some_producers_at_a_time() -> None:
    """A partition may have had a million; a broker's loop has others to serve meanwhile."""
    states = ProducerStates()
    first = header(0)
    for producer_id in range(2 * EXAMINED_AT_A_TIME + 1):
        states.update(first._replace(producer_id=producer_id), NOW_MS)
    removals = states.remove_expired(NOW_MS + 1000, 1000)
    assert next(removals) == EXAMINED_AT_A_TIME
    states.update(first._replace(producer_id=EXAMINED_AT_A_TIME, base_sequence=1), NOW_MS + 1)
    assert list(removals) == [EXAMINED_AT_A_TIME - 1, 1]
    assert list(states.producers) == [EXAMINED_AT_A_TIME]


def test_snapshot_has_kafkas_bytes() -> None:
    """Kafka and we must be able to open each other's directories."""
    states = states_after(header(0, 3, offset=4), header(3, 2, offset=7))
    content = encode_snapshot(states.capture())
    assert content[:2] == b"\x00\x01"
    assert content[6:] == struct.pack(">iqhiqiqiq", 1, 1, 0, 4, 8, 1, NOW_MS, -1, -1)
    loaded = decode_snapshot(content, NOW_MS).producers[1]
    assert list(loaded.batches) == [BatchMetadata(3, 4, 8, 1, NOW_MS)]
    assert (loaded.producer_epoch, loaded.coordinator_epoch, loaded.last_append_ms) == (0, None, NOW_MS)


@pytest.mark.parametrize("written_ms", [-1, NOW_MS + 1, 4_102_444_800_000])
def test_snapshot_time_that_cannot_be_counts_from_the_reading(written_ms: int) -> None:
    """Kafka writes records' timestamps there; one of 2100 would be remembered until then."""
    content = encode_snapshot(states_after(header(0)).capture())
    body = content[6:].replace(struct.pack(">q", NOW_MS), struct.pack(">q", written_ms))
    loaded = decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body, NOW_MS)
    assert loaded.producers[1].last_append_ms == NOW_MS


def test_capture_stays_as_it_was_whatever_is_appended_afterwards() -> None:
    """It is put into bytes beside the loop, which goes on: a snapshot of two moments would be of neither."""
    states = states_after(header(0, offset=0), header(1, offset=1, transactional=True))
    before = encode_snapshot(states.capture())
    captured = states.capture()
    (marker,) = headers_of(make_marker(base_offset=2, producer_id=1, producer_epoch=0, commit=True))
    states.end_transaction(marker, NOW_MS + 1, aborted=False, coordinator_epoch=3)
    states.update(header(2, offset=3), NOW_MS + 2)
    states.update(header(0, offset=4, producer_epoch=1), NOW_MS + 3)
    assert encode_snapshot(captured) == before
    later = states.capture()
    sum(states.remove_expired(NOW_MS + 10**9, 1))
    assert encode_snapshot(later) != before
    assert encode_snapshot(states.capture()) == encode_snapshot({})


def test_snapshot_that_is_damaged_is_refused() -> None:
    """Wrong sequences would let duplicates in; the log is replayed instead."""
    content = encode_snapshot(states_after(header(0)).capture())
    for damaged in (b"", content[:-1], content + b"x", b"\x00\x09" + content[2:], content[:-1] + b"\x55"):
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(damaged, NOW_MS)


def test_snapshot_offsets_ignores_other_files(tmp_path: Path) -> None:
    """Only names made of digits are snapshots."""
    for name in ("00000000000000000007.snapshot", "x.snapshot", "00000000000000000009.log"):
        (tmp_path / name).touch()
    assert snapshot_offsets(tmp_path) == [7]
