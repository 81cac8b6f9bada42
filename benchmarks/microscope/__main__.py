"""Show what a produced batch costs three brokers, and where: `python -m benchmarks.microscope [--old TREE]`.

CPU of all three brokers' processes a batch of 64 KiB, replication factor 3, acks=all, in microseconds. With
`--old`, the path of another checkout, its cluster is up at the same time and each round runs on both, each
first in turn. CPU and not time is measured, so that a busy machine may stretch a run and hardly changes its
figures: what is left of its noise (caches, the other hardware thread) is the spread beside each total.

"all CPU" is measured without anything in the way: the process clock of the brokers, less what they take
without load. The phases below it are exclusive CPU of the loops' threads in rounds of their own, with
wrappers around a list of functions (`phases.py`); what these rounds take longer is subtracted by the calls of
each phase, and stands below as the cost of a call: the split is about that exact. Lower rows: system calls a
batch, by strace, in short rounds of their own. Functions that one tree does not have are listed on standard
error.

One batch is in flight to each partition unless `--in-flight` says more: then how many batches a follower
fetches at once depends on the machine's other load, and so do the figures.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.microscope.load import CASES
from benchmarks.microscope.stopwatch import PhaseTime, without_wrappers

_HERE: Final = Path(__file__).parents[2]
_USUAL_CASES: Final = ("1 KB", "100 B", "1 KB zstd", "100 B zstd", "one record")
_FEWEST_US: Final = 0.5
"""Rows of less are left out."""


class Side:
    """A tree's cluster in a process of its own (`side.py`)."""

    def __init__(self, name: str, process: "subprocess.Popen[str]") -> None:
        self.name = name
        self._process = process

    def ask(self, mode: str, case: str, batches: int, in_flight: int) -> Any:
        """Return the result of a round.

        Raises:
            RuntimeError: the process has ended.
        """
        assert self._process.stdin is not None
        command = {"mode": mode, "case": case, "batches": batches, "in_flight": in_flight}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the cluster of {self.name} has ended: see its errors above")
        return json.loads(line)


