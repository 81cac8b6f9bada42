"""Which seed finds which planted bug: looked for, remembered, and shown as the tables of the document.

Seeds mean other things when a machine or the simulator has changed; then
`python -m tests.simulation --find-planted` looks anew and writes both files.

Where two invariants find the same, one finds it first: for each that is never first a bug and a seed are
known by which it is failed when it is alone.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from multiprocessing import Pool
from multiprocessing.pool import Pool as PoolOfProcesses
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.simulation.cluster import run_seed
from tests.simulation.invariant import alone
from tests.simulation.invariants import INVARIANTS
from tests.simulation.planted import PLANTED
from tests.simulation.sink_invariants import SINK_INVARIANTS
from tests.simulation.transaction_invariants import SinksAreWatched

_FOUND: Final = Path(__file__).with_name("found.json")
_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "simulation.md"
_BEGIN: Final = "<!-- planted bugs: written by --find-planted -->\n"
_END: Final = "<!-- end of planted bugs -->\n"
_BEGIN_ALONE: Final = "<!-- invariants alone: written by --find-planted -->\n"
_END_ALONE: Final = "<!-- end of invariants alone -->\n"
_MORE_SEEDS: Final = 12
"""Of each bug, beside the one that finds it, when something is looked for that an invariant fails alone."""
_OUTDATED: Final = (TypeError, AttributeError, NameError)
"""What a patch raises that is of another time than the machine."""

EVERY_INVARIANT: Final = tuple(
    invariant.__name__ for invariant in (*INVARIANTS, *SINK_INVARIANTS) if invariant is not SinksAreWatched
)


class Found(NamedTuple):
    """A seed that finds a bug, and the invariant by which."""

    seed: int
    invariant: str


class FoundAlone(NamedTuple):
    """A bug, and a seed with which it fails an invariant that is alone."""

    bug: str
    seed: int


class _Task(NamedTuple):
    bug: str
    seed: int
    only: str | None = None
    """The invariant that is alone."""


def recorded() -> dict[str, Found]:
    """Return what was found last, by bug."""
    return {name: Found(*found) for name, found in _known()["bugs"].items()}


def recorded_alone() -> dict[str, FoundAlone]:
    """Return what was found last, by invariant."""
    return {name: FoundAlone(*found) for name, found in _known()["alone"].items()}


@cache
def clean_seeds() -> tuple[int, ...]:
    """Return the seeds that `test_seeds` runs without a bug: those in which a planted bug is found, in order.

    Each kind of seed has some of them, and the finding needs their clean run anyway. Others are for
    `make simulate`.
    """
    return tuple(sorted({found.seed for found in (*recorded().values(), *recorded_alone().values())}))


def _known() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(_FOUND.read_text())
    return known


def never_first(found: Mapping[str, Found]) -> list[str]:
    """Return the invariants by which no bug is found."""
    first = {each.invariant for each in found.values()}
    return [name for name in EVERY_INVARIANT if name not in first]


def find(name: str, seeds: Iterable[int], invariant: str) -> Found | None:
    """Return the first of the seeds that finds the bug by this invariant."""
    for seed in seeds:
        found = _try(_Task(name, seed))
        if found is not None and found.invariant == invariant:
            return found
    return None


def fails_alone(invariant: str, bug: str, seed: int) -> bool:
    """Return whether an invariant that is alone is failed by a bug."""
    return _try(_Task(bug, seed, invariant)) is not None


def find_all(workers: int) -> Iterator[tuple[str, Found | None]]:
    """Look for every bug anew, and yield what finds it: what found it last, or else the first that does."""
    known = recorded()
    with Pool(workers) as pool:
        for name in PLANTED:
            seeds = [known[name].seed] if name in known else []
            tasks = [_Task(name, seed) for seed in (*seeds, *PLANTED[name].seeds)]
            yield name, _first(pool, tasks, workers)


def find_alone(found: Mapping[str, Found], workers: int) -> Iterator[tuple[str, FoundAlone | None]]:
    """Look for what fails each invariant that is never first when it is alone, and yield that."""
    known = recorded_alone()
    with Pool(workers) as pool:
        for name in never_first(found):
            tasks = [_Task(*known[name], name)] if name in known else []
            tasks += [_Task(bug, each.seed, name) for bug, each in found.items()]
            tasks += [_Task(bug, seed, name) for bug in found for seed in PLANTED[bug].seeds[:_MORE_SEEDS]]
            hit = _first_task(pool, tasks, workers)
            yield name, None if hit is None else FoundAlone(hit[0].bug, hit[0].seed)


def _first(pool: PoolOfProcesses, tasks: Sequence[_Task], workers: int) -> Found | None:
    hit = _first_task(pool, tasks, workers)
    return None if hit is None else hit[1]


def _first_task(pool: PoolOfProcesses, tasks: Sequence[_Task], workers: int) -> tuple[_Task, Found] | None:
    # In the order of the seeds, not of time.
    for number in range(0, len(tasks), 8 * workers):
        some = tasks[number : number + 8 * workers]
        for task, found in zip(some, pool.map(_try, some, 1), strict=True):
            if found is not None:
                return task, found
    return None


def record(found: dict[str, Found], by_themselves: dict[str, FoundAlone]) -> None:
    """Remember what was found, and put it into the document."""
    _FOUND.write_text(json.dumps({"bugs": found, "alone": by_themselves}, indent=2) + "\n")
    text = _DOCUMENT.read_text()
    text = _replaced(text, _BEGIN, table(found), _END)
    _DOCUMENT.write_text(_replaced(text, _BEGIN_ALONE, table_alone(by_themselves), _END_ALONE))


def _replaced(text: str, begin: str, new: str, end: str) -> str:
    before, _, rest = text.partition(begin)
    return before + begin + new + end + rest.partition(end)[2]


def table(found: dict[str, Found]) -> str:
    """Return the table of bugs."""
    lines = ["| planted bug | seed | found by |", "|---|---|---|"]
    for name, (seed, invariant) in found.items():
        lines.append(f"| `{name}`: {PLANTED[name].what} | {seed} | `{invariant}` |")
    return "\n".join(lines) + "\n"


def table_alone(by_themselves: dict[str, FoundAlone]) -> str:
    """Return the table of invariants that are never first."""
    lines = ["| invariant | planted bug | seed |", "|---|---|---|"]
    lines += [f"| `{name}` | `{bug}` | {seed} |" for name, (bug, seed) in by_themselves.items()]
    return "\n".join(lines) + "\n"


def documented() -> tuple[str, str]:
    """Return the tables that are in the document."""
    text = _DOCUMENT.read_text()
    return (
        text.partition(_BEGIN)[2].partition(_END)[0],
        text.partition(_BEGIN_ALONE)[2].partition(_END_ALONE)[0],
    )


def _try(task: _Task) -> Found | None:
    name, seed, only = task
    with PLANTED[name].planted(), alone(only):
        violation = run_seed(seed).violation
    if violation is None:
        return None
    if isinstance(violation.__cause__, _OUTDATED):
        # What it patches is another one since: that is no finding.
        raise violation.__cause__
    if only not in (None, violation.invariant):
        return None
    # What fails without the bug too has not found it.
    return Found(seed, violation.invariant) if _is_clean(seed) else None


@cache
def _is_clean(seed: int) -> bool:
    """Return whether a seed finds nothing without a bug; `test_seeds` shows that of `clean_seeds`."""
    return seed in clean_seeds() or run_seed(seed).violation is None
