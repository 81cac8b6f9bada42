"""What a producer was promised and what readers found: whether the one agrees with the other. Pure.

Each partition has one producer, which numbers its records from 0. Every acknowledged record must be read
once, in order, at the offset that the acknowledgement named; an offset has one value, whoever reads it and
when; and nothing is read that was not written. A record that was never acknowledged may be there or not: its
producer does not know either.

Order for callers: `read` as it happens, `cut` when records were lost that may be lost, `verdict` once a
reader has read everything.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from benchmarks.probe import value_of

EXAMPLES = 5
"""How many of a kind of mistake are told one by one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many records are wrong in which way; all are zero when the promise was kept."""

    acknowledged: int
    lost: int
    """Acknowledged, and not there."""
    duplicated: int
    """There a second time."""
    disordered: int
    """After one that was written later."""
    changed: int
    """Offsets that had two values: to two readings, or to a reading and an acknowledgement."""
    invented: int
    """Never written."""
    examples: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.duplicated or self.disordered or self.changed or self.invented)


class Ledger:
    """Promises and readings of one topic."""

    def __init__(self, partitions: int) -> None:
        self._number_at: list[array[int]] = [array("q") for _ in range(partitions)]
        """The number of the record at each offset; -1 for one that was not read."""
        self._forgiven: list[set[int]] = [set() for _ in range(partitions)]
        """The acknowledgements, by their order, of records that may be missing."""
        self._changed = 0
        self._unreadable = 0
        self._examples: list[str] = []

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """Take in a record that a reader was given."""
        number = _number_of(partition, value)
        if number is None:
            self._unreadable += 1
            self._note(f"partition {partition}, offset {offset}: {value[:40]!r} was not written there")
            return
        numbers = self._number_at[partition]
        while len(numbers) <= offset:
            numbers.append(-1)
        if numbers[offset] not in (-1, number):
            self._changed += 1
            self._note(f"partition {partition}, offset {offset}: record {numbers[offset]}, later {number}")
        numbers[offset] = number

    def next_offset(self, partition: int) -> int:
        """Return the offset beyond all that were read."""
        return len(self._number_at[partition])

    def cut(self, partition: int, end_offset: int, offsets: Sequence[int]) -> Collection[int]:
        """Forgive that records are gone from `end_offset` on; return which of the acknowledgements they had.

        `offsets` are those of all acknowledgements so far, of which each is named by its place. The partition
        goes on at `end_offset`.
        """
        del self._number_at[partition][end_offset:]
        gone, offset = set(), -1
        for index, told in enumerate(offsets):
            offset = offset + 1 if told == -1 else told
            if offset >= end_offset:
                gone.add(index)
        gone -= self._forgiven[partition]
        self._forgiven[partition] |= gone
        return gone

    def verdict(
        self, numbers: Sequence[array[int]], offsets: Sequence[array[int]], produced: Sequence[int] | None
    ) -> Verdict:
        """Compare what was read with the acknowledged records, where these are, and how many were written.

        `produced` is None when the producer ended without its count. Records with numbers beyond all
        acknowledged ones are then not judged: they may have been written.
        """
        lost = duplicated = disordered = invented = 0
        for partition, number_at in enumerate(self._number_at):
            found: set[int] = set()
            highest = -1
            for offset, number in enumerate(number_at):
                if number == -1:
                    continue
                if produced is not None and number >= produced[partition]:
                    invented += 1
                    self._note(f"partition {partition}, offset {offset}: record {number} was never written")
                elif number in found:
                    duplicated += 1
                    self._note(f"partition {partition}, offset {offset}: record {number} is there twice")
                elif number < highest:
                    disordered += 1
                    self._note(f"partition {partition}, offset {offset}: record {number} after {highest}")
                found.add(number)
                highest = max(highest, number)
            acknowledged = zip(numbers[partition], offsets[partition], strict=True)
            for index, (number, offset) in enumerate(acknowledged):
                if index in self._forgiven[partition]:
                    continue
                if number not in found:
                    lost += 1
                    self._note(f"partition {partition}: record {number}, acknowledged at {offset}, is lost")
                elif offset != -1 and (offset >= len(number_at) or number_at[offset] != number):
                    self._changed += 1
                    self._note(f"partition {partition}: record {number} was acknowledged at {offset}")
        return Verdict(
            acknowledged=sum(map(len, numbers)),
            lost=lost,
            duplicated=duplicated,
            disordered=disordered,
            changed=self._changed,
            invented=invented + self._unreadable,
            examples=tuple(self._examples),
        )

    def _note(self, mistake: str) -> None:
        if len(self._examples) < EXAMPLES:
            self._examples.append(mistake)


def _number_of(partition: int, value: bytes) -> int | None:
    try:
        number = int(value.partition(b" ")[2])
    except ValueError:
        return None
    return number if number >= 0 and value == value_of(partition, number) else None
