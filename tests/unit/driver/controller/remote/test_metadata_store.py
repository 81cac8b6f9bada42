"""The newest metadata in the store: replaced as a whole, and by its owner only."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from sparklog.driver.controller.remote.metadata_store import MetadataStore, PrefixLostError
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.remote_log.machine.stored_metadata import (
    LATEST_NAME,
    StoredMetadataFormatError,
    decode_stored_metadata,
)
from sparklog.node.remote_log.object_store import StoreUnavailableError, Version
from sparklog.protocol.types import SnapshotId
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.unit.driver.ui.cluster_images import image, partition

CLUSTER = "cluster"
T = TypeVar("T")


def snapshot(offset: int) -> MetadataSnapshot:
    return MetadataSnapshot(replace(image({"t": [partition()]}), offset=offset, leader_epoch=3), None, 77)


class RepliesLostStore(MemoryStore):
    """Replaces an object, and does not say so while `loses_replies`."""

    loses_replies = False

    async def replace(self, name: str, data: bytes | memoryview, version: Version) -> Version:
        written = await super().replace(name, data, version)
        if self.loses_replies:
            raise StoreUnavailableError("no reply")
        return written


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def names(store: MemoryStore) -> list[str]:
    return sorted(store.objects)


def test_snapshot_that_was_saved_is_read_by_the_next_owner() -> None:
    """The bucket has all that a cluster is, beside its records."""
    store = MemoryStore()

    async def story() -> tuple[MetadataSnapshot, str]:
        first = MetadataStore(store, 1)
        assert await first.claim() is None
        await first.save(CLUSTER, snapshot(8))
        second = MetadataStore(store, 2)
        stored = await second.claim()
        assert stored is not None
        assert (stored.owner_epoch, stored.is_final, stored.snapshot_id) == (1, False, SnapshotId(9, 3))
        return await second.snapshot(stored), stored.cluster_id

    assert run(story()) == (snapshot(8), CLUSTER)


def test_former_snapshots_are_deleted_once_another_is_named() -> None:
    """A cluster that changes every second must not fill the bucket; nor may leftovers of kills."""
    store = MemoryStore()

    async def story() -> None:
        metadata = MetadataStore(store, 1)
        await metadata.claim()
        for offset in (8, 9, 10):
            await metadata.save(CLUSTER, snapshot(offset))
        await store.create("metadata/left", b"x")
        await metadata.forget_leftovers()

    run(story())
    assert names(store) == [f"metadata/{SnapshotId(11, 3)}.checkpoint", LATEST_NAME]


def test_owner_that_has_lost_the_prefix_saves_nothing() -> None:
    """A zombie would bring the cluster's metadata back to what it was."""
    store = MemoryStore()

    async def story() -> None:
        zombie = MetadataStore(store, 1)
        await zombie.claim()
        await zombie.save(CLUSTER, snapshot(8))
        successor = MetadataStore(store, 2)
        assert await successor.claim() is not None
        with pytest.raises(PrefixLostError, match="owner epoch 2, this application's is 1"):
            await zombie.save(CLUSTER, snapshot(9))
        await successor.save(CLUSTER, snapshot(20))

    run(story())
    latest = decode_stored_metadata(store.objects[LATEST_NAME].data)
    assert (latest.owner_epoch, latest.end_offset) == (2, 21)
    assert latest.name in store.objects


def test_owner_that_has_lost_the_prefix_deletes_no_snapshot_of_its_successor() -> None:
    """A zombie that was suspended since its claim takes the successor's only snapshot for a leftover."""
    store = MemoryStore()

    async def story() -> None:
        zombie = MetadataStore(store, 1)
        await zombie.claim()
        await zombie.save(CLUSTER, snapshot(8))
        successor = MetadataStore(store, 2)
        await successor.claim()
        await successor.save(CLUSTER, snapshot(20))
        with pytest.raises(PrefixLostError, match="owner epoch 2"):
            await zombie.forget_leftovers()

    run(story())
    assert decode_stored_metadata(store.objects[LATEST_NAME].data).name in store.objects


@pytest.mark.parametrize("seed", range(20))
def test_saving_goes_on_after_errors_and_lost_replies(seed: int) -> None:
    """Whatever the store fails at, the named snapshot is whole, and the last one is the newest."""
    memory = MemoryStore()
    store = FaultyStore(memory, StoreFaults(failure_rate=0.2, lost_reply_rate=0.3), seed)

    async def story() -> None:
        metadata = MetadataStore(store, 1)
        for offset in range(-1, 10):
            for _ in range(100):
                try:
                    if offset < 0:
                        await metadata.claim()
                    else:
                        await metadata.save(CLUSTER, snapshot(offset))
                    break
                except StoreUnavailableError:
                    if LATEST_NAME in memory.objects:
                        latest = decode_stored_metadata(memory.objects[LATEST_NAME].data)
                        assert latest.name in memory.objects
            else:
                pytest.fail(f"seed {seed}: no success in 100 attempts")
        store.faults = StoreFaults()
        stored = await MetadataStore(store, 1).claim()
        assert stored is not None
        assert await metadata.snapshot(stored) == snapshot(9)

    run(story())


def test_final_snapshot_marks_the_present_one() -> None:
    """Nothing may have changed since the last upload."""
    store = MemoryStore()

    async def story() -> None:
        metadata = MetadataStore(store, 1)
        await metadata.claim()
        await metadata.save(CLUSTER, snapshot(8))
        await metadata.save(CLUSTER, snapshot(8), is_final=True)

    run(story())
    latest = decode_stored_metadata(store.objects[LATEST_NAME].data)
    assert latest.is_final and latest.size_bytes == len(store.objects[latest.name].data)


def test_claimed_metadata_is_not_the_last_of_an_orderly_stop_any_more() -> None:
    """A successor that is killed before its first copy has held elections, and handed out producer ids."""
    store = RepliesLostStore()

    async def story() -> None:
        first = MetadataStore(store, 1)
        await first.claim()
        await first.save(CLUSTER, snapshot(8), is_final=True, is_copied=True)
        second = MetadataStore(store, 2)
        store.loses_replies = True
        with pytest.raises(StoreUnavailableError):
            await second.claim()
        store.loses_replies = False
        found = await second.claim()
        assert found is not None
        assert (found.owner_epoch, found.is_final, found.is_copied) == (1, True, True)
        again = await MetadataStore(store, 3).claim()
        assert again is not None
        assert (again.is_final, again.is_copied) == (False, False)
        assert (found.starts, again.starts) == (0, 1)

    run(story())


def test_start_that_has_saved_metadata_counts_no_more() -> None:
    """Its changes are in there."""
    store = MemoryStore()

    async def story() -> None:
        for owner_epoch in (1, 2):
            metadata = MetadataStore(store, owner_epoch)
            await metadata.claim()
            await metadata.save(CLUSTER, snapshot(8 * owner_epoch))
        found = await MetadataStore(store, 3).claim()
        assert found is not None and found.starts == 0

    run(story())


def test_object_of_unknown_format_is_refused() -> None:
    """A later version of sparklog may mean more by it than this one knows."""
    store = MemoryStore()
    run(store.create(LATEST_NAME, b'{"format": 99}'))
    with pytest.raises(StoredMetadataFormatError, match="has format 99"):
        run(MetadataStore(store, 1).claim())
