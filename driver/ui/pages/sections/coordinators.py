"""The number of groups, and links to the pages of coordinators, which are asked only there."""

from typing import NamedTuple

from sparklog.driver.ui.pages.html import Html, element, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import section


class _Groups(NamedTuple):
    """Sums over all brokers; None if no broker has reported a value."""

    number: int | None
    moving: int


def _shows(shown: Shown) -> _Groups:
    measured = [broker.figures for broker in shown.status.brokers if broker.figures is not None]
    numbers = [metrics.groups for metrics in measured if metrics.groups is not None]
    return _Groups(sum(numbers) if numbers else None, sum(metrics.groups_moving or 0 for metrics in measured))


def _render(groups: _Groups) -> Html:
    moving = f", {count(groups.moving)} of them in between two assignments" if groups.moving else ""
    return section(
        "Groups and transactions",
        element(
            "p",
            link_to(log_page("groups"), "Groups with their lag"),
            None if groups.number is None else f" ({count(groups.number)}{moving}, as of the last minute)",
            " \N{MIDDLE DOT} ",
            link_to(log_page("transactions"), "Open transactions"),
        ),
        id_="sl-coordinators",
    )


COORDINATORS = Section(_shows, _render)
