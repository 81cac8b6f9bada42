"""How a batch is decided and its transactions ended; how it is given up; and who may do that.

The rule: a transaction is committed only after a decision that names it is durable, and aborted only by whom
nobody can contradict. Two things make that so. Decisions of a sink follow one another: whoever decides has
initialized the sink's decider before he looked for the last decision, so that whoever did so earlier is
refused, and whoever does so later finds his. And who aborts is either the driver of the run that wrote, after
it has said in the index that it decided otherwise or is over (of a job: after it has decided, or is another
decider than the one that the job began with); or another run's, after its decision, of what was open before
that decision. Nobody can then decide for that any more: it is of the same batch, or of one
before; or of a query's run that this very decision has superseded; or it is named there as given up. What is
found open afterwards is left to the next decision, for it may be of a run that has gone on from this one.

A decider that was initialized stays valid until somebody else initializes it. So a driver keeps it from batch
to batch (`Decider`), and a decision is then three requests, two of them at once; whether it still is the
decider, it learns by them.

Ends are durable before anybody looks for what else is open, and are awaited last: meanwhile they get about.

Order for the caller: `Begin` before the tasks of a job, `Finish` before those of an application; then
`Commit` with what all tasks say, or `Abort` with what some do, also after a `Commit` that raised. Each goes
on from wherever a process ended before it.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from sparklog.errors import KafkaError
from sparklog.sink.machine.decisions import Decision, IndexEntry, LastDecision
from sparklog.sink.machine.endings import (
    Transactions,
    abort_all,
    commit_all,
    commit_all_but_lost,
    distinct,
    finishing,
    lost_error,
)
from sparklog.sink.machine.errors import (
    ContestedSinkError,
    DeciderFencedError,
    DecisionGoneError,
    GivenUpError,
    RunOverError,
    TransactionsEndedError,
)
from sparklog.sink.machine.names import SinkId, SinkKind, run_of
from sparklog.sink.machine.steps import (
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
    WarnOfLeftovers,
    WriteDecision,
)
from sparklog.sink.machine.verdicts import Verdict, verdict_on_commit

_MOST_CONTESTS: Final = 5
"""So often a decider is initialized for one decision before somebody else is taken to do so for ever."""


class SinkBatch(NamedTuple):
    """One attempt at a batch, as its driver knows it."""

    sink: SinkId
    batch_id: int
    run_id: str
    rows: int
    """That its tasks had; also those of tasks that found the batch decided and wrote nothing."""
    transactions: Transactions
    """What the tasks left prepared, as far as they said so."""
    waits_for_ever: bool
    """Whether these are without a time-out."""
    unwritten_rows: int = 0
    """Those of `rows` that tasks did not write, because they found the batch decided."""


class Decider(NamedTuple):
    """Who decides, for as long as nobody else has become it, and what was decided last."""

    stamp: DeciderStamp
    last: LastDecision | None
    leftovers: Transactions = ()
    """Of other runs, which may be alive and ahead of the last decision: for the next one to end."""

    @property
    def decided(self) -> Decision | None:
        return None if self.last is None else self.last.decision

    def knows_over(self, run_id: str) -> bool:
        """Whether it was said, since the last decision, that a run is over."""
        return self.last is not None and run_id in self.last.entry.over_run_ids


class Begin:
    """Has a job begin, before its tasks do: they write for as long as nobody else is its decider."""

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Decider]:
        """Return the decider to commit with, which the tasks are to know."""
        return Decider((yield InitializeDecider(self._sink)), None)


class Finish:
    """Ends what an application decided last, if that is not done: before its tasks use their ids again.

    A query need not: its run ends if a batch is not finished, and the ids of another run are others.
    """

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Decider]:
        """Return the decider to commit with.

        Raises:
            TransactionsLostError: it can't be carried out, and nobody was told yet.
        """
        decider = yield from _become_decider(self._sink)
        leftovers = yield from _look_around(self._sink, decider)
        return decider._replace(leftovers=leftovers)


class Commit:
    """Decides a batch, if it is not decided, and ends all transactions that it is the time for."""

    def __init__(self, batch: SinkBatch, decider: Decider | None) -> None:
        """`decider` is what the last commit of this run returned, if that is known."""
        self._batch = batch
        self._decider = decider
        self._leftovers: Transactions = () if decider is None else decider.leftovers
        """Of other runs, open since before the decision."""
        self._has_looked_again = False
        """Whether others may have decided since the tasks began."""

    def steps(self) -> Protocol[Decider | None]:
        """Return the decider to commit the run's next batch with; None if the sink is forgotten.

        Raises:
            SinkError: the batch must not be written, or is not whole.
        """
        sink, decider = self._batch.sink, self._decider
        for _ in range(_MOST_CONTESTS):
            try:
                if decider is None:
                    decider = yield from _become_decider(sink)
                    if decider.last is None and sink.kind is SinkKind.JOB:
                        raise RunOverError(self._batch.run_id)
                    leftovers = yield from _look_around(sink, decider)
                    self._leftovers = tuple(
                        each for each in leftovers if run_of(each.transactional_id) != self._batch.run_id
                    )
                    self._has_looked_again = True
                decided = yield from self._decide(decider)
            except DeciderFencedError:
                fenced, decider = decider, None
                if fenced is not None and sink.kind is SinkKind.JOB:
                    decider = yield from _begun_anew(sink, fenced.stamp)
            else:
                return (yield from self._end(decided))
        raise ContestedSinkError(sink.decider_id)

    def _decide(self, decider: Decider) -> Protocol[Decider]:
        """Make the batch's decision durable, if it is not; or a query's run the one that goes on from it."""
        batch, decided = self._batch, decider.decided
        if decider.knows_over(batch.run_id):
            raise RunOverError(batch.run_id)
        verdict = verdict_on_commit(batch.sink.kind, batch.batch_id, batch.run_id, batch.rows, decided)
        if verdict is Verdict.WRITE and batch.unwritten_rows:
            raise DecisionGoneError(batch.batch_id)
        given_up = frozenset(() if decided is None else decided.given_up)
        if verdict is Verdict.WRITE and decided is not None and not given_up.isdisjoint(batch.transactions):
            raise GivenUpError(batch.batch_id, decided.batch_id)
        # What times out may have done so; and of what was given up before the last decision, that alone tells
        # which was still open then.
        is_overtaken = batch.sink.kind is SinkKind.APPLICATION and self._has_looked_again
        if verdict is Verdict.WRITE and (is_overtaken or not batch.waits_for_ever):
            yield from self._check_open()
        # Whoever has something open now is refused from then on, should he be alive: it is aborted.
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
                given_up=() if batch.sink.kind is SinkKind.QUERY else self._leftovers,
            )
            return (yield from self._write(decider, decision))
        assert decided is not None, "it is decided"
        if batch.sink.kind is not SinkKind.QUERY:
            # Somebody may be ahead, with a version of his own: what he has prepared he writes again.
            decision = replace(decided, given_up=distinct((*decided.given_up, *self._leftovers)))
        else:
            decision = replace(decided, run_id=batch.run_id, former_runs=former_runs)
        if decision == decided:
            return decider
        return (yield from self._write(decider, decision))

    def _check_open(self) -> Protocol[None]:
        """Return if all that is about to be named can be committed."""
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
        """Commit what is decided, and abort what of this run, or from before, is not."""
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
        if cause is not None and batch.sink.kind is SinkKind.JOB:
            # Nobody comes back for a job, and this is as late as can be: whoever could not be asked may be by
            # now. Also if something is lost: who gives the job up is told so before he looks around.
            left, cause = yield from self._end_leftovers(decided)
        if cause is not None:
            yield WarnOfLeftovers(batch.sink, cause)
        if lost:
            raise lost_error(decided, lost)
        if batch.sink.kind is SinkKind.JOB:
            # Also if something is left open: all that it names has ended, so that is to be aborted by whoever
            # finds no decision.
            yield ForgetDecision(batch.sink)
            return None
        return decider._replace(leftovers=left)

    def _end_leftovers(self, decided: Decision) -> Protocol[tuple[Transactions, KafkaError | None]]:
        """Do `_abort_undecided`, and return what else is open; if it is not possible, also why.

        The batch is written: were this to fail, it would be written again. What is left open then, the next
        batch's commit ends; of a job nobody but an operator.
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
        """Abort what nobody can decide for any more; return that, and what else is open of other runs.

        What of this run, or of a superseded one, begins later finds the index before it.
        """
        batch = self._batch
        open_ones: Transactions = tuple((yield ListOpenTransactions(batch.sink.writers_prefix)))
        over = {batch.run_id, *(decided.former_runs if batch.sink.kind is SinkKind.QUERY else ())}
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
    """Gives an attempt at a batch up, unless it is decided: then it is finished."""

    def __init__(self, batch: SinkBatch) -> None:
        self._batch = batch

    def steps(self) -> Protocol[bool]:
        """Return whether the batch was decided by this run before, and so is written.

        Raises:
            SinkError: it was, and is not whole; or this cannot be found out.
        """
        batch = self._batch
        for _ in range(_MOST_CONTESTS):
            # A decision of this run that may be on its way is made or prevented by this.
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
        if decided is not None and batch.sink.kind is SinkKind.JOB:
            yield ForgetDecision(batch.sink)
        return is_decided


