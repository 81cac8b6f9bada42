"""The one place where text becomes HTML.

Rule kept: content that is not `Html` is text, and is escaped whenever it becomes part of an element or an
attribute. Only `element` and `joined` make `Html`; joining it with `+` or in an f-string gives text again,
which would be escaped once too often and so be visible, never once too seldom.

Addresses of pages of the Spark UI are `Link`s: their beginning is unknown here (a proxy may stand in front),
so they begin with a mark that the served page replaces. Text cannot contain the mark.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlencode

UI_ROOT_MARK: Final = "\x01"
_VOID: Final = frozenset({"br", "hr", "path", "line", "polyline", "rect"})
_CONTROL_CHARACTERS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


class Html(str):
    """Text in which markup is markup."""

    __slots__ = ()


Content: TypeAlias = "Html | str | int | None"
"""The content of an element; None is empty."""


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the Spark UI, by its path below the UI's root."""

    path: str


def log_page(page: str = "", /, **parameters: object) -> Link:
    """Return a page of the tab.

    >>> log_page("topic", name="a-b", page=2)
    Link(path='/log/topic/?name=a-b&page=2')
    """
    path = f"/log/{page}/" if page else "/log/"
    return Link(path + (f"?{urlencode(parameters)}" if parameters else ""))


def element(tag: str, /, *content: Content, **attributes: "Link | str | int | None") -> Html:
    """Return an element; `class_` is its class, `_` in other names stands for `-`.

    >>> element("a", "x < y", href="?a&b", class_="name-link")
    '<a href="?a&amp;b" class="name-link">x &lt; y</a>'
    """
    begin = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    if tag in _VOID:
        return Html(begin[:-1] + "/>")
    return Html(f"{begin}{joined(content)}</{tag}>")


def joined(content: Iterable[Content]) -> Html:
    return Html("".join(_text(piece) for piece in content))


def link_to(link: Link | str, text: Content) -> Html:
    """Return a link; an address that is not a web page's is shown as text."""
    if isinstance(link, str) and not link.startswith(("http://", "https://")):
        return element("span", text)
    return element("a", text, href=link)


def _attribute(name: str, value: "Link | str | int | None") -> str:
    if value is None:
        return ""
    text = UI_ROOT_MARK + _escaped(value.path) if isinstance(value, Link) else _escaped(str(value))
    return f' {name.rstrip("_").replace("_", "-")}="{text}"'


def _text(piece: Content) -> str:
    if piece is None:
        return ""
    return piece if isinstance(piece, Html) else _escaped(str(piece))


def _escaped(text: str) -> str:
    return html.escape(_CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text))
