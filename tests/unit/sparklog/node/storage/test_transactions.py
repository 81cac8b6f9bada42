"""Transactions in one log: what begins and ends them, and what readers of committed records see of them."""

from pathlib import Path

import pytest

from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.node.storage.producers.transaction_markers import (
    EndTransactionMarker,
    TransactionMarker,
    marker_batch,
    read_marker,
)
from sparklog.node.storage.results import AppendInfo
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader, iterate_headers, read_header
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import AbortedTransaction
from tests.unit.sparklog.node.storage.batches import START_MS, load_producers_again, make_batch


def open_log(directory: Path, config: LogConfig | None = None, **stop: PreviousStop) -> Log:
    """Open the log of t-0."""
    return Log.open(directory / "t-0", config or LogConfig(), now_ms=START_MS, **stop)


def write(log: Log, producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1) -> AppendInfo:
    """Append a batch of a transaction that its coordinator knows of."""
    batch = make_batch(
        count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )
    verification = log.producers.begin_verification(
        producer_id, epoch, sequence, START_MS, supports_epoch_bump=True
    )
    return log.append_as_leader(batch, read_header(batch), 0, START_MS, verification)


def end(log: Log, producer_id: int, *, epoch: int = 1, committed: bool = True, coordinator: int = 0) -> int:
    """End a producer's transaction; return the marker's offset."""
    marker = EndTransactionMarker(producer_id, epoch, committed, coordinator, 2)
    batch = marker_batch(marker, START_MS)
    return log.append_as_leader(batch, read_header(batch), 0, START_MS, marker=marker).base_offset


def headers(log: Log) -> list[BatchHeader]:
    """Return the headers of all batches."""
    region = log.read(0, max_bytes=1 << 20, up_to_offset=log.log_end_offset).region
    assert region is not None
    content = region.file.path.read_bytes()
    return [header for _, header in iterate_headers(content)]


def test_marker_has_kafkas_bytes() -> None:
    """Consumers, followers and Kafka's own tools read them."""
    batch = marker_batch(EndTransactionMarker(5, 3, True, 9, 2), START_MS)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    (record,) = read_records(batch, header)
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x09")
    assert read_marker(header, batch) == TransactionMarker(aborted=False, coordinator_epoch=9)
    batch = marker_batch(EndTransactionMarker(5, 3, False, 9, 2), START_MS)
    assert read_marker(read_header(batch), batch) == TransactionMarker(aborted=True, coordinator_epoch=9)


def test_interleaved_transactions_are_seen_each_as_a_whole_and_in_the_order_of_offsets(
    tmp_path: Path,
) -> None:
    """What is stable ends where the first of them that is open began, whichever is over before."""
    log = open_log(tmp_path)
    write(log, 1, 0)
    write(log, 2, 0)
    write(log, 1, 1)
    assert (end(log, 2), log.last_stable_offset(4)) == (3, 0)
    write(log, 3, 0)
    assert (end(log, 1, committed=False), log.last_stable_offset(6)) == (5, 4)
    assert log.aborted_transactions(0, 4) == [AbortedTransaction(1, 0)]
    assert (end(log, 3), log.last_stable_offset(7)) == (6, 7)
    assert [header.is_control for header in headers(log)] == [False, False, False, True, False, True, True]
    log.close()


def test_batch_without_verification_is_not_appended(tmp_path: Path) -> None:
    """It would hold up all readers of committed records until somebody ends it by hand."""
    log = open_log(tmp_path)
    batch = make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch, read_header(batch), 0, START_MS)
    assert caught.value.error_code is ErrorCode.invalid_txn_state
    assert log.log_end_offset == 0
    log.reconfigure(LogConfig(transaction_partition_verification=False))
    assert log.append_as_leader(batch, read_header(batch), 0, START_MS).base_offset == 0
    log.close()


