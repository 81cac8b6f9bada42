"""The page of the tab that a browser requests."""

from typing import Final, NamedTuple
from urllib.parse import unquote_plus


class AskedPage(NamedTuple):
    """A page of the tab, by the key that Java makes of its address.

    >>> asked = AskedPage("topic\\nflights%2F%0A\\n\\n007")
    >>> asked.kind, asked.name, asked.partition, asked.page
    ('topic', 'flights/\\n', None, 7)
    """

    key: str
    """The kind of page, a name as in the address, a partition and a page's number, separated by line ends."""

    @property
    def kind(self) -> str:
        """The kind of page: "topics", "topic" and so on, or "" for the overview."""
        return self._part(0)

    @property
    def name(self) -> str:
        """The name of its topic, group or the like; "" for none."""
        return unquote_plus(self._part(1))

    @property
    def partition(self) -> int | None:
        """None if it is not a number."""
        return _number(self._part(2))

    @property
    def page(self) -> int:
        """The number of the page; 1 if it is not a number."""
        page = _number(self._part(3))
        return 1 if page is None else page

    def _part(self, number: int) -> str:
        return (*self.key.split("\n"), "", "", "")[number]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


OVERVIEW: Final = AskedPage("")
