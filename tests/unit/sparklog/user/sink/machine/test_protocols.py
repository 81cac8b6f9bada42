"""What a batch comes to, whoever dies when."""

import math
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.sink.machine.decisions import Decision, IndexEntry, LastDecision, Position
from sparklog.user.sink.machine.errors import (
    ContestedSinkError,
    DeciderFencedError,
    DifferentBatchError,
    GivenUpError,
    OlderCheckpointError,
    RunOverError,
    SupersededRunError,
    TransactionsEndedError,
    TransactionsLostError,
    UnfinishedDecisionError,
)
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.protocols import (
    Abort,
    Begin,
    Commit,
    Decider,
    Finish,
    Settle,
    Settled,
    SinkBatch,
)
from sparklog.user.sink.machine.steps import (
    AwaitDecision,
    AwaitEnds,
    CommitDecision,
    DeciderStamp,
    EndTransactions,
    ForgetDecision,
    InitializeDecider,
    ListOpenTransactions,
    Step,
    WarnOfLeftovers,
    WriteDecision,
    carry_out,
)
from sparklog.user.sink.machine.verdicts import Verdict, verdict_on_task, verdict_on_task_of_job
from tests.unit.sparklog.user.sink.machine.coordinated import Coordinated
from tests.unit.sparklog.user.sink.machine.queries import QUERY, ROWS, Runs

APPLICATION = SinkId(SinkKind.APPLICATION, "nightly", "orders")
JOB = SinkId(SinkKind.JOB, "j")


def prepared(
    cluster: Coordinated, batch_id: int, run_id: str = "r1", sink: SinkId = QUERY, rows: int = 2
) -> SinkBatch:
    """Return an attempt whose two tasks have each written a row."""
    transactions = []
    for number in range(rows):
        process = f"p{number}-{len(cluster.ids)}"
        transaction = cluster.initialize(sink.writer_id(run_id, process, 0))
        cluster.write(transaction, ((batch_id, number),))
        transactions.append(transaction)
    return SinkBatch(sink, batch_id, run_id, rows, tuple(transactions), waits_for_ever=True)


def rows_of(*batch_ids: int) -> Counter[tuple[int, int]]:
    return Counter((batch_id, number) for batch_id in batch_ids for number in range(2))


def commit(cluster: Coordinated, batch: SinkBatch, decider: Decider | None = None) -> Decider | None:
    return carry_out(Commit(batch, decider).steps(), cluster.perform)


def test_commit_by_whom_is_the_decider_still_takes_three_requests_and_the_ends() -> None:
    """Each is waited for by every micro-batch; and none may come before the one that it rests on."""
    cluster = Coordinated()
    decider = commit(cluster, prepared(cluster, 0))
    batch = prepared(cluster, 1)
    steps: list[Step] = []

    def perform(step: Step) -> object:
        steps.append(step)
        return cluster.perform(step)

    carry_out(Commit(batch, decider).steps(), perform)
    assert decider is not None
    decision = Decision(batch_id=1, run_id="r1", rows=2, transactions=batch.transactions, waits_for_ever=True)
    assert steps == [
        WriteDecision(QUERY, decider.stamp, decision, IndexEntry(1, "r1"), Position(0, 0)),
        CommitDecision(QUERY, decider.stamp),
        EndTransactions(batch.transactions, True),
        AwaitDecision(QUERY),
        ListOpenTransactions("sparklog-sink.query-q."),
        AwaitEnds(batch.transactions, True),
    ]
    assert cluster.visible == rows_of(0, 1)


UNREACHABLE = KafkaError(ErrorCode.coordinator_not_available, "nobody coordinates")


class UnreachableSince:
    """A cluster that cannot be asked for one kind of step once a decision is committed."""

    def __init__(
        self,
        cluster: Coordinated,
        failing: type[Any],
        *,
        commit: bool | None = None,
        failures: float = math.inf,
    ) -> None:
        self._cluster = cluster
        self._failing = failing
        self._commit = commit
        """Of `EndTransactions`: those that commit, or those that abort."""
        self._failures = failures
        """So many are left."""
        self._is_decided = False
        self.since_decided: list[Step] = []
        self.warned: list[Step] = []

    def perform(self, step: Step) -> object:
        if isinstance(step, WarnOfLeftovers):
            self.warned.append(step)
        if self._is_decided:
            self.since_decided.append(step)
        is_failing = isinstance(step, self._failing) and getattr(step, "commit", self._commit) is self._commit
        if self._is_decided and is_failing and self._failures:
            self._failures -= 1
            raise UNREACHABLE
        came_of_it = self._cluster.perform(step)
        self._is_decided = self._is_decided or isinstance(step, CommitDecision)
        return came_of_it


