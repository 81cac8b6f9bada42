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


async def owned() -> bool:
    return True


async def lost() -> bool:
    return False


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
        assert await DeletedTopics(store, {new}.__contains__, owned).delete("t", old) == 4
        assert await left(store) == set(names_of("t", new))

    asyncio.run(play())


def test_sweep_deletes_the_leftovers_of_topics_that_the_metadata_lacks() -> None:
    """A crash amid a deletion, or a leader that heard of it late, would leave objects to be paid for."""
    there, gone = uuid4(), uuid4()

    async def play() -> None:
        others = ["owner", "metadata/latest", "segments/stray"]
        store = await filled([*names_of("t", there), *names_of("u", gone)[1:], *others])
        assert await DeletedTopics(store, {there}.__contains__, owned).sweep() == 3
        assert await left(store) == {*names_of("t", there), *others}

    asyncio.run(play())


def test_sweep_keeps_objects_that_are_newer_than_the_metadata() -> None:
    """A cluster from the bucket knows no topic of the last second: its records are all there is of it."""
    unknown = uuid4()

    async def play() -> None:
        store = await filled(names_of("t", unknown))
        oldest_ms = min([found.modified_ms async for found in store.list("")])
        assert await DeletedTopics(store, set().__contains__, owned).sweep(oldest_ms - 1) == 0
        assert await left(store) == set(names_of("t", unknown))

    asyncio.run(play())


def test_application_that_lost_the_store_deletes_nothing_there() -> None:
    """Its metadata is old: the new owner's topics are unknown to it."""

    async def play() -> None:
        store = await filled(names_of("t", uuid4()))
        deletions = DeletedTopics(store, set().__contains__, lost)
        assert await deletions.sweep() == 0
        assert len(await left(store)) == 4

    asyncio.run(play())


def test_objects_of_an_application_that_takes_the_store_amid_a_deletion_are_kept() -> None:
    """What was written before the owner is read was not listed, and what was listed is not a successor's."""
    topic_id = uuid4()

    async def play() -> None:
        store = await filled(names_of("t", topic_id))
        owners = [True, False]

        async def is_owner() -> bool:
            await store.create(f"segments/u-{uuid4()}/0/a.parquet", b"")
            return owners.pop(0)

        assert await DeletedTopics(store, set().__contains__, is_owner).sweep() == 2
        assert len(await left(store)) == 4

    asyncio.run(play())
