"""Deleted topics leave the object store: in the background, tried again, and again after a crash.

Each topic that a committed image no longer has is deleted, and once more a little later: a leader that heard
of it late may have written behind the first time. A sweep after the start finds what a former controller has
left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from sparklog.node.clocks import monotonic_ms
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.remote_log.deleted_topics import DeletedTopics
from sparklog.node.remote_log.object_store import ObjectStore, StoreError

AGAIN_MS: Final = 60_000
"""How much later a deleted topic is looked for again."""
RETRY_S: Final = 10.0
SWEEP_S: Final = 6 * 60 * 60.0

logger = logging.getLogger(__name__)


class TopicDeletions:
    """Belongs to the controller's loop."""

    def __init__(
        self,
        store: ObjectStore,
        is_owner: Callable[[], Awaitable[bool]],
        known_until_ms: int | None,
        retry_s: float = RETRY_S,
    ) -> None:
        """`is_owner`, `known_until_ms`: see `DeletedTopics`."""
        self._retry_s = retry_s
        self._known_until_ms = known_until_ms
        self._image: MetadataImage | None = None
        self._deleted = DeletedTopics(store, self._has_topic, is_owner)
        self._due: dict[UUID, tuple[str, int]] = {}
        """Deleted topics: their names, and when they are due by the monotonic clock."""
        self._again: set[UUID] = set()
        """Topics that have been deleted once."""
        self._has_image = asyncio.Event()
        self._woken = asyncio.Event()

    def committed(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        if before is None:
            self._has_image.set()
        if before is None or before.topics is image.topics:
            return
        for topic_id in before.topics.by_id.keys() - image.topics.by_id.keys():
            self._due[topic_id] = (before.topics.by_id[topic_id].name, monotonic_ms())
            self._woken.set()

    def delete_again(self, topic: str, topic_id: UUID) -> None:
        """Delete a topic whose objects have stayed for its table."""
        self._due[topic_id] = (topic, monotonic_ms())
        self._woken.set()

    def _has_topic(self, topic_id: UUID) -> bool:
        assert self._image is not None, "nothing is deleted before there is one"
        return topic_id in self._image.topics.by_id

    async def run(self) -> None:
        """Delete, until cancelled."""
        await self._has_image.wait()
        sweep_ms = monotonic_ms()
        while True:
            wait_s = SWEEP_S
            try:
                if monotonic_ms() >= sweep_ms:
                    await self._deleted.sweep(self._known_until_ms)
                    sweep_ms = monotonic_ms() + int(SWEEP_S * 1000)
                await self._delete_due()
                if self._due:
                    next_ms = min(due_ms for _, due_ms in self._due.values())
                    wait_s = max(0.0, (next_ms - monotonic_ms()) / 1000)
            except StoreError as error:
                logger.warning("Objects of deleted topics stay for now, and are tried again: %s", error)
                wait_s = self._retry_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()

    async def _delete_due(self) -> None:
        for topic_id, (name, due_ms) in list(self._due.items()):
            if due_ms > monotonic_ms():
                continue
            await self._deleted.delete(name, topic_id)
            if topic_id in self._again:
                self._again.discard(topic_id)
                del self._due[topic_id]
            else:
                self._again.add(topic_id)
                self._due[topic_id] = (name, monotonic_ms() + AGAIN_MS)
