"""The file of results: a line of JSON for each case that was run, appended as soon as it has ended.

The newest line of a case counts. A run that is ended early leaves the lines of the cases before, and
`benchmarks.pages` makes the tables of the file alone.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import psutil

from benchmarks.case import BASELINE, OURS
from benchmarks.rounds import Rounds

ROOT: Final = Path(__file__).absolute().parents[1]
PUBLISHED: Final = ROOT / "benchmarks" / "results.jsonl"
"""The results of the tables in the pages."""
UNPUBLISHED: Final = ROOT / "build" / "benchmarks" / "results.jsonl"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure, in each round that counts."""

    name: str
    unit: str
    bar: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    """Of the same rounds, in order; empty without a baseline."""
    has_ratio: bool = True
    """Whether the ratio of both means something: not for what is a ratio or a difference itself."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The commit, the machine and the day of a measurement."""

    commit: str
    machine: str
    date: str

    @classmethod
    def here(cls, unchanged: Sequence[Path]) -> Self:
        """Return that of this tree, whose changes in the files of `unchanged` do not count."""
        return cls(_commit(unchanged) + _form(), _machine(), time.strftime("%Y-%m-%d", time.gmtime()))


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case, as it was run last."""

    case: str
    origin: Origin
    remark: str
    """How many rounds count, and what has kept the case from its rounds or figures."""
    measurements: tuple[Measurement, ...]

    @classmethod
    def of(cls, case: str, rounds: Rounds, origin: Origin) -> Self:
        """Return the result of the rounds that count."""
        measurements = []
        for place, figure in enumerate(rounds.counted[0][OURS] if rounds.counted else ()):
            theirs = [
                _readable(each.value)
                for of in rounds.counted
                for each in of.get(BASELINE, ())
                if each.case == figure.case
            ]
            ours = tuple(_readable(of[OURS][place].value) for of in rounds.counted)
            measurements.append(
                Measurement(figure.case, figure.unit, figure.bar, ours, tuple(theirs), figure.tells_warmth)
            )
        return cls(case, origin, rounds.remark, tuple(measurements))

    def to_json(self) -> str:
        """Return the line of the file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Return the case of a line."""
        fields = json.loads(line)
        measurements = [
            Measurement(**{**each, "ours": tuple(each["ours"]), "theirs": tuple(each["theirs"])})
            for each in fields["measurements"]
        ]
        return cls(fields["case"], Origin(**fields["origin"]), fields["remark"], tuple(measurements))


def read_results(path: Path) -> Mapping[str, CaseResult]:
    """Return the newest result of each case in the file, by the case's name; none without a file.

    Raises:
        ValueError: a line is no result; names the line.
    """
    results: dict[str, CaseResult] = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            result = CaseResult.from_json(line)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number} is no result: {error!r}; remove it") from error
        results[result.case] = result
    return results


def left_to_measure(cases: Iterable[str], results: Mapping[str, CaseResult], origin: Origin) -> list[str]:
    """Return the cases without figures of this commit and machine, in order."""
    measured = {
        name
        for name, result in results.items()
        if result.measurements
        and (result.origin.commit, result.origin.machine) == (origin.commit, origin.machine)
    }
    return [name for name in cases if name not in measured]


def append_result(path: Path, result: CaseResult) -> None:
    """Add a result to the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(result.to_json() + "\n")


def _readable(value: float) -> float:
    """Return the value with six digits, which is more than its rounds have in common."""
    return float(f"{value:.6g}")


def _commit(unchanged: Sequence[Path]) -> str:
    but = [f":(exclude){path.relative_to(ROOT)}" for path in unchanged]
    try:
        commit = _git("rev-parse", "--short=10", "HEAD").strip()
        changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *but)
    except (OSError, subprocess.CalledProcessError):  # the sources without their history
        return UNKNOWN
    return f"{commit} with changes" if changes else commit


def _form() -> str:
    """Return ", compiled" where the processes of a cluster import the extensions of the compiled wheel."""
    code = "import sparklog.node.serving.connection as hot; print(hot.__file__)"
    imported = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True)
    return ", compiled" if imported.stdout.strip().endswith(".so") else ""


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _machine() -> str:
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores of {name}, {psutil.virtual_memory().total / 2**30:.0f} GiB"
