"""The picture of a run: acknowledged records over time, the silence of each partition, and the faults.

Written as SVG by hand: rectangles, one path and some words.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

BIN_S: Final = 0.1
SILENCE_S: Final = 0.25
"""A partition without an acknowledgement for longer is drawn as silent."""
WIDTH: Final = 960
MARGIN_LEFT: Final = 84
MARGIN_RIGHT: Final = 16
RATE_TOP: Final = 64
RATE_HEIGHT: Final = 150
STRIP_HEIGHT: Final = 12
STRIP_GAP: Final = 4
MOST_COLUMNS: Final = 440
LEGEND_COLUMNS: Final = 4
LEGEND_COLUMN_WIDTH: Final = 215
COLOURS: Final = (
    *("#b03030", "#c77b18", "#7a52a8", "#2b6cb0", "#2f855a", "#97266d"),
    *("#555555", "#0f766e", "#8d6e00", "#5b2c6f", "#1b2a6b", "#7b3f00"),
)
INK: Final = "#333333"
PAPER: Final = "#ffffff"
ACKNOWLEDGED: Final = "#1f6f8b"
SILENT: Final = "#e25822"


@dataclass(frozen=True, slots=True)
class Mark:
    """When a fault struck and when its damage ended, in seconds since the run began."""

    began_s: float
    over_s: float
    fault: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the picture shows."""

    seconds: float
    counts: tuple[int, ...]
    """Acknowledged records in each `BIN_S`."""
    silences: tuple[tuple[int, float, float], ...]
    """Partition, beginning and end of each."""
    partitions: int
    marks: tuple[Mark, ...]

    @classmethod
    def of(cls, acknowledged_s: Sequence[array[float]], started_s: float, marks: Sequence[Mark]) -> Timeline:
        """Return the timeline of acknowledgements on the monotonic clock, from `started_s` on."""
        seconds = max((times[-1] for times in acknowledged_s if times), default=started_s) - started_s
        counts = [0] * (int(seconds / BIN_S) + 1)
        silences = []
        for partition, times in enumerate(acknowledged_s):
            for at_s in times:
                counts[int((at_s - started_s) / BIN_S)] += 1
            silences += [
                (partition, earlier - started_s, later - started_s)
                for earlier, later in itertools.pairwise(times)
                if later - earlier > SILENCE_S
            ]
        return cls(seconds, tuple(counts), tuple(silences), len(acknowledged_s), tuple(marks))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self)))


