"""How a change of very many items is divided into parts, each of which is decided on its own.

Items with a common key stay together. Division and joining are `driver/controller/machine/parts.py`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

TOPICS_PER_PART: Final = 150

PARTITIONS_OF_A_TOPIC: Final = 2
"""So many partitions that change count as a topic; a reassigned partition takes as long as a topic."""

PARTITIONS_PER_PART: Final = TOPICS_PER_PART * PARTITIONS_OF_A_TOPIC

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""As in Kafka: bounds the batch that one request can make."""


class Parts(NamedTuple):
    asked: str
    answered: str
    key: Callable[[Any], Hashable]
    """Items with the same key belong into the same part."""
    pieces: Callable[[Any], Iterable[Any]] = lambda item: (item,)
    """The pieces into which an item may be divided."""
    size: Callable[[Any], int] = lambda _: 1
    """How many of a part's `TOPICS_PER_PART` an item stands for."""


def pieces_of_topic(topic: Any, size: int) -> Iterator[Any]:
    """Yield copies of a topic that together name all of its partitions, `size` in each."""
    named = topic.partitions
    for start in range(0, max(1, len(named)), size):
        yield replace(topic, partitions=named[start : start + size])
