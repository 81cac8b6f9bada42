"""A transactional id's life: who may do what in which state, and what every record says."""

import pytest

from sparklog.executor.coordinators.machine.coordinator_machine import NOTHING, Now, ProducerStamp
from sparklog.executor.coordinators.transactions.machine.events import (
    MarkersWritten,
    ProducerOutcome,
    SendMarkers,
    VerifyPartitions,
)
from sparklog.executor.coordinators.transactions.machine.metadata import (
    EXHAUSTED_EPOCH,
    TransactionMetadata,
    TransactionState,
)
from sparklog.executor.coordinators.transactions.machine.time_outs import DECIDED_AT_A_TIME
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import NO_TRANSACTION_TIMEOUT_MS
from tests.unit.executor.coordinators.transactions.machine_conversation import (
    LIMITS,
    NONE,
    P0,
    P1,
    NotAppendedError,
    Partition,
)

FENCED = ProducerOutcome(ErrorCode.producer_fenced)
CONCURRENT = ProducerOutcome(ErrorCode.concurrent_transactions)
INVALID_STATE = ProducerOutcome(ErrorCode.invalid_txn_state)
NO_MAPPING = ProducerOutcome(ErrorCode.invalid_producer_id_mapping)


def states(partition: Partition) -> list[TransactionState]:
    """Return the states that the log tells, one after the other."""
    return [
        TransactionMetadata.from_value(record.value).state  # type: ignore[arg-type]
        for record in partition.log
        if record.value is not None
    ]


def exhausted(partition: Partition) -> ProducerStamp:
    """Give id `a` to a producer whose epochs are used up; return who that is."""
    return partition.spend_epochs(partition.given(), EXHAUSTED_EPOCH)


def test_transaction_that_is_committed_goes_through_every_state_once() -> None:
    """Prepare is the decision, Complete comes only when the markers are written: tools read these records."""
    partition = Partition()
    producer = partition.given()
    assert producer == ProducerStamp(1_001, 0)
    assert partition.add(producer, P0) is NONE
    assert partition.add(producer, P0, P1) is NONE
    assert partition.end(producer) == ProducerOutcome(NONE, ProducerStamp(1_001, 1))
    assert states(partition)[-1] is TransactionState.PREPARE_COMMIT
    assert partition.write_markers() == [
        SendMarkers("a", ProducerStamp(1_001, 1), True, 2, frozenset({P0, P1}))
    ]
    assert states(partition) == [
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]
    assert partition.add(ProducerStamp(1_001, 1), P1) is NONE
    known = partition.known()
    assert known is not None and known.partitions == {P1}


def test_ids_that_are_released_go_a_slice_at_a_time() -> None:
    """A million objects that go at once keep everybody waiting who is served beside them."""
    partition = Partition()
    producers = [partition.given(f"id-{number}") for number in range(1_200)]
    partition.add(producers[7], P0, of="id-7")
    slices = partition.machine.release()
    next(slices)
    assert 0 < len(partition.all_known()) < 1_200
    assert len(list(slices)) == 2
    assert partition.all_known() == {}


def test_partition_added_again_costs_no_record() -> None:
    """Clients name partitions again after a time-out: the log need not grow by that."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0, P1)
    records = len(partition.log)
    assert partition.add(producer, P0) is NONE
    assert len(partition.log) == records


@pytest.mark.parametrize("committed", [True, False])
def test_commit_sent_again_is_answered_as_the_first_time_and_touches_no_later_transaction(
    committed: bool,
) -> None:
    """An answer gets lost; the second request must neither fail the producer nor end what came after."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0)
    first = partition.end(producer, committed)
    assert partition.end(producer, committed) == CONCURRENT
    assert partition.end(producer, not committed) == INVALID_STATE
    partition.write_markers()
    assert partition.end(producer, committed) == first
    assert partition.end(producer, not committed) == INVALID_STATE
    bumped = first.producer
    assert bumped is not None
    partition.add(bumped, P0)
    assert partition.end(producer, committed) == FENCED
    known = partition.known()
    assert known is not None and known.state is TransactionState.ONGOING