@pytest.mark.parametrize("failing", [AwaitDecision, ListOpenTransactions, EndTransactions])
@pytest.mark.parametrize("sink", [QUERY, APPLICATION, JOB], ids=lambda sink: sink.kind.name)
def test_batch_that_is_committed_succeeds_though_nobody_can_be_asked_what_else_is_open(
    sink: SinkId, failing: type[Any]
) -> None:
    """It failed, so whoever ran the job ran it again, and its rows were there twice."""
    cluster = Coordinated()
    decider = carry_out(Begin(sink).steps(), cluster.perform) if sink is JOB else None
    unsaid = cluster.initialize(sink.writer_id("r1", "killed", 0))
    cluster.write(unsaid, ("never",))
    unreachable = UnreachableSince(cluster, failing, commit=False)
    carry_out(Commit(prepared(cluster, 0, "r1", sink), decider).steps(), unreachable.perform)
    assert (cluster.visible, unreachable.warned) == (rows_of(0), [WarnOfLeftovers(sink, UNREACHABLE)])
    assert cluster.open_ids() == [unsaid.transactional_id]
    carry_out(Settle(sink).steps(), cluster.perform)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


@pytest.mark.parametrize("failing", [AwaitDecision, ListOpenTransactions, EndTransactions])
def test_job_whose_leftovers_cannot_be_ended_at_first_ends_them_before_it_is_over(failing: type[Any]) -> None:
    """Nobody comes back for a job: all that is written there later, by whomever, would stay hidden."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    unsaid = cluster.initialize(JOB.writer_id("r1", "killed", 0))
    cluster.write(unsaid, ("never",))
    batch = prepared(cluster, 0, "r1", JOB)
    unreachable = UnreachableSince(cluster, failing, commit=False, failures=1)
    carry_out(Commit(batch, decider).steps(), unreachable.perform)
    looking = [
        AwaitDecision(JOB),
        ListOpenTransactions(JOB.writers_prefix),
        EndTransactions((unsaid,), False),
    ]
    tried_first = looking[: [type(step) for step in looking].index(failing) + 1]
    assert unreachable.since_decided == [
        EndTransactions(batch.transactions, True),
        *tried_first,
        AwaitEnds(batch.transactions, True),
        *looking,
        AwaitEnds((unsaid,), False),
        ForgetDecision(JOB),
    ]
    assert (cluster.visible, cluster.open_ids(), cluster.last) == (rows_of(0), [], {})


def test_job_that_lost_a_transaction_ends_its_leftovers_before_it_says_so() -> None:
    """Whoever gives it up then is told of the loss again, before he looks for what else is open."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    cluster.write(cluster.initialize(JOB.writer_id("r1", "killed", 0)), ("never",))
    batch = prepared(cluster, 0, "r1", JOB)
    cluster.end(batch.transactions[1], commit=False)
    unreachable = UnreachableSince(cluster, ListOpenTransactions, failures=1)
    with pytest.raises(TransactionsLostError):
        carry_out(Commit(batch, decider).steps(), unreachable.perform)
    assert (cluster.visible, cluster.open_ids()) == (Counter({(0, 0): 1}), [])
    assert unreachable.warned == []


def test_leftovers_of_a_job_whose_decision_is_forgotten_are_aborted_by_an_operator() -> None:
    """What was decided is committed by then, durably: whatever is open is not of the decision."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    unsaid = cluster.initialize(JOB.writer_id("r1", "killed", 0))
    cluster.write(unsaid, ("never",))
    batch = prepared(cluster, 0, "r1", JOB)
    unreachable = UnreachableSince(cluster, ListOpenTransactions)
    assert carry_out(Commit(batch, decider).steps(), unreachable.perform) is None
    looking = [AwaitDecision(JOB), ListOpenTransactions(JOB.writers_prefix)]
    assert unreachable.since_decided == [
        EndTransactions(batch.transactions, True),
        *looking,
        AwaitEnds(batch.transactions, True),
        *looking,
        WarnOfLeftovers(JOB, UNREACHABLE),
        ForgetDecision(JOB),
    ]
    assert cluster.last == {}, "the decision is forgotten"
    assert carry_out(Settle(JOB).steps(), cluster.perform) == Settled((), (unsaid,))
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


def test_what_could_not_be_aborted_after_a_batch_is_aborted_by_the_next_one() -> None:
    """A query goes on, and readers of its topic wait behind what others have left open there."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 0, "r1"))
    left_by_another_run = prepared(cluster, 1, "r1").transactions
    unreachable = UnreachableSince(cluster, EndTransactions, commit=False)
    decider = carry_out(Commit(prepared(cluster, 1, "r2"), None).steps(), unreachable.perform)
    assert cluster.open_ids() == [each.transactional_id for each in left_by_another_run]
    commit(cluster, prepared(cluster, 2, "r2"), decider)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0, 1, 2), [])


