"""Chunks of the partitions of a request about offsets, which may name a million."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

MAX_PARTITIONS: Final = 1000
"""The most partitions of one decision."""

Chunk = tuple[tuple[str, UUID | None, tuple[int, ...]], ...]


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