@pytest.mark.parametrize("committed", [True, False])
def test_zombie_of_version_2_is_not_given_the_epoch_of_the_one_after_it(committed: bool) -> None:
    """A transaction of version 1 ends in its producer's own epoch: to the one before that is no retry."""
    partition = Partition()
    zombie = partition.given()
    successor = partition.given()
    assert successor.producer_epoch == zombie.producer_epoch + 1
    partition.add(successor, P0, version=0)
    assert partition.end(successor, committed, version=0) == ProducerOutcome(NONE)
    assert partition.end(zombie, committed) == FENCED
    partition.write_markers()
    assert partition.end(zombie, committed) == FENCED


def test_client_without_version_2_keeps_its_epoch_and_is_answered_by_how_the_last_one_ended() -> None:
    """Clients of before KIP-890 are served as they always were."""
    partition = Partition()
    producer = partition.given()
    assert partition.end(producer, version=0) == INVALID_STATE
    partition.add(producer, P0, version=0)
    assert partition.end(producer, version=0) == ProducerOutcome(NONE)
    assert partition.end(producer, version=0) == CONCURRENT
    assert partition.end(producer, committed=False, version=0) == INVALID_STATE
    assert partition.markers == [SendMarkers("a", producer, True, 0, frozenset({P0}))]
    partition.write_markers()
    assert partition.end(producer, version=0) == ProducerOutcome(NONE)
    assert partition.end(producer, committed=False, version=0) == INVALID_STATE
    assert partition.end(producer._replace(producer_epoch=7), version=0) == FENCED
    assert partition.end(producer._replace(producer_id=7), version=0) == NO_MAPPING


