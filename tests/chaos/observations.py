"""What a run has seen, a line of JSON each, kept so that a run that was interrupted can be taken up again."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos.ledger import Verdict

RANDOM: Final = "random"
REPEATED: Final = "repeated"


@dataclass(frozen=True, slots=True)
class Observation:
    """What one fault cost."""

    session: str
    mode: str
    """`RANDOM` or `REPEATED`."""
    fault: str
    description: str
    led_gap_s: float
    """The longest time without an acknowledgement of a partition that a broker that was hit led."""
    other_gap_s: float
    """The same for the others; 0 if there were none."""
    back_s: float
    """From the end of the damage until every replica of every partition was in sync."""
    back_since_executor_s: float
    """The same, from the start of the last executor that a broker had to wait for."""

    @property
    def gap_s(self) -> float:
        """The longest time without an acknowledgement of any partition."""
        return max(self.led_gap_s, self.other_gap_s)


@dataclass(frozen=True, slots=True)
class Session:
    """What the readers of one application's life found."""

    session: str
    mode: str
    seed: int
    faults: tuple[str, ...]
    seconds: float
    verdict: Verdict
    complaints: tuple[str, ...]
    """What producer and readers were told that they must not be told."""

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return self.verdict.is_clean and not self.complaints


class Notebook:
    """The file with both, only ever appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, entry: Observation | Session) -> None:
        """Append one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as notes:
            notes.write(json.dumps({"kind": type(entry).__name__, **dataclasses.asdict(entry)}) + "\n")

    def observations(self) -> list[Observation]:
        """Return what all faults cost."""
        return [Observation(**entry) for entry in self._entries("Observation")]

    def sessions(self) -> list[Session]:
        """Return what all readers found."""
        return [
            Session(
                **{
                    **entry,
                    "verdict": Verdict(
                        **{**entry["verdict"], "examples": tuple(entry["verdict"]["examples"])}
                    ),
                    "faults": tuple(entry["faults"]),
                    "complaints": tuple(entry["complaints"]),
                }
            )
            for entry in self._entries("Session")
        ]

    def _entries(self, kind: str) -> Iterator[dict[str, Any]]:
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                entry = json.loads(line)
                if entry.pop("kind") == kind:
                    yield entry
