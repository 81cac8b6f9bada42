"""A replica's log: its records, its segments, and what a loss of power leaves of it."""

from dataclasses import dataclass
from random import Random
from typing import Final

from sparklog.executor.tiering.machine.events import LocalSegment, LogFacts
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.storage.machine.leader_epochs import EpochEntry, LeaderEpochs
from sparklog.protocol.types import LeaderEpoch, Offset

SEGMENT_RECORDS: Final = 16


@dataclass(frozen=True, slots=True)
class Record:
    """A record, or the marker of a transaction."""

    number: int
    """No two have the same."""
    leader_epoch: LeaderEpoch
    key: int
    size_bytes: int
    timestamp_ms: int
    transaction: int | None = None
    is_commit: bool | None = None
    """Of a marker: whether the transaction is committed."""


def commits(transaction: int) -> bool:
    """Return how a transaction ends, whoever ends it."""
    return transaction % 3 != 0


def is_shown(record: Record) -> bool:
    """Return whether readers of committed records ever see this one."""
    return record.is_commit is None and (record.transaction is None or commits(record.transaction))


def visible(records: dict[Offset, Record], start_offset: Offset, end_offset: Offset) -> dict[Offset, Record]:
    """Return the records in a range that are no markers, and not in a transaction that a marker aborts."""
    aborted = {record.transaction for record in records.values() if record.is_commit is False}
    return {
        offset: record
        for offset, record in records.items()
        if start_offset <= offset < end_offset
        and record.is_commit is None
        and not (record.transaction is not None and record.transaction in aborted)
    }


