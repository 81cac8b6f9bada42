"""Errors of a sink that writes nothing, or cannot confirm that all is written; each names the remedy."""

from collections.abc import Sequence
from typing import Final

from sparklog.protocol.errors import KafkaError
from sparklog.user.sink.machine.names import SinkId, SinkKind

_ONCE_MORE: Final = (
    "If rows may be written twice rather than be missing, start the query with the option "
    "deliveryGuarantee=atLeastOnce until this batch is done, and without it from then on"
)
_ALSO_FINISHED_BY: Final = {
    SinkKind.QUERY: ". So does the query, if it is started again from its checkpoint",
    SinkKind.APPLICATION: ". So does the next write with this txnAppId to the same topic",
    SinkKind.JOB: "",
}


class SinkError(RuntimeError):
    """A batch cannot be written exactly once."""


class DeciderFencedError(Exception):
    """Another decider of the sink has been initialized; the caller has decided nothing."""


class ContestedSinkError(SinkError):
    """Other drivers initialize the sink's decider again and again."""

    def __init__(self, decider_id: str) -> None:
        super().__init__(
            "other drivers become the decider of this sink again and again: another client uses the "
            f"transactional id {decider_id}, or the same query or txnAppId runs several times at once. Let "
            "one of them run"
        )


class DecisionGoneError(SinkError):
    """The decision that tasks relied on is gone when their batch is committed."""

    def __init__(self, batch_id: int) -> None:
        super().__init__(
            f"batch {batch_id} was decided when its tasks asked, and the decision is gone now: the topic "
            "__sparklog_sink_decisions, or the sink's group, was deleted meanwhile. Start the write again: "
            "the batch is then written again"
        )


class OlderCheckpointError(SinkError):
    """The query restarts from before a batch that it has written already."""

    def __init__(self, batch_id: int, decided_batch_id: int) -> None:
        super().__init__(
            f"batch {batch_id} would be written a second time: this query has written batch "
            f"{decided_batch_id} already, so its checkpoint is an older copy, or was cut back. Start it "
            f"from its latest checkpoint; or a new query from a new one. {_ONCE_MORE}"
        )


class DifferentBatchError(SinkError):
    """A decided batch comes again with other rows."""

    def __init__(self, batch_id: int, rows: int, decided_rows: int) -> None:
        super().__init__(
            f"batch {batch_id} has {rows} rows now, and had {decided_rows} when it was written: the query's "
            "checkpoint is an older copy in which this batch was planned again, or the query gives other "
            "rows for the same input. Start it from its latest checkpoint, or have it give the same rows "
            f"each time. {_ONCE_MORE}"
        )


class SupersededRunError(SinkError):
    """The same query was started elsewhere, which supersedes this run."""

    def __init__(self, run_id: str, by_run_id: str) -> None:
        super().__init__(
            f"this run of the query, {run_id}, was superseded by run {by_run_id}: the query was started "
            "elsewhere from the same checkpoint or a copy of it. Stop one of the two; a query of its own "
            "needs a checkpoint of its own"
        )


class GivenUpError(SinkError):
    """Another write with an earlier version aborted the transactions prepared for this one."""

    def __init__(self, version: int, decided_version: int) -> None:
        super().__init__(
            f"the rows prepared for version {version} were aborted by another write of the same txnAppId, "
            f"which came with version {decided_version} meanwhile: none of them was written. Write them "
            "again, and run one write at a time for a txnAppId"
        )


class RunOverError(SinkError):
    """A job or a query's run has ended, and one of its tasks or its driver continues."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"this job, or run of a query, was given up or ended by an operator before (run {run_id}): it "
            "writes nothing more. Start it again"
        )


class TransactionsEndedError(SinkError):
    """Transactions of a batch ended before its decision: nothing of it is decided."""

    def __init__(self, batch_id: int, count: int, ended: Sequence[str]) -> None:
        super().__init__(
            f"nothing of batch {batch_id} was written: {len(ended)} of its {count} transactions had ended "
            f"before it could be decided ({some_of(ended)}). Another write of the same txnAppId has aborted "
            "them, or an operator; or the target's time-out for transactions passed, which "
            "kafka.transaction.timeout.ms and the target's transaction.max.timeout.ms bound. Do it again"
        )


class TransactionsLostError(SinkError):
    """Transactions of a decided batch were aborted or expired before they could be committed."""

    def __init__(self, batch_id: int, rows: int, count: int, lost: Sequence[str]) -> None:
        super().__init__(
            f"batch {batch_id} ({rows} rows) is not whole: {len(lost)} of its {count} transactions were "
            f"aborted or have expired before they could be committed ({some_of(lost)}). The target's "
            "time-out for transactions passed, which kafka.transaction.timeout.ms and the target's "
            "transaction.max.timeout.ms bound, or an operator aborted them. Their rows are missing. "
            f"{_ONCE_MORE}. A txnAppId goes on with its next version once sparklog-sinks BOOTSTRAP "
            "--end has said so, too"
        )


class UnfinishedDecisionError(SinkError):
    """A batch is decided, but its transactions could not be confirmed as committed."""

    def __init__(self, sink: SinkId, batch_id: int, rows: int, cause: KafkaError) -> None:
        super().__init__(
            f"batch {batch_id} ({rows} rows) is decided and must not be run again as another write: its rows "
            "would be there twice. Readers of committed records may not see them all yet: its transactions "
            f"could not be committed ({cause}). sparklog-sinks BOOTSTRAP --end {sink.text} finishes it"
            f"{_ALSO_FINISHED_BY[sink.kind]}"
        )


class UnreadableDecisionError(SinkError):
    """This version does not understand the sink's last decision."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the sink's last decision cannot be read: {why}. Was it made by a newer sparklog? Use that"
        )


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and the number of the others, for an error text."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
