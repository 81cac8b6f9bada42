"""The way to what coordinators know; they are asked only by who looks there."""

from driver.ui.pages.html import Html, element, link_to, log_page
from driver.ui.pages.sections.section import Section, Shown
from driver.ui.pages.tables import section

__all__ = ["COORDINATORS"]


def _shows(shown: Shown) -> None:
    return None


def _render(shows: None) -> Html:
    return section(
        "Groups and transactions",
        element(
            "p",
            link_to(log_page("groups"), "Groups with their lag"),
            " \N{MIDDLE DOT} ",
            link_to(log_page("transactions"), "Open transactions"),
        ),
        id_="sl-coordinators",
    )


COORDINATORS = Section(_shows, _render)