class Settled(NamedTuple):
    """What an operator's settling did."""

    committed: Transactions
    aborted: Transactions


class Settle:
    """Ends all that is open of a sink which nobody goes on with: as it was decided, or by aborting it."""

    def __init__(self, sink: SinkId) -> None:
        self._sink = sink

    def steps(self) -> Protocol[Settled]:
        """Return what was ended, and how.

        Raises:
            TransactionsLostError: the last decision can't be carried out; all else is.
        """
        for _ in range(_MOST_CONTESTS):
            decider = yield from _become_decider(self._sink)
            decided, last = decider.decided, decider.last
            open_ones: Transactions = tuple((yield _list_open(self._sink, decided)))
            runs = dict.fromkeys(run_of(each.transactional_id) for each in open_ones)
            if last is not None:
                runs[last.entry.run_id] = None
            if runs and self._sink.is_indexed:
                # All runs that are known of are refused from now on, should they be alive; also tasks of
                # theirs that have not begun yet. A job is, as it has another decider now.
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
        if decided is not None and self._sink.kind is SinkKind.JOB:
            yield ForgetDecision(self._sink)
        if decided is not None and lost:
            raise lost_error(decided, lost)
        return Settled(tuple(each for each in committed if each in open_ones), undecided)


def _become_decider(sink: SinkId) -> Protocol[Decider]:
    stamp = yield InitializeDecider(sink)
    last = yield FindLastDecision(sink)
    return Decider(stamp, last)


