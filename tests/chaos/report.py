"""The table of what faults cost, from the notebook of all runs."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from tests.chaos.faults import FAULTS
from tests.chaos.observations import RANDOM, REPEATED, Notebook, Observation, Session

HEADINGS: Final = {
    REPEATED: "One fault, again and again",
    RANDOM: "Faults drawn at random",
}


def report(notebook: Notebook) -> str:
    """Return the tables as Markdown; empty if nothing was observed."""
    return "\n\n".join(
        part
        for mode in HEADINGS
        for part in _part(
            mode,
            [each for each in notebook.observations() if each.mode == mode],
            [each for each in notebook.sessions() if each.mode == mode],
        )
    )


def _part(mode: str, observations: Sequence[Observation], sessions: Sequence[Session]) -> Iterator[str]:
    if not observations:
        return
    rows = [
        _row(name, [each for each in observations if each.fault == name], sessions)
        for name in FAULTS
        if any(each.fault == name for each in observations)
    ]
    yield f"**{HEADINGS[mode]}**"
    yield "\n".join(
        [
            "| fault | number | longest time without an acknowledgement, any partition: median | p99 "
            "| maximum | p99 to be reached | back in every ISR: median | maximum | lost | duplicated |",
            "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            *rows,
        ]
    )
    yield _summary(sessions, {each.session for each in observations})


def _row(name: str, observations: Sequence[Observation], sessions: Sequence[Session]) -> str:
    gaps_s = [each.gap_s for each in observations]
    backs_s = [each.back_since_executor_s for each in observations]
    # A loss belongs to a run; whichever fault of the run it came from, it counts for each of them.
    verdicts = [each.verdict for each in sessions if name in each.faults]
    bound_s = FAULTS[name].bound_s
    p99_s = percentile(gaps_s, 99)
    bound = "" if bound_s is None else f"{bound_s:g} s{'' if p99_s <= bound_s else ' **missed**'}"
    cells = [
        FAULTS[name].description,
        f"{len(observations)}",
        *(f"{value_s:.2f} s" for value_s in (statistics.median(gaps_s), p99_s, max(gaps_s))),
        bound,
        *(f"{value_s:.1f} s" for value_s in (statistics.median(backs_s), max(backs_s))),
        f"{sum(verdict.lost for verdict in verdicts)}",
        f"{sum(verdict.duplicated for verdict in verdicts)}",
    ]
    return f"| {' | '.join(cells)} |"


def _summary(sessions: Sequence[Session], observed: set[str]) -> str:
    verdicts = [session.verdict for session in sessions]
    seconds = sum(session.seconds for session in sessions)
    lines = [
        f"{sum(verdict.acknowledged for verdict in verdicts):,} records acknowledged in {len(sessions)} "
        f"{'run' if len(sessions) == 1 else 'runs'}, {seconds / 60:.0f} minutes in all: "
        + ", ".join(
            f"{sum(getattr(verdict, wrong) for verdict in verdicts)} {wrong}"
            for wrong in ("lost", "duplicated", "disordered", "changed", "invented")
        )
        + "."
    ]
    if unjudged := observed - {session.session for session in sessions}:
        lines.append(f"Not judged, because they were cut off: {', '.join(sorted(unjudged))}.")
    for session in sessions:
        if not session.is_clean:
            told = "; ".join((*session.verdict.examples, *session.complaints))
            lines.append(f"Run {session.session} (seed {session.seed}) was not clean: {told}")
    return "\n".join(lines)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the values do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50), percentile([1.0, 2.0, 3.0, 4.0], 99)
    (2.0, 4.0)
    """
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]
