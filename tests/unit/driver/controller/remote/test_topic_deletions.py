"""When the objects of deleted topics leave the store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

from sparklog.driver.controller.remote.topic_deletions import TopicDeletions
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import RemoveTopicRecord, TopicRecord
from sparklog.node.remote_log.object_store import ObjectStore
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.unit.executor.brokers import until


def with_topics(*topics: tuple[str, UUID]) -> MetadataImage:
    records = [TopicRecord(name=name, topic_id=topic_id) for name, topic_id in topics]
    return replay_records(EMPTY_IMAGE, records, 10, 1)[0]


def without(image: MetadataImage, topic_id: UUID) -> MetadataImage:
    return replay_records(image, [RemoveTopicRecord(topic_id=topic_id)], image.end_offset, 1)[0]


async def filled(*topics: tuple[str, UUID]) -> MemoryStore:
    store = MemoryStore()
    for name, topic_id in topics:
        await store.create(f"segments/{name}-{topic_id}/0/a.parquet", b"")
        await store.create(f"manifests/{topic_id}/0", b"")
    return store


async def owned() -> bool:
    return True


@asynccontextmanager
async def running(store: ObjectStore, known_until_ms: int | None = None) -> AsyncIterator[TopicDeletions]:
    deletions = TopicDeletions(store, owned, known_until_ms, retry_s=0.01)
    task = asyncio.create_task(deletions.run())
    try:
        yield deletions
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_topic_leaves_the_store_when_its_deletion_is_committed() -> None:
    """Nothing else would ever delete what is paid for by the month."""
    kept, gone = ("kept", uuid4()), ("gone", uuid4())

    async def play() -> None:
        store = await filled(kept, gone)
        image = with_topics(kept, gone)
        async with running(store) as deletions:
            deletions.committed(image)
            deletions.committed(without(image, gone[1]))
            await until(lambda: len(store.objects) == 2, "the deleted topic's objects are gone")
            assert all(str(kept[1]) in name for name in store.objects)

    asyncio.run(play())


def test_topic_that_a_crash_has_left_in_the_store_is_swept_at_the_next_start() -> None:
    """The deletion is committed before its first object goes, and the controller may die in between."""
    kept, gone = ("kept", uuid4()), ("gone", uuid4())

    async def play() -> None:
        store = await filled(kept, gone)
        async with running(store) as deletions:
            deletions.committed(with_topics(kept))
            await until(lambda: len(store.objects) == 2, "what the crash has left is gone")
            assert all(str(kept[1]) in name for name in store.objects)

    asyncio.run(play())


def test_deletion_is_tried_until_a_store_that_was_away_is_back() -> None:
    """A bucket that is away for a minute must not keep a topic for ever."""
    gone = ("gone", uuid4())

    async def play() -> None:
        objects = await filled(gone)
        store = FaultyStore(objects, StoreFaults(), seed=1)
        store.is_gone = True
        image = with_topics(gone)
        async with running(store) as deletions:
            deletions.committed(image)
            deletions.committed(without(image, gone[1]))
            await until(lambda: len(store.calls) > 2, "it was tried")
            assert len(objects.objects) == 2
            store.is_gone = False
            await until(lambda: not objects.objects, "the objects are gone")

    asyncio.run(play())
