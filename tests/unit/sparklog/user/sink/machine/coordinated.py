"""A cluster as a sink sees it: transactional ids with their epochs, a decider, decisions, visible rows."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.user.sink.machine.decisions import IndexEntry, LastDecision, Position, WriterTransaction
from sparklog.user.sink.machine.errors import DeciderFencedError
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
    Step,
    TransactionEnd,
    WriteDecision,
)


@dataclass(frozen=True)
class Known:
    """A transactional id as its coordinator knows it."""

    producer_id: int
    epoch: int
    state: str = "Empty"
    rows: tuple[Any, ...] = ()


class FencedError(Exception):
    """A producer has an epoch that is over."""


@dataclass
class Coordinated:
    """Every step takes effect at once; what may come between two of them is the test's to choose."""

    ids: dict[str, Known] = field(default_factory=dict)
    visible: Counter[Any] = field(default_factory=Counter)
    last: dict[str, LastDecision] = field(default_factory=dict)
    records: list[Any] = field(default_factory=list)
    pending: dict[str, tuple[Position | None, Any, IndexEntry]] = field(default_factory=dict)
    """By decider: what its transaction holds."""
    unheard_of: set[str] = field(default_factory=set)
    """Ids whose coordinator is being replaced: who lists what is open isn't told of them."""

    def initialize(self, transactional_id: str) -> WriterTransaction:
        known = self.ids.get(transactional_id, Known(len(self.ids), -1))
        self.ids[transactional_id] = Known(known.producer_id, known.epoch + 1)
        self.pending.pop(transactional_id, None)
        return WriterTransaction(transactional_id, known.producer_id, known.epoch + 1)

    def write(self, transaction: WriterTransaction, rows: tuple[Any, ...]) -> None:
        known = self.ids[transaction.transactional_id]
        if known.epoch != transaction.producer_epoch or known.state not in ("Empty", "Ongoing"):
            raise FencedError(transaction)
        self.ids[transaction.transactional_id] = replace(known, state="Ongoing", rows=(*known.rows, *rows))

    def end(self, transaction: WriterTransaction, commit: bool) -> TransactionEnd:
        known = self.ids.get(transaction.transactional_id)
        if known is None:
            return TransactionEnd.FORGOTTEN
        ended = "CompleteCommit" if commit else "CompleteAbort"
        if known.epoch == transaction.producer_epoch + 1 and known.state == ended:
            return TransactionEnd.DONE
        if known.epoch > transaction.producer_epoch + 1:
            return TransactionEnd.MOVED_ON
        if known.epoch != transaction.producer_epoch or (commit and known.state != "Ongoing"):
            return TransactionEnd.OTHERWISE
        if commit:
            self.visible.update(known.rows)
        self.ids[transaction.transactional_id] = Known(known.producer_id, known.epoch + 1, ended)
        return TransactionEnd.DONE

    def entry(self, sink: Any) -> IndexEntry | None:
        """Return what a task finds."""
        last = self.last.get(sink.text)
        return None if last is None else last.entry

    def undecided(self, sink: Any) -> DeciderStamp | None:
        """Return what a job's task finds."""
        known = self.ids.get(sink.decider_id)
        if known is None or known.state != "Empty":
            return None
        return DeciderStamp(known.producer_id, known.epoch)

    def time_out_decider(self, sink: Any) -> None:
        """Abort the decider's transaction, if one is open."""
        if self.pending.pop(sink.decider_id, None) is not None:
            known = self.ids[sink.decider_id]
            self.ids[sink.decider_id] = Known(known.producer_id, known.epoch + 1, "CompleteAbort")

    def open_ids(self) -> list[str]:
        return [each for each, known in self.ids.items() if known.state == "Ongoing"]

    def perform(self, step: Step) -> Any:
        match step:
            case InitializeDecider(sink):
                _, producer_id, epoch = self.initialize(sink.decider_id)
                return DeciderStamp(producer_id, epoch)
            case FindAbortedDecider(sink):
                known = self.ids[sink.decider_id]
                is_aborted = known.state == "CompleteAbort"
                return DeciderStamp(known.producer_id, known.epoch) if is_aborted else None
            case FindLastDecision(sink):
                return self.last.get(sink.text)
            case ListOpenTransactions(prefix, named):
                return [
                    WriterTransaction(each, known.producer_id, known.epoch)
                    for each, known in self.ids.items()
                    if each in named or (each.startswith(prefix) and each not in self.unheard_of)
                    if known.state in ("Empty", "Ongoing")
                ]
            case FindOpenTransactions(transactions):
                listed = self.perform(ListOpenTransactions("-", tuple(each[0] for each in transactions)))
                return [each for each in transactions if each in listed]
            case WriteDecision(sink, decider, decision, entry, after):
                self._check(sink, decider)
                last = self.last.get(sink.text)
                assert after == (None if last is None else last.position)
                self.records.append(decision)
                position = Position(0, len(self.records) - 1)
                self.pending[sink.decider_id] = (position, decision, entry)
                return position
            case IndexDecision(sink, decider, position, entry):
                self._check(sink, decider)
                self.pending[sink.decider_id] = (position, None, entry)
            case CommitDecision(sink, decider):
                self._check(sink, decider)
                position, decision, entry = self.pending[sink.decider_id]
                if decision is None and position is not None:
                    decision = self.records[position.offset]
                self.last[sink.text] = LastDecision(entry, decision, position)
                self.initialize(sink.decider_id)
                ended = self.ids[sink.decider_id] = replace(self.ids[sink.decider_id], state="CompleteCommit")
                return DeciderStamp(ended.producer_id, ended.epoch)
            case EndTransactions(transactions, commit):
                return {each: self.end(each, commit) for each in transactions}
            case AwaitDecision() | AwaitEnds():
                pass
            case ForgetDecision(sink):
                self.last.pop(sink.text, None)
        return None

    def _check(self, sink: Any, decider: DeciderStamp) -> None:
        if self.ids[sink.decider_id].epoch != decider.producer_epoch:
            raise DeciderFencedError
