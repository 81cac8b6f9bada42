"""The driver's side of the tab: it gives what Spark says of the brokers, and gets finished pages.

The pages are made in the controller's process (`tab_pages`); the driver, which has Spark, puts them there.
"""

from dataclasses import dataclass
from typing import Protocol

from sparklog.driver.ui.machine.status_maker import BrokerPlace


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """An event that the driver has seen, and the metadata does not tell."""

    kind: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The driver's knowledge at one moment."""

    places: tuple[BrokerPlace, ...]
    events: tuple[DriverEvent, ...]
    """Those since the last time."""
    queries: str | None
    """The streaming queries, as the listener in Java writes them; None where there is none."""


@dataclass(frozen=True, slots=True)
class StageText:
    """The figures of a stage's page, as `BrokerStages.java` reads them."""

    stage_id: int
    text: str


@dataclass(frozen=True, slots=True)
class MadePage:
    """A page, and the same as JSON."""

    html: str
    json: str


@dataclass(frozen=True, slots=True)
class MadeTab:
    """The overview, and the figures of the brokers' stages."""

    overview: MadePage
    stages: tuple[StageText, ...]


class TabSource(Protocol):
    """Where finished pages come from; each answer is None if there is none in time."""

    def begin_tab(self) -> None:
        """Note from now on what happens in the cluster."""

    def made_tab(self, observed: Observed) -> MadeTab | None:
        """Return the overview of this moment."""

    def made_page(self, key: str) -> MadePage | None:
        """Return the page of that key (`AskedPage`)."""
