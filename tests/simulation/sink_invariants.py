"""What must hold of sinks; see `tests.simulation.sink_book`, which calls them."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sparklog.protocol.codec.apis import ApiKey
from sparklog.user.sink.machine.decisions import Decision, WriterTransaction
from sparklog.user.sink.machine.names import SinkId, SinkKind, sink_of
from tests.simulation.invariant import Invariant

if TYPE_CHECKING:
    from tests.simulation.cluster import World
    from tests.simulation.sink_book import SinkBook


class SinkInvariant(Invariant):
    """Something that must always be true of sinks."""

    def __init__(self, world: "World", book: "SinkBook") -> None:
        super().__init__(world)
        self.book: Final = book

    def decided(self, sink: str, decision: Decision) -> None:
        """A decision is made; those before it are in the book."""

    def writer_ended(self, sink: str, transaction: WriterTransaction, *, committed: bool) -> None:
        """A task's transaction is ended."""

    def asked(self, process: str, sink: str, api_key: ApiKey, transactional_id: str) -> None:
        """A process that works for a sink asks something about a transactional id."""

    def found(self, sink: SinkId, before: int, decision: Decision | None) -> None:
        """Who became the decider found the last decision; `before` he looked there were so many."""

    def reported(self, sink: SinkId, batch_id: int, rows: Sequence[str]) -> None:
        """A driver was told that a batch of these rows is written."""

    def ended(self, expected: dict[str, set[str]]) -> None:
        """Nobody writes any more; each writer's rows are expected to be there."""


class CommittedWhenDecided(SinkInvariant):
    """No transaction of a task is committed before a decision that names it is made."""

    def writer_ended(self, sink: str, transaction: WriterTransaction, *, committed: bool) -> None:
        if committed and transaction not in self.book.sink(sink).named:
            self.fail(f"{transaction} is committed, and no decision names it")


class DecidedIsNotAborted(SinkInvariant):
    """No transaction that a decision names is aborted."""

    def __init__(self, world: "World", book: "SinkBook") -> None:
        super().__init__(world, book)
        self._aborted: set[WriterTransaction] = set()

    def writer_ended(self, sink: str, transaction: WriterTransaction, *, committed: bool) -> None:
        if not committed:
            self._aborted.add(transaction)
            if transaction in self.book.sink(sink).named:
                self.fail(f"{transaction} is aborted, and a decision names it")

    def decided(self, sink: str, decision: Decision) -> None:
        lost = self._aborted.intersection(decision.transactions)
        if lost:
            self.fail(f"{sink} decides batch {decision.batch_id} by {lost}, which are aborted")


class DecisionsFollow(SinkInvariant):
    """A sink's decisions follow one another, and a batch that was decided is never another one.

    A run that was superseded decides nothing, nor does one that was given up.
    """

    def decided(self, sink: str, decision: Decision) -> None:
        known = self.book.sink(sink)
        of = f"batch {decision.batch_id} of {decision.run_id}"
        if (decision.batch_id, decision.run_id) in known.given_up:
            self.fail(f"{sink} decides {of}, of which its driver was told that it is given up")
        if not known.decisions:
            return
        last = known.decisions[-1]
        if decision.batch_id < last.batch_id:
            self.fail(f"{sink} decides {of} after batch {last.batch_id}")
        if decision.batch_id == last.batch_id:
            before, now = last, decision
            if (before.transactions, before.rows) != (now.transactions, now.rows):
                self.fail(f"{sink} decides {of} anew, and otherwise")
        if SinkId.parse(sink).kind is SinkKind.QUERY:
            if decision.batch_id > last.batch_id + 1:
                self.fail(f"{sink} decides {of} after batch {last.batch_id}")
            superseded = {each.run_id for each in known.decisions} - {last.run_id}
            if decision.run_id in superseded:
                self.fail(f"{sink} decides {of}, which was superseded by {last.run_id}")