@pytest.mark.parametrize("sink", [QUERY, APPLICATION, JOB], ids=lambda sink: sink.kind.name)
def test_decision_that_cannot_be_carried_out_says_so_and_who_finishes_it(sink: SinkId) -> None:
    """It read as if nothing was decided: whoever ran the job ran it again, and its rows were there twice."""
    cluster = Coordinated()
    decider = carry_out(Begin(sink).steps(), cluster.perform) if sink is JOB else None
    batch = prepared(cluster, 0, "r1", sink)
    unreachable = UnreachableSince(cluster, EndTransactions, commit=True)
    for attempt in (Commit(batch, decider), Abort(batch)):
        with pytest.raises(UnfinishedDecisionError) as raised:
            carry_out(attempt.steps(), unreachable.perform)
        assert "batch 0 (2 rows) is decided and must not be run again" in str(raised.value)
        assert "COORDINATOR_NOT_AVAILABLE: nobody coordinates" in str(raised.value)
        assert f"sparklog-sinks BOOTSTRAP --end {sink.text} finishes it" in str(raised.value)
    carry_out(Settle(sink).steps(), cluster.perform)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


@pytest.mark.parametrize("stop", range(8))
def test_driver_that_dies_before_any_step_is_replaced_by_one_that_writes_each_row_once(stop: int) -> None:
    """Its tasks have written, and the next run's tasks write again: with other tasks, in other processes."""
    cluster = Coordinated()
    decider = commit(cluster, prepared(cluster, 0))
    protocol = Commit(prepared(cluster, 1), decider).steps()
    step = next(protocol)
    for _ in range(stop):
        try:
            step = protocol.send(cluster.perform(step))
        except StopIteration:
            break
    protocol.close()
    commit(cluster, prepared(cluster, 1, "r2"))
    assert cluster.visible == rows_of(0, 1)
    assert cluster.open_ids() == []


@pytest.mark.parametrize("stop", range(9))
def test_driver_that_hangs_before_any_step_and_goes_on_later_adds_nothing(stop: int) -> None:
    """It was taken for dead, and its successor has written this batch and prepared the next one."""
    cluster = Coordinated()
    decider = commit(cluster, prepared(cluster, 0))
    hung = Commit(prepared(cluster, 1), decider).steps()
    step = next(hung)
    for _ in range(min(stop, 5)):
        step = hung.send(cluster.perform(step))
    second = commit(cluster, prepared(cluster, 1, "r2"))
    following = prepared(cluster, 2, "r2")
    try:
        while True:
            try:
                came_of_it = cluster.perform(step)
            except DeciderFencedError as error:
                step = hung.throw(error)
            else:
                step = hung.send(came_of_it)
    except (StopIteration, SupersededRunError):
        pass
    commit(cluster, following, second)
    assert cluster.visible == rows_of(0, 1, 2)
    assert cluster.open_ids() == []


def test_decision_whose_coordinator_is_replaced_when_somebody_looks_is_carried_out() -> None:
    """What is open is asked of brokers, and one that takes over from another is not yet asked.

    A version that was decided and not committed would be taken for committed, and be aborted two versions on.
    """
    cluster = Coordinated()
    dead = Commit(prepared(cluster, 1, "r1", APPLICATION), None).steps()
    step = next(dead)
    while not isinstance(step, EndTransactions):
        step = dead.send(cluster.perform(step))
    dead.close()
    cluster.unheard_of = set(cluster.open_ids())
    commit(cluster, prepared(cluster, 2, "r2", APPLICATION))
    cluster.unheard_of.clear()
    commit(cluster, prepared(cluster, 3, "r3", APPLICATION))
    assert cluster.visible == rows_of(1, 2, 3)


def test_run_of_a_copied_checkpoint_supersedes_the_other_which_is_told() -> None:
    """Two runs of one query would write different rows as the same batch."""
    cluster = Coordinated()
    first = commit(cluster, prepared(cluster, 0, "r1"))
    commit(cluster, prepared(cluster, 1, "r2"))
    with pytest.raises(SupersededRunError, match="r1, was superseded by run r2"):
        commit(cluster, prepared(cluster, 2, "r1"), first)


def test_replayed_batch_of_another_run_supersedes_it_though_it_was_decided() -> None:
    """Else both would go on side by side from here, each taking what the other wrote for its own."""
    cluster = Coordinated()
    first = commit(cluster, prepared(cluster, 0, "r1"))
    commit(cluster, prepared(cluster, 0, "r2"))
    with pytest.raises(SupersededRunError):
        commit(cluster, prepared(cluster, 1, "r1"), first)
    assert cluster.visible == rows_of(0)


def test_what_a_run_left_that_never_decided_is_aborted_by_who_replays_the_batch_before() -> None:
    """Readers of a stream that rests are held up by it until its next batch, which may be tomorrow."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 0, "r1"))
    never_decided = prepared(cluster, 1, "r2")
    commit(cluster, prepared(cluster, 0, "r3"))
    assert cluster.open_ids() == []
    with pytest.raises(SupersededRunError, match="r2, was superseded by run r3"):
        commit(cluster, never_decided)


def test_what_a_superseded_run_begins_late_is_aborted_by_the_next_commit() -> None:
    """Its tasks may have asked for the last decision before there was one that shuts them out."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 0, "r1"))
    decider = commit(cluster, prepared(cluster, 0, "r2"))
    prepared(cluster, 1, "r1")
    prepared(cluster, 1, "r3")
    decider = commit(cluster, prepared(cluster, 1, "r2"), decider)
    assert [each for each in cluster.open_ids() if ".r1." in each] == []
    commit(cluster, prepared(cluster, 2, "r2"), decider)
    assert cluster.open_ids() == []


