"""Which seed finds which planted bug of the tier; see `tests.simulation.found`, which does the same."""

import json
from collections.abc import Iterable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.tiering.planted import PLANTED
from tests.simulation.tiering.world import run_seed

SEEDS: Final = range(24)
"""Those that tests run without any bug."""
_FOUND: Final = Path(__file__).with_name("found.json")
_DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "simulation.md"
_BEGIN: Final = "<!-- planted bugs of the tier: written by --find-planted -->\n"
_END: Final = "<!-- end of planted bugs of the tier -->\n"


class Found(NamedTuple):
    seed: int
    invariant: str


def recorded() -> dict[str, Found]:
    """Return what was found last, by bug."""
    return {name: Found(*found) for name, found in json.loads(_FOUND.read_text()).items()}


def find(name: str, seeds: Iterable[int], invariant: str | None = None) -> Found | None:
    """Return the first of the seeds that finds the bug, by this invariant."""
    for seed in seeds:
        found = _try(name, seed)
        if found is not None and invariant in (None, found.invariant):
            return found
    return None


def _try(name: str, seed: int) -> Found | None:
    with PLANTED[name].planted():
        violation = run_seed(seed).violation
    if violation is None:
        return None
    if violation.__cause__ is not None:
        # The machine is another one than that which the bug was planted in.
        raise violation.__cause__
    if seed not in SEEDS and run_seed(seed).violation is not None:
        return None
    return Found(seed, violation.invariant)


def find_all(workers: int) -> Iterator[tuple[str, Found | None]]:
    """Look for every bug, and yield what finds it."""
    with Pool(workers) as pool:
        yield from pool.imap(_first, PLANTED, 1)


def _first(name: str) -> tuple[str, Found | None]:
    known = [recorded()[name].seed] if _FOUND.exists() and name in recorded() else []
    return name, find(name, [*known, *PLANTED[name].seeds])


def record(found: dict[str, Found]) -> None:
    """Remember what was found, and put it into the document."""
    _FOUND.write_text(json.dumps(found, indent=2) + "\n")
    before, _, rest = _DOCUMENT.read_text().partition(_BEGIN)
    _DOCUMENT.write_text(before + _BEGIN + table(found) + _END + rest.partition(_END)[2])


def table(found: dict[str, Found]) -> str:
    lines = ["| planted bug | seed | found by |", "|---|---|---|"]
    lines += [
        f"| `{name}`: {PLANTED[name].what} | {seed} | `{invariant}` |"
        for name, (seed, invariant) in found.items()
    ]
    return "\n".join(lines) + "\n"


def documented() -> str:
    """Return the table that is in the document."""
    return _DOCUMENT.read_text().partition(_BEGIN)[2].partition(_END)[0]
