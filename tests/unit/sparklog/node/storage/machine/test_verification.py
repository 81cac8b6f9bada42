"""What begins a transaction in a log, and what ends one there (KIP-98, KIP-890)."""

from typing import Any

import pytest

from sparklog.node.storage.machine.producer_states import Duplicate, Fresh, ProducerStates
from sparklog.node.storage.machine.verification import Verification
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader
from tests.unit.sparklog.node.storage.batches import headers_of, make_batch, make_marker

NOW_MS = 1_800_000_000_000
LAST_EPOCH = 2**15 - 1


def data(sequence: int, *, epoch: int = 0, offset: int = 0, transactional: bool = True) -> BatchHeader:
    """Return the header of a batch of one record of producer 1."""
    (made,) = headers_of(
        make_batch(
            1,
            base_offset=offset,
            producer_id=1,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )
    return made


def begin(
    states: ProducerStates, sequence: int = 0, *, epoch: int = 0, version_2: bool = True
) -> Verification | None:
    """Begin to verify a batch of producer 1."""
    return states.begin_verification(1, epoch, sequence, NOW_MS, supports_epoch_bump=version_2)


def end(states: ProducerStates, *, epoch: int, offset: int, coordinator_epoch: int = 7) -> None:
    """Append a marker of producer 1."""
    (marker,) = headers_of(make_marker(base_offset=offset, producer_id=1, producer_epoch=epoch, commit=True))
    states.end_transaction(marker, NOW_MS, aborted=False, coordinator_epoch=coordinator_epoch)


def refusal(refused: Any, *arguments: Any, **options: Any) -> ErrorCode:
    """Return the error that a call raises."""
    with pytest.raises(KafkaError) as caught:
        refused(*arguments, **options)
    return caught.value.error_code


def test_batch_that_begins_a_transaction_is_taken_only_with_its_verification() -> None:
    """One that comes when its transaction is over would begin one that nobody ends."""
    states = ProducerStates()
    assert refusal(states.check, data(0), verifies=True) == ErrorCode.invalid_txn_state
    verification = begin(states)
    assert refusal(states.check, data(0), verifies=True) == ErrorCode.invalid_txn_state
    assert states.check(data(0), verification, verifies=True) == Fresh()
    states.update(data(0), NOW_MS)
    assert begin(states, 1) is None, "what is open needs no verification"
    assert states.check(data(1, offset=1), verifies=True) == Fresh()
    assert len(states.verifications) == 0


def test_batch_is_taken_unverified_where_nobody_verifies() -> None:
    """transaction.partition.verification.enable=false takes what comes."""
    assert ProducerStates().check(data(0)) == Fresh()


def test_verification_is_void_once_a_marker_has_ended_the_transaction() -> None:
    """The coordinator's yes is older than the transaction's end: the batch is the one that hangs."""
    states = ProducerStates()
    verification = begin(states, version_2=False)
    end(states, epoch=0, offset=0)
    assert refusal(states.check, data(0), verification, verifies=True) == ErrorCode.invalid_txn_state
    again = begin(states, version_2=False)
    assert again is not verification
    assert states.check(data(0), again, verifies=True) == Fresh()


def test_verification_of_the_next_transaction_outlives_the_marker_of_the_one_before() -> None:
    """Its epoch is the marker's, which may come after the next transaction has begun at another broker."""
    states = ProducerStates()
    states.update(data(0, epoch=4), NOW_MS)
    verification = begin(states, epoch=5)
    end(states, epoch=5, offset=1)
    assert states.check(data(0, epoch=5, offset=2), verification, verifies=True) == Fresh()


def test_verification_of_an_epoch_that_a_marker_ends_is_void() -> None:
    """A late batch of the transaction that the marker ends is of the epoch before it."""
    states = ProducerStates()
    verification = begin(states, epoch=4)
    end(states, epoch=5, offset=0)
    assert refusal(begin, states, epoch=4) == ErrorCode.invalid_producer_epoch
    assert (
        refusal(states.check, data(0, epoch=4), verification, verifies=True)
        == ErrorCode.invalid_producer_epoch
    )


def test_higher_sequence_is_refused_while_a_lower_one_is_to_be_verified() -> None:
    """Once it was appended, the lower one could never be retried."""
    states = ProducerStates()
    verification = begin(states, 0, version_2=False)
    assert begin(states, 3, version_2=False) is verification
    refused = refusal(states.check, data(3), verification, verifies=True)
    assert refused == ErrorCode.out_of_order_sequence_number
    assert begin(states, 3, epoch=1, version_2=False) is verification
    assert states.check(data(3, epoch=1), verification, verifies=True) == Fresh(), "the epoch began anew"


def test_lower_sequence_that_comes_later_is_waited_for() -> None:
    """Requests may overtake each other on their way to the coordinator."""
    states = ProducerStates()
    verification = begin(states, 5, version_2=False)
    begin(states, 2, version_2=False)
    refused = refusal(states.check, data(5), verification, verifies=True)
    assert refused == ErrorCode.out_of_order_sequence_number
    assert states.check(data(2), verification, verifies=True) == Fresh()


def test_unknown_producer_begins_with_sequence_zero_since_version_2() -> None:
    """Each of its transactions counts from 0: another number tells of a batch that was lost."""
    states = ProducerStates()
    verification = begin(states, 2)
    refused = refusal(states.check, data(2), verification, verifies=True)
    assert refused == ErrorCode.out_of_order_sequence_number
    older = ProducerStates()
    assert older.check(data(2), begin(older, 2, version_2=False), verifies=True) == Fresh()


def test_retry_of_a_batch_of_a_transaction_that_is_over_is_a_duplicate_verified_or_not() -> None:
    """It was acknowledged once, and is again."""
    states = ProducerStates()
    states.update(data(0, offset=5), NOW_MS)
    end(states, epoch=0, offset=6)
    assert isinstance(states.check(data(0), verifies=True), Duplicate)


def test_batch_that_is_neither_verified_nor_in_order_is_told_of_its_transaction() -> None:
    """Kafka looks at the transaction first; out of order would have the client retry."""
    states = ProducerStates()
    states.update(data(0), NOW_MS)
    end(states, epoch=0, offset=1)
    assert refusal(states.check, data(9), verifies=True) == ErrorCode.invalid_txn_state


def test_verification_that_was_refused_for_good_is_forgotten() -> None:
    """Else whoever makes producer ids up has the broker remember them for a day."""
    states = ProducerStates()
    verification = begin(states)
    assert verification is not None
    states.verifications.refused(verification, for_good=False)
    assert len(states.verifications) == 1, "its client may try again"
    assert begin(states) is verification
    states.verifications.refused(verification, for_good=True)
    assert len(states.verifications) == 0


def test_refusal_of_a_zombie_takes_nothing_away_from_its_successor() -> None:
    """Both bring their first batch; the coordinator knows the newer instance alone."""
    states = ProducerStates()
    of_zombie, of_successor = begin(states, epoch=3), begin(states, epoch=4)
    assert of_zombie is not None
    states.verifications.refused(of_zombie, for_good=True)
    assert states.check(data(0, epoch=4), of_successor, verifies=True) == Fresh()


def test_verification_that_comes_to_no_end_expires() -> None:
    """Producers end without a word."""
    states = ProducerStates()
    begin(states)
    sum(states.remove_expired(NOW_MS + 999, 1000))
    assert len(states.verifications) == 1
    sum(states.remove_expired(NOW_MS + 1000, 1000))
    assert len(states.verifications) == 0


@pytest.mark.parametrize(
    ("open_epoch", "is_open", "marker_epoch", "version", "error_code"),
    [
        (4, True, 3, 1, ErrorCode.invalid_producer_epoch),
        (4, True, 4, 1, None),
        (4, True, 4, 2, ErrorCode.invalid_producer_epoch),
        (4, True, 5, 2, None),
        (4, False, 4, 2, None),
        (4, False, 3, 2, ErrorCode.invalid_producer_epoch),
        (LAST_EPOCH, True, LAST_EPOCH, 2, None),
    ],
)
def test_marker_of_an_earlier_transaction_is_refused(
    open_epoch: int, is_open: bool, marker_epoch: int, version: int, error_code: ErrorCode | None
) -> None:
    """A marker that was delayed must not end the transaction that came after its own."""
    states = ProducerStates()
    states.update(data(0, epoch=open_epoch, transactional=is_open), NOW_MS)
    if error_code is None:
        states.check_marker(1, marker_epoch, 7, version)
    else:
        assert refusal(states.check_marker, 1, marker_epoch, 7, version) == error_code


def test_marker_of_a_deposed_coordinator_is_refused() -> None:
    """The one that took over has decided otherwise, perhaps."""
    states = ProducerStates()
    states.check_marker(1, 0, 0, 1)
    end(states, epoch=0, offset=0, coordinator_epoch=7)
    states.check_marker(1, 0, 7, 1)
    states.check_marker(1, 0, 8, 1)
    assert refusal(states.check_marker, 1, 0, 6, 1) == ErrorCode.transaction_coordinator_fenced


class CountedOffset(int):
    """An offset that counts how often it is looked at."""

    looks = 0

    def __hash__(self) -> int:
        CountedOffset.looks += 1
        return int.__hash__(self)

    def __lt__(self, other: int) -> bool:
        CountedOffset.looks += 1
        return int.__lt__(self, other)

    def __eq__(self, other: object) -> bool:
        CountedOffset.looks += 1
        return int.__eq__(self, other)


@pytest.mark.interpreted
@pytest.mark.parametrize("from_front", [True, False])
def test_last_stable_offset_costs_as_much_with_many_open_transactions_as_with_few(from_front: bool) -> None:
    """It is asked for with every fetch of a consumer, and an append may end any of them."""

    def looks_at_offsets(transactions: int) -> float:
        (of_data,) = headers_of(
            make_batch(1, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        )
        (of_marker,) = headers_of(make_marker(base_offset=0, producer_id=0, producer_epoch=1, commit=True))
        states = ProducerStates()
        CountedOffset.looks = 0
        numbers = range(transactions)
        for number in numbers:
            header = of_data._replace(producer_id=number, base_offset=CountedOffset(number))
            states.update(header, NOW_MS)
            states.first_unstable_offset(0)
        for place, number in enumerate(numbers if from_front else reversed(numbers)):
            offset = transactions + place
            marker = of_marker._replace(producer_id=number, base_offset=offset)
            states.end_transaction(marker, NOW_MS, aborted=False, coordinator_epoch=0)
            expected = number + 1 if from_front else 0
            assert states.first_unstable_offset(offset + 1) == (
                expected if place + 1 < transactions else None
            )
        return CountedOffset.looks / transactions

    assert looks_at_offsets(10_000) < 2 * looks_at_offsets(100)
