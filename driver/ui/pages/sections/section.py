"""A part of the overview."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sparklog.driver.ui.machine.history import Series
from sparklog.driver.ui.machine.status import Status
from sparklog.driver.ui.pages.html import Html


class Shown(NamedTuple):
    """What there is to show."""

    status: Status
    charts: Mapping[str, tuple[Series, ...]]


class Section(NamedTuple):
    """What a part of the overview shows, and how."""

    shows: Callable[[Shown], Any]
    """Picks what the part is made of; while that is the same, so is the part."""
    render: Callable[[Any], Html | None]
    """Returns the part; None for none."""