def test_zombies_batches_and_markers_are_not_appended(tmp_path: Path) -> None:
    """A producer whose successor has begun, and a coordinator that was deposed, write nothing."""
    log = open_log(tmp_path)
    write(log, 1, 0)
    end(log, 1, epoch=1, coordinator=7)
    write(log, 1, 0, epoch=1)
    for refused, error_code in (
        (lambda: write(log, 1, 1, epoch=0), ErrorCode.invalid_producer_epoch),
        (lambda: end(log, 1, epoch=0), ErrorCode.invalid_producer_epoch),
        (lambda: end(log, 1, epoch=1, coordinator=7), ErrorCode.invalid_producer_epoch),
        (lambda: end(log, 1, epoch=2, coordinator=6), ErrorCode.transaction_coordinator_fenced),
    ):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.error_code is error_code
    assert log.log_end_offset == 3
    log.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_first_unstable_offset_survives_a_restart(tmp_path: Path, is_clean: bool) -> None:
    """A transaction is as open as before, whoever opens the log, and its marker ends it."""
    config = LogConfig(segment_bytes=400)
    log = open_log(tmp_path, config)
    for producer_id in (3, 1, 2):
        write(log, producer_id, 0)
    for sequence in range(1, 20):
        write(log, 1, sequence)
    end(log, 3)
    log.close(clean=is_clean)
    log = open_log(tmp_path, config, stop=PreviousStop.CLEAN if is_clean else PreviousStop.UNKNOWN)
    assert log.last_stable_offset(log.log_end_offset) == 1
    end(log, 1)
    assert log.last_stable_offset(log.log_end_offset) == 2
    end(log, 2, coordinator=1)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    log.close()


def test_truncation_opens_a_transaction_again_whose_marker_it_takes(tmp_path: Path) -> None:
    """The marker was never committed; another will come."""
    log = open_log(tmp_path)
    write(log, 1, 0)
    write(log, 1, 1)
    end(log, 1, committed=False)
    assert log.last_stable_offset(3) == 3
    log.truncate_to(2)
    load_producers_again(log)
    assert log.last_stable_offset(2) == 0
    assert log.aborted_transactions(0, 2) == []
    end(log, 1)
    assert log.last_stable_offset(3) == 3
    log.close()


def test_last_stable_offset_is_not_below_the_start_of_the_log(tmp_path: Path) -> None:
    """Otherwise a transaction whose beginning was deleted has consumers read below the start, for ever."""
    log = open_log(tmp_path)
    write(log, 1, 0, count=4)
    write(log, 1, 4, count=4)
    log.advance_log_start_offset(6)
    assert log.last_stable_offset(8) == 6
    end(log, 1)
    assert log.last_stable_offset(9) == 9
    log.close()


@pytest.mark.parametrize("is_restart", [True, False])
def test_transaction_whose_end_was_deleted_is_over_whenever_the_producers_are_loaded(
    tmp_path: Path, is_restart: bool
) -> None:
    """The snapshot still has it open, and a marker that is passed over comes never again: readers hang."""
    log = open_log(tmp_path)
    write(log, 1, 0)
    write(log, 2, 0)
    log.roll(START_MS)
    write(log, 2, 1)
    end(log, 1)
    end(log, 2)
    write(log, 2, 0, epoch=1)
    log.advance_log_start_offset(6)
    write(log, 2, 1, epoch=1)
    if is_restart:
        log.flush()
        log.close(clean=False)
        log = Log.open(tmp_path / "t-0", LogConfig(), log_start_offset=6, recovery_point=2, now_ms=START_MS)
    else:
        write(log, 2, 2, epoch=1)
        log.truncate_to(7)
        load_producers_again(log)
    assert (log.log_start_offset, log.log_end_offset) == (6, 7)
    assert log.last_stable_offset(7) == 6
    assert write(log, 2, 2, epoch=1).base_offset == 7
    end(log, 2, epoch=2)
    assert log.last_stable_offset(9) == 9
    log.close()
