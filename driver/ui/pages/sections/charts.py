"""Charts of the last 15 minutes."""

from collections.abc import Callable, Mapping
from typing import Final

from sparklog.driver.ui.machine.history import Series
from sparklog.driver.ui.pages.charts import STYLE, chart
from sparklog.driver.ui.pages.html import Html, element, joined
from sparklog.driver.ui.pages.number_formats import count, duration, rate, size, size_rate
from sparklog.driver.ui.pages.sections.section import Section, Shown

UNITS: Final[Mapping[str, Callable[[float | None], str]]] = {
    "Partitions in trouble": count,
    "Bytes in": size_rate,
    "Bytes out": size_rate,
    "Records in": rate,
    "Produce p99": duration,
    "Fetch p99": duration,
    "Loop lag": duration,
    "Log size": size,
    "Lag of streaming queries": count,
}
"""The formats of each chart's values; the order of the charts."""


def _shows(shown: Shown) -> Mapping[str, tuple[Series, ...]]:
    return shown.charts


def _render(charts: Mapping[str, tuple[Series, ...]]) -> Html:
    drawn = [chart(name, charts[name], unit) for name, unit in UNITS.items() if charts.get(name)]
    return joined([STYLE, element("div", *drawn, class_="sl-charts", id="sl-charts")])


CHARTS = Section(_shows, _render)
