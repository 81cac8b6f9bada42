"""Decisions and their encodings: the record in the decisions' topic, and the index entry of a group's offset.

A decision is a record of a compacted topic; its key is the sink's name. The group of the same name has the
record's offset committed, with metadata that contains all a task needs (`IndexEntry`). A task therefore asks
one broker, and a decision whose offset has expired is found by reading the topic's partition. Record and
offset are written in one transaction.

Records are JSON objects with a version; a reader refuses a version that it does not know.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.protocol.types import Offset, ProducerEpoch, ProducerId
from sparklog.user.sink.machine.errors import UnreadableDecisionError

_VERSION: Final = 1
_FORMER_RUNS: Final = 32
"""Superseded runs of a query that a decision remembers, counted back from the last."""
_ENDED_RUNS: Final = 32
"""Ended runs that an entry remembers; a coordinator accepts 4 KiB of metadata with an offset."""


class WriterTransaction(NamedTuple):
    """One transaction of a task; its epoch distinguishes it from others of the same id (KIP-890)."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Position(NamedTuple):
    partition: int
    offset: Offset


class IndexEntry(NamedTuple):
    """Metadata of the group's offset."""

    batch_id: int | None
    """Batch of the last decision; None before the first."""
    run_id: str
    """Run of the last decision; before the first, one of the ended runs."""
    over_run_ids: tuple[str, ...] = ()
    """Runs that were recorded as ended since the last decision; they decide nothing more."""

    def ended(self, *run_ids: str) -> "IndexEntry":
        over_run_ids = dict.fromkeys((*self.over_run_ids, *run_ids))
        return self._replace(over_run_ids=tuple(over_run_ids)[-_ENDED_RUNS:])

    def encode(self) -> str:
        """Return the entry as an offset's metadata.

        >>> IndexEntry(7, "r1").encode()
        '{"version":1,"batch":7,"run":"r1"}'
        """
        content = {"version": _VERSION, "batch": self.batch_id, "run": self.run_id, "over": self.over_run_ids}
        return json.dumps(
            {name: value for name, value in content.items() if value not in (None, ())}, separators=(",", ":")
        )

    @classmethod
    def decode(cls, metadata: str) -> "IndexEntry":
        """Parse an offset's metadata.

        Raises:
            UnreadableDecisionError: this version does not understand it.
        """
        content = _decoded(metadata)
        batch_id, run_id, over_run_ids = content.get("batch"), content.get("run"), content.get("over", [])
        if not (
            isinstance(batch_id, int | None) and isinstance(run_id, str) and isinstance(over_run_ids, list)
        ):
            raise UnreadableDecisionError(f"its offset's metadata is {metadata}")
        return cls(batch_id, run_id, tuple(map(str, over_run_ids)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Decision that a batch is written, by exactly these transactions."""

    batch_id: int
    run_id: str
    former_runs: tuple[str, ...] = ()
    """Superseded runs of the same query, oldest first; they decide nothing more."""
    rows: int
    transactions: tuple[WriterTransaction, ...]
    waits_for_ever: bool
    """Whether only their decider or an operator ends the transactions; else they may time out."""
    given_up: tuple[WriterTransaction, ...] = ()
    """Transactions of an application's other writes that were open at this decision; they are aborted, and
    no later decision may name them."""

    @staticmethod
    def superseded(run_id: str, last: "Decision | None", others: Iterable[str]) -> tuple[str, ...]:
        """Return the former runs for a decision of `run_id`, if `others` have open transactions."""
        known = () if last is None else (*last.former_runs, last.run_id)
        former_runs = dict.fromkeys((*known, *others))
        former_runs.pop(run_id, None)
        return tuple(former_runs)[-_FORMER_RUNS:]

    @property
    def entry(self) -> IndexEntry:
        return IndexEntry(self.batch_id, self.run_id)

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": _VERSION,
                "batch": self.batch_id,
                "run": self.run_id,
                "formerRuns": self.former_runs,
                "rows": self.rows,
                "waitsForEver": self.waits_for_ever,
                "transactions": self.transactions,
                **({"givenUp": self.given_up} if self.given_up else {}),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Decision":
        """Parse the value of a decision's record.

        Raises:
            UnreadableDecisionError: this version does not understand it.
        """
        content = _decoded(value)
        try:
            return cls(
                batch_id=int(content["batch"]),
                run_id=str(content["run"]),
                former_runs=tuple(map(str, content["formerRuns"])),
                rows=int(content["rows"]),
                transactions=_transactions(content["transactions"]),
                waits_for_ever=bool(content["waitsForEver"]),
                given_up=_transactions(content.get("givenUp", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableDecisionError(f"it lacks {error}") from error


class LastDecision(NamedTuple):
    entry: IndexEntry
    decision: Decision | None
    """None before the first decision."""
    position: Position | None


def newest_entry(
    found: Sequence[tuple[IndexEntry, Position]], newest_first: Sequence[int]
) -> tuple[IndexEntry, Position]:
    """Return a sink's newest entry, given one for each partition in which its decisions have lain.

    The entry of the latest batch wins; if a batch was decided again, the entry whose partition comes first in
    `newest_first`.

    >>> entries = [(IndexEntry(7, "r1"), Position(3, 40)), (IndexEntry(9, "r1"), Position(11, 2))]
    >>> newest_entry(entries, [11, 3])
    (IndexEntry(batch_id=9, run_id='r1', over_run_ids=()), Position(partition=11, offset=2))
    """

    def age(each: tuple[IndexEntry, Position]) -> tuple[int, int]:
        (batch_id, *_), (partition, _) = each
        order = newest_first.index(partition) if partition in newest_first else len(newest_first)
        return -1 if batch_id is None else batch_id, -order

    return max(found, key=age)


def _transactions(listed: Any) -> tuple[WriterTransaction, ...]:
    return tuple(
        WriterTransaction(str(transactional_id), int(producer_id), int(producer_epoch))
        for transactional_id, producer_id, producer_epoch in listed
    )


def _decoded(text: bytes | str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UnreadableDecisionError(f"it is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        version = content.get("version") if isinstance(content, dict) else None
        raise UnreadableDecisionError(f"it has version {version}; this software knows version {_VERSION}")
    return content
