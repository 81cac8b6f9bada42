"""The controller's part of the tier: its start over a prefix, and the copies of its metadata."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from sparklog.driver.controller.remote.controller_tier import ControllerTier
from sparklog.driver.controller.remote.owner_lease import host_identity
from sparklog.hosting import StartError
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.remote_log.machine.ownership import (
    OWNER_NAME,
    SESSION_MS,
    Owner,
    decode_owner,
    encode_owner,
)
from sparklog.node.remote_log.machine.stored_metadata import LATEST_NAME, decode_stored_metadata
from sparklog.node.remote_log.object_store import StoreUnavailableError
from tests.faulty_store import FaultyStore, MemoryStore, StoreFaults
from tests.unit.driver.ui.cluster_images import image, partition

LAG_MS = 20
CLUSTER = "cluster"
FREE_ADDRESS = "127.0.0.1:1"
"""Nothing listens there."""


def tier(store: Any, application: str = "mine") -> ControllerTier:
    return ControllerTier(store, application, FREE_ADDRESS, LAG_MS)


def snapshot(offset: int) -> MetadataSnapshot:
    return MetadataSnapshot(replace(image({"t": [partition()]}), offset=offset, leader_epoch=3), None, 77)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (what is waited for has no event)
            await asyncio.sleep(0.005)


def saved_end(store: MemoryStore) -> int | None:
    found = store.objects.get(LATEST_NAME)
    return None if found is None else decode_stored_metadata(found.data).end_offset


def owner(store: MemoryStore) -> Owner:
    return decode_owner(store.objects[OWNER_NAME].data)


def test_metadata_is_in_the_store_soon_after_a_change_and_read_by_the_next_start() -> None:
    """A cluster whose disks are gone has lost nothing older than the lag."""
    store = MemoryStore()

    async def story() -> None:
        first = tier(store)
        assert await first.take() is None
        assert first.owner_epoch == 1
        first.leads(CLUSTER)
        first.committed(snapshot(8))
        await until(lambda: saved_end(store) == 9)
        for offset in range(9, 30):
            first.committed(snapshot(offset))
        await until(lambda: saved_end(store) == 30)
        await first.save_last(is_copied=True)
        first.committed(snapshot(30))  # a broker that leaves changes the metadata once more
        await first.close()
        assert owner(store).is_stopped
        second = tier(store, "other")
        stored = await second.take()
        assert stored is not None
        assert (stored.cluster_id, stored.position) == (CLUSTER, LogPosition(3, 31))
        assert second.is_complete and second.owner_epoch == 2
        await second.close()

    asyncio.run(story())


def test_store_that_is_away_delays_copies_and_nothing_else() -> None:
    """Changes of the metadata never wait for the store; the newest is copied when it is back."""
    memory = MemoryStore()
    store = FaultyStore(memory, StoreFaults(), 1)

    async def story() -> None:
        mine = tier(store)
        await mine.take()
        mine.leads(CLUSTER)
        mine.committed(snapshot(8))
        await until(lambda: saved_end(memory) == 9)
        store.is_gone = True
        for offset in range(9, 20):
            mine.committed(snapshot(offset))
        await until(lambda: mine.failure is not None)
        assert saved_end(memory) == 9
        store.is_gone = False
        await until(lambda: saved_end(memory) == 20)
        await until(lambda: mine.failure is None)
        await mine.close()

    asyncio.run(story())


def test_application_that_lost_the_prefix_copies_nothing_more() -> None:
    """It may have been suspended for longer than its session, and another one has taken over."""
    store = MemoryStore()

    async def story() -> None:
        zombie = tier(store)
        await zombie.take()
        zombie.leads(CLUSTER)
        zombie.committed(snapshot(8))
        await until(lambda: saved_end(store) == 9)
        successor = tier(store, "other")  # on the same host, and nothing listens at the zombie's address
        await successor.take()
        zombie.committed(snapshot(50))
        await until(lambda: zombie.lost is not None)
        assert saved_end(store) == 9
        await zombie.close()
        assert not owner(store).is_stopped
        await successor.close()
        assert owner(store).is_stopped

    asyncio.run(story())


def test_prefix_of_a_killed_application_at_the_address_of_its_successor_is_taken_at_once() -> None:
    """With a fixed port, that the successor has bound, a connection says nothing of the killed one."""
    store = MemoryStore()

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            killed = Owner(
                application="killed",
                epoch=4,
                address=address,
                host=host_identity(),
                cluster_id=CLUSTER,
                beat=17,
                session_ms=SESSION_MS,
            )
            await store.create(OWNER_NAME, encode_owner(killed))
            successor = ControllerTier(store, "successor", address, LAG_MS)
            async with asyncio.timeout(SESSION_MS / 1_000 / 3):
                await successor.take()
            assert owner(store).application == "successor"
            await successor.close()

    asyncio.run(story())


def test_application_that_lost_the_prefix_unnoticed_deletes_no_topic_of_its_successor() -> None:
    """It was cut off from the store, and sweeps before it reads in its next beat that it has lost it."""
    memory = MemoryStore()
    store = FaultyStore(memory, StoreFaults(), 1)
    topic_id = uuid4()
    live = f"manifests/{topic_id}/0"

    async def story() -> None:
        zombie = tier(store)
        await zombie.take()
        successor = tier(memory, "other")
        await successor.take()
        await memory.create(live, b"x")
        del store.calls[:]
        zombie.leads(CLUSTER)
        zombie.committed(snapshot(8))
        await until(lambda: ("get", OWNER_NAME) in store.calls or live not in memory.objects)
        await zombie.close()
        assert live in memory.objects
        await successor.close()

    asyncio.run(story())


def test_cluster_that_ended_amid_an_orderly_stop_is_not_complete_after_a_start_that_failed() -> None:
    """The failed start has marked itself stopped, and says nothing of what the cluster did at its end."""
    store = MemoryStore()

    async def killed() -> None:
        first = tier(store)
        await first.take()
        first.leads(CLUSTER)
        first.committed(snapshot(8))
        await until(lambda: saved_end(store) == 9)
        await first.save_last(is_copied=True)

    async def failed() -> None:
        metadata = store.objects.pop(LATEST_NAME)
        await store.create(LATEST_NAME, b"not ours")
        mine = tier(store, "failed")
        with pytest.raises(StartError):
            await mine.take()
        await mine.close()
        store.objects[LATEST_NAME] = metadata

    async def story() -> None:
        third = tier(store, "third")
        await third.take()
        assert third.former_stopped
        assert not third.is_complete
        await third.close()

    for part in (killed(), failed(), story()):
        asyncio.run(part)


def test_start_over_a_living_application_is_refused_with_its_address() -> None:
    """The second one must not wait for ever, nor write."""
    store = MemoryStore()

    async def story() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        living = Owner(
            application="living",
            epoch=4,
            address=f"{host}:{port}",
            host=host_identity(),
            cluster_id=CLUSTER,
            beat=1,
            session_ms=30_000,
        )
        version = await store.create(OWNER_NAME, encode_owner(living))
        second = tier(store, "second")
        taking = asyncio.ensure_future(second.take())
        await until(lambda: "which may have ended" in (second.missing or ""))
        await store.replace(OWNER_NAME, encode_owner(replace(living, beat=2)), version)
        with pytest.raises(StartError, match=f"another application, which runs at {host}:{port}"):
            await taking
        await second.close()
        assert owner(store).application == "living"
        server.close()

    asyncio.run(story())


@pytest.mark.parametrize("name", [OWNER_NAME, LATEST_NAME])
def test_start_over_objects_of_something_else_is_refused(name: str) -> None:
    """The prefix of another program is left as it is."""
    store = MemoryStore()

    async def story() -> None:
        await store.create(name, b"not ours")
        mine = tier(store)
        with pytest.raises(StartError, match=name):
            await mine.take()
        await mine.close()
        assert store.objects[name].data == b"not ours"

    asyncio.run(story())


def test_start_without_permission_names_the_store() -> None:
    """Waiting would not help."""
    store = FaultyStore(MemoryStore(), StoreFaults(), 1)
    store.is_refused = True

    async def story() -> None:
        mine = tier(store)
        with pytest.raises(StartError, match=r"sparklog\.remote\.uri: faulty\+memory.*403"):
            await mine.take()
        await mine.close()

    asyncio.run(story())


def test_restarted_controller_of_an_application_goes_on_in_its_owner_epoch() -> None:
    """Brokers copy under the epoch that they were started with, and do not wait for the store."""
    store = MemoryStore()

    async def killed() -> None:
        first = tier(store)
        await first.take()
        first.leads(CLUSTER)
        first.committed(snapshot(8))
        await until(lambda: saved_end(store) == 9)

    async def restarted() -> None:
        second = tier(store)
        second.leads(CLUSTER)
        second.committed(snapshot(9))
        await until(lambda: saved_end(store) == 10)
        assert second.owner_epoch == 1
        await second.close()

    asyncio.run(killed())
    assert not owner(store).is_stopped
    asyncio.run(restarted())
    assert owner(store).is_stopped


def test_last_state_is_not_taken_for_saved_while_the_store_was_never_reached() -> None:
    """The operator must hear that the metadata is on the disks alone."""
    store = FaultyStore(MemoryStore(), StoreFaults(), 1)
    store.is_gone = True

    async def story() -> None:
        mine = tier(store)
        mine.leads(CLUSTER)
        mine.committed(snapshot(8))
        with pytest.raises(StoreUnavailableError, match="not been reached"):
            await mine.save_last(is_copied=False)
        await mine.close()

    asyncio.run(story())