def test_run_that_decides_again_what_it_has_decided_shuts_out_whose_transactions_it_aborts() -> None:
    """It was told that it was fenced, and had decided: somebody else may have gone on from there."""
    cluster = Coordinated()
    batch = prepared(cluster, 0, "r1")
    protocol = Commit(batch, None).steps()
    step = next(protocol)
    while not isinstance(step, CommitDecision):
        step = protocol.send(cluster.perform(step))
    cluster.perform(step)
    ahead = prepared(cluster, 1, "r2")
    step = protocol.throw(DeciderFencedError())
    with pytest.raises(StopIteration):
        while True:
            step = protocol.send(cluster.perform(step))
    with pytest.raises(SupersededRunError):
        commit(cluster, ahead)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


def test_older_checkpoint_is_refused() -> None:
    """Its batches were written: with the rows of then."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 5, "r1"))
    with pytest.raises(OlderCheckpointError, match=r"batch 4 .* has written batch 5 already"):
        commit(cluster, prepared(cluster, 4, "r2"))


def test_replay_with_other_rows_is_refused() -> None:
    """It is another batch under the same number: to take it for written would lose rows."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 0, "r1"))
    with pytest.raises(DifferentBatchError, match="has 3 rows now, and had 2"):
        commit(cluster, prepared(cluster, 0, "r2", rows=3))


def test_transaction_that_somebody_aborted_before_its_end_fails_the_batch_and_every_replay_of_it() -> None:
    """Its rows are gone; whoever goes on in silence loses them."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)
    cluster.end(batch.transactions[1], commit=False)
    with pytest.raises(TransactionsLostError, match="1 of its 2 transactions"):
        commit(cluster, batch)
    with pytest.raises(TransactionsLostError):
        commit(cluster, prepared(cluster, 0, "r2"))


@pytest.mark.parametrize("sink", [QUERY, APPLICATION, JOB], ids=lambda sink: sink.kind.name)
def test_transaction_that_timed_out_before_the_decision_has_nothing_decided(sink: SinkId) -> None:
    """Its first task finished long ago: what is decided then is partly committed, and fails for good."""
    cluster = Coordinated()
    begin = Begin if sink is JOB else Finish
    decider = None if sink is QUERY else carry_out(begin(sink).steps(), cluster.perform)
    batch = prepared(cluster, 0, "r1", sink)._replace(waits_for_ever=False)
    cluster.end(batch.transactions[0], commit=False)
    with pytest.raises(TransactionsEndedError, match=r"nothing of batch 0 .* 1 of its 2 transactions"):
        commit(cluster, batch, decider)
    assert not carry_out(Abort(batch).steps(), cluster.perform)
    assert (cluster.visible, cluster.open_ids()) == (Counter(), [])
    if sink is not JOB:
        commit(cluster, prepared(cluster, 0, "r2", sink)._replace(waits_for_ever=False))
        assert cluster.visible == rows_of(0)


def test_transaction_that_timed_out_after_the_decision_fails_the_batch_and_every_replay_of_it() -> None:
    """Its rows are gone; whoever goes on in silence loses them."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)._replace(waits_for_ever=False)

    def perform(step: Step) -> object:
        if isinstance(step, EndTransactions):
            cluster.end(batch.transactions[1], commit=False)
        return cluster.perform(step)

    with pytest.raises(TransactionsLostError, match="1 of its 2 transactions"):
        carry_out(Commit(batch, None).steps(), perform)
    with pytest.raises(TransactionsLostError):
        commit(cluster, prepared(cluster, 0, "r2"))


def test_transactions_that_were_forgotten_since_are_taken_for_written_if_nothing_else_ends_them() -> None:
    """A query may be started again after its ids have expired, a week after its last batch."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)
    commit(cluster, batch)
    for each in batch.transactions:
        del cluster.ids[each.transactional_id]
    commit(cluster, prepared(cluster, 0, "r2"))
    cluster = Coordinated()
    batch = prepared(cluster, 0)._replace(waits_for_ever=False)
    commit(cluster, batch)
    for each in batch.transactions:
        del cluster.ids[each.transactional_id]
    with pytest.raises(TransactionsLostError):
        commit(cluster, prepared(cluster, 0, "r2"))


def test_abort_ends_what_its_tasks_left_and_finishes_what_was_decided() -> None:
    """Spark aborts after a commit that raised, too: it may have raised after the decision."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)
    unsaid = cluster.initialize(QUERY.writer_id("r1", "killed", 0))
    cluster.write(unsaid, ("never",))
    assert carry_out(Abort(batch).steps(), cluster.perform) is False
    assert (cluster.visible, cluster.open_ids()) == (Counter(), [])
    batch = prepared(cluster, 0, "r2")
    protocol = Commit(batch, None).steps()
    step = next(protocol)
    while not isinstance(step, EndTransactions):
        step = protocol.send(cluster.perform(step))
    assert carry_out(Abort(batch).steps(), cluster.perform) is True
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


