"""Divides a change of very many topics into parts that are decided one after the other.

A decision about ten thousand topics would block the controller's loop, and with it every broker's lease. So a
request is decided `TOPICS_PER_PART` topics at a time, each part on top of all earlier decisions, those of
other requests included. A topic changes as a whole; a large request need not. Items with the same topic stay
together, since naming it twice is a mistake. A small request is its only part.
"""

from collections.abc import Generator, Hashable, Sequence
from dataclasses import replace
from types import coroutine
from typing import Any

from sparklog.node.apis.parts import TOPICS_PER_PART, Parts
from sparklog.protocol.errors import ErrorCode


@coroutine
def parts_of(request: Any, division: Parts | None) -> Generator[None, None, Sequence[Any]]:
    """Return requests that together equal `request`; itself, if it is small or indivisible.

    Yields after each piece of an item.
    """
    asked = None if division is None else getattr(request, division.asked)
    if division is None or asked is None or _fits(division, asked):
        return [request]
    together: dict[Hashable, list[Any]] = {}
    for item in asked:
        for piece in division.pieces(item):
            yield
            together.setdefault(division.key(piece), []).append(piece)
    parts: list[list[Any]] = [[]]
    part_size = 0
    for items in together.values():
        yield
        size = sum(map(division.size, items))
        if parts[-1] and part_size + size > TOPICS_PER_PART:
            parts.append([])
            part_size = 0
        parts[-1] += items
        part_size += size
    return [replace(request, **{division.asked: tuple(part)}) for part in parts]


def _fits(division: Parts, asked: Sequence[Any]) -> bool:
    return len(asked) <= TOPICS_PER_PART and sum(map(division.size, asked)) <= TOPICS_PER_PART


@coroutine
def joined(division: Parts, replies: Sequence[Any]) -> Generator[None, None, Any]:
    """Return the reply to a request from the replies to its parts, in order; yield after each.

    The refusal of a part as a whole is the reply to all: the client repeats the request, and sees the state.
    """
    items: list[Any] = []
    for reply in replies:
        if getattr(reply, "error_code", ErrorCode.none) is not ErrorCode.none:
            return reply
        items += getattr(reply, division.answered)
        yield
    return replace(replies[0], **{division.answered: tuple(items)})
