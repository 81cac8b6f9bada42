"""Run seeds: `python -m tests.simulation --seeds 1000 --from 0`, or replay one: `--seed 17 --trace`."""

import argparse
import os
import sys
import time
import traceback
from contextlib import nullcontext
from multiprocessing import Pool

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.cluster import run_seed
from tests.simulation.found import Found, FoundAlone, find_all, find_alone, record
from tests.simulation.observer import Outcome
from tests.simulation.planted import PLANTED

_COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
    TextColumn("{task.fields[events]}"),
)


def main() -> int:
    """Return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--step", type=int, default=1, help="how far apart they are")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print the whole story")
    parser.add_argument("--plant", choices=sorted(PLANTED), help="with this bug planted")
    parser.add_argument("--find-planted", action="store_true", help="find a seed for every planted bug")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args()
    if arguments.find_planted:
        return _find_planted(arguments.workers)
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.plant, trace=arguments.trace)
    last = arguments.first + arguments.seeds * arguments.step
    return _many(range(arguments.first, last, arguments.step), arguments.plant, arguments.workers)


def _find_planted(workers: int) -> int:
    every: dict[str, Found] = {}
    missed = []
    for name, found in find_all(workers):
        print(
            f"{name:32} {'not found' if found is None else f'{found.seed:>5} {found.invariant}'}", flush=True
        )
        if found is None:
            missed.append(name)
        else:
            every[name] = found
    by_themselves: dict[str, FoundAlone] = {}
    for name, alone in find_alone(every, workers):
        print(f"{name:32} {'not failed' if alone is None else f'{alone.seed:>5} {alone.bug}'}", flush=True)
        if alone is None:
            missed.append(name)
        else:
            by_themselves[name] = alone
    record(every, by_themselves)
    return 1 if missed else 0


def _one(seed: int, plant: str | None, *, trace: bool) -> int:
    with PLANTED[plant].planted() if plant else nullcontext():
        outcome = run_seed(seed, print if trace else None)
    if outcome.violation is None:
        print(
            f"seed {seed} is clean: trace {outcome.trace_hash}, {outcome.event_count:,} events in "
            f"{outcome.simulated_ms:,} ms, {outcome.faults} faults, {outcome.elections} elections, "
            f"{outcome.committed:,} batches committed, {outcome.promised:,} promised, "
            f"{outcome.commits:,} offsets committed, {outcome.assignments:,} assignments, "
            f"{outcome.transactions:,} transactions"
        )
        return 0
    print(outcome.report())
    if outcome.violation.__cause__ is not None:
        traceback.print_exception(outcome.violation.__cause__)
    return 1


def _run(task: tuple[int, str | None]) -> Outcome:
    seed, plant = task
    with PLANTED[plant].planted() if plant else nullcontext():
        outcome = run_seed(seed)
    if outcome.violation is not None:
        # Causes and keys do not travel between processes; the report has what matters.
        outcome.story = [outcome.report()]
        outcome.violation = outcome.violation.with_traceback(None)
        outcome.violation.__cause__ = None
    return outcome


def _many(seeds: range, plant: str | None, workers: int) -> int:
    started_s = time.monotonic()
    events = committed = elections = losses = faults = transactions = 0
    failed: list[int] = []
    console = Console()
    with Pool(workers) as pool, Progress(*_COLUMNS, console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds), events="")
        for outcome in pool.imap_unordered(_run, [(seed, plant) for seed in seeds], chunksize=4):
            events += outcome.event_count
            committed += outcome.committed
            elections += outcome.elections
            losses += outcome.losses
            faults += outcome.faults
            transactions += outcome.transactions
            a_second = events / (time.monotonic() - started_s)
            progress.update(task, advance=1, events=f"{a_second:,.0f} events/s, {len(failed)} failed")
            if outcome.violation is not None:
                failed.append(outcome.seed)
                console.print(outcome.story[0], markup=False, highlight=False, soft_wrap=True)
                if plant:
                    pool.terminate()
                    break
    seconds = time.monotonic() - started_s
    print(
        f"{len(seeds):,} seeds, {events:,} events in {seconds:.1f} s ({events / seconds:,.0f} events/s): "
        f"{faults:,} faults, {elections:,} elections, {committed:,} batches committed, {losses:,} lost with "
        f"all that had them, {transactions:,} transactions, {len(failed)} seeds failed "
        f"{sorted(failed)[:20] if failed else ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
