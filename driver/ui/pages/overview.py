"""The overview: its sections one under the other, each rendered again only when it has changed."""

from typing import Any

from sparklog.driver.ui.pages.html import Html, joined
from sparklog.driver.ui.pages.sections import SECTIONS, Section, Shown


class Overview:
    def __init__(self) -> None:
        self._rendered: dict[Section, tuple[Any, Html | None]] = {}

    def render(self, shown: Shown) -> Html:
        return joined(self._section(section, shown) for section in SECTIONS)

    def _section(self, section: Section, shown: Shown) -> Html | None:
        shows = section.shows(shown)
        known = self._rendered.get(section)
        if known is not None and known[0] == shows:
            return known[1]
        rendered = section.render(shows)
        self._rendered[section] = (shows, rendered)
        return rendered
