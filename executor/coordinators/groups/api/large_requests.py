"""Large requests of group APIs, in steps: a million groups or partitions do not block the loop.

Partitions are decided in chunks. Of many groups a bounded number is submitted before the first reply is
awaited, so that the open requests are bounded.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

from sparklog.node.serving.requests import Deferred
from sparklog.node.serving.turns import held
from sparklog.protocol.codec.steps import turn

MAX_PARTITIONS: Final = 1000
"""The most partitions of one decision."""
SIDE_BY_SIDE: Final = 100
"""Groups of one request that are submitted before the first reply is awaited."""

Chunk = tuple[tuple[str, UUID | None, tuple[int, ...]], ...]

_Item = TypeVar("_Item")


def in_chunks(asked: Iterable[tuple[str, UUID | None, Iterable[int]]]) -> Iterator[Chunk]:
    chunk: list[tuple[str, UUID | None, tuple[int, ...]]] = []
    room = MAX_PARTITIONS
    for name, topic_id, partitions in asked:
        left = iter(partitions)
        some = tuple(islice(left, room))
        while True:
            chunk.append((name, topic_id, some))
            room -= len(some)
            if room > 0:
                break
            yield tuple(chunk)
            chunk, room = [], MAX_PARTITIONS
            some = tuple(islice(left, room))
            if not some:
                break
    if chunk:
        yield tuple(chunk)


async def answers_of(items: Iterable[_Item], submit: Callable[[_Item], Deferred]) -> list[Any]:
    """Return the reply for each item; at most `SIDE_BY_SIDE` items are open at a time."""
    answers = []
    left = iter(items)
    while chunk := tuple(islice(left, SIDE_BY_SIDE)):
        waiting = []
        for item in chunk:
            waiting.append(submit(item))
            await turn()
        for deferred in waiting:
            answers.append(await held(deferred))
    return answers