def test_task_of_a_run_that_was_aborted_writes_nothing() -> None:
    """Nobody would end its transaction."""
    cluster = Coordinated()
    carry_out(Abort(prepared(cluster, 0)).steps(), cluster.perform)
    with pytest.raises(RunOverError):
        verdict_on_task(QUERY.kind, 0, "r1", cluster.entry(QUERY))
    assert verdict_on_task(QUERY.kind, 0, "r2", cluster.entry(QUERY)) is Verdict.WRITE


def decided_and_expired(cluster: Coordinated, sink: SinkId) -> SinkBatch:
    """Return a batch whose driver died when it was decided, and of which a transaction timed out then."""
    batch = prepared(cluster, 1, "r1", sink)._replace(waits_for_ever=False)
    decider = carry_out(Begin(sink).steps(), cluster.perform) if sink is JOB else None
    dead = Commit(batch, decider).steps()
    step = next(dead)
    while not isinstance(step, EndTransactions):
        step = dead.send(cluster.perform(step))
    dead.close()
    cluster.end(batch.transactions[1], commit=False)
    return batch


def test_version_that_expired_after_it_was_decided_is_told_of_by_the_next_one_until_it_is_settled() -> None:
    """It is decided, so it is not written again, and what has expired of it nobody sees."""
    cluster = Coordinated()
    decided_and_expired(cluster, APPLICATION)
    for _ in range(2):
        with pytest.raises(TransactionsLostError, match=r"batch 1 .* 1 of its 2 transactions"):
            carry_out(Finish(APPLICATION).steps(), cluster.perform)
    with pytest.raises(TransactionsLostError, match="batch 1 "):
        carry_out(Settle(APPLICATION).steps(), cluster.perform)
    decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    commit(cluster, prepared(cluster, 2, "r2", APPLICATION)._replace(waits_for_ever=False), decider)
    assert cluster.visible == rows_of(2) + Counter({(1, 0): 1})


def test_version_whose_ids_are_forgotten_since_it_was_written_is_not_taken_for_lost() -> None:
    """A week later nobody knows of them, and it is there."""
    cluster = Coordinated()
    batch = prepared(cluster, 1, "r1", APPLICATION)._replace(waits_for_ever=False)
    commit(cluster, batch)
    for transaction in batch.transactions:
        del cluster.ids[transaction.transactional_id]
    commit(cluster, prepared(cluster, 2, "r2", APPLICATION)._replace(waits_for_ever=False))
    assert cluster.visible == rows_of(1, 2)


def test_version_whose_time_out_was_two_epochs_is_told_to_be_lost() -> None:
    """Brokers before KAFKA-19367 fence, then abort. Each version has its own ids: nobody uses them again."""
    cluster = Coordinated()
    decided_and_expired(cluster, APPLICATION)
    expired = [known_id for known_id, known in cluster.ids.items() if known.state == "CompleteAbort"]
    for known_id in expired:
        cluster.ids[known_id] = replace(cluster.ids[known_id], epoch=cluster.ids[known_id].epoch + 1)
    assert expired
    with pytest.raises(TransactionsLostError, match="batch 1"):
        commit(cluster, prepared(cluster, 2, "r2", APPLICATION)._replace(waits_for_ever=False))


def test_query_goes_on_from_a_batch_that_is_not_whole_once_spark_has_come_past_it() -> None:
    """It was told, and has written that batch otherwise, as the error said."""
    cluster = Coordinated()
    decided_and_expired(cluster, QUERY)
    with pytest.raises(TransactionsLostError):
        commit(cluster, prepared(cluster, 1, "r2"))
    commit(cluster, prepared(cluster, 2, "r3"))
    assert cluster.visible == rows_of(2) + Counter({(1, 0): 1})


@pytest.mark.parametrize("sink", [QUERY, APPLICATION, JOB], ids=lambda sink: sink.kind.name)
def test_settling_says_that_a_decision_is_not_whole_and_ends_all_else(sink: SinkId) -> None:
    """What has expired is not open any more; it was taken for committed."""
    cluster = Coordinated()
    decided_and_expired(cluster, sink)
    prepared(cluster, 2, "r2", sink)
    with pytest.raises(TransactionsLostError, match=r"batch 1 .* 1 of its 2 transactions"):
        carry_out(Settle(sink).steps(), cluster.perform)
    assert (cluster.visible, cluster.open_ids()) == (Counter({(1, 0): 1}), [])


