"""The sections of the overview, in the order in which an operator on call needs them.

A section is a file with a `Section`: the part of the status it shows, and its rendering. It is rendered again
only when that part has changed. To add one, write its file and name it here.
"""

from typing import Final

from sparklog.driver.ui.pages.sections.brokers import BROKERS
from sparklog.driver.ui.pages.sections.charts import CHARTS
from sparklog.driver.ui.pages.sections.controller import CONTROLLER
from sparklog.driver.ui.pages.sections.coordinators import COORDINATORS
from sparklog.driver.ui.pages.sections.events import EVENTS
from sparklog.driver.ui.pages.sections.partitions import PARTITIONS
from sparklog.driver.ui.pages.sections.queries import QUERIES
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.sections.tier import TIER
from sparklog.driver.ui.pages.sections.topics import TOPICS

__all__ = ["SECTIONS", "Section", "Shown"]

SECTIONS: Final[tuple[Section, ...]] = (
    PARTITIONS,
    BROKERS,
    CHARTS,
    CONTROLLER,
    TOPICS,
    TIER,
    COORDINATORS,
    QUERIES,
    EVENTS,
)
