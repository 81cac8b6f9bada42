"""Steps of the sink's protocols: each is one question or order to the cluster.

A protocol is a generator: it yields a step, receives the step's result, and returns its own. The caller
retries a step's retriable errors itself; a final `DeciderFencedError` or `KafkaError` is thrown into the
protocol, which may handle it. A process may end between any two steps: the next protocol of the sink has to
continue from any of them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias, TypeVar

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import ProducerEpoch, ProducerId
from sparklog.user.sink.machine.decisions import Decision, IndexEntry, Position, WriterTransaction
from sparklog.user.sink.machine.errors import DeciderFencedError
from sparklog.user.sink.machine.names import SinkId

Result = TypeVar("Result")


class DeciderStamp(NamedTuple):
    """Identity of a decider in the cluster, valid until the next epoch is assigned."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class TransactionEnd(Enum):
    DONE = auto()
    """It ended as asked, now or before."""
    OTHERWISE = auto()
    """It had ended the other way."""
    MOVED_ON = auto()
    """Its id has been initialized since: it has ended, in an unknown way."""
    FORGOTTEN = auto()
    """The cluster does not know the id any longer: it has ended, in an unknown way."""


class InitializeDecider(NamedTuple):
    """Initialize the decider; fences all earlier ones and aborts their transactions. Gives `DeciderStamp`."""

    sink: SinkId


class FindAbortedDecider(NamedTuple):
    """Find out whether the decider's last transaction was aborted and no decider was initialized since.

    Gives the `DeciderStamp` that the abort left, one epoch after the transaction's; else None.
    """

    sink: SinkId


class FindLastDecision(NamedTuple):
    """Find the last committed decision, however old. Gives `LastDecision | None`.

    The answer is given only when none of its transaction's offsets is pending.
    """

    sink: SinkId


class ListOpenTransactions(NamedTuple):
    """List the transactions with an id prefix that are open, or that are initialized and still empty.

    Transactions whose coordinator is being replaced may be missing, but none with an id in `named`. Gives a
    sequence of `WriterTransaction`.
    """

    prefix: str
    named: tuple[str, ...] = ()


class FindOpenTransactions(NamedTuple):
    """Select the open ones of these transactions. Gives a sequence of them."""

    transactions: Sequence[WriterTransaction]


class WriteDecision(NamedTuple):
    """Write a decision's record, and the group's offset of an indexed sink. Gives the record's `Position`.

    Both are in the decider's transaction and sent at once. Raises `DeciderFencedError`.
    """

    sink: SinkId
    decider: DeciderStamp
    decision: Decision
    entry: IndexEntry
    after: Position | None
    """Position of the previous decision, if there is one: the group's offset is the one behind it."""


class IndexDecision(NamedTuple):
    """Write the group's offset alone, in the decider's transaction. Raises `DeciderFencedError`."""

    sink: SinkId
    decider: DeciderStamp
    position: Position | None
    """Position of the last decision; None if there is none, when any partition will do."""
    entry: IndexEntry


class CommitDecision(NamedTuple):
    """Commit the decider's transaction, which makes the decision. Gives the next `DeciderStamp`.

    Raises `DeciderFencedError` if nothing was decided, and another error if the outcome is unknown.
    """

    sink: SinkId
    decider: DeciderStamp


class EndTransactions(NamedTuple):
    """Commit or abort transactions of exactly these epochs. Gives a mapping to `TransactionEnd`.

    The end is durable when this is answered; readers may not see it yet.
    """

    transactions: Sequence[WriterTransaction]
    commit: bool


class AwaitEnds(NamedTuple):
    """Wait until readers of committed records see ended transactions, or do not wait for them.

    The transactions must have been ended this way. If a partition is offline for too long, a warning names
    it. Gives the transactions whose markers are not confirmed.
    """

    transactions: Sequence[WriterTransaction]
    commit: bool


class AwaitDecision(NamedTuple):
    """Wait until every search for the last decision finds the one just committed, or a later one."""

    sink: SinkId


class ForgetDecision(NamedTuple):
    """Delete the decision of a sink that is not indexed."""

    sink: SinkId


class WarnOfLeftovers(NamedTuple):
    """Warn that a batch is written but other open transactions of its sink could not be ended."""

    sink: SinkId
    cause: KafkaError


Step: TypeAlias = (
    InitializeDecider
    | FindAbortedDecider
    | FindLastDecision
    | ListOpenTransactions
    | FindOpenTransactions
    | WriteDecision
    | IndexDecision
    | CommitDecision
    | EndTransactions
    | AwaitEnds
    | AwaitDecision
    | ForgetDecision
    | WarnOfLeftovers
)
Protocol: TypeAlias = Generator[Step, Any, Result]
TransactionEnds: TypeAlias = Mapping[WriterTransaction, TransactionEnd]


def carry_out(protocol: Protocol[Result], perform: Callable[[Step], Any]) -> Result:
    """Run a protocol, performing each of its steps, and return its result."""
    try:
        step = next(protocol)
        while True:
            try:
                came_of_it = perform(step)
            except (DeciderFencedError, KafkaError) as error:
                step = protocol.throw(error)
            else:
                step = protocol.send(came_of_it)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        protocol.close()