def test_version_that_an_application_has_written_is_not_written_again() -> None:
    """As Delta tables take txnVersion: what is not later is skipped, whoever comes with it."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 3, "r1", APPLICATION))
    for version in (3, 2):
        assert (
            verdict_on_task(APPLICATION.kind, version, "r2", cluster.entry(APPLICATION))
            is Verdict.ALREADY_DECIDED
        )
        commit(cluster, prepared(cluster, version, "r2", APPLICATION))
    commit(cluster, prepared(cluster, 7, "r3", APPLICATION))
    assert cluster.visible == rows_of(3, 7)
    assert cluster.open_ids() == []


def test_version_that_comes_again_ends_what_others_left_and_tells_who_is_ahead() -> None:
    """It cannot tell the one from the other; whoever is ahead must not decide by what is aborted."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 1, "r1", APPLICATION))
    ahead = prepared(cluster, 2, "r1", APPLICATION)
    commit(cluster, prepared(cluster, 1, "r2", APPLICATION))
    commit(cluster, prepared(cluster, 1, "r3", APPLICATION))
    assert cluster.open_ids() == []
    with pytest.raises(GivenUpError, match=r"version 2 were aborted .* came with version 1 meanwhile"):
        commit(cluster, ahead)
    commit(cluster, prepared(cluster, 2, "r1", APPLICATION))
    assert (cluster.visible, cluster.open_ids()) == (rows_of(1, 2), [])


def late_task(cluster: Coordinated, batch: SinkBatch) -> SinkBatch:
    """Return the attempt with one more task, whose rows come now."""
    transaction = cluster.initialize(batch.sink.writer_id(batch.run_id, f"late{len(cluster.ids)}", 0))
    cluster.write(transaction, ((batch.batch_id, batch.rows),))
    return batch._replace(rows=batch.rows + 1, transactions=(*batch.transactions, transaction))


def test_version_that_another_write_overtook_is_not_decided_by_what_that_one_aborted() -> None:
    """Half of its tasks were done when the other one looked for leftovers: half would be visible for good."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 1, "r1", APPLICATION))
    ahead_decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    ahead = prepared(cluster, 3, "r3", APPLICATION)
    decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    overtaking = prepared(cluster, 2, "r2", APPLICATION)
    ahead = late_task(cluster, ahead)
    commit(cluster, overtaking, decider)
    with pytest.raises(GivenUpError, match=r"version 3 were aborted .* came with version 2"):
        commit(cluster, ahead, ahead_decider)
    assert not carry_out(Abort(ahead).steps(), cluster.perform)
    commit(cluster, prepared(cluster, 3, "r4", APPLICATION))
    assert (cluster.visible, cluster.open_ids()) == (rows_of(1, 2, 3), [])


def test_version_whose_given_up_part_later_decisions_do_not_tell_of_is_not_decided() -> None:
    """A decision says of what is open then that it is given up: else each would be longer than the last."""
    cluster = Coordinated()
    commit(cluster, prepared(cluster, 1, "r1", APPLICATION))
    ahead_decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    ahead = prepared(cluster, 4, "r4", APPLICATION)
    for version in (2, 3):
        decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
        commit(cluster, prepared(cluster, version, f"r{version}", APPLICATION), decider)
    last = cluster.last[APPLICATION.text].decision
    assert last is not None and last.given_up == ()
    ahead = late_task(cluster, ahead)
    with pytest.raises(TransactionsEndedError, match="nothing of batch 4 was written: 2 of its 3"):
        commit(cluster, ahead, ahead_decider)
    assert cluster.visible == rows_of(1, 2, 3)


def test_version_that_is_given_up_is_told_of_until_it_is_aborted() -> None:
    """Whoever decided that may have died before he did it, and its coordinator may just be replaced."""
    cluster = Coordinated()
    ahead_decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    ahead = prepared(cluster, 3, "r3", APPLICATION)
    decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    dies = Commit(prepared(cluster, 1, "r1", APPLICATION), decider).steps()
    step = next(dies)
    while not isinstance(step, EndTransactions):
        step = dies.send(cluster.perform(step))
    dies.close()
    cluster.unheard_of = {each.transactional_id for each in ahead.transactions}
    commit(cluster, prepared(cluster, 2, "r2", APPLICATION))
    with pytest.raises(GivenUpError, match="came with version 2"):
        commit(cluster, ahead, ahead_decider)
    assert cluster.visible == rows_of(1, 2)


def test_batch_that_comes_again_when_its_ids_were_used_again_is_taken_for_written() -> None:
    """A process uses an id again when the batch before was finished: nothing of it is lost."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)
    commit(cluster, batch)
    following = [cluster.initialize(each.transactional_id) for each in batch.transactions]
    commit(cluster, prepared(cluster, 0, "r2"))
    assert cluster.visible == rows_of(0)
    assert following[0].producer_epoch == batch.transactions[0].producer_epoch + 2


def test_batch_whose_ids_are_used_by_others_before_its_end_is_lost() -> None:
    """They have aborted it, and it was not decided when they did."""
    cluster = Coordinated()
    batch = prepared(cluster, 0)
    for each in batch.transactions:
        cluster.initialize(each.transactional_id)
        cluster.initialize(each.transactional_id)
    with pytest.raises(TransactionsLostError):
        commit(cluster, batch)


