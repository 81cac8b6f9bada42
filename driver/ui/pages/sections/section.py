"""A section of the overview."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparklog.driver.ui.machine.history import Series
from sparklog.driver.ui.machine.status import Status
from sparklog.driver.ui.pages.html import Html


class Shown(NamedTuple):
    status: Status
    charts: Mapping[str, tuple[Series, ...]]


class Section(NamedTuple):
    shows: Callable[[Shown], Any]
    """Selects the section's content; while that is equal, the rendered section is kept."""
    render: Callable[[Any], Html | None]
    """Returns the section; None for none."""
