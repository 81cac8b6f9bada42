"""Bugs of sinks that the simulator must find; see `planted`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId
from sparklog.user.client.broker_requests import ask_until_answered
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine import protocols
from sparklog.user.sink.machine.decisions import Decision, LastDecision, Position
from sparklog.user.sink.machine.errors import DeciderFencedError
from sparklog.user.sink.machine.names import SinkId, SinkKind
from sparklog.user.sink.machine.protocols import Abort, Commit, Decider, Settle
from sparklog.user.sink.machine.steps import (
    AwaitDecision,
    AwaitEnds,
    EndTransactions,
    FindLastDecision,
    InitializeDecider,
    ListOpenTransactions,
    Protocol,
    WriteDecision,
)
from sparklog.user.sink.machine.verdicts import Verdict
from tests.simulation.coordinating import SINK_SEEDS
from tests.simulation.planted_bug import PlantedBug, Replacement


def _ended_before_decided() -> Sequence[Replacement]:
    write = Commit._write

    def end_and_write(self: Commit, decider: Decider, decision: Decision) -> Protocol[Decider]:
        yield EndTransactions(decision.transactions, True)
        return (yield from write(self, decider, decision))

    return [Replacement(Commit, "_write", end_and_write)]


def _transaction_left_out() -> Sequence[Replacement]:
    write = Commit._write

    def write_all_but_one(self: Commit, decider: Decider, decision: Decision) -> Protocol[Decider]:
        return (yield from write(self, decider, replace(decision, transactions=decision.transactions[1:])))

    return [Replacement(Commit, "_write", write_all_but_one)]


def _decision_not_committed() -> Sequence[Replacement]:
    def write_only(self: Commit, decider: Decider, decision: Decision) -> Protocol[Decider]:
        entry = decision.entry
        after = None if decider.last is None else decider.last.position
        position = yield WriteDecision(self._batch.sink, decider.stamp, decision, entry, after)
        return Decider(decider.stamp, LastDecision(entry, decision, position))

    return [Replacement(Commit, "_write", write_only)]


def _decision_not_indexed() -> Sequence[Replacement]:
    def append_only(self: SinkClient, step: WriteDecision) -> Position:
        record = self._decisions.appending(step.sink, step.decider, step.decision)
        ask_until_answered(self.cluster, [record], doing="writing a decision")
        if isinstance(record.outcome, ErrorCode):
            raise DeciderFencedError
        assert record.outcome is not None, "it is answered"
        return Position(record.topic_partition.partition, record.outcome)

    return [Replacement(SinkClient, "_write_decision", append_only)]


def _looks_before_it_is_the_decider() -> Sequence[Replacement]:
    def look_and_become(sink: SinkId) -> Protocol[Decider]:
        last = yield FindLastDecision(sink)
        stamp = yield InitializeDecider(sink)
        return Decider(stamp, last)

    return [Replacement(protocols, "_become_decider", look_and_become)]


def _superseded_run_decides() -> Sequence[Replacement]:
    verdict_on_commit = protocols.verdict_on_commit

    def whoever_comes(
        kind: SinkKind, batch_id: int, run_id: str, rows: int, last: Decision | None
    ) -> Verdict:
        return verdict_on_commit(kind, batch_id, "" if last is None else last.run_id, rows, last)

    return [Replacement(protocols, "verdict_on_commit", whoever_comes)]


def _rows_not_counted() -> Sequence[Replacement]:
    verdict_on_commit = protocols.verdict_on_commit

    def whatever_it_has(
        kind: SinkKind, batch_id: int, run_id: str, rows: int, last: Decision | None
    ) -> Verdict:
        return verdict_on_commit(kind, batch_id, run_id, rows if last is None else last.rows, last)

    return [Replacement(protocols, "verdict_on_commit", whatever_it_has)]


def _older_checkpoint_goes_on() -> Sequence[Replacement]:
    verdict_on_commit = protocols.verdict_on_commit

    def from_there(kind: SinkKind, batch_id: int, run_id: str, rows: int, last: Decision | None) -> Verdict:
        if last is not None and last.batch_id > batch_id:
            return Verdict.WRITE
        return verdict_on_commit(kind, batch_id, run_id, rows, last)

    def for_a_task(kind: SinkKind, batch_id: int, run_id: str, index: Any) -> Verdict:
        return Verdict.WRITE

    from sparklog.user.dataframe import delivery

    return [
        Replacement(protocols, "verdict_on_commit", from_there),
        Replacement(delivery, "verdict_on_task", for_a_task),
    ]


def _undecided_is_committed() -> Sequence[Replacement]:
    abort_undecided = Commit._abort_undecided

    def commit_undecided(self: Commit, decided: Decision) -> Protocol[Any]:
        protocol = abort_undecided(self, decided)
        came_of_it = None
        while True:
            try:
                step = protocol.send(came_of_it)
            except StopIteration as end:
                return end.value
            if isinstance(step, EndTransactions):
                step = step._replace(commit=True)
            came_of_it = yield step

    return [Replacement(Commit, "_abort_undecided", commit_undecided)]


def _aborted_after_the_decision() -> Sequence[Replacement]:
    def abort_whatever_is_decided(self: Abort, decided: Decision | None) -> Protocol[bool]:
        yield AwaitDecision(self._batch.sink)
        if self._batch.transactions:
            yield EndTransactions(self._batch.transactions, False)
        return False

    return [Replacement(Abort, "_end", abort_whatever_is_decided)]


def _task_does_not_ask() -> Sequence[Replacement]:
    from sparklog.user.dataframe import delivery

    return [
        Replacement(delivery, name, lambda *_: Verdict.WRITE)
        for name in ("verdict_on_task", "verdict_on_task_of_job")
    ]


def _slot_used_again() -> Sequence[Replacement]:
    from sparklog.user.dataframe.worker_process import WorkerProcess

    def writer_id(self: WorkerProcess, sink: SinkId, run_id: str, batch_id: int) -> str:
        return sink.writer_id(run_id, self._name, 0)

    return [Replacement(WorkerProcess, "writer_id", writer_id)]


def _process_left_out() -> Sequence[Replacement]:
    def writer_id(self: SinkId, run_id: str, process: str, slot: int) -> str:
        return f"{self.run_prefix(run_id)}task.{slot}"

    return [Replacement(SinkId, "writer_id", writer_id)]


def _settles_others() -> Sequence[Replacement]:
    end = Settle._end

    def end_all_queries(self: Settle, decider: Decider) -> Protocol[Any]:
        protocol = end(self, decider)
        came_of_it = None
        while True:
            try:
                step = protocol.send(came_of_it)
            except StopIteration as ended:
                return ended.value
            if isinstance(step, ListOpenTransactions):
                step = ListOpenTransactions("sparklog-sink.")
            came_of_it = yield step

    return [Replacement(Settle, "_end", end_all_queries)]


def _given_up_untold() -> Sequence[Replacement]:
    encode = Decision.encode

    def leave_out(self: Decision) -> bytes:
        return encode(replace(self, given_up=()))

    return [Replacement(Decision, "encode", leave_out)]


def _markers_not_awaited() -> Sequence[Replacement]:
    def await_nothing(self: SinkClient, step: AwaitEnds) -> None:
        pass

    return [Replacement(SinkClient, "_await_ends", await_nothing)]


def _coordinator_where_it_was() -> Sequence[Replacement]:
    def stay_as_told(self: ClusterClient, broker_id: BrokerId, address: tuple[str, int]) -> None:
        pass

    return [Replacement(ClusterClient, "broker_named", stay_as_told)]


SINK_BUGS: Final = {
    "ended-before-decided": PlantedBug(
        "a batch's transactions are committed before its decision is made", _ended_before_decided, SINK_SEEDS
    ),
    "transaction-left-out": PlantedBug(
        "a decision leaves out what one of the tasks has written", _transaction_left_out, SINK_SEEDS
    ),
    "decision-not-committed": PlantedBug(
        "transactions are ended when the decision is appended, not when it is committed",
        _decision_not_committed,
        SINK_SEEDS,
    ),
    "decision-not-indexed": PlantedBug(
        "a decision's record is written, and not its entry in the index", _decision_not_indexed, SINK_SEEDS
    ),
    "looks-before-it-is-the-decider": PlantedBug(
        "a driver looks for the last decision before it has fenced the other deciders",
        _looks_before_it_is_the_decider,
        SINK_SEEDS,
    ),
    "superseded-run-decides": PlantedBug(
        "taking a query over does not shut the run before it out", _superseded_run_decides, SINK_SEEDS
    ),
    "rows-not-counted": PlantedBug(
        "a batch that comes again is taken for the one that was decided, whatever it has",
        _rows_not_counted,
        SINK_SEEDS,
    ),
    "older-checkpoint-goes-on": PlantedBug(
        "a query goes on from before what it has written", _older_checkpoint_goes_on, SINK_SEEDS
    ),
    "undecided-is-committed": PlantedBug(
        "what a decision does not name is committed with it", _undecided_is_committed, SINK_SEEDS
    ),
    "aborted-after-the-decision": PlantedBug(
        "a driver gives a batch up that it has decided", _aborted_after_the_decision, SINK_SEEDS
    ),
    "task-does-not-ask": PlantedBug(
        "a task that comes late writes, whatever was decided", _task_does_not_ask, SINK_SEEDS
    ),
    "slot-used-again": PlantedBug(
        "a process writes with an id that has left something prepared for the same batch",
        _slot_used_again,
        SINK_SEEDS,
    ),
    "process-left-out": PlantedBug(
        "tasks of several processes have the same transactional id", _process_left_out, SINK_SEEDS
    ),
    "settles-others": PlantedBug("settling a sink ends what is open of others", _settles_others, SINK_SEEDS),
    "given-up-untold": PlantedBug(
        "who comes with a version aborts what a later one has prepared, unknown to it",
        _given_up_untold,
        SINK_SEEDS,
    ),
    "markers-not-awaited": PlantedBug(
        "a batch counts as written before its markers are", _markers_not_awaited, SINK_SEEDS
    ),
    "coordinator-where-it-was": PlantedBug(
        "a client looks for a coordinator where it was when it connected",
        _coordinator_where_it_was,
        SINK_SEEDS,
    ),
}
