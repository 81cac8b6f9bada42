"""The end of a cluster with a tier: everything that it has is in the object store before its brokers leave.

    read-only       brokers refuse clients' writes, and all of them know transactions    open ones are
    aborted by their coordinators, so that the last stable offset is the log's end copies          leaders
    copy up to the end of each log metadata        the last snapshot of the metadata ended

A pure machine. Its caller carries out the effects that `step` returns, and calls it again with what it has
learned. The rules:

- A transaction may end by itself for `GRACE_MS`; one of an external coordinator, whose decision may have been
  taken, for `TWO_PHASE_GRACE_MS`. Then its producer is fenced, as by Admin.fenceProducers.
- Logs are copied when two looks in a row, of which the first began `SETTLE_MS` after all brokers knew, find
  the same ends in the logs and in the tier: an append that was under way is seen by the second one.
- At the deadline the metadata is saved all the same, and `End` names the partitions that are not copied.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sparklog.protocol.types import BrokerId, Offset

GRACE_MS: Final = 1_000
TWO_PHASE_GRACE_MS: Final = 10_000
ABORT_AGAIN_MS: Final = 2_000
SETTLE_MS: Final = 300
METADATA_MS: Final = 10_000
"""How long the last snapshot may take beyond the deadline."""


class StopPhase(Enum):
    READ_ONLY = "brokers stop to take writes"
    TRANSACTIONS = "open transactions end"
    COPIES = "logs are copied"
    METADATA = "the metadata is copied"
    ENDED = "everything is copied"


class OpenTransaction(NamedTuple):
    transactional_id: str
    coordinator: BrokerId
    is_two_phase: bool
    """Whether an external coordinator decides about it."""
    is_ongoing: bool
    """Whether it is neither committed nor aborted yet."""


class LogEnds(NamedTuple):
    log_end_offset: Offset
    tiered_end_offset: Offset
    """Everything below is in the tier."""

    @property
    def left(self) -> int:
        return max(0, self.log_end_offset - self.tiered_end_offset)


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class StopFacts:
    """The state of the cluster, as far as the caller knows it."""

    is_read_only: bool
    """Whether all live brokers know that the cluster is read-only."""
    transactions: tuple[OpenTransaction, ...] | None
    """At the last look; None if a coordinator did not answer."""
    logs: Mapping[Partition, LogEnds]
    """Of the tiered partitions that were found at the last look."""
    unknown: tuple[Partition, ...]
    """The tiered partitions whose leader did not answer, or that have none."""
    looks: int
    """The number of complete looks at transactions and logs."""
    is_metadata_saved: bool


@dataclass(frozen=True, slots=True)
class MakeReadOnly:
    """Set sparklog.read.only for all brokers."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask coordinators for open transactions, and leaders for the ends of their logs."""


@dataclass(frozen=True, slots=True)
class AbortTransactions:
    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class SaveMetadata:
    """Save the last snapshot of the metadata; repeated until it is done or `End` follows."""

    is_complete: bool
    """Whether all logs are copied."""


@dataclass(frozen=True, slots=True)
class End:
    not_copied: tuple[Partition, ...]
    is_metadata_saved: bool


StopEffect: TypeAlias = MakeReadOnly | Look | AbortTransactions | SaveMetadata | End


class OrderlyStop:
    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self.phase = StopPhase.READ_ONLY
        self._deadline_ms = now_ms + timeout_ms
        self._read_only_ms: int | None = None
        self._aborted_ms: dict[str, int] = {}
        self._looks = 0
        self._last_logs: Mapping[Partition, LogEnds] | None = None
        self._asked = False
        self._is_complete = False

    def step(self, facts: StopFacts, now_ms: int) -> list[StopEffect]:
        if self.phase is StopPhase.ENDED:
            return []
        if self.phase is StopPhase.METADATA:
            return self._metadata(facts, now_ms)
        if now_ms >= self._deadline_ms:
            self.phase = StopPhase.METADATA
            return self._metadata(facts, now_ms)
        if not self._asked:
            self._asked = True
            return [MakeReadOnly()]
        if not facts.is_read_only:
            return []
        if self._read_only_ms is None:
            self._read_only_ms = now_ms
        if now_ms - self._read_only_ms < SETTLE_MS:
            return []
        if facts.looks == self._looks:
            return [Look()]
        self._looks = facts.looks
        return self._looked(facts, now_ms)

    def progress(self, facts: StopFacts) -> str:
        """Return what is left to do, as a sentence."""
        parts = [self.phase.value]
        if self.phase is StopPhase.TRANSACTIONS and facts.transactions:
            some = ", ".join(each.transactional_id for each in facts.transactions[:3])
            parts.append(f"{len(facts.transactions)} transactions are open ({some})")
        if self.phase in (StopPhase.TRANSACTIONS, StopPhase.COPIES):
            late = [ends for ends in facts.logs.values() if ends.left]
            parts.append(
                f"{len(late)} of {len(facts.logs)} partitions with {sum(each.left for each in late)} offsets "
                "are not copied yet"
            )
            if facts.unknown:
                parts.append(f"{len(facts.unknown)} partitions have no leader that answers")
        return "; ".join(parts)

    def _looked(self, facts: StopFacts, now_ms: int) -> list[StopEffect]:
        assert self._read_only_ms is not None, "brokers know that they are read-only"
        passed_ms = now_ms - self._read_only_ms
        open_transactions = facts.transactions
        if open_transactions is None or open_transactions:
            self.phase = StopPhase.TRANSACTIONS
            self._last_logs = None
            overdue = tuple(
                each for each in open_transactions or () if self._is_overdue(each, passed_ms, now_ms)
            )
            for each in overdue:
                self._aborted_ms[each.transactional_id] = now_ms
            return [AbortTransactions(overdue), Look()] if overdue else [Look()]
        self.phase = StopPhase.COPIES
        is_copied = not facts.unknown and not any(ends.left for ends in facts.logs.values())
        if is_copied and self._last_logs == facts.logs:
            self._is_complete = True
            self.phase = StopPhase.METADATA
            return self._metadata(facts, now_ms)
        self._last_logs = facts.logs if is_copied else None
        return [Look()]

    def _is_overdue(self, transaction: OpenTransaction, passed_ms: int, now_ms: int) -> bool:
        grace_ms = TWO_PHASE_GRACE_MS if transaction.is_two_phase else GRACE_MS
        aborted_ms = self._aborted_ms.get(transaction.transactional_id)
        return (
            transaction.is_ongoing
            and passed_ms >= grace_ms
            and (aborted_ms is None or now_ms - aborted_ms >= ABORT_AGAIN_MS)
        )

    def _metadata(self, facts: StopFacts, now_ms: int) -> list[StopEffect]:
        if not facts.is_metadata_saved and now_ms < self._deadline_ms + METADATA_MS:
            return [SaveMetadata(self._is_complete)]
        self.phase = StopPhase.ENDED
        late = [partition for partition, ends in facts.logs.items() if ends.left]
        not_copied = () if self._is_complete else tuple(sorted({*late, *facts.unknown}))
        return [End(not_copied, facts.is_metadata_saved)]
