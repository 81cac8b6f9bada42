"""The last events."""

from sparklog.driver.ui.machine.events import MAX_EVENTS
from sparklog.driver.ui.machine.status import Event
from sparklog.driver.ui.pages.html import Html
from sparklog.driver.ui.pages.number_formats import clock_time
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, plain, section, table


def _shows(shown: Shown) -> tuple[Event, ...]:
    return shown.status.events


def _render(events: tuple[Event, ...]) -> Html:
    rows = [
        [Cell(clock_time(event.at_ms), "text-nowrap"), *map(plain, (event.kind, event.subject, event.reason))]
        for event in events
    ]
    columns = ("Time (UTC)", "What", "Of what", "Why")
    return section(
        f"The last {MAX_EVENTS} events",
        table(columns, rows, empty="Nothing has happened since the tab is there."),
        id_="sl-events",
    )


EVENTS = Section(_shows, _render)