def _begun_anew(sink: SinkId, fenced: DeciderStamp) -> Protocol[Decider | None]:
    """Return a job's next decider, if nothing has fenced the last one but its transaction's time-out.

    That is an epoch, and to become the decider another one. Who ends the job takes one as well, before or
    after: then he has the last word.
    """
    timed_out = fenced._replace(producer_epoch=fenced.producer_epoch + 1)
    if (yield FindAbortedDecider(sink)) != timed_out:
        return None
    stamp = yield InitializeDecider(sink)
    if stamp != timed_out._replace(producer_epoch=timed_out.producer_epoch + 1):
        return None
    return Decider(stamp, None)


def _look_around(sink: SinkId, decider: Decider) -> Protocol[Transactions]:
    """Finish what was decided last, if it is not, and return what else is open."""
    decided = decider.decided
    named = () if decided is None else decided.transactions
    open_ones: Transactions = tuple((yield _list_open(sink, decided)))
    if decided is not None:
        unfinished = _unfinished(decided, open_ones)
        if sink.kind is SinkKind.QUERY or decider.knows_over(decided.run_id):
            # A query has come past it. Else somebody was told, who gave its run up or settled the sink.
            unfinished = tuple(each for each in unfinished if each in open_ones)
        yield from commit_all(decided, unfinished, by_others=True)
    return tuple(each for each in open_ones if each not in named)


def _unfinished(decided: Decision, open_ones: Transactions) -> Transactions:
    """Return what of a decision may have to be committed yet, or be lost: what has expired is not open."""
    if not decided.waits_for_ever:
        return decided.transactions
    return tuple(each for each in decided.transactions if each in open_ones)


def _list_open(sink: SinkId, decided: Decision | None) -> ListOpenTransactions:
    """Return how to list what is open of a sink; surely all of what was decided last, or given up by that.

    What of it is taken for done now is taken for undecided after the next decision, which also has to say
    that it is given up.
    """
    named = () if decided is None else (*decided.transactions, *decided.given_up)
    return ListOpenTransactions(sink.writers_prefix, tuple(each.transactional_id for each in named))
