"""Break a running cluster and see whether it keeps its promises.

    python -m tests.chaos --minutes 10 [--seed 17]            # faults drawn at random
    python -m tests.chaos --fault worker --count 50           # one fault again and again
    python -m tests.chaos --report                            # the table of all that was seen
    python -m tests.chaos --publish                           # put it, and a picture, into docs/faults.md

Every fault that was seen through is noted at once in build/chaos/observations.jsonl. With --count, what is
noted there counts, so that an interrupted command goes on where it was; remove the file to begin anew. Ctrl-C
ends a run in order: its readers judge it.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.probe import RECORD_INTERVAL_S
from tests.chaos.application import BROKERS, ApplicationError
from tests.chaos.disks import why_no_disks
from tests.chaos.exactly_once import ExactlyOnceError
from tests.chaos.faults import FAULTS
from tests.chaos.observations import RANDOM, REPEATED, Notebook
from tests.chaos.picture import draw
from tests.chaos.report import report
from tests.chaos.run import RecoveryError, Run
from tests.chaos.scene import Tier, TierError
from tests.chaos.starving import StarvationError

RUNS: Final = Path("build/chaos").absolute()
FREEZE_S: Final = 60.0
BROKEN_DISK_S: Final = 15.0
LONGEST_PAUSE_S: Final = 5.0
PAGE: Final = Path(__file__).parents[2] / "docs" / "faults.md"
FIGURES_BEGIN: Final = "<!-- figures of `make chaos`: begin -->"
FIGURES_END: Final = "<!-- figures of `make chaos`: end -->"
INTERRUPTED: Final = 130


class Story:
    """Says what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(f"[{time.monotonic() - self._started_s:7.1f} s] {text}", flush=True)


def main() -> int:
    """Return 1 if a promise was broken or the cluster did not recover."""
    options, notebook = _options(), Notebook(RUNS / "observations.jsonl")
    if options.report:
        print(report(notebook))
        return 0
    if options.publish:
        _publish(notebook)
        return 0
    RUNS.mkdir(parents=True, exist_ok=True)
    story = Story()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    no_disks = why_no_disks(RUNS)
    if options.fault is None:
        mode, with_disks, tier, executors = RANDOM, no_disks is None, Tier.NONE, BROKERS
        record_interval_s = RECORD_INTERVAL_S
        plan = _at_random(random.Random(seed), 60 * options.minutes, with_disks=with_disks)
        story.say(f"seed {seed}: {options.minutes:g} minutes of faults drawn at random")
        if no_disks is not None:
            story.say(f"disks are left whole: {no_disks}")
    else:
        mode, tier = REPEATED, FAULTS[options.fault].tier
        executors = FAULTS[options.fault].executors
        record_interval_s = FAULTS[options.fault].record_interval_s
        with_disks = FAULTS[options.fault].needs_disks
        if with_disks and no_disks is not None:
            raise SystemExit(f"{options.fault} needs disks that can be broken: {no_disks}")
        done = sum(each.fault == options.fault and each.mode == mode for each in notebook.observations())
        plan = iter([options.fault] * (options.count - done))
        story.say(
            f"seed {seed}: {FAULTS[options.fault].description}, {options.count} times, {done} done before"
        )
        if done >= options.count:
            print(report(notebook))
            return 0
    status = _run(
        story,
        notebook,
        mode,
        seed,
        plan,
        options,
        with_disks=with_disks,
        tier=tier,
        executors=executors,
        record_interval_s=record_interval_s,
    )
    print(f"\n{report(notebook)}")
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=5.0,
        help="how long faults are drawn at random; or how long sink, scaling or starvation lasts",
    )
    parser.add_argument("--fault", choices=list(FAULTS), help="only this one")
    parser.add_argument("--count", type=int, default=10, help="with --fault: how often in all")
    parser.add_argument("--seed", type=int, default=None, help="decides faults, victims and times")
    parser.add_argument("--freeze-s", type=float, default=FREEZE_S, help="how long a leader is stopped")
    parser.add_argument("--report", action="store_true", help="only print what was seen so far")
    parser.add_argument("--publish", action="store_true", help="only write it to docs/faults.md")
    return parser.parse_args()


def _run(
    story: Story,
    notebook: Notebook,
    mode: str,
    seed: int,
    plan: Iterator[str],
    options: argparse.Namespace,
    *,
    with_disks: bool,
    tier: Tier,
    executors: int,
    record_interval_s: float,
) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = 0
    run = Run(
        RUNS / time.strftime(f"%Y%m%d-%H%M%S-{mode}-{seed}"),
        mode,
        seed,
        with_disks=with_disks,
        tier=tier,
        executors=executors,
        freeze_s=options.freeze_s,
        broken_disk_s=BROKEN_DISK_S,
        longest_pause_s=LONGEST_PAUSE_S,
        minutes=options.minutes,
        record_interval_s=record_interval_s,
        say=story.say,
    )
    story.say(f"starting; everything lies in {run.directory}")
    try:
        with run:
            story.say("the cluster is whole and written to")
            for fault in plan:
                notebook.add(run.observe(fault))
    except KeyboardInterrupt:
        status = INTERRUPTED
    except (RecoveryError, ApplicationError, ExactlyOnceError, StarvationError, TierError) as error:
        story.say(f"FAILED: {error}")
        status = 1
    if run.session is None or run.timeline is None:
        return status or 1
    notebook.add(run.session)
    run.timeline.save(run.directory / "timeline.json")
    picture = run.directory / "picture.svg"
    title = f"Acknowledged records of a cluster under faults, seed {seed}"
    picture.write_text(draw(run.timeline, title))
    story.say(f"picture: {picture}")
    story.say(f"longest stall of an event loop, of brokers and controller: {run.longest_stall_ms()} ms")
    story.say(f"{run.session.verdict.acknowledged:,} records acknowledged; {_judgement(run)}")
    return status if run.session.is_clean else 1


def _judgement(run: Run) -> str:
    assert run.session is not None
    if run.session.is_clean:
        return "each is there once and in order, and nothing else is"
    return f"NOT CLEAN: {run.session.verdict}, {'; '.join(run.session.complaints)}"


def _publish(notebook: Notebook) -> None:
    """Put the tables, and the picture of the last run with random faults, into the page about them."""
    drawn = [session.session for session in notebook.sessions() if session.mode == RANDOM]
    figures = report(notebook)
    if drawn:
        shutil.copyfile(RUNS / drawn[-1] / "picture.svg", PAGE.with_suffix(".svg"))
        figures += "\n\n![Acknowledged records over time, with the faults marked](faults.svg)"
    before, begin, rest = PAGE.read_text().partition(FIGURES_BEGIN)
    _, end, after = rest.partition(FIGURES_END)
    PAGE.write_text(f"{before}{begin}\n{figures}\n{end}{after}")


def _at_random(chance: random.Random, seconds: float, *, with_disks: bool) -> Iterator[str]:
    """Draw faults until the time is over, which begins with the first one."""
    names = [name for name, fault in FAULTS.items() if with_disks or not fault.needs_disks]
    weights = [FAULTS[name].weight for name in names]
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        (name,) = chance.choices(names, weights)
        yield from [name] * (BROKERS if FAULTS[name].is_repeated else 1)


if __name__ == "__main__":
    sys.exit(main())
