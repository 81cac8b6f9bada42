# Long because the ends of a decision's transactions are half of the invariant that the protocols keep.
"""How batches are decided and their transactions ended, how attempts are given up, and by which driver.

Invariant: a transaction is committed only after a decision that names it is durable, and aborted only when no
later decision can name it.

1. Decisions of a sink follow one another. A driver initializes the sink's decider before it reads the last
  decision: that fences every earlier decider, and every later one reads this one's decision.
2. A transaction is aborted either by the driver of the run that wrote it, after the index says that the run
  decided otherwise or is over (a job: after its decision, or once its decider is another one than it began
  with). Or it is aborted by the driver of another run after its own decision, if it was open before that
  decision. No later decision can name it then: it belongs to the same batch or an earlier one; or to a run of
  the query that this very decision superseded; or the decision lists it as given up. A transaction found open
  only after the decision is left to the next one: a run that continues after this one may have begun it.

A decider stays valid until the next one is initialized. A driver therefore keeps its `Decider` from batch to
batch, and a decision takes three requests, two of them at once; a fenced decider learns it from their
answers. Ends of transactions are durable before other open ones are looked for; their markers are awaited
last.

A transaction without a time-out is ended only by a decision: if its coordinator has forgotten it, it was
committed long ago. If a query's transactional id has moved on, it was reused for a later batch, after the
decision was finished; its transaction was committed, too. Ids of other sinks are used once: one that has
moved on was ended by its time-out or by a foreign client. A transaction with a time-out was committed only if
its coordinator confirms it.

Order for the caller: `Begin` before the tasks of a job, `Finish` before those of an application; then
`Commit` with the results of all tasks, or `Abort` with those of some, also after a `Commit` that raised. Each
protocol continues from any step at which a process ended before it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from sparklog.protocol.errors import KafkaError
from sparklog.user.sink.machine.decisions import Decision, IndexEntry, LastDecision, WriterTransaction
from sparklog.user.sink.machine.errors import (
    ContestedSinkError,
    DeciderFencedError,
    DecisionGoneError,
    GivenUpError,
    RunOverError,
    TransactionsEndedError,
    TransactionsLostError,
    UnfinishedDecisionError,
)
from sparklog.user.sink.machine.names import SinkId, kind_of, run_of
from sparklog.user.sink.machine.steps import (
    AwaitDecision,
    AwaitEnds,
    CommitDecision,
    DeciderStamp,
    EndTransactions,
    FindAbortedDecider,
    FindLastDecision,
    FindOpenTransactions,
    ForgetDecision,
    IndexDecision,
    InitializeDecider,
    ListOpenTransactions,
    Protocol,
    TransactionEnd,
    TransactionEnds,
    WarnOfLeftovers,
    WriteDecision,
)
from sparklog.user.sink.machine.verdicts import Verdict, verdict_on_commit

_MOST_CONTESTS: Final = 5
"""Attempts to decide before other drivers are taken to contest the sink without end."""

Result = TypeVar("Result")
Transactions = tuple[WriterTransaction, ...]


class SinkBatch(NamedTuple):
    """One attempt at a batch, as known to its driver."""

    sink: SinkId
    batch_id: int
    run_id: str
    rows: int
    """Rows of the batch's tasks, including tasks that found the batch decided and wrote nothing."""
    transactions: Transactions
    """Transactions that tasks reported as prepared."""
    waits_for_ever: bool
    unwritten_rows: int = 0
    """Rows, of `rows`, that tasks skipped because they found the batch decided."""


class Decider(NamedTuple):
    """A sink's decider, valid until the next one is initialized, and the last decision."""

    stamp: DeciderStamp
    last: LastDecision | None
    leftovers: Transactions = ()
    """Open transactions of other runs, which may be alive and ahead: the next decision ends them."""

    @property
    def decided(self) -> Decision | None:
        return None if self.last is None else self.last.decision

    def knows_over(self, run_id: str) -> bool:
        """Whether the index has recorded, since the last decision, that a run is over."""
        return self.last is not None and run_id in self.last.entry.over_run_ids


class Begin:
    """Begins a job before its tasks: they write while its decider is the one initialized here."""

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Decider]:
        """Return the decider to commit with; the tasks need its stamp."""
        return Decider((yield InitializeDecider(self._sink)), None)


class Finish:
    """Finishes an application's last decision before its tasks use their transactional ids again.

    A query does not need this: an unfinished batch ends its run, and another run has other ids.
    """

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Decider]:
        """Return the decider to commit with.

        Raises:
            TransactionsLostError: the last decision can't be carried out, which is unreported yet.
        """
        decider = yield from _become_decider(self._sink)
        leftovers = yield from _look_around(self._sink, decider)
        return decider._replace(leftovers=leftovers)


