"""Readers of committed records do not see aborted transactions, and see everything else."""

from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import AbortedTransaction
from sparklog.user.client.aborted import without_aborted

COMMIT, ABORT = 1, 0


def data(offset: int, producer_id: int, *, transactional: bool = True) -> bytes:
    return build_batch(
        [SimpleRecord(value=b"v")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    return build_batch(
        [SimpleRecord(key=b"\x00\x00" + kind.to_bytes(2, "big"), value=bytes(6))],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def offsets(records: bytes | memoryview) -> list[int]:
    return [header.base_offset for _, header in iterate_headers(records)]


def test_aborted_batches_are_skipped_up_to_the_producers_marker() -> None:
    """The producer's next transaction, others' transactions and plain records are seen."""
    records = b"".join(
        [
            data(0, 7),
            data(1, 8),
            data(2, 9, transactional=False),
            data(3, 7),
            marker(4, 7, ABORT),
            data(5, 7),
            marker(6, 8, COMMIT),
            marker(7, 7, COMMIT),
        ]
    )
    assert offsets(without_aborted(records, [AbortedTransaction(7, 0)])) == [1, 2, 4, 5, 6, 7]


def test_aborted_transaction_that_began_before_the_fetch_is_skipped() -> None:
    """The leader names transactions that reach into what was fetched, wherever they began."""
    records = data(10, 7) + marker(11, 7, ABORT)
    assert offsets(without_aborted(records, [AbortedTransaction(7, 3)])) == [11]


def test_records_before_an_aborted_transaction_of_the_same_producer_are_seen() -> None:
    """A transaction counts as aborted from its first offset on, not before."""
    records = data(0, 7) + marker(1, 7, COMMIT) + data(2, 7) + marker(3, 7, ABORT)
    assert offsets(without_aborted(records, [AbortedTransaction(7, 2)])) == [0, 1, 3]
