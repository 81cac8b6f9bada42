"""The order in which a cluster with a tier ends, step by step."""

from collections.abc import Mapping

from sparklog.driver.controller.machine.orderly_stop import (
    ABORT_AGAIN_MS,
    GRACE_MS,
    METADATA_MS,
    SETTLE_MS,
    TWO_PHASE_GRACE_MS,
    AbortTransactions,
    End,
    LogEnds,
    Look,
    MakeReadOnly,
    OpenTransaction,
    OrderlyStop,
    Partition,
    SaveMetadata,
    StopFacts,
)

TIMEOUT_MS = 60_000
T0, T1 = Partition("t", 0), Partition("t", 1)
COPIED = {T0: LogEnds(5, 5), T1: LogEnds(0, 0)}
LATE = {T0: LogEnds(9, 5), T1: LogEnds(0, 0)}
OURS = OpenTransaction("ours", 1, is_two_phase=False, is_ongoing=True)
SINK = OpenTransaction("sparklog-sink.1", 2, is_two_phase=True, is_ongoing=True)


def facts(
    looks: int = 0,
    logs: Mapping[Partition, LogEnds] = COPIED,
    transactions: tuple[OpenTransaction, ...] | None = (),
    *,
    read_only: bool = True,
    unknown: tuple[Partition, ...] = (),
    saved: bool = False,
) -> StopFacts:
    return StopFacts(read_only, transactions, logs, unknown, looks, saved)


def looking() -> OrderlyStop:
    """Return a machine that has asked for its first look."""
    machine = OrderlyStop(0, TIMEOUT_MS)
    machine.step(facts(), 0)
    machine.step(facts(), 0)
    assert machine.step(facts(), SETTLE_MS) == [Look()]
    return machine


def test_stop_makes_brokers_read_only_before_it_looks() -> None:
    """A write after the look would be acknowledged and lost."""
    machine = OrderlyStop(0, TIMEOUT_MS)
    assert machine.step(facts(read_only=False), 0) == [MakeReadOnly()]
    assert machine.step(facts(read_only=False), 100) == []
    assert machine.step(facts(), 200) == []
    assert machine.step(facts(), 200 + SETTLE_MS) == [Look()]


def test_copied_logs_are_looked_at_twice_before_the_metadata_is_saved() -> None:
    """An append that was under way at the first look is found by the second."""
    machine = looking()
    assert machine.step(facts(1), 500) == [Look()]
    assert machine.step(facts(1), 500) == [Look()]
    assert machine.step(facts(2, LATE), 600) == [Look()]
    assert machine.step(facts(3), 700) == [Look()]
    assert machine.step(facts(4), 800) == [SaveMetadata(True)]
    assert machine.step(facts(4), 900) == [SaveMetadata(True)]
    assert machine.step(facts(4, saved=True), 1_000) == [End((), True)]
    assert machine.step(facts(4, saved=True), 1_000) == []


def test_open_transactions_are_aborted_after_their_grace() -> None:
    """A transaction that is left open would hide all records behind it for ever."""
    machine = looking()
    assert machine.step(facts(1, transactions=(OURS, SINK)), 500) == [Look()]
    due_ms = GRACE_MS
    assert machine.step(facts(2, transactions=(OURS, SINK)), due_ms) == [AbortTransactions((OURS,)), Look()]
    assert machine.step(facts(3, transactions=(OURS, SINK)), due_ms + 10) == [Look()]
    again_ms = due_ms + ABORT_AGAIN_MS
    assert machine.step(facts(4, transactions=(OURS, SINK)), again_ms) == [AbortTransactions((OURS,)), Look()]
    assert machine.step(facts(5, transactions=(SINK,)), TWO_PHASE_GRACE_MS) == [
        AbortTransactions((SINK,)),
        Look(),
    ]
    ending = SINK._replace(is_ongoing=False)
    assert machine.step(facts(6, transactions=(ending,)), 2 * TWO_PHASE_GRACE_MS) == [Look()]
    assert machine.step(facts(7), 2 * TWO_PHASE_GRACE_MS) == [Look()]
    assert machine.step(facts(8), 2 * TWO_PHASE_GRACE_MS) == [SaveMetadata(True)]


def test_coordinator_that_does_not_answer_holds_up_the_stop() -> None:
    """Its transactions may be open."""
    machine = looking()
    for look in range(1, 5):
        assert machine.step(facts(look, transactions=None), 500 + look) == [Look()]


def test_stop_that_takes_too_long_says_what_is_not_copied() -> None:
    """The bound is kept, whatever the store does."""
    machine = looking()
    assert machine.step(facts(1, LATE, unknown=(Partition("u", 0),)), 500) == [Look()]
    late = facts(2, LATE, unknown=(Partition("u", 0),))
    assert machine.step(late, TIMEOUT_MS) == [SaveMetadata(False)]
    assert machine.step(late, TIMEOUT_MS + METADATA_MS - 1) == [SaveMetadata(False)]
    assert machine.step(late, TIMEOUT_MS + METADATA_MS) == [End((T0, Partition("u", 0)), False)]


def test_progress_names_what_the_stop_waits_for() -> None:
    """An operator who waits for minutes wants to know why."""
    machine = looking()
    machine.step(facts(1, LATE, (OURS,)), 500)
    assert machine.progress(facts(1, LATE, (OURS,))) == (
        "open transactions end; 1 transactions are open (ours); "
        "1 of 2 partitions with 4 offsets are not copied yet"
    )
    machine.step(facts(2, LATE, unknown=(T1,)), 600)
    assert machine.progress(facts(2, LATE, unknown=(T1,))) == (
        "logs are copied; 1 of 2 partitions with 4 offsets are not copied yet; "
        "1 partitions have no leader that answers"
    )