def test_nothing_happens_to_an_id_between_prepare_and_complete() -> None:
    """A transaction half of whose partitions know its end must not be joined by another."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0)
    after = partition.end(producer).producer
    assert after is not None
    assert partition.init() == CONCURRENT
    assert partition.init(expected=after) == CONCURRENT
    assert partition.add(after, P1) is ErrorCode.concurrent_transactions
    assert partition.end(after, committed=False) == CONCURRENT
    event = VerifyPartitions("a", after, frozenset({P0}))
    decision = partition.machine.verify_partitions(event, 0, partition.now)
    assert decision.replies[0].response == {P0: ErrorCode.concurrent_transactions}
    assert len(partition.markers) == 1


def test_successor_aborts_what_its_predecessor_left_open_and_fences_it() -> None:
    """A zombie may neither commit what its successor aborted nor begin anything."""
    partition = Partition()
    zombie = partition.given()
    partition.add(zombie, P0)
    assert partition.init() == CONCURRENT
    assert partition.markers == [SendMarkers("a", ProducerStamp(1_001, 1), False, 2, frozenset({P0}))]
    partition.write_markers()
    successor = partition.given()
    assert successor == ProducerStamp(1_001, 2)
    assert partition.end(zombie) == FENCED
    assert partition.add(zombie, P0) is ErrorCode.producer_fenced
    assert partition.init(expected=zombie) == FENCED


def test_producer_may_do_nothing_under_the_transactional_id_of_another() -> None:
    """Whoever mistakes an id, or guesses one, must not end what others have begun."""
    partition = Partition()
    owner, stranger = partition.given("a"), partition.given("b")
    partition.add(owner, P0)
    written = list(partition.log)
    assert partition.add(stranger, P1) is ErrorCode.invalid_producer_id_mapping
    assert partition.end(stranger) == partition.end(stranger, committed=False) == NO_MAPPING
    assert partition.init(expected=stranger) == FENCED
    assert partition.log == written


def test_delayed_request_of_an_older_epoch_aborts_no_transaction() -> None:
    """Kafka would abort what the producer has begun since it sent the request; here it is fenced."""
    partition = Partition()
    producer = partition.given()
    present = partition.given(expected=producer)
    partition.add(present, P0)
    assert partition.init(expected=producer) == FENCED
    assert partition.end(present).error_code is NONE


def test_producer_that_did_not_hear_of_its_new_epoch_is_told_again() -> None:
    """KIP-360: without it a lost answer would fence a producer that nobody has replaced."""
    partition = Partition()
    first = partition.given()
    second = partition.given(expected=first)
    assert second == first._replace(producer_epoch=1)
    assert partition.given(expected=first) == second
    assert partition.given(expected=second) == first._replace(producer_epoch=2)
    assert partition.init(expected=first) == FENCED
    # Somebody else begins: the one before is fenced for good.
    other = partition.given()
    assert partition.init(expected=first._replace(producer_epoch=2)) == FENCED
    assert other == first._replace(producer_epoch=3)


def test_retry_of_a_bump_whose_record_was_not_appended_bumps_once() -> None:
    """What was decided and not appended has not happened, and must not be remembered."""
    partition = Partition()
    first = partition.given()
    partition.appends = False
    with pytest.raises(NotAppendedError):
        partition.init(expected=first)
    partition.appends = True
    assert partition.given(expected=first) == first._replace(producer_epoch=1)


def test_bump_that_was_not_appended_gives_nobody_the_epoch_that_another_has_since() -> None:
    """Who asked for it asks again, and would be told the epoch of the producer that has fenced it."""
    partition = Partition()
    first = partition.given()
    partition.appends = False
    with pytest.raises(NotAppendedError):
        partition.init(expected=first)
    partition.appends = True
    assert partition.given() == first._replace(producer_epoch=1)
    assert partition.init(expected=first) == FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_producer_without_epochs_left_goes_over_to_a_new_id(version: int) -> None:
    """An epoch that is given twice would let a zombie in."""
    partition = Partition(transaction_version=version)
    producer = exhausted(partition)
    assert partition.given() == ProducerStamp(1_002, 0)
    assert partition.init(expected=producer._replace(producer_epoch=5)) == FENCED


def test_producer_that_bumps_without_epochs_left_is_told_its_new_id_again() -> None:
    """The answer with the new id may be lost like any other."""
    partition = Partition()
    producer = exhausted(partition)
    rotated = partition.given(expected=producer)
    assert rotated == ProducerStamp(1_002, 0)
    assert partition.given(expected=producer) == rotated


def test_commit_with_the_last_epoch_goes_over_to_a_new_id_when_its_markers_are_written() -> None:
    """The markers still go out under the old id: under another one they would end nothing."""
    partition = Partition()
    producer = exhausted(partition)
    partition.add(producer, P0)
    over = ProducerOutcome(NONE, ProducerStamp(1_002, 0))
    assert partition.end(producer) == over
    assert partition.markers[0].producer == ProducerStamp(1_001, EXHAUSTED_EPOCH + 1)
    assert partition.end(producer) == CONCURRENT
    assert partition.add(ProducerStamp(1_002, 0), P1) is ErrorCode.concurrent_transactions
    assert partition.end(ProducerStamp(1_002, 0), committed=False) == CONCURRENT
    markers_epoch = producer._replace(producer_epoch=EXHAUSTED_EPOCH + 1)
    assert [partition.end(markers_epoch, committed=committed) for committed in (True, False)] == [FENCED] * 2
    partition.write_markers()
    assert partition.end(producer) == over
    assert partition.end(producer, committed=False) == INVALID_STATE
    assert partition.add(ProducerStamp(1_002, 0), P0) is NONE
    assert partition.end(producer) == NO_MAPPING
    assert partition.add(producer, P0) is ErrorCode.invalid_producer_id_mapping


def test_version_2_may_abort_without_a_partition_but_not_commit() -> None:
    """Its client cannot know whether a partition was added; the next epoch makes sure that none is later."""
    partition = Partition()
    producer = partition.given()
    assert partition.end(producer) == INVALID_STATE
    aborted = partition.end(producer, committed=False)
    assert aborted == ProducerOutcome(NONE, producer._replace(producer_epoch=1))
    assert partition.write_markers() == [SendMarkers("a", ProducerStamp(1_001, 1), False, 2, frozenset())]
    again = partition.end(ProducerStamp(1_001, 1), committed=False)
    assert again == ProducerOutcome(NONE, producer._replace(producer_epoch=2))
    partition.write_markers()
    assert partition.end(ProducerStamp(1_001, 2)) == INVALID_STATE


def test_verification_knows_which_partitions_are_part() -> None:
    """What is written to another partition would never be committed or aborted."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0)

    def verify(stamp: ProducerStamp, of: str = "a") -> object:
        event = VerifyPartitions(of, stamp, frozenset({P0, P1}))
        return partition.machine.verify_partitions(event, 0, partition.now).replies[0].response

    assert verify(producer) == {P0: NONE, P1: ErrorCode.transaction_abortable}
    assert verify(producer._replace(producer_epoch=3)) == dict.fromkeys((P0, P1), ErrorCode.producer_fenced)
    unknown = dict.fromkeys((P0, P1), ErrorCode.invalid_producer_id_mapping)
    assert verify(producer._replace(producer_id=3)) == unknown
    assert verify(producer, of="b") == unknown


