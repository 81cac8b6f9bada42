"""Compare with Apache Kafka and with Spark's Kafka connector: `python -m benchmarks [case ...]`.

Both clusters are up at once and each case runs on one and then on the other, each first in turn, so that a
machine that drifts drifts for both. `benchmarks.budgets` has the time and the rounds of each case,
`benchmarks.rounds` the rule by which rounds count. Without names, the cases of the hour run.

The result of a case is printed, and kept in a file, as soon as the case ends: in build/benchmarks, or, with
`--publish`, in the file of which the pages' tables are made. These are then written at the end, and also when
the command is interrupted. After a kill, `--resume` runs the cases that are left.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from benchmarks import cleaning, dataframes, pages, security
from benchmarks.budgets import BUDGETS, IN_THE_HOUR, within_the_hour
from benchmarks.case import Case
from benchmarks.cases import cases
from benchmarks.clusters import ClusterUnderTest, apache_kafka_cluster, sparklog_cluster
from benchmarks.java_libraries import maven_at_hand
from benchmarks.results import (
    PUBLISHED,
    UNPUBLISHED,
    CaseResult,
    Origin,
    append_result,
    left_to_measure,
    read_results,
)
from benchmarks.rounds import Sides, run_rounds


def main() -> int:
    """Run the cases, print their rows, and keep their results."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"one of {', '.join(BUDGETS)}")
    parser.add_argument("--alone", action="store_true", help="measure sparklog only")
    parser.add_argument("--publish", action="store_true", help="write the tables of the pages")
    parser.add_argument("--resume", action="store_true", help="leave out cases with figures of this commit")
    options = parser.parse_args()
    if unknown := set(options.cases) - BUDGETS.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(BUDGETS)}")
    # However this is ended, both clusters are to be gone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    compare = maven_at_hand() and not options.alone
    if not compare:
        print("Maven is not at hand (or --alone was given): no baseline", file=sys.stderr)
    file = PUBLISHED if options.publish else UNPUBLISHED
    origin = Origin.here((PUBLISHED, *pages.PAGES))
    chosen = options.cases or IN_THE_HOUR
    if options.resume:
        chosen = left_to_measure(chosen, read_results(file), origin)
    print(pages.HEADER, end="", flush=True)
    began_s = time.monotonic()

    def record(name: str, opened: Callable[[], AbstractContextManager[Sides]]) -> None:
        print(f"{name} ...", file=sys.stderr, flush=True)
        budget = BUDGETS[name]
        if name in IN_THE_HOUR:
            budget = within_the_hour(budget, time.monotonic() - began_s)
        result = CaseResult.of(name, run_rounds(opened, budget), origin)
        append_result(file, result)
        print(pages.rows(result), end="", flush=True)

    try:
        _run(chosen, compare=compare, record=record)
    finally:
        if options.publish:
            pages.write_pages(read_results(file))
    return 0


def _run(
    chosen: Collection[str],
    *,
    compare: bool,
    record: Callable[[str, Callable[[], AbstractContextManager[Sides]]], None],
) -> None:
    names = [name for name in BUDGETS if name in chosen]
    for name in names:
        if name in cleaning.CASES:
            record(name, partial(cleaning.sides, name, compare=compare))
    plain = cases()
    if not plain.keys().isdisjoint(names):
        with contextlib.ExitStack() as stack:
            clusters = [stack.enter_context(sparklog_cluster())]
            if compare:
                clusters.append(stack.enter_context(apache_kafka_cluster()))
            stack.callback(dataframes.SESSIONS.close)
            for name in names:
                if name in plain:
                    record(name, partial(_on_each, plain[name], clusters))
    if not security.CASES.keys().isdisjoint(names):
        with security.secured_clusters(compare=compare) as (secured, clusters):
            for name in names:
                if name in security.CASES:
                    record(name, partial(_on_each, security.CASES[name](secured), clusters))


@contextlib.contextmanager
def _on_each(case: Case, clusters: Sequence[ClusterUnderTest]) -> Iterator[Sides]:
    """Prepare a case on each cluster."""
    with contextlib.ExitStack() as stack:
        yield {cluster.name: stack.enter_context(case(cluster)) for cluster in clusters}


if __name__ == "__main__":
    sys.exit(main())