def test_version_that_was_decided_is_finished_before_the_next_one_is_prepared() -> None:
    """The next one's tasks use the same ids, and to initialize them would abort it."""
    cluster = Coordinated()
    batch = prepared(cluster, 1, "r1", APPLICATION)
    protocol = Commit(batch, None).steps()
    step = next(protocol)
    while not isinstance(step, EndTransactions):
        step = protocol.send(cluster.perform(step))
    carry_out(Finish(APPLICATION).steps(), cluster.perform)
    for each in batch.transactions:
        cluster.initialize(each.transactional_id)
    assert cluster.visible == rows_of(1)


def test_application_ends_with_a_version_what_was_open_before_its_tasks() -> None:
    """It has looked around before them, and does not again."""
    cluster = Coordinated()
    prepared(cluster, 1, "r1", APPLICATION)
    decider = carry_out(Finish(APPLICATION).steps(), cluster.perform)
    commit(cluster, prepared(cluster, 1, "r2", APPLICATION), decider)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(1), [])


def test_version_that_was_decided_and_not_finished_is_finished_by_the_next_one() -> None:
    """An application need not come again with the version that its driver died in."""
    cluster = Coordinated()
    protocol = Commit(prepared(cluster, 1, "r1", APPLICATION), None).steps()
    step = next(protocol)
    while not isinstance(step, EndTransactions):
        step = protocol.send(cluster.perform(step))
    commit(cluster, prepared(cluster, 2, "r2", APPLICATION))
    assert cluster.visible == rows_of(1, 2)


def test_job_is_open_to_its_tasks_until_it_is_decided_and_its_decision_is_forgotten() -> None:
    """A late task of it must not open a transaction that nobody will end; and jobs leave nothing behind."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    assert verdict_on_task_of_job("r1", decider.stamp, cluster.undecided(JOB)) is Verdict.WRITE
    batch = prepared(cluster, 0, "r1", JOB)
    assert commit(cluster, batch, decider) is None
    assert (cluster.visible, cluster.last) == (rows_of(0), {})
    with pytest.raises(RunOverError):
        verdict_on_task_of_job("r1", decider.stamp, cluster.undecided(JOB))


def test_job_that_has_another_decider_is_over_to_its_tasks_and_to_its_commit() -> None:
    """Whoever became it may have ended what was open: what comes later would be ended by nobody."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    batch = prepared(cluster, 0, "r1", JOB)
    settled = carry_out(Settle(JOB).steps(), cluster.perform)
    assert (len(settled.aborted), cluster.open_ids()) == (2, [])
    with pytest.raises(RunOverError):
        verdict_on_task_of_job("r1", decider.stamp, cluster.undecided(JOB))
    with pytest.raises(RunOverError):
        commit(cluster, batch, decider)
    assert cluster.visible == Counter()


def test_job_whose_decision_took_longer_than_its_time_out_decides_again() -> None:
    """Two brokers were down, or the driver paused: nobody has ended the job, and its rows took hours."""
    for timed_out in ([CommitDecision], [CommitDecision, CommitDecision]):
        cluster = Coordinated()
        decider = carry_out(Begin(JOB).steps(), cluster.perform)
        batch = prepared(cluster, 0, "r1", JOB)

        def perform(step: Step, cluster: Coordinated = cluster, left: list[Any] = timed_out) -> object:
            if left and isinstance(step, left[0]):
                left.pop(0)
                cluster.time_out_decider(JOB)
            return cluster.perform(step)

        assert carry_out(Commit(batch, decider).steps(), perform) is None
        assert (cluster.visible, cluster.open_ids(), cluster.last) == (rows_of(0), [], {})


@pytest.mark.parametrize("before", range(14))
def test_job_that_an_operator_ends_after_its_decider_timed_out_is_whole_or_over(before: int) -> None:
    """He may come at any step of whoever begins the decision again, and what he was told has to hold."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    batch = prepared(cluster, 0, "r1", JOB)
    steps = 0
    settled = None

    def perform(step: Step) -> object:
        nonlocal steps, settled
        if steps == 1:
            cluster.time_out_decider(JOB)
        if steps == before:
            settled = carry_out(Settle(JOB).steps(), cluster.perform)
        steps += 1
        return cluster.perform(step)

    try:
        carry_out(Commit(batch, decider).steps(), perform)
    except RunOverError:
        assert settled is not None
        assert (settled.aborted, cluster.visible) == (batch.transactions, Counter())
    else:
        assert settled is None or settled.aborted == ()
        assert cluster.visible == rows_of(0)
    assert (cluster.open_ids(), cluster.last) == ([], {})


def test_job_that_was_decided_and_not_finished_is_finished_by_whoever_gives_it_up() -> None:
    """Its driver may have been told of a failure after the decision."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    batch = prepared(cluster, 0, "r1", JOB)
    protocol = Commit(batch, decider).steps()
    step = next(protocol)
    while not isinstance(step, EndTransactions):
        step = protocol.send(cluster.perform(step))
    assert carry_out(Abort(batch).steps(), cluster.perform)
    assert (cluster.visible, cluster.open_ids(), cluster.last) == (rows_of(0), [], {})


