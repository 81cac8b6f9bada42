"""Deleting the objects of deleted topics: when a topic is deleted, and again for what a crash has left.

Rules kept:
- A manifest goes last of a partition's objects, so that a deletion that was broken off is found again by it.
- Objects are listed first and looked up in the metadata afterwards: a leader that has written an object knew
  its topic from metadata that is older than the listing. So a topic that is not there then was deleted.
- The owner of the store is read between a listing and its deletions (`is_owner`). An application that finds
  itself there then has listed nothing of a successor, whose topics its own metadata lacks.

- Objects that a table may have stay as long as the topic has a marker (`names.TABLE_MARKERS`): the keeper of
  the table removes it once no snapshot has them.

A leader that learns of the deletion late may write another object behind it. `sweep` finds that, too.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from sparklog.node.remote_log.machine.names import (
    MANIFESTS,
    PRODUCERS,
    SEGMENTS,
    TABLE_MARKERS,
    topic_prefixes,
)
from sparklog.node.remote_log.object_store import ObjectStore

logger = logging.getLogger(__name__)

_ID_CHARACTERS: Final = 36


class DeletedTopics:
    def __init__(
        self, store: ObjectStore, has_topic: Callable[[UUID], bool], is_owner: Callable[[], Awaitable[bool]]
    ) -> None:
        """`has_topic` asks the newest committed metadata; `is_owner` reads the store's owner."""
        self._store = store
        self._has_topic = has_topic
        self._is_owner = is_owner

    async def delete(self, topic: str, topic_id: UUID) -> int:
        """Delete the objects of one deleted topic; return their number.

        Raises:
            StoreError: the rest is left for `sweep`.
        """
        count = 0
        if topic_id in await self._with_tables():
            return count
        for prefix in topic_prefixes(topic, topic_id):
            names = [found.name async for found in self._store.list(prefix)]
            if not names:
                continue
            if not await self._is_owner() or self._has_topic(topic_id):
                return count
            for name in names:
                await self._store.delete(name)
            count += len(names)
        if count:
            logger.info("%d objects of the deleted topic %s (%s) are deleted", count, topic, topic_id)
        return count

    async def sweep(self, known_until_ms: int | None = None) -> int:
        """Delete the objects of all topics that the metadata does not have; return their number.

        A cluster that began again from metadata in the store passes when that was written, by the store's
        clock: it does not know topics that were created later, and keeps what has been written for them.

        Raises:
            StoreError: the rest is left for the next sweep.
        """
        count = 0
        kept = await self._with_tables()
        for prefix in (SEGMENTS, PRODUCERS, MANIFESTS):
            names: list[tuple[str, UUID]] = []
            async for found in self._store.list(prefix):
                if known_until_ms is not None and found.modified_ms > known_until_ms:
                    continue
                topic_id = _topic_id_in(found.name.removeprefix(prefix).partition("/")[0])
                if topic_id is not None and topic_id not in kept and not self._has_topic(topic_id):
                    names.append((found.name, topic_id))
            if names and not await self._is_owner():
                return count
            for name, topic_id in names:
                if not self._has_topic(topic_id):
                    await self._store.delete(name)
                    count += 1
        if count:
            logger.info("%d objects of deleted topics, left by a crash, are deleted", count)
        return count

    async def _with_tables(self) -> set[UUID]:
        """Return the topics whose objects a table may have."""
        found = {_topic_id_in(each.name) async for each in self._store.list(TABLE_MARKERS)}
        return {topic_id for topic_id in found if topic_id is not None}


def _topic_id_in(folder: str) -> UUID | None:
    """Return the topic id at the end of a folder's name; None for a name of another kind."""
    try:
        return UUID(folder[-_ID_CHARACTERS:])
    except ValueError:
        return None
