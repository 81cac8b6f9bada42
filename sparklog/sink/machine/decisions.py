"""What is decided about a batch, and what lies in the log and in the group's offset of it.

A decision is a record of a compacted topic, under the sink's name. The group of the same name has the
record's offset committed, with metadata that tells all that a task has to know (`IndexEntry`): so a task asks
one broker, and what is older than offsets are kept is found by reading the topic's partition. Both are
written in one transaction.

Records are JSON objects with a version, which whoever reads refuses if it is newer than what he knows.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sparklog.sink.machine.errors import UnreadableDecisionError
from sparklog.types import Offset, ProducerEpoch, ProducerId

_VERSION: Final = 1
_FORMER_RUNS: Final = 32
"""So many runs of a query are told that they were superseded, counted back from the last."""
_ENDED_RUNS: Final = 32
"""So many are told that they are over; a coordinator takes 4 KiB of metadata with an offset."""


class WriterTransaction(NamedTuple):
    """One transaction of a task, told from all before and after it of the same id by its epoch (KIP-890)."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class Position(NamedTuple):
    """Where a decision lies in the decisions' topic."""

    partition: int
    offset: Offset


class IndexEntry(NamedTuple):
    """What the metadata of the group's offset says."""

    batch_id: int | None
    """The last batch that is decided; None while there is none."""
    run_id: str
    """Whose decision that is; or whoever said something of runs when there was none."""
    over_run_ids: tuple[str, ...] = ()
    """Runs that have ended and will decide nothing more, as far as that was said since the last decision."""

    def ended(self, *run_ids: str) -> "IndexEntry":
        """Return the entry that says of these runs that they are over, too."""
        over_run_ids = dict.fromkeys((*self.over_run_ids, *run_ids))
        return self._replace(over_run_ids=tuple(over_run_ids)[-_ENDED_RUNS:])

    def encode(self) -> str:
        """Return the metadata.

        >>> IndexEntry(7, "r1").encode()
        '{"version":1,"batch":7,"run":"r1"}'
        """
        content = {"version": _VERSION, "batch": self.batch_id, "run": self.run_id, "over": self.over_run_ids}
        return json.dumps(
            {name: value for name, value in content.items() if value not in (None, ())}, separators=(",", ":")
        )

    @classmethod
    def decode(cls, metadata: str) -> "IndexEntry":
        """Return what metadata says.

        Raises:
            UnreadableDecisionError: it is none of this version's.
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
    """A batch is written, by these transactions and none else."""

    batch_id: int
    run_id: str
    former_runs: tuple[str, ...] = ()
    """Runs of the same query that may decide nothing any more, oldest first."""
    rows: int
    transactions: tuple[WriterTransaction, ...]
    waits_for_ever: bool
    """Whether nobody but their decider and an operator ends the transactions; else they may time out."""
    given_up: tuple[WriterTransaction, ...] = ()
    """What was open of an application's other writes when this was decided, and is aborted: none of it may be
    decided after this."""

    @staticmethod
    def superseded(run_id: str, last: "Decision | None", others: Iterable[str]) -> tuple[str, ...]:
        """Return the former runs of what a run decides after `last`, when others have something open."""
        known = () if last is None else (*last.former_runs, last.run_id)
        former_runs = dict.fromkeys((*known, *others))
        former_runs.pop(run_id, None)
        return tuple(former_runs)[-_FORMER_RUNS:]

    @property
    def entry(self) -> IndexEntry:
        """Return what the index says of it."""
        return IndexEntry(self.batch_id, self.run_id)

    def encode(self) -> bytes:
        """Return the record's value."""
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
        """Return what a record's value says.

        Raises:
            UnreadableDecisionError: it is none of this version's.
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
            raise UnreadableDecisionError(f"it has no {error}") from error


class LastDecision(NamedTuple):
    """What a sink has come to."""

    entry: IndexEntry
    decision: Decision | None
    """None while no batch is decided."""
    position: Position | None
    """Of the decision."""


def newest_entry(
    found: Sequence[tuple[IndexEntry, Position]], newest_first: Sequence[int]
) -> tuple[IndexEntry, Position]:
    """Return the last of several entries of a sink, one for each partition that its decisions have lain in.

    That of the latest batch; a batch that came again was decided anew in the partition that is first in
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
        raise UnreadableDecisionError(f"it is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        version = content.get("version") if isinstance(content, dict) else None
        raise UnreadableDecisionError(f"it is of version {version}, and {_VERSION} is known")
    return content