class Commit:
    """Decides a batch unless it is decided, and ends all transactions that this permits."""

    def __init__(self, batch: SinkBatch, decider: Decider | None) -> None:
        self._batch = batch
        self._decider = decider
        self._leftovers: Transactions = () if decider is None else decider.leftovers
        """Transactions of other runs that were open before the decision."""
        self._has_looked_again = False
        """Whether other drivers may have decided since the tasks began."""

    def steps(self) -> Protocol[Decider | None]:
        """Return the decider for the run's next batch; None if the sink's decision is deleted.

        Raises:
            SinkError: the batch must not be written, or is not whole.
        """
        sink, decider = self._batch.sink, self._decider
        for _ in range(_MOST_CONTESTS):
            try:
                if decider is None:
                    decider = yield from _become_decider(sink)
                    if decider.last is None and sink.kind.decides_once:
                        raise RunOverError(self._batch.run_id)
                    leftovers = yield from _look_around(sink, decider)
                    self._leftovers = tuple(
                        each for each in leftovers if run_of(each.transactional_id) != self._batch.run_id
                    )
                    self._has_looked_again = True
                decided = yield from self._decide(decider)
            except DeciderFencedError:
                fenced, decider = decider, None
                if fenced is not None and sink.kind.decides_once:
                    decider = yield from _begun_anew(sink, fenced.stamp)
            else:
                return (yield from self._end(decided))
        raise ContestedSinkError(sink.decider_id)

    def _decide(self, decider: Decider) -> Protocol[Decider]:
        """Make a durable decision for the batch, or record this run of a query as the one that continues."""
        batch, decided = self._batch, decider.decided
        if decider.knows_over(batch.run_id):
            raise RunOverError(batch.run_id)
        verdict = verdict_on_commit(batch.sink.kind, batch.batch_id, batch.run_id, batch.rows, decided)
        if verdict is Verdict.WRITE and batch.unwritten_rows:
            raise DecisionGoneError(batch.batch_id)
        given_up = frozenset(() if decided is None else decided.given_up)
        if verdict is Verdict.WRITE and decided is not None and not given_up.isdisjoint(batch.transactions):
            raise GivenUpError(batch.batch_id, decided.batch_id)
        # Transactions with a time-out may have expired. Of those given up before the last decision, only the
        # coordinator knows which were still open then.
        is_overtaken = batch.sink.kind.is_continued and self._has_looked_again
        if verdict is Verdict.WRITE and (is_overtaken or not batch.waits_for_ever):
            yield from self._check_open()
        # Other runs with open transactions are refused from now on: their transactions are aborted.
        others = (run_of(each.transactional_id) for each in self._leftovers)
        former_runs = Decision.superseded(batch.run_id, decided, others)
        if verdict is Verdict.WRITE:
            decision = Decision(
                batch_id=batch.batch_id,
                run_id=batch.run_id,
                former_runs=former_runs,
                rows=batch.rows,
                transactions=batch.transactions,
                waits_for_ever=batch.waits_for_ever,
                given_up=() if batch.sink.kind.has_runs else self._leftovers,
            )
            return (yield from self._write(decider, decision))
        assert decided is not None, "it is decided"
        if not batch.sink.kind.has_runs:
            # Another driver may be ahead with its own version: it has to write its rows again.
            decision = replace(decided, given_up=distinct((*decided.given_up, *self._leftovers)))
        else:
            decision = replace(decided, run_id=batch.run_id, former_runs=former_runs)
        if decision == decided:
            return decider
        return (yield from self._write(decider, decision))

    def _check_open(self) -> Protocol[None]:
        """Check that all transactions of the batch are open, so that they can be committed."""
        transactions = self._batch.transactions
        open_ones = frozenset((yield FindOpenTransactions(transactions)))
        ended = [each.transactional_id for each in transactions if each not in open_ones]
        if ended:
            raise TransactionsEndedError(self._batch.batch_id, len(transactions), ended)

    def _write(self, decider: Decider, decision: Decision) -> Protocol[Decider]:
        sink, entry = self._batch.sink, decision.entry
        after = None if decider.last is None else decider.last.position
        position = yield WriteDecision(sink, decider.stamp, decision, entry, after)
        next_stamp = yield CommitDecision(sink, decider.stamp)
        return Decider(next_stamp, LastDecision(entry, decision, position))

    def _end(self, decider: Decider) -> Protocol[Decider | None]:
        """Commit the decided transactions; abort the undecided ones of this run and of earlier ones."""
        batch, decided = self._batch, decider.decided
        assert decided is not None and decider.last is not None, "it is decided"
        lost: Transactions = ()
        committed: Transactions = ()
        if decided.batch_id == batch.batch_id:
            is_new = decided.transactions == batch.transactions
            commit = commit_all_but_lost(decided, decided.transactions, is_new=is_new)
            committed, lost = yield from finishing(batch.sink, decided, commit)
        left, cause = yield from self._end_leftovers(decided)
        if committed:
            yield AwaitEnds(committed, True)
        if cause is not None and batch.sink.kind.decides_once:
            # No later driver continues a job, and this is the last opportunity: an unavailable coordinator
            # may be back. This comes before lost transactions are reported, so before the job is given up.
            left, cause = yield from self._end_leftovers(decided)
        if cause is not None:
            yield WarnOfLeftovers(batch.sink, cause)
        if lost:
            raise lost_error(decided, lost)
        if batch.sink.kind.decides_once:
            # Delete it even if transactions are left open: all those that it names have ended, so without a
            # decision every remaining one may be aborted.
            yield ForgetDecision(batch.sink)
            return None
        return decider._replace(leftovers=left)

    def _end_leftovers(self, decided: Decision) -> Protocol[tuple[Transactions, KafkaError | None]]:
        """Do `_abort_undecided`; return the open transactions of other runs, and the error if there was one.

        The batch is written: an error here would make the caller write it again. The next batch's commit ends
        the remaining transactions; those of a job only an operator ends.
        """
        try:
            yield AwaitDecision(self._batch.sink)
            aborted, left = yield from self._abort_undecided(decided)
            if aborted:
                yield AwaitEnds(aborted, False)
        except KafkaError as error:
            return (), error
        return left, None

    def _abort_undecided(self, decided: Decision) -> Protocol[tuple[Transactions, Transactions]]:
        """Abort the transactions that no later decision can name; return them and the open ones of others.

        Tasks of this run or a superseded one that begin later read the index first, and write nothing.
        """
        batch = self._batch
        open_ones: Transactions = tuple((yield ListOpenTransactions(batch.sink.writers_prefix)))
        over = {batch.run_id, *(decided.former_runs if batch.sink.kind.has_runs else ())}
        undecided = distinct(
            (*batch.transactions, *self._leftovers, *open_ones), frozenset(decided.transactions)
        )
        to_abort = tuple(
            each for each in undecided if each in self._leftovers or run_of(each.transactional_id) in over
        )
        if to_abort:
            yield EndTransactions(to_abort, False)
        return to_abort, tuple(each for each in undecided if each not in to_abort)


