"""How transactions are ended that something was decided about, and which of them can't be any more.

What only a decision ends, and is not known any more, was committed: it was long ago. So was that of a query
whose id was used again, for a batch after the one that it is decided in, when that was finished. Other sinks'
ids are used once: one that has moved on was ended by its time-out, or by a stranger. What may expire was
committed if its end says so.
"""

from collections.abc import Iterable
from typing import TypeVar

from sparklog.errors import KafkaError
from sparklog.sink.machine.decisions import Decision, WriterTransaction
from sparklog.sink.machine.errors import TransactionsLostError, UnfinishedDecisionError
from sparklog.sink.machine.names import SinkId, SinkKind, kind_of
from sparklog.sink.machine.steps import AwaitEnds, EndTransactions, Protocol, TransactionEnd, TransactionEnds

Result = TypeVar("Result")
Transactions = tuple[WriterTransaction, ...]


def commit_all(decided: Decision, transactions: Transactions, *, by_others: bool = False) -> Protocol[None]:
    """Commit transactions of a decision, and see that readers see them; `by_others` as below.

    Raises:
        TransactionsLostError: some can't be; the others are.
    """
    committed, lost = yield from commit_all_but_lost(decided, transactions, by_others=by_others)
    if committed:
        yield AwaitEnds(committed, True)
    if lost:
        raise lost_error(decided, lost)


def commit_all_but_lost(
    decided: Decision, transactions: Transactions, *, is_new: bool = False, by_others: bool = False
) -> Protocol[tuple[Transactions, Transactions]]:
    """Commit transactions of a decision; return which were, now or before, and which can't be.

    `is_new`: it was just made, and no id can have been used again. `by_others`: by whoever does not do its
    batch, and looks after it: what can't be told is not lost to him.
    """
    if not transactions:
        return (), ()
    ends: TransactionEnds = yield EndTransactions(transactions, True)
    fine = {TransactionEnd.DONE}
    if decided.waits_for_ever or by_others:
        fine.add(TransactionEnd.FORGOTTEN)
        if not is_new and kind_of(transactions[0].transactional_id) is SinkKind.QUERY:
            fine.add(TransactionEnd.MOVED_ON)
    committed = tuple(each for each in transactions if ends[each] is TransactionEnd.DONE)
    return committed, tuple(each for each in transactions if ends[each] not in fine)


def finishing(sink: SinkId, decided: Decision, committing: Protocol[Result]) -> Protocol[Result]:
    """Do what commits a decision's transactions, for whoever has its batch in hand.

    Raises:
        UnfinishedDecisionError: some coordinator could not be asked, or refused.
        TransactionsLostError: as `committing` does.
    """
    try:
        return (yield from committing)
    except KafkaError as error:
        raise UnfinishedDecisionError(sink, decided.batch_id, decided.rows, error) from error


def abort_all(transactions: Transactions) -> Protocol[None]:
    """Abort transactions, and see that readers don't wait for them."""
    yield EndTransactions(transactions, False)
    yield AwaitEnds(transactions, False)


def lost_error(decided: Decision, lost: Transactions) -> TransactionsLostError:
    """Return what to raise of a decision that is not whole."""
    return TransactionsLostError(
        decided.batch_id, decided.rows, len(decided.transactions), [each.transactional_id for each in lost]
    )


def distinct(
    transactions: Iterable[WriterTransaction], but: frozenset[WriterTransaction] = frozenset()
) -> Transactions:
    """Return each transaction once, without some."""
    return tuple(dict.fromkeys(each for each in transactions if each not in but))
