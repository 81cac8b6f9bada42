"""Which seed finds which planted bug: looked for, remembered, and shown as the table of the document.

Seeds mean other things when a machine or the simulator has changed; then
`python -m tests.simulation --find-planted` looks anew and writes both files.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.cluster import run_seed
from tests.simulation.planted import PLANTED

_FOUND: Final = Path(__file__).with_name("found.json")
_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "simulation.md"
_BEGIN: Final = "<!-- planted bugs: written by --find-planted -->\n"
_END: Final = "<!-- end of planted bugs -->\n"


class Found(NamedTuple):
    """A seed that finds a bug, and the invariant by which."""

    seed: int
    invariant: str


def recorded() -> dict[str, Found]:
    """Return what was found last."""
    return {name: Found(*found) for name, found in json.loads(_FOUND.read_text()).items()}


def find(name: str, seeds: Iterable[int]) -> Found | None:
    """Return the first of the seeds that finds the bug."""
    for seed in seeds:
        found = _try((name, seed))
        if found is not None:
            return found
    return None


def find_all(workers: int) -> Iterator[tuple[str, Found | None]]:
    """Look for every bug anew, and yield what finds it: what found it last, or else the first that does."""
    known = recorded()
    with Pool(workers) as pool:
        for name in PLANTED:
            seeds = [known[name].seed] if name in known else []
            tasks = [(name, seed) for seed in (*seeds, *PLANTED[name].seeds)]
            # In the order of the seeds, not of time.
            for number in range(0, len(tasks), 8 * workers):
                hits = [found for found in pool.map(_try, tasks[number : number + 8 * workers], 1) if found]
                if hits:
                    yield name, hits[0]
                    break
            else:
                yield name, None


def record(found: dict[str, Found]) -> None:
    """Remember what was found, and put it into the document."""
    _FOUND.write_text(json.dumps(found, indent=2) + "\n")
    before, _, rest = _DOCUMENT.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _DOCUMENT.write_text(before + _BEGIN + table(found) + _END + after)


def table(found: dict[str, Found]) -> str:
    """Return the table of the document."""
    lines = ["| planted bug | seed | found by |", "|---|---|---|"]
    for name, (seed, invariant) in found.items():
        lines.append(f"| `{name}`: {PLANTED[name].what} | {seed} | `{invariant}` |")
    return "\n".join(lines) + "\n"


def documented() -> str:
    """Return the table that is in the document."""
    return _DOCUMENT.read_text().partition(_BEGIN)[2].partition(_END)[0]


def _try(task: tuple[str, int]) -> Found | None:
    name, seed = task
    with PLANTED[name].planted():
        violation = run_seed(seed).violation
    if violation is None:
        return None
    if isinstance(violation.__cause__, TypeError):
        # What it patches has got other parameters since: that is no finding.
        raise violation.__cause__
    # What fails without the bug too has not found it.
    return Found(seed, violation.invariant) if _is_clean(seed) else None


@cache
def _is_clean(seed: int) -> bool:
    return run_seed(seed).violation is None