def draw(timeline: Timeline, title: str) -> str:
    """Return the picture as SVG.

    Columns of the rate are as wide as the run is long: about two points, at least `BIN_S`.
    """
    first_s = next((index * BIN_S for index, count in enumerate(timeline.counts) if count), 0.0)
    span_s = max(timeline.seconds - first_s, BIN_S)
    scale = (WIDTH - MARGIN_LEFT - MARGIN_RIGHT) / span_s

    def x(at_s: float) -> float:
        return round(MARGIN_LEFT + min(max(at_s - first_s, 0.0), span_s) * scale, 1)

    strips_top = RATE_TOP + RATE_HEIGHT + 14
    strips_end = strips_top + timeline.partitions * (STRIP_HEIGHT + STRIP_GAP)
    colours = {
        fault: COLOURS[index % len(COLOURS)]
        for index, fault in enumerate(dict.fromkeys(mark.fault for mark in timeline.marks))
    }
    height = strips_end + 40 + 18 * (len(colours) // LEGEND_COLUMNS + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>',
        f'<text x="{MARGIN_LEFT}" y="24" font-size="15" fill="{INK}">{escape(title)}</text>',
        f'<text x="{MARGIN_LEFT}" y="{RATE_TOP - 14}" fill="{INK}">acknowledged records a second</text>',
        *_rate(timeline, first_s, span_s, x),
        *_strips(timeline, x, strips_top),
        *_marks(timeline, x, colours, strips_end),
        *_seconds(span_s, first_s, x, strips_end),
        *_legend(colours, strips_end + 40),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rate(timeline: Timeline, first_s: float, span_s: float, x: Callable[[float], float]) -> Iterator[str]:
    first = int(first_s / BIN_S)
    bins = timeline.counts[first:]
    width = max(-(-len(bins) // MOST_COLUMNS), 1)
    rates = [sum(bins[start : start + width]) / (width * BIN_S) for start in range(0, len(bins), width)]
    # What has waited comes at once when an outage ends; drawn to scale it would flatten all else.
    top = 2 * max(statistics.median(rates), 1.0)
    bottom = RATE_TOP + RATE_HEIGHT
    points = [f"M{x(first_s)},{bottom}"]
    for column, rate in enumerate(rates):
        y = round(bottom - RATE_HEIGHT * min(rate / top, 1.0), 1)
        begin_s = first_s + column * width * BIN_S
        points.append(f"L{x(begin_s)},{y}L{x(begin_s + width * BIN_S)},{y}")
    yield f'<path d="{"".join(points)}L{x(first_s + span_s)},{bottom}Z" fill="{ACKNOWLEDGED}"/>'
    for share in (0.0, 0.5, 1.0):
        y = bottom - RATE_HEIGHT * share
        yield (
            f'<line x1="{MARGIN_LEFT}" x2="{WIDTH - MARGIN_RIGHT}" y1="{y}" y2="{y}" stroke="{INK}" '
            'opacity="0.2"/>'
        )
        yield (
            f'<text x="{MARGIN_LEFT - 6}" y="{y + 4}" text-anchor="end" fill="{INK}">'
            f"{top * share:,.0f}</text>"
        )


def _strips(timeline: Timeline, x: Callable[[float], float], top: float) -> Iterator[str]:
    for partition in range(timeline.partitions):
        y = top + partition * (STRIP_HEIGHT + STRIP_GAP)
        yield (
            f'<text x="{MARGIN_LEFT - 6}" y="{y + STRIP_HEIGHT - 2}" text-anchor="end" fill="{INK}">'
            f"partition {partition}</text>"
        )
        yield (
            f'<rect x="{MARGIN_LEFT}" y="{y}" width="{WIDTH - MARGIN_LEFT - MARGIN_RIGHT}" '
            f'height="{STRIP_HEIGHT}" fill="{ACKNOWLEDGED}" opacity="0.25"/>'
        )
    for partition, began_s, ended_s in timeline.silences:
        y = top + partition * (STRIP_HEIGHT + STRIP_GAP)
        width = max(x(ended_s) - x(began_s), 1.0)
        yield (
            f'<rect x="{x(began_s)}" y="{y}" width="{width:.1f}" height="{STRIP_HEIGHT}" fill="{SILENT}">'
            f"<title>silent for {ended_s - began_s:.2f} s</title></rect>"
        )


def _marks(
    timeline: Timeline, x: Callable[[float], float], colours: Mapping[str, str], bottom: float
) -> Iterator[str]:
    for mark in timeline.marks:
        width = max(x(mark.over_s) - x(mark.began_s), 1.5)
        yield (
            f'<rect x="{x(mark.began_s)}" y="{RATE_TOP - 6}" width="{width:.1f}" '
            f'height="{bottom - RATE_TOP + 6}" fill="{colours[mark.fault]}" opacity="0.45">'
            f"<title>{escape(mark.fault)}</title></rect>"
        )


def _seconds(span_s: float, first_s: float, x: Callable[[float], float], bottom: float) -> Iterator[str]:
    step_s = next((step for step in (5, 10, 30, 60, 120, 300, 600) if span_s / step <= 12), 1_800)
    for at_s in range(0, int(span_s) + 1, step_s):
        yield (
            f'<text x="{x(first_s + at_s)}" y="{bottom + 14}" text-anchor="middle" fill="{INK}">'
            f"{at_s:,} s</text>"
        )


def _legend(colours: Mapping[str, str], top: float) -> Iterator[str]:
    entries = [*colours.items(), (f"silent for more than {SILENCE_S:g} s", SILENT)]
    for index, (name, colour) in enumerate(entries):
        left = MARGIN_LEFT + (index % LEGEND_COLUMNS) * LEGEND_COLUMN_WIDTH
        y = top + (index // LEGEND_COLUMNS) * 18
        yield f'<rect x="{left}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{left + 18}" y="{y}" fill="{INK}">{escape(name)}</text>'
