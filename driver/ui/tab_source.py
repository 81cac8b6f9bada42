"""The driver's side of the tab: it observes brokers in Spark, and gets finished pages.

The pages are made in the controller's process (`tab_pages`); the driver puts them into Spark.
"""

from dataclasses import dataclass
from typing import Protocol

from sparklog.driver.ui.machine.status_maker import BrokerPlace


@dataclass(frozen=True, slots=True)
class DriverEvent:
    """An event in the driver that is not in the metadata."""

    kind: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Observed:
    places: tuple[BrokerPlace, ...]
    events: tuple[DriverEvent, ...]
    """Since the last time."""
    queries: str | None
    """The streaming queries, in the Java listener's format; None without a listener."""


@dataclass(frozen=True, slots=True)
class StageText:
    """The values of a stage's page, in the format of `BrokerStages.java`."""

    stage_id: int
    text: str


@dataclass(frozen=True, slots=True)
class MadePage:
    html: str
    json: str


@dataclass(frozen=True, slots=True)
class MadeTab:
    overview: MadePage
    stages: tuple[StageText, ...]


class TabSource(Protocol):
    """The source of finished pages; each answer is None if it does not come in time."""

    def begin_tab(self) -> None: ...

    def made_tab(self, observed: Observed) -> MadeTab | None: ...

    def made_page(self, key: str) -> MadePage | None:
        """Return the page of that key (`AskedPage`)."""