def test_job_that_fails_is_aborted() -> None:
    """Readers of committed records see nothing of it, and wait for nothing of it."""
    cluster = Coordinated()
    decider = carry_out(Begin(JOB).steps(), cluster.perform)
    batch = prepared(cluster, 0, "r1", JOB)
    steps: list[Step] = []

    def perform(step: Step) -> object:
        steps.append(step)
        return cluster.perform(step)

    assert not carry_out(Abort(batch._replace(transactions=())).steps(), perform)
    assert not any(isinstance(step, ForgetDecision) for step in steps), "there is none"
    assert (cluster.visible, cluster.open_ids(), cluster.last) == (Counter(), [], {})
    with pytest.raises(RunOverError):
        verdict_on_task_of_job("r1", decider.stamp, cluster.undecided(JOB))


def test_settling_ends_what_a_dead_query_left_as_it_was_decided() -> None:
    """An operator has to end it where nobody starts the query again, and may not undo what was decided."""
    cluster = Coordinated()
    protocol = Commit(prepared(cluster, 0), None).steps()
    step = next(protocol)
    while not isinstance(step, EndTransactions):
        step = protocol.send(cluster.perform(step))
    prepared(cluster, 1)
    settled = carry_out(Settle(QUERY).steps(), cluster.perform)
    assert (len(settled.committed), len(settled.aborted)) == (2, 2)
    assert (cluster.visible, cluster.open_ids()) == (rows_of(0), [])


def test_run_that_an_operator_settled_decides_nothing_more() -> None:
    """It was not dead; what it had prepared was aborted."""
    cluster = Coordinated()
    decider = commit(cluster, prepared(cluster, 0))
    batch = prepared(cluster, 1)
    carry_out(Settle(QUERY).steps(), cluster.perform)
    with pytest.raises(RunOverError):
        commit(cluster, batch, decider)
    assert cluster.visible == rows_of(0)


def test_settling_shuts_out_each_run_that_has_something_open() -> None:
    """A task of it that comes late would open what nobody ends before the query's next batch."""
    for is_decided in (True, False):
        cluster = Coordinated()
        if is_decided:
            commit(cluster, prepared(cluster, 0, "r1"))
        for run_id in ("r2", "r3"):
            prepared(cluster, 1, run_id)
        carry_out(Settle(QUERY).steps(), cluster.perform)
        assert cluster.open_ids() == []
        for run_id in (*(["r1"] if is_decided else []), "r2", "r3"):
            with pytest.raises(RunOverError):
                verdict_on_task(QUERY.kind, 1, run_id, cluster.entry(QUERY))
        commit(cluster, prepared(cluster, 1, "r4"))


def test_decider_that_is_fenced_all_the_time_says_whose_id_is_used() -> None:
    """Somebody else's producer has the transactional id, and nothing will ever be decided."""
    cluster = Coordinated()

    def perform(step: Step) -> object:
        if isinstance(step, CommitDecision):
            cluster.initialize(QUERY.decider_id)
        return cluster.perform(step)

    with pytest.raises(ContestedSinkError, match=r"sparklog-sink\.query-q,"):
        carry_out(Commit(prepared(cluster, 0), None).steps(), perform)


def test_decider_of_before_looks_again_once_it_is_fenced() -> None:
    """What it remembers of the last decision may be outdated then."""
    cluster = Coordinated()
    outdated = Decider(DeciderStamp(0, -5), LastDecision(IndexEntry(0, "r1"), None, None))
    cluster.initialize(QUERY.decider_id)
    steps: list[Step] = []

    def perform(step: Step) -> object:
        steps.append(step)
        return cluster.perform(step)

    carry_out(Commit(prepared(cluster, 1), outdated).steps(), perform)
    assert [type(step) for step in steps[:2]] == [WriteDecision, InitializeDecider]
    assert cluster.visible == rows_of(1)


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_rows_are_visible_once_whatever_dies_hangs_or_comes_late(first_seed: int) -> None:
    """Drivers are replaced while they hang, tasks are killed, tried again, and go on when nobody waits."""
    for seed in range(first_seed, first_seed + 100):
        random = Random(seed)
        cluster = Coordinated()
        runs = Runs(cluster, random)
        batches = 4
        for number in range(4):
            runs.going_on.append(runs.driver(f"r{number}", batches))
            for _ in range(random.randrange(150)):
                if runs.going_on:
                    runs.turn()
                assert max(cluster.visible.values(), default=0) <= 1, f"seed {seed}"
            if random.random() < 0.5 and runs.going_on:
                runs.going_on.remove(random.choice(runs.going_on))
        tries = 0
        while runs.checkpoint < batches:
            tries += 1
            assert tries < 50, f"seed {seed}"
            runs.going_on.append(runs.driver(f"last{tries}", batches))
            for _ in range(2_000):
                if runs.going_on:
                    runs.turn()
                assert max(cluster.visible.values(), default=0) <= 1, f"seed {seed}"
        assert cluster.visible == Counter(
            {(batch_id, number): 1 for batch_id in range(batches) for number in range(ROWS)}
        ), f"seed {seed}"
