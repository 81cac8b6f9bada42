"""Which page of the tab somebody looks at."""

from typing import Final, NamedTuple
from urllib.parse import unquote_plus


class AskedPage(NamedTuple):
    """A page of the tab, by the key that Java made of its address.

    >>> asked = AskedPage("topic\\nflights%2F%0A\\n\\n007")
    >>> asked.kind, asked.name, asked.partition, asked.page
    ('topic', 'flights/\\n', None, 7)
    """

    key: str
    """The kind of page, a name as an address has it, a partition and a page's number, parted by line ends."""

    @property
    def kind(self) -> str:
        """Which of the tab's pages: "topics", "topic" and so on, or the overview, which has no name."""
        return self._part(0)

    @property
    def name(self) -> str:
        """Of what; "" for nothing."""
        return unquote_plus(self._part(1))

    @property
    def partition(self) -> int | None:
        """Which partition of it; None for what is no number."""
        return _number(self._part(2))

    @property
    def page(self) -> int:
        """How far in; 1 for what is no number."""
        page = _number(self._part(3))
        return 1 if page is None else page

    def _part(self, number: int) -> str:
        return (*self.key.split("\n"), "", "", "")[number]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


OVERVIEW: Final = AskedPage("")