class Abort:
    """Gives up an attempt at a batch; finishes it if it is decided."""

    def __init__(self, batch: SinkBatch) -> None:
        self._batch = batch

    def steps(self) -> Protocol[bool]:
        """Return whether this run had decided the batch, which is then written.

        Raises:
            SinkError: it had, and the batch is not whole; or this cannot be determined.
        """
        batch = self._batch
        for _ in range(_MOST_CONTESTS):
            # A decision of this run that is in flight is completed or fenced by this.
            decider = yield from _become_decider(batch.sink)
            decided, last = decider.decided, decider.last
            if not batch.sink.is_indexed:  # and tasks that come late find that it has another decider
                return (yield from self._end(decided))
            entry = IndexEntry(None, batch.run_id) if last is None else last.entry
            over = entry.ended(batch.run_id)
            try:
                position = None if last is None else last.position
                yield IndexDecision(batch.sink, decider.stamp, position, over)
                yield CommitDecision(batch.sink, decider.stamp)
            except DeciderFencedError:
                continue
            return (yield from self._end(decided))
        raise ContestedSinkError(batch.sink.decider_id)

    def _end(self, decided: Decision | None) -> Protocol[bool]:
        batch = self._batch
        is_decided = (
            decided is not None and decided.batch_id == batch.batch_id and decided.run_id == batch.run_id
        )
        if is_decided and decided is not None:
            yield from finishing(batch.sink, decided, commit_all(decided, decided.transactions))
        yield AwaitDecision(batch.sink)
        open_ones = yield ListOpenTransactions(batch.sink.run_prefix(batch.run_id))
        named = frozenset(() if decided is None else decided.transactions)
        to_abort = distinct((*batch.transactions, *open_ones), named)
        if to_abort:
            yield from abort_all(to_abort)
        if decided is not None and batch.sink.kind.decides_once:
            yield ForgetDecision(batch.sink)
        return is_decided