@pytest.mark.parametrize("version", [0, 2])
def test_transaction_past_its_time_out_is_aborted_and_its_producer_fenced(version: int) -> None:
    """Readers of committed records wait for every open transaction: none may stay open for good."""
    partition = Partition(transaction_version=version)
    producer = partition.given(timeout_ms=15_000)
    partition.add(producer, P0)
    partition.pass_ms(14_000)
    assert partition.markers == []
    partition.pass_ms(12_000)
    assert partition.markers == [SendMarkers("a", ProducerStamp(1_001, 1), False, version, frozenset({P0}))]
    partition.pass_ms(60_000)
    assert len(partition.markers) == 1
    partition.write_markers()
    assert partition.add(producer, P0) is ErrorCode.producer_fenced
    if version == 2:
        # The client of this version aborts, and goes on in the next epoch.
        assert partition.end(producer) == INVALID_STATE
        assert partition.end(producer, committed=False) == ProducerOutcome(NONE, ProducerStamp(1_001, 1))
    else:
        assert partition.end(producer, committed=False, version=0) == FENCED


def test_many_transactions_that_time_out_at_once_are_aborted_some_at_a_time() -> None:
    """Thousands are left open where an application dies, and to abort each takes a batch."""
    partition = Partition()
    for number in range(120):
        producer = partition.given(f"id-{number}", timeout_ms=1_000)
        assert partition.add(producer, P0, of=f"id-{number}") is NONE
    partition.now = Now(partition.now.monotonic_ms + 20_000, partition.now.wall_ms + 20_000)
    assert len(list(partition.machine.tick(partition.now))) == DECIDED_AT_A_TIME
    partition.pass_ms(1)
    assert len(partition.markers) == 120 - DECIDED_AT_A_TIME
    partition.pass_ms(LIMITS.abort_interval_ms)
    assert len(partition.markers) == 120


def test_time_out_behind_many_open_transactions_waits_for_none_of_them() -> None:
    """To look at one costs next to nothing; readers of its partitions wait for the one that is left open."""
    partition = Partition()
    for number in range(500):
        assert (
            partition.add(partition.given(f"id-{number}", timeout_ms=60_000), P0, of=f"id-{number}") is NONE
        )
    assert partition.add(partition.given("late", timeout_ms=1_000), P0, of="late") is NONE
    partition.now = Now(partition.now.monotonic_ms + 20_000, partition.now.wall_ms + 20_000)
    assert len(list(partition.machine.tick(partition.now))) == 1


def test_time_out_with_the_last_epoch_takes_a_new_producer_id() -> None:
    """Nobody asks then, so the id is obtained by an effect."""
    partition = Partition()
    producer = exhausted(partition)
    partition.add(producer, P0)
    partition.pass_ms(100_000)
    assert partition.markers[0].producer == ProducerStamp(1_001, EXHAUSTED_EPOCH + 1)
    partition.write_markers()
    known = partition.known()
    assert known is not None and known.producer == ProducerStamp(1_002, 0)


