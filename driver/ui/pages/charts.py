"""Line charts as inline SVG, without scripts, in colours for a light page and a dark one."""

from collections.abc import Callable, Sequence
from typing import Final

from sparklog.driver.ui.machine.history import SAMPLE_MS, Series
from sparklog.driver.ui.pages.html import Html, element
from sparklog.driver.ui.pages.number_formats import duration

_MIN_POINTS: Final = 2 * 60_000 // SAMPLE_MS
"""A new chart shows two minutes, and grows until it has all points."""
_WIDTH: Final = 360
_HEIGHT: Final = 110
_TOP: Final = 6
_BOTTOM: Final = 92
_COLOURS: Final = (
    "#0d6efd", "#fd7e14", "#198754", "#d63384", "#6f42c1", "#20c997",
    "#dc3545", "#0dcaf0", "#b58105", "#6c757d", "#6610f2", "#8bb42d",
)  # fmt: skip

STYLE: Final = Html(
    "<style>"
    ".sl-charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:1rem;"
    "margin-bottom:1rem}"
    ".sl-charts figure{margin:0;padding:.5rem;"
    "border:1px solid var(--bs-border-color);border-radius:4px}"
    ".sl-charts svg{width:100%;height:auto;display:block}"
    ".sl-charts polyline{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke}"
    ".sl-charts .sl-grid{stroke:var(--bs-border-color);stroke-width:1}"
    ".sl-charts text{fill:var(--bs-secondary-color);font-size:9px}"
    ".sl-charts figcaption{font-weight:600}"
    ".sl-legend{font-size:.8rem}"
    ".sl-legend span{margin-right:.8rem;display:inline-block}"
    + "".join(f".sl-{number}{{stroke:{colour};color:{colour}}}" for number, colour in enumerate(_COLOURS))
    + "</style>"
)
"""Once a page."""


def chart(title: str, lines: Sequence[Series], unit: Callable[[float | None], str]) -> Html:
    span = max(_MIN_POINTS, *(len(line.points) for line in lines))
    since = f"{duration((span - 1) * SAMPLE_MS)} ago"
    highest = max((point for line in lines for point in line.points if point is not None), default=0.0)
    top = _round_up(highest)
    grid = [
        element("line", class_="sl-grid", x1=0, x2=_WIDTH, y1=_TOP, y2=_TOP),
        element("line", class_="sl-grid", x1=0, x2=_WIDTH, y1=_BOTTOM, y2=_BOTTOM),
        element("text", unit(top), x=2, y=_TOP + 10),
        element("text", since, x=0, y=_HEIGHT - 6),
        element("text", "now", x=_WIDTH, y=_HEIGHT - 6, text_anchor="end"),
    ]
    drawn = [
        element("polyline", class_=f"sl-{number % len(_COLOURS)}", points=stretch)
        for number, line in enumerate(lines)
        for stretch in _stretches(line, top, span)
    ]
    legend = [
        element(
            "span",
            element("b", "\N{BLACK SQUARE} ", class_=f"sl-{number % len(_COLOURS)}"),
            f"{line.name} {unit(line.points[-1] if line.points else None)}",
        )
        for number, line in enumerate(lines)
    ]
    return element(
        "figure",
        element("figcaption", title),
        element(
            "svg",
            *grid,
            *drawn,
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
            role="img",
            aria_label=f"{title} since {since}; at most {unit(highest)}",
        ),
        element("div", *legend, class_="sl-legend"),
    )


def _stretches(line: Series, top: float, span: int) -> list[str]:
    """Return the points of each stretch without a gap; the newest point is at the right edge."""
    stretches: list[list[str]] = [[]]
    first = span - len(line.points)
    for number, point in enumerate(line.points):
        if point is None:
            stretches.append([])
            continue
        x = (first + number) * _WIDTH / (span - 1)
        y = _BOTTOM - (_BOTTOM - _TOP) * point / top
        stretches[-1].append(f"{x:.1f},{y:.1f}")
    # A line of one point is not drawn, so it gets a second one.
    return [" ".join(stretch * 2 if len(stretch) == 1 else stretch) for stretch in stretches if stretch]


def _round_up(value: float) -> float:
    """Return the end of a scale: 1, 2 or 5 times a power of ten.

    >>> _round_up(0), _round_up(3.4), _round_up(120)
    (1.0, 5.0, 200.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{value:.0f}") - 1) if value >= 1 else 0.1
    while power > value:
        power /= 10
    return next(power * step for step in (1, 2, 5, 10, 20) if power * step >= value)