@contextmanager
def _side(name: str, tree: Path) -> Iterator[Side]:
    """Run a tree's brokers under this tree's benchmarks."""
    if not (tree / "sparklog").is_dir():
        raise SystemExit(f"{tree} is no checkout of sparklog: it has no directory of that name")
    with tempfile.TemporaryDirectory(prefix="sparklog-microscope-") as directory:
        (Path(directory) / "sparklog").symlink_to(tree / "sparklog")
        (Path(directory) / "benchmarks").symlink_to(_HERE / "benchmarks")
        for shared in tree.glob("sparklog__mypyc.*"):
            (Path(directory) / shared.name).symlink_to(shared)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.microscope.side"],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": directory},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Side(name, process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _measure(
    sides: Sequence[Side], case: str, options: argparse.Namespace
) -> dict[str, dict[str, list[Any]]]:
    """Return the results of each side by mode."""
    results: dict[str, dict[str, list[Any]]] = {side.name: {} for side in sides}
    batches, in_flight = options.batches, options.in_flight
    for side in sides:
        side.ask("plain", case, batches, in_flight)
    phases = [] if options.compiled else [("phases", batches)] * 2
    rounds = [("plain", batches)] * options.rounds + phases + [("calls", batches // 5)]
    for number, (mode, count) in enumerate(rounds):
        for side in sides[:: -1 if number % 2 else 1]:
            results[side.name].setdefault(mode, []).append(side.ask(mode, case, count, in_flight))
    for side in sides:
        side.ask("forget", case, 0, 0)
    return results


def _rows(of_side: dict[str, list[Any]]) -> dict[str, float]:
    """Return the figures of a side by row."""
    plain = of_side["plain"]
    total = statistics.median(one["total"] for one in plain)
    rows = {
        "all CPU": total,
        "lowest all CPU": min(one["total"] for one in plain),
        "other threads": statistics.median(one["other threads"] for one in plain),
    }
    if "phases" in of_side:
        rows.update(_phases(of_side["phases"], 1_000 * (total - rows["other threads"])))
    for name, count in sorted(of_side["calls"][0].items(), key=lambda item: -item[1]):
        rows[f"calls: {name}"] = count
    rows["calls: all"] = sum(of_side["calls"][0].values())
    return rows


def _phases(rounds: list[Any], on_loops_ns: float) -> dict[str, float]:
    """Return the microseconds of each phase in rounds with wrappers, and of a wrapper's call."""
    summed: dict[str, PhaseTime] = {}
    count = len(rounds)
    for one in rounds:
        for name, *figures in one["phases"]:
            _, *before = summed.get(name, PhaseTime(name, 0.0, 0.0, 0.0))
            summed[name] = PhaseTime(name, *(a + b / count for a, b in zip(before, figures, strict=True)))
    phases = without_wrappers(summed.values(), on_loops_ns)
    rows = {name: phases[name] / 1_000 for name in sorted(phases)}
    calls = sum(phase.calls for phase in summed.values())
    rows["a wrapper's call"] = (
        (sum(phase.spent_ns for phase in summed.values()) - on_loops_ns) / calls / 1_000
    )
    return rows


def _spread(of_side: dict[str, list[Any]]) -> str:
    totals = [one["total"] for one in of_side["plain"]]
    return f"{min(totals):,.0f} to {max(totals):,.0f}"


def _print(case: str, results: dict[str, dict[str, list[Any]]]) -> None:
    tables = {name: _rows(of_side) for name, of_side in results.items()}
    names = list(tables)
    spreads = ", ".join(f"{name} {_spread(results[name])}" for name in names)
    print(f"\n{case}: rounds' all CPU {spreads}\n")
    print(f"| µs a batch | {' | '.join(names)} |{' ratio |' if len(names) > 1 else ''}")
    print("|---|" + "---:|" * (len(names) + (len(names) > 1)))
    for row in dict.fromkeys(row for table in tables.values() for row in table):
        values = [tables[name].get(row, 0.0) for name in names]
        if max(map(abs, values)) < _FEWEST_US:
            continue
        cells = [f"{value:,.1f}" for value in values]
        if len(values) > 1:
            cells.append(f"{_ratio(row, values, results):.2f}" if values[0] > 0 else "")
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
    for name, of_side in results.items():
        if missing := of_side.get("phases", [{"missing": []}])[0]["missing"]:
            print(f"{name} does not have {', '.join(missing)}", file=sys.stderr)


def _ratio(row: str, values: list[float], results: dict[str, dict[str, list[Any]]]) -> float:
    """Return new to old: of the total the median of the rounds' ratios, as a machine may drift."""
    if row != "all CPU":
        return values[-1] / values[0]
    old, new = (of_side["plain"] for of_side in results.values())
    return statistics.median(late["total"] / early["total"] for early, late in zip(old, new, strict=True))


def main() -> None:
    """Measure the cases and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, prog="benchmarks.microscope")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}")
    parser.add_argument("--old", type=Path, help="another checkout, which is measured beside this one")
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="measure what `make package COMPILED=1` made of this checkout, too",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds without wrappers")
    parser.add_argument("--batches", type=int, default=150, help="batches to each partition in a round")
    parser.add_argument("--in-flight", type=int, default=1, help="batches in flight to each partition")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    if options.compiled and options.old is not None:
        parser.error("--compiled compares this checkout with itself, without --old")
    with ExitStack() as stack:
        trees = {"new": _HERE} if options.old is None else {"old": options.old.resolve(), "new": _HERE}
        if options.compiled:
            trees = {"interpreted": _HERE, "compiled": _HERE / "build" / "compiled"}
        sides = [stack.enter_context(_side(name, tree)) for name, tree in trees.items()]
        for side in sides:
            up = side.answer()
            if up["compiled"] != (side.name == "compiled"):
                raise SystemExit(f"{side.name} is {'compiled' if up['compiled'] else 'interpreted'}")
            print(f"{side.name}: {up['idle'] / 1e6:.1f} ms of CPU a second without load", file=sys.stderr)
        for case in options.cases or _USUAL_CASES:
            _print(case, _measure(sides, case, options))


if __name__ == "__main__":
    main()
