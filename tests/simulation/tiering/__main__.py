"""Run seeds of the tier: `python -m tests.simulation.tiering --seeds 1000`, or one: `--seed 17 --trace`.

Production's `PartitionTier`, with all that it decides by, runs unchanged for the leaders of one partition, in
up to three applications that begin with empty disks. Simulated are logs, replication, elections, the object
store and clocks.
"""

import argparse
import os
import sys
import time
import traceback
from contextlib import nullcontext
from multiprocessing import Pool

from tests.simulation.tiering.found import Found, find_all, record
from tests.simulation.tiering.planted import PLANTED
from tests.simulation.tiering.world import Outcome, run_seed


def main() -> int:
    """Return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.tiering", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
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
    return _many(
        range(arguments.first, arguments.first + arguments.seeds), arguments.plant, arguments.workers
    )


def _find_planted(workers: int) -> int:
    found: dict[str, Found] = {}
    for name, each in find_all(workers):
        print(f"{name:32} {'not found' if each is None else f'{each.seed:>5} {each.invariant}'}", flush=True)
        if each is not None:
            found[name] = each
    record(found)
    return 0 if len(found) == len(PLANTED) else 1


def _one(seed: int, plant: str | None, *, trace: bool) -> int:
    with PLANTED[plant].planted() if plant else nullcontext():
        outcome = run_seed(seed, print if trace else None)
    if outcome.violation is None:
        print(
            f"seed {seed} is clean: trace {outcome.trace_hash}, {outcome.event_count:,} events, "
            f"{outcome.faults} faults, {outcome.elections} elections, {outcome.applications} applications, "
            f"{outcome.swaps} manifests, {outcome.committed:,} records committed"
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
        # Causes do not travel between processes; the report has what matters.
        outcome.story = [outcome.report()]
        outcome.violation.__cause__ = None
    return outcome


def _many(seeds: range, plant: str | None, workers: int) -> int:
    started_s = time.monotonic()
    with Pool(workers) as pool:
        outcomes = pool.map(_run, [(seed, plant) for seed in seeds], 4)
    failed = [outcome for outcome in outcomes if outcome.violation is not None]
    for outcome in failed:
        print(outcome.story[0])
    print(
        f"{len(seeds):,} seeds in {time.monotonic() - started_s:.0f} s: "
        f"{sum(outcome.event_count for outcome in outcomes):,} events, "
        f"{sum(outcome.faults for outcome in outcomes):,} faults, "
        f"{sum(outcome.elections for outcome in outcomes):,} elections, "
        f"{sum(outcome.swaps for outcome in outcomes):,} manifests, "
        f"{sum(outcome.losses for outcome in outcomes):,} losses allowed, "
        f"{len(failed)} seeds failed {[outcome.seed for outcome in failed][:20] if failed else ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