def test_two_phase_commit_is_allowed_to_ids_that_begin_as_configured() -> None:
    """DataFrames are written so on any cluster, and a stranger still can't hold up readers for ever."""
    partition = Partition(LIMITS._replace(two_phase_commit_prefixes=("sparklog-sink.",)))
    sink, stranger = "sparklog-sink.query-q.r.p.0", "sparklog"
    assert partition.init(sink, timeout_ms=NO_TRANSACTION_TIMEOUT_MS).error_code is NONE
    refused = partition.init(stranger, timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
    assert refused.error_code is ErrorCode.invalid_transaction_timeout


def test_two_phase_commit_waits_for_its_decision_where_it_is_allowed() -> None:
    """KIP-939: its tasks are gone, and the driver that decides was away for longer than any time-out."""
    assert (
        Partition().init(timeout_ms=NO_TRANSACTION_TIMEOUT_MS).error_code
        is ErrorCode.invalid_transaction_timeout
    )
    partition = Partition(LIMITS._replace(two_phase_commit_enable=True))
    producer = partition.given(timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
    partition.add(producer, P0)
    partition.pass_ms(30 * 86_400_000)
    partition.load()
    partition.pass_ms(30 * 86_400_000)
    assert partition.end(producer).error_code is NONE
    assert partition.write_markers()[0].committed


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_time_out_beyond_the_bounds_is_refused(timeout_ms: int) -> None:
    """A client must not hold up readers for longer than the operator allows."""
    refused = Partition().init(timeout_ms=timeout_ms)
    assert refused == ProducerOutcome(ErrorCode.invalid_transaction_timeout)


def test_id_that_nobody_uses_is_forgotten_but_not_an_open_transaction() -> None:
    """Producers with random ids would fill the coordinator's memory."""
    partition = Partition(LIMITS._replace(expiration_ms=86_400_000, two_phase_commit_enable=True))
    producer = partition.given("open", timeout_ms=NO_TRANSACTION_TIMEOUT_MS)
    partition.add(producer, P0, of="open")
    for number in range(2_500):
        partition.given(f"idle-{number}")
    partition.pass_ms(86_400_000 - 3_700_000)
    partition.given("fresh")
    partition.pass_ms(3_700_000)
    assert set(partition.all_known()) == {"open", "fresh"}
    partition.load()
    assert set(partition.all_known()) == {"open", "fresh"}


def test_tombstones_of_long_ids_go_in_batches_that_fit() -> None:
    """One batch with all of them would be too large to be appended, for ever."""
    partition = Partition()
    for number in range(20):
        partition.given(f"{number}-" + "x" * 10_000)
    now = partition.now._replace(
        monotonic_ms=LIMITS.expiration_interval_ms, wall_ms=partition.now.wall_ms + LIMITS.expiration_ms
    )
    assert [len(decision.records) for decision in partition.machine.tick(now)] == [2] * 10


def test_new_coordinator_sends_the_markers_of_what_was_prepared_and_completes_it() -> None:
    """The coordinator died between decision and markers: its successor finishes, whatever was sent."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0, P1)
    partition.end(producer)
    before = partition.markers
    partition.load()
    assert partition.markers == before
    partition.write_markers()
    known = partition.known()
    assert known is not None and known.state is TransactionState.COMPLETE_COMMIT


def test_markers_of_an_earlier_decision_complete_nothing() -> None:
    """An answer from before a change of coordinators must not complete what has no markers yet."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0)
    partition.end(producer)
    stale = MarkersWritten("a", partition.markers[0].producer)
    partition.write_markers()
    partition.add(stale.producer, P0)
    partition.end(stale.producer)
    for event in (stale, stale._replace(transactional_id="b")):
        assert partition.machine.markers_written(event, partition.now) == NOTHING


def test_upgrade_of_the_cluster_is_heard_of() -> None:
    """What the coordinator itself aborts goes by the cluster's version of transactions."""
    partition = Partition(transaction_version=0)
    producer = partition.given(timeout_ms=1_000)
    partition.upgrade(2)
    partition.add(producer, P0, version=0)
    partition.pass_ms(20_000)
    assert [markers.transaction_version for markers in partition.markers] == [2]


def test_completion_that_cannot_be_appended_is_tried_again() -> None:
    """All markers are written and nobody asks again: the id would be stuck until another coordinator came."""
    partition = Partition()
    producer = partition.given()
    partition.add(producer, P0)
    partition.end(producer)
    partition.appends = False
    partition.write_markers()
    partition.pass_ms(250)
    known = partition.known()
    assert known is not None and known.state is TransactionState.PREPARE_COMMIT
    partition.appends = True
    partition.pass_ms(150)
    known = partition.known()
    assert known is not None and known.state is TransactionState.COMPLETE_COMMIT
    assert len(partition.log) == 4


def test_completion_is_not_put_off_by_others_that_cannot_be_appended() -> None:
    """On a busy coordinator something may fail at every moment: each waits for its own time."""
    partition = Partition()
    ids = [f"id-{number}" for number in range(5)]
    for transactional_id in ids:
        producer = partition.given(transactional_id)
        partition.add(producer, P0, of=transactional_id)
        partition.end(producer, of=transactional_id)
    waiting, partition.markers = partition.markers, []
    for markers in waiting:
        partition.appends = False
        partition.markers = [markers]
        partition.write_markers()
        partition.appends = True
        partition.pass_ms(40)
    states = [known.state for known in map(partition.known, ids) if known is not None]
    assert states == [TransactionState.COMPLETE_COMMIT] * 3 + [TransactionState.PREPARE_COMMIT] * 2
