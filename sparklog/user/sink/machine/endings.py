"""How the transactions of a decision are committed, and which of them are lost.

A transaction without a time-out is ended only by a decision: if its coordinator has forgotten it, it was
committed long ago. If a query's transactional id has moved on, it was reused for a later batch, after the
decision was finished; its transaction was committed, too. Ids of other sinks are used once: one that has
moved on was ended by its time-out or by a foreign client. A transaction with a time-out was committed only if
its coordinator confirms it.
"""

from collections.abc import Iterable
from typing import TypeVar

from sparklog.protocol.errors import KafkaError
from sparklog.user.sink.machine.decisions import Decision, WriterTransaction
from sparklog.user.sink.machine.errors import TransactionsLostError, UnfinishedDecisionError
from sparklog.user.sink.machine.names import SinkId, kind_of
from sparklog.user.sink.machine.steps import (
    AwaitEnds,
    EndTransactions,
    Protocol,
    TransactionEnd,
    TransactionEnds,
)

Result = TypeVar("Result")
Transactions = tuple[WriterTransaction, ...]


def commit_all(decided: Decision, transactions: Transactions, *, by_others: bool = False) -> Protocol[None]:
    """Commit a decision's transactions and wait until readers see them; `by_others` as below.

    Raises:
        TransactionsLostError: some can't be committed; the others are.
    """
    committed, lost = yield from commit_all_but_lost(decided, transactions, by_others=by_others)
    if committed:
        yield AwaitEnds(committed, True)
    if lost:
        raise lost_error(decided, lost)


def commit_all_but_lost(
    decided: Decision, transactions: Transactions, *, is_new: bool = False, by_others: bool = False
) -> Protocol[tuple[Transactions, Transactions]]:
    """Commit a decision's transactions; return the committed ones and the lost ones.

    `is_new`: the decision was made just now, so no id can have been reused. `by_others`: the caller does not
    write the decision's batch but finishes it for another driver, to which an unknown end does not count as
    lost.
    """
    if not transactions:
        return (), ()
    ends: TransactionEnds = yield EndTransactions(transactions, True)
    fine = {TransactionEnd.DONE}
    if decided.waits_for_ever or by_others:
        fine.add(TransactionEnd.FORGOTTEN)
        kind = kind_of(transactions[0].transactional_id)
        if not is_new and kind is not None and kind.has_runs:
            fine.add(TransactionEnd.MOVED_ON)
    committed = tuple(each for each in transactions if ends[each] is TransactionEnd.DONE)
    return committed, tuple(each for each in transactions if ends[each] not in fine)


def finishing(sink: SinkId, decided: Decision, committing: Protocol[Result]) -> Protocol[Result]:
    """Run `committing` for the driver that writes the decision's batch.

    Raises:
        UnfinishedDecisionError: a coordinator could not be asked, or refused.
        TransactionsLostError: as `committing` does.
    """
    try:
        return (yield from committing)
    except KafkaError as error:
        raise UnfinishedDecisionError(sink, decided.batch_id, decided.rows, error) from error


def abort_all(transactions: Transactions) -> Protocol[None]:
    """Abort transactions and wait until they no longer hold up readers."""
    yield EndTransactions(transactions, False)
    yield AwaitEnds(transactions, False)


def lost_error(decided: Decision, lost: Transactions) -> TransactionsLostError:
    return TransactionsLostError(
        decided.batch_id, decided.rows, len(decided.transactions), [each.transactional_id for each in lost]
    )


def distinct(
    transactions: Iterable[WriterTransaction], but: frozenset[WriterTransaction] = frozenset()
) -> Transactions:
    """Return each transaction once, without those in `but`."""
    return tuple(dict.fromkeys(each for each in transactions if each not in but))
