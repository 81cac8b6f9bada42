"""Objects of deleted topics go, and no others."""

import asyncio
from uuid import UUID, uuid4

from sparklog.node.remote_log.deleted_topics import DeletedTopics
from tests.faulty_store import MemoryStore


def names_of(topic: str, topic_id: UUID) -> list[str]:
    return [
        f"manifests/{topic_id}/0",
        f"producers/{topic_id}/0/00000000000000000005-0000000001-a.snapshot",
        f"segments/{topic}-{topic_id}/0/00000000000000000000-0000000001-a.parquet",
        f"segments/{topic}-{topic_id}/1/00000000000000000000-0000000001-a.parquet",
    ]


async def filled(names: list[str]) -> MemoryStore:
    store = MemoryStore()
    for name in names:
        await store.create(name, b"")
    return store


async def left(store: MemoryStore) -> set[str]:
    return {found.name async for found in store.list("")}


def test_deleted_topic_loses_its_objects_and_its_namesake_none() -> None:
    """A topic that was created again under the name has another id, and data of its own."""
    old, new = uuid4(), uuid4()

    async def play() -> None:
        store = await filled([*names_of("t", old), *names_of("t", new)])
        assert await DeletedTopics(store, {new}.__contains__, lambda: True).delete("t", old) == 4
        assert await left(store) == set(names_of("t", new))

    asyncio.run(play())


def test_sweep_deletes_the_leftovers_of_topics_that_the_metadata_lacks() -> None:
    """A crash amid a deletion, or a leader that heard of it late, would leave objects to be paid for."""
    there, gone = uuid4(), uuid4()

    async def play() -> None:
        others = ["owner", "metadata/latest", "segments/stray"]
        store = await filled([*names_of("t", there), *names_of("u", gone)[1:], *others])
        assert await DeletedTopics(store, {there}.__contains__, lambda: True).sweep() == 3
        assert await left(store) == {*names_of("t", there), *others}

    asyncio.run(play())


def test_sweep_keeps_objects_that_are_newer_than_the_metadata() -> None:
    """A cluster from the bucket knows no topic of the last second: its records are all there is of it."""
    unknown = uuid4()

    async def play() -> None:
        store = await filled(names_of("t", unknown))
        oldest_ms = min([found.modified_ms async for found in store.list("")])
        assert await DeletedTopics(store, set().__contains__, lambda: True).sweep(oldest_ms - 1) == 0
        assert await left(store) == set(names_of("t", unknown))

    asyncio.run(play())


def test_application_that_lost_the_store_deletes_nothing_there() -> None:
    """Its metadata is old: the new owner's topics are unknown to it."""

    async def play() -> None:
        store = await filled(names_of("t", uuid4()))
        deletions = DeletedTopics(store, set().__contains__, lambda: False)
        assert await deletions.sweep() == 0
        assert len(await left(store)) == 4

    asyncio.run(play())
