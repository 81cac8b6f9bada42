"""Tables in the style of Spark's own pages, and links between the pages of a long one."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from sparklog.driver.ui.pages.html import Content, Html, Link, element, joined, link_to
from sparklog.node.printable import printable

PAGE_ROWS: Final = 100
"""Lines of a page of a long table."""
_NUMBER: Final = "text-end text-nowrap"
_MAX_LINKED: Final = 1_000
"""The longest name in an address (`LogTab.java` accepts no longer one)."""
_MAX_SHOWN: Final = 200

Row = TypeVar("Row")


class Cell(NamedTuple):
    content: Content
    class_: str | None = None


def plain(content: Content) -> Cell:
    return Cell(content)


def right(content: Content) -> Cell:
    return Cell(content, _NUMBER)


def shortened(text: str | None) -> str | None:
    """Return the beginning of a text of any length and any characters.

    >>> shortened("x" * 1_000) == "x" * 200 + "\u2026"
    True
    """
    if text is None:
        return None
    return printable(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "\N{HORIZONTAL ELLIPSIS}")


def named(name: str) -> str:
    """Return a name for display; it may contain any characters.

    >>> named("group-1"), named("")
    ('group-1', '(no name)')
    """
    return shortened(name) or "(no name)"


def is_linked(name: str) -> bool:
    """Whether the name is short enough for a page's address."""
    return 0 < len(name) <= _MAX_LINKED


def numbers(values: Iterable[int]) -> str:
    """Return brokers' ids, as Kafka's tools write them.

    >>> numbers((2, 0, 1))
    '2, 0, 1'
    """
    return ", ".join(map(str, values))


def section(title: str, *content: Content, id_: str | None = None) -> Html:
    return element("section", element("h4", title), *content, id=id_, class_="mb-4")


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> Html:
    """Return a table; it scrolls by itself where it is wider than the page."""
    if not rows:
        return element("p", empty, class_="text-secondary")
    headings = (
        # A wide heading may take two lines, above values that do not.
        element("th", column, scope="col", class_="text-end" if cell.class_ == _NUMBER else None)
        for column, cell in zip(columns, rows[0], strict=True)
    )
    head = element("thead", element("tr", *headings))
    body = element(
        "tbody",
        *(element("tr", *(element("td", content, class_=class_) for content, class_ in row)) for row in rows),
    )
    grid = element(
        "table", head, body, class_="table table-bordered table-hover table-sm table-striped small"
    )
    return element("div", grid, class_="table-responsive")


def pages_of(rows: int) -> int:
    """Return how many pages so many lines fill; at least one.

    >>> pages_of(0), pages_of(100), pages_of(101)
    (1, 1, 2)
    """
    return max(1, -(-rows // PAGE_ROWS))


def rows_of_page(rows: Sequence[Row], page: int) -> Sequence[Row]:
    return rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]


def paging(link: Callable[[int], Link], page: int, pages: int) -> Html | None:
    """Return links to the neighbouring pages, by number; None if there is only one."""
    if pages <= 1:
        return None
    steps = [
        ("First", 1, page > 1),
        ("Previous", page - 1, page > 1),
        ("Next", page + 1, page < pages),
        ("Last", pages, page < pages),
    ]
    shown = [
        element("li", link_to(link(to), name) if there else element("span", name), class_="list-inline-item")
        for name, to, there in steps
    ]
    return element(
        "nav",
        element("ul", f"Page {page:,} of {pages:,} ", joined(shown), class_="list-inline"),
        aria_label="pages",
    )