class LocalLog:
    """Offsets without a record have been compacted away."""

    def __init__(self) -> None:
        self.records: dict[Offset, Record] = {}
        self.bases: list[Offset] = [0]
        self.log_start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.cleaned_offset: Offset | None = None
        self.epochs = LeaderEpochs()
        self.checkpointed_start = 0

    @property
    def local_start_offset(self) -> Offset:
        return max(self.bases[0], self.log_start_offset)

    @property
    def last_stable_offset(self) -> Offset:
        ended = {record.transaction for record in self.records.values() if record.is_commit is not None}
        opened = (
            offset
            for offset, record in self.records.items()
            if record.transaction is not None and record.transaction not in ended
        )
        return min((*opened, self.high_watermark))

    def open_transactions(self) -> list[int]:
        ended = {record.transaction for record in self.records.values() if record.is_commit is not None}
        begun = {record.transaction for record in self.records.values() if record.transaction is not None}
        return sorted(begun - ended)

    def facts(self) -> LogFacts:
        epochs = LeaderEpochs(self.epochs.entries)
        epochs.truncate_from_start(self.log_start_offset)
        ends = [*self.bases[1:], self.end_offset]
        sizes = dict.fromkeys(self.bases, 0)
        place = 0
        for offset, record in self.records.items():
            while place + 1 < len(self.bases) and offset >= self.bases[place + 1]:
                place += 1
            sizes[self.bases[place]] += record.size_bytes
        return LogFacts(
            log_start_offset=self.log_start_offset,
            local_log_start_offset=self.local_start_offset,
            log_end_offset=self.end_offset,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            segments=tuple(
                LocalSegment(base, end, sizes[base]) for base, end in zip(self.bases, ends, strict=True)
            ),
            leader_epochs=epochs.entries,
            cleaned_offset=self.cleaned_offset,
        )

    # --- changes --------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        if self.end_offset - self.bases[-1] >= SEGMENT_RECORDS:
            self.bases.append(self.end_offset)
        self.epochs.assign(record.leader_epoch, self.end_offset)
        self.records[self.end_offset] = record
        self.end_offset += 1

    def copy_from(self, other: "LocalLog", most: int) -> None:
        """Append what the leader has behind the end of this log."""
        end_offset = min(other.end_offset, self.end_offset + most)
        for offset in range(self.end_offset, end_offset):
            if offset - self.bases[-1] >= SEGMENT_RECORDS:
                self.bases.append(offset)
            leader_epoch = other.epochs.epoch_at(offset)
            assert leader_epoch is not None
            self.epochs.assign(leader_epoch, offset)
            record = other.records.get(offset)
            if record is not None:
                self.records[offset] = record
        self.end_offset = end_offset

    def truncate(self, end_offset: Offset) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset < end_offset}
        self.end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.bases = [base for base in self.bases if base <= end_offset]
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, end_offset)

    def begin_again(
        self, start_offset: Offset, end_offset: Offset, epochs: tuple[EpochEntry, ...], base: Offset
    ) -> None:
        """Have nothing in [base, end_offset), and leave what is below `base` to the tier."""
        self.records = {}
        self.bases = [base]
        self.log_start_offset = self.checkpointed_start = start_offset
        self.end_offset = self.high_watermark = end_offset
        self.cleaned_offset = None
        self.epochs = LeaderEpochs(epochs)
        self.epochs.truncate_from_end(end_offset)

    def adopt(self, manifest: Manifest, brought_back: dict[Offset, Record] | None) -> None:
        epochs = tuple(EpochEntry(*entry) for entry in manifest.leader_epochs)
        base = manifest.end_offset if brought_back is None else manifest.log_start_offset
        self.begin_again(manifest.log_start_offset, manifest.end_offset, epochs, base)
        self.records = dict(sorted((brought_back or {}).items()))

    def advance_start(self, offset: Offset) -> None:
        offset = min(offset, self.high_watermark)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._drop_below(offset)

    def drop_local(self, tiered_end_offset: Offset, keep_records: int) -> tuple[Offset, Offset]:
        """Delete old segments below the tier's end; return the range that is gone."""
        before = self.bases[0]
        while len(self.bases) > 1 and self.bases[1] <= tiered_end_offset:
            if self.end_offset - self.bases[1] < keep_records:
                break
            self.bases.pop(0)
        self._drop_records()
        return before, self.bases[0]

    def _drop_below(self, offset: Offset) -> None:
        while len(self.bases) > 1 and self.bases[1] <= offset:
            self.bases.pop(0)
        self._drop_records()

    def _drop_records(self) -> None:
        self.records = {offset: record for offset, record in self.records.items() if offset >= self.bases[0]}

    def clean(self, end_offset: Offset) -> dict[Offset, Record]:
        """Remove records below `end_offset` whose key has a later one there; return them."""
        seen = visible(self.records, 0, end_offset)
        last = {record.key: offset for offset, record in seen.items()}
        gone = {offset: record for offset, record in seen.items() if last[record.key] != offset}
        self.records = {offset: record for offset, record in self.records.items() if offset not in gone}
        self.cleaned_offset = max(self.cleaned_offset or 0, end_offset)
        return gone

    def lose_power(self, chance: Random) -> None:
        """Lose any part of what was written lately, and of what checkpoints said."""
        lowest = max(self.bases[-1], self.log_start_offset, self.bases[0])
        if len(self.bases) > 1 and chance.random() < 0.6:
            lowest = max(self.bases[-2], self.log_start_offset)
        self.truncate(chance.randint(min(lowest, self.end_offset), self.end_offset))
        self.log_start_offset = self.checkpointed_start
        self.high_watermark = min(self.high_watermark, self.end_offset)


def common_end(mine: LocalLog, other: LocalLog) -> Offset:
    """Return up to where two logs have the same history."""
    for entry in reversed(mine.epochs.entries):
        theirs = other.epochs.end_offset_for(entry.leader_epoch, other.end_offset)
        if theirs is not None and theirs.leader_epoch == entry.leader_epoch:
            ours = mine.epochs.end_offset_for(entry.leader_epoch, mine.end_offset)
            assert ours is not None
            return min(theirs.end_offset, ours.end_offset)
    return 0
