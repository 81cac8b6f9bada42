"""What a last decision means for a batch that is about to be written, or decided.

A task asks only to save work, and so as not to leave a transaction open that nobody would end; what it is
told may be outdated a moment later. What counts is the verdict on a commit, which is given by whoever is the
decider and holds until somebody else becomes it.
"""

from enum import Enum, auto

from sparklog.sink.machine.decisions import Decision, IndexEntry
from sparklog.sink.machine.errors import (
    DifferentBatchError,
    OlderCheckpointError,
    RunOverError,
    SupersededRunError,
)
from sparklog.sink.machine.names import SinkKind
from sparklog.sink.machine.steps import DeciderStamp


class Verdict(Enum):
    """What is to be done about a batch."""

    WRITE = auto()
    ALREADY_DECIDED = auto()


def verdict_on_task(kind: SinkKind, batch_id: int, run_id: str, index: IndexEntry | None) -> Verdict:
    """Return whether a task has to write its rows.

    To be asked after its transactional id was initialized and before anything is written: then whoever ends a
    run, which he says before he looks for ids of it, either finds the task's or is heard by the task. And
    once more when all is written: a task that hung in between may have begun its transaction after he looked.

    Raises:
        RunOverError: its job or run has ended.
        OlderCheckpointError: the query has come further than this batch.
    """
    if index is None:
        return Verdict.WRITE
    if run_id in index.over_run_ids:
        raise RunOverError(run_id)
    if index.batch_id is None or index.batch_id < batch_id:
        return Verdict.WRITE
    if kind is SinkKind.QUERY and index.batch_id > batch_id:
        raise OlderCheckpointError(batch_id, index.batch_id)
    return Verdict.ALREADY_DECIDED


def verdict_on_task_of_job(
    run_id: str, began_with: DeciderStamp | None, undecided: DeciderStamp | None
) -> Verdict:
    """Return that a task of a job has to write its rows; to be asked when `verdict_on_task` is.

    `undecided` is who is the job's decider now, if that one has decided nothing: whoever ends a job becomes
    its decider, or has decided.

    Raises:
        RunOverError: the job has ended.
    """
    if undecided is None or undecided != began_with:
        raise RunOverError(run_id)
    return Verdict.WRITE


def verdict_on_commit(
    kind: SinkKind, batch_id: int, run_id: str, rows: int, last: Decision | None
) -> Verdict:
    """Return whether a batch is to be decided.

    Raises:
        SupersededRunError, OlderCheckpointError, DifferentBatchError: it is a query's, and must not be.
    """
    if last is None:
        return Verdict.WRITE
    if kind is not SinkKind.QUERY:
        return Verdict.WRITE if last.batch_id < batch_id else Verdict.ALREADY_DECIDED
    if run_id in last.former_runs:
        raise SupersededRunError(run_id, last.run_id)
    if last.batch_id > batch_id:
        raise OlderCheckpointError(batch_id, last.batch_id)
    if last.batch_id < batch_id:
        return Verdict.WRITE
    if last.rows != rows:
        raise DifferentBatchError(batch_id, rows, last.rows)
    return Verdict.ALREADY_DECIDED