class RowsAreDecidedOnce(SinkInvariant):
    """A decision's rows are as many as it says, and none of them is in another batch."""

    def __init__(self, world: "World", book: "SinkBook") -> None:
        super().__init__(world, book)
        self._batch_of: dict[str, tuple[str, int]] = {}

    def decided(self, sink: str, decision: Decision) -> None:
        rows = [
            row
            for _, producer_id, producer_epoch in decision.transactions
            for row in self.book.rows.get((producer_id, producer_epoch), ())
        ]
        batch = (sink, decision.batch_id)
        if len(rows) != decision.rows or len(set(rows)) < len(rows):
            self.fail(f"{batch} is said to have {decision.rows} rows, and has {rows}")
        for row in rows:
            if self._batch_of.setdefault(row, batch) != batch:
                self.fail(f"row {row} is in {self._batch_of[row]}, and in {batch}")


class LastDecisionIsFound(SinkInvariant):
    """Whoever has become the decider finds the last decision that was made before he looked."""

    def found(self, sink: SinkId, before: int, decision: Decision | None) -> None:
        decisions = self.book.sink(sink.text).decisions
        if sink.kind is not SinkKind.JOB and before and decision not in decisions[before - 1 :]:
            self.fail(f"{sink.text} finds {decision}, the last one is {decisions[-1]}")


class ReportedIsRead(SinkInvariant):
    """When a driver is told that a batch is written, readers of committed records see its rows, each once.

    Unless it was told that some may not be seen yet; in the end they are.
    """

    def reported(self, sink: SinkId, batch_id: int, rows: Sequence[str]) -> None:
        known = self.book.sink(sink.text)
        named = [each for each, of in known.named.items() if of == batch_id]
        if not named and sink.kind is SinkKind.APPLICATION and known.decisions[-1].batch_id > batch_id:
            return  # a later version was written first
        there = [row for each in named for row in self.book.rows.get(each[1:], ())]
        if sorted(there) != sorted(rows):
            self.fail(f"{sink.text}: batch {batch_id} is reported to have {rows}, decided are {there}")
        for transaction in named:
            if transaction not in self.book.told_unseen and not self.book.is_visible(transaction):
                self.fail(f"{sink.text}: batch {batch_id} is reported, and {transaction} is not visible")


class SinksAreApart(SinkInvariant):
    """Nobody ends or takes over what is another sink's; and a task's ids are its process's own."""

    def __init__(self, world: "World", book: "SinkBook") -> None:
        super().__init__(world, book)
        self._process_of: dict[str, str] = {}

    def asked(self, process: str, sink: str, api_key: ApiKey, transactional_id: str) -> None:
        if api_key not in (ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE):
            return
        if sink_of(transactional_id) != sink:
            self.fail(f"{process}, which works for {sink}, asks {api_key.name} of {transactional_id}")
        if api_key is ApiKey.INIT_PRODUCER_ID and transactional_id != f"sparklog-sink.{sink}":
            owner = self._process_of.setdefault(transactional_id, process)
            if owner != process:
                self.fail(f"{process} takes {transactional_id}, which is that of {owner}")


class EveryRowOnce(SinkInvariant):
    """When all have ended, every row that is to be in the log is there once, and committed."""

    def __init__(self, world: "World", book: "SinkBook") -> None:
        super().__init__(world, book)
        self._committed: list[WriterTransaction] = []

    def writer_ended(self, sink: str, transaction: WriterTransaction, *, committed: bool) -> None:
        if committed:
            self._committed.append(transaction)

    def ended(self, expected: dict[str, set[str]]) -> None:
        there = Counter(row for each in self._committed for row in self.book.rows.get(each[1:], ()))
        if twice := [row for row, count in there.items() if count > 1]:
            self.fail(f"rows {twice} are there more than once")
        for writer, rows in expected.items():
            if missing := rows - there.keys():
                self.fail(f"rows {sorted(missing)} of {writer} are not there")
        for transaction in self._committed:
            if not self.book.is_visible(transaction):
                self.fail(f"{transaction} is committed, and not visible")


SINK_INVARIANTS: Final[tuple[type[SinkInvariant], ...]] = (
    CommittedWhenDecided,
    DecidedIsNotAborted,
    DecisionsFollow,
    RowsAreDecidedOnce,
    LastDecisionIsFound,
    ReportedIsRead,
    SinksAreApart,
    EveryRowOnce,
)