class Settled(NamedTuple):
    committed: Transactions
    aborted: Transactions


class Settle:
    """Ends all open transactions of an abandoned sink: commits the decided ones and aborts the others."""

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Settled]:
        """Return the transactions that were committed and aborted.

        Raises:
            TransactionsLostError: the last decision can't be carried out; all others are ended.
        """
        for _ in range(_MOST_CONTESTS):
            decider = yield from _become_decider(self._sink)
            decided, last = decider.decided, decider.last
            open_ones: Transactions = tuple((yield _list_open(self._sink, decided)))
            runs = dict.fromkeys(run_of(each.transactional_id) for each in open_ones)
            if last is not None:
                runs[last.entry.run_id] = None
            if runs and self._sink.is_indexed:
                # All known runs are refused from now on, in case they are alive, including tasks that have
                # not begun. A job is refused because its decider has changed.
                entry = IndexEntry(None, next(iter(runs))) if last is None else last.entry
                position = None if last is None else last.position
                try:
                    yield IndexDecision(self._sink, decider.stamp, position, entry.ended(*runs))
                    yield CommitDecision(self._sink, decider.stamp)
                except DeciderFencedError:
                    continue
                yield AwaitDecision(self._sink)
            return (yield from self._end(decider))
        raise ContestedSinkError(self._sink.decider_id)

    def _end(self, decider: Decider) -> Protocol[Settled]:
        decided = decider.decided
        named = () if decided is None else decided.transactions
        open_ones: Transactions = tuple((yield _list_open(self._sink, decided)))
        committed: Transactions = ()
        lost: Transactions = ()
        if decided is not None:
            unfinished = _unfinished(decided, open_ones)
            committed, lost = yield from commit_all_but_lost(decided, unfinished, by_others=True)
        undecided = tuple(each for each in open_ones if each not in named)
        if undecided:
            yield from abort_all(undecided)
        if committed:
            yield AwaitEnds(committed, True)
        if decided is not None and self._sink.kind.decides_once:
            yield ForgetDecision(self._sink)
        if decided is not None and lost:
            raise lost_error(decided, lost)
        return Settled(tuple(each for each in committed if each in open_ones), undecided)


def _become_decider(sink: SinkId) -> Protocol[Decider]:
    stamp = yield InitializeDecider(sink)
    last = yield FindLastDecision(sink)
    return Decider(stamp, last)


def _begun_anew(sink: SinkId, fenced: DeciderStamp) -> Protocol[Decider | None]:
    """Return a job's next decider if its last one was fenced by nothing but its transaction's time-out.

    The time-out takes one epoch, and initializing the decider another. A driver or operator that ends the job
    takes an epoch as well, before or after; in either case it prevails.
    """
    timed_out = fenced._replace(producer_epoch=fenced.producer_epoch + 1)
    if (yield FindAbortedDecider(sink)) != timed_out:
        return None
    stamp = yield InitializeDecider(sink)
    if stamp != timed_out._replace(producer_epoch=timed_out.producer_epoch + 1):
        return None
    return Decider(stamp, None)


def _look_around(sink: SinkId, decider: Decider) -> Protocol[Transactions]:
    """Finish the last decision if it is unfinished; return all other open transactions."""
    decided = decider.decided
    named = () if decided is None else decided.transactions
    open_ones: Transactions = tuple((yield _list_open(sink, decided)))
    if decided is not None:
        unfinished = _unfinished(decided, open_ones)
        if sink.kind.has_runs or decider.knows_over(decided.run_id):
            # A later batch of the query has finished it, or else the loss was reported to the driver that
            # gave its run up or to the operator that settled the sink.
            unfinished = tuple(each for each in unfinished if each in open_ones)
        yield from commit_all(decided, unfinished, by_others=True)
    return tuple(each for each in open_ones if each not in named)


def _unfinished(decided: Decision, open_ones: Transactions) -> Transactions:
    """Return the transactions of a decision that may be uncommitted or lost; an expired one is not open."""
    if not decided.waits_for_ever:
        return decided.transactions
    return tuple(each for each in decided.transactions if each in open_ones)


def _list_open(sink: SinkId, decided: Decision | None) -> ListOpenTransactions:
    """List a sink's open transactions; none of those that the last decision names or gave up may be missing.

    One that is missed now would be taken for undecided later. The next decision repeats what is given up.
    """
    named = () if decided is None else (*decided.transactions, *decided.given_up)
    return ListOpenTransactions(sink.writers_prefix, tuple(each.transactional_id for each in named))


# --- the ends of transactions -------------------------------------------------------------------


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
