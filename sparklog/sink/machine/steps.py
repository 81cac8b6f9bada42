"""The steps of which the protocols consist: each is one thing to be asked of the cluster.

A protocol is a generator: it yields a step, is sent what came of it, and returns its result. Whoever carries
steps out tries again by himself what may be tried again; what he raises then, a `DeciderFencedError` or a
`KafkaError`, is thrown into the protocol, which may go on otherwise. Between two steps the process may end,
and everything still has to come right: whoever comes next has to be able to go on from any of them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple, TypeAlias, TypeVar

from sparklog.errors import KafkaError
from sparklog.sink.machine.decisions import Decision, IndexEntry, Position, WriterTransaction
from sparklog.sink.machine.errors import DeciderFencedError
from sparklog.sink.machine.names import SinkId
from sparklog.types import ProducerEpoch, ProducerId

Result = TypeVar("Result")


class DeciderStamp(NamedTuple):
    """As whom a decider is known to the cluster; it is his until somebody else is given the next epoch."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class TransactionEnd(Enum):
    """What came of ending a transaction."""

    DONE = auto()
    """It ended so, now or before."""
    OTHERWISE = auto()
    """It had ended otherwise."""
    MOVED_ON = auto()
    """Its id has been initialized since: it has ended, and it can't be told how."""
    FORGOTTEN = auto()
    """The cluster does not know the id any more: it has ended, and it can't be told how."""


class InitializeDecider(NamedTuple):
    """Become the decider; all before are fenced, and what they left open is aborted. Gives `DeciderStamp`."""

    sink: SinkId


class FindAbortedDecider(NamedTuple):
    """Look whether the decider's last transaction was aborted, and nobody has been initialized since.

    Gives the `DeciderStamp` that is left, one epoch after whoever began the transaction; else None.
    """

    sink: SinkId


class FindLastDecision(NamedTuple):
    """Look for the last decision that is committed, however old. Gives `LastDecision | None`.

    None of its transaction's offsets may be pending when this is answered.
    """

    sink: SinkId


class ListOpenTransactions(NamedTuple):
    """List the transactions whose ids begin so and that are open, or that nothing was written in yet.

    Some may be missing whose coordinator is just being replaced; none of those whose ids are `named`. Gives a
    sequence of `WriterTransaction`.
    """

    prefix: str
    named: tuple[str, ...] = ()


class FindOpenTransactions(NamedTuple):
    """Look which of these transactions are open. Gives a sequence of them."""

    transactions: Sequence[WriterTransaction]


class WriteDecision(NamedTuple):
    """Write the record, and the group's offset of what is indexed. Gives the record's `Position`.

    It is in the decider's transaction; neither waits for the other. Raises `DeciderFencedError`.
    """

    sink: SinkId
    decider: DeciderStamp
    decision: Decision
    entry: IndexEntry
    after: Position | None
    """Of the decision before this one, if there is any: what the group's offset says is that one's next."""


class IndexDecision(NamedTuple):
    """Commit the group's offset alone, in the decider's transaction. Raises `DeciderFencedError`."""

    sink: SinkId
    decider: DeciderStamp
    position: Position | None
    """Of the last decision. None: there is none; any partition will do."""
    entry: IndexEntry


class CommitDecision(NamedTuple):
    """Commit the decider's transaction; this is the moment of the decision. Gives the next `DeciderStamp`.

    Raises `DeciderFencedError`, if nothing was decided. If it cannot be known, another error.
    """

    sink: SinkId
    decider: DeciderStamp


class EndTransactions(NamedTuple):
    """Commit or abort transactions, of exactly these epochs. Gives a mapping to `TransactionEnd`.

    It is durable how they end when this is answered, and readers may not see it yet.
    """

    transactions: Sequence[WriterTransaction]
    commit: bool


class AwaitEnds(NamedTuple):
    """Return when readers of committed records see what was committed, or are held up by none of it.

    The transactions are some that were ended so, and that holds: where a partition is offline for too long, a
    warning says what is still to be seen. Gives the transactions of which it is not known to be.
    """

    transactions: Sequence[WriterTransaction]
    commit: bool


class AwaitDecision(NamedTuple):
    """Return when whoever looks for the last decision finds the one just committed, or a later one."""

    sink: SinkId


class ForgetDecision(NamedTuple):
    """Delete the decision of what is not indexed."""

    sink: SinkId


class WarnOfLeftovers(NamedTuple):
    """Say that a batch is written, that what else may be open of its sink could not be ended, and who can."""

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
    """Return what a protocol returns, with each of its steps performed."""
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
