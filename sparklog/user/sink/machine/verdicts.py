"""Verdicts on a batch that a task is about to write, or a driver to decide, given the last decision.

A task asks only to save work and to leave no transaction open that no driver would end; its answer may be
outdated a moment later. The verdict on a commit is the binding one: the decider gives it, and it holds until
the next decider is initialized.
"""

from enum import Enum, auto

from sparklog.user.sink.machine.decisions import Decision, IndexEntry
from sparklog.user.sink.machine.errors import (
    DifferentBatchError,
    OlderCheckpointError,
    RunOverError,
    SupersededRunError,
)
from sparklog.user.sink.machine.names import SinkKind
from sparklog.user.sink.machine.steps import DeciderStamp


class Verdict(Enum):
    WRITE = auto()
    ALREADY_DECIDED = auto()


def verdict_on_task(kind: SinkKind, batch_id: int, run_id: str, index: IndexEntry | None) -> Verdict:
    """Return whether a task has to write its rows.

    The task asks after it has initialized its transactional id and before it writes: a driver that ends the
    run records that before it lists the run's ids, so either it finds the task's id or the task sees the
    record. The task asks again when all is written: if it hung in between, its transaction may have begun
    after the driver listed the ids.

    Raises:
        RunOverError: its job or run has ended.
        OlderCheckpointError: the query has advanced beyond this batch.
    """
    if index is None:
        return Verdict.WRITE
    if run_id in index.over_run_ids:
        raise RunOverError(run_id)
    if index.batch_id is None or index.batch_id < batch_id:
        return Verdict.WRITE
    if kind.has_runs and index.batch_id > batch_id:
        raise OlderCheckpointError(batch_id, index.batch_id)
    return Verdict.ALREADY_DECIDED


def verdict_on_task_of_job(
    run_id: str, began_with: DeciderStamp | None, undecided: DeciderStamp | None
) -> Verdict:
    """Return WRITE for a task of a running job; the task asks whenever it would ask `verdict_on_task`.

    `undecided` is the job's current decider if it has decided nothing: ending a job takes a new decider, or a
    decision.

    Raises:
        RunOverError: the job has ended.
    """
    if undecided is None or undecided != began_with:
        raise RunOverError(run_id)
    return Verdict.WRITE


def verdict_on_commit(
    kind: SinkKind, batch_id: int, run_id: str, rows: int, last: Decision | None
) -> Verdict:
    """Return whether the driver has to decide a batch.

    Raises:
        SupersededRunError, OlderCheckpointError, DifferentBatchError: a query must not write the batch.
    """
    if last is None:
        return Verdict.WRITE
    if not kind.has_runs:
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
