"""The topic id of a new log is on the disk before its first record, and no loop waits for that."""

import threading
from pathlib import Path

from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce, rows
from tests.unit.sparklog.node.storage.calls import calls_of


@with_brokers(count=2)
async def test_first_record_waits_for_the_topic_id_in_a_thread_on_leader_and_follower(
    brokers: Brokers,
) -> None:
    """A produce to many new topics would hold up heartbeats and leases for many syncs of a disk."""
    synced: list[tuple[str, str, int]] = []
    on_loop: list[str] = []

    def seen(path: str, _: object) -> None:
        if threading.current_thread() is threading.main_thread():
            on_loop.append(path)
        if path.endswith("partition.metadata"):
            records = Path(path).with_name(f"{0:020d}.log").stat().st_size
            synced.append((Path(path).parent.name, str(Path(path).parent.parent), records))

    with calls_of("fsync", seen):
        topic_id = await brokers.create_topic("t", [(0, 1)])
        channel = await brokers.connect(0)
        for _ in range(2):
            (row,) = rows(await channel.request(produce(topic_id, batch())))
            assert row.error_code is ErrorCode.none
    assert sorted(synced) == sorted(
        ("t-0", str(broker.directory.path), 0) for broker in brokers.brokers.values()
    )
    assert on_loop == []
    assert [brokers.replica(broker, topic_id).log.log_end_offset for broker in (0, 1)] == [2, 2]


@with_brokers(count=2)
async def test_follower_is_fetched_for_again_after_a_sync_that_failed_otherwise_than_the_disk(
    brokers: Brokers,
) -> None:
    """It stayed held until its next leader, and out of the ISR."""
    failures: list[str] = []

    def fails_once(path: str, _: object) -> None:
        if path.startswith(follower_directory) and path.endswith("partition.metadata") and not failures:
            failures.append(path)
            raise MemoryError

    follower_directory = str(brokers.brokers[1].directory.path)
    with calls_of("fsync", fails_once):
        topic_id = await brokers.create_topic("t", [(0, 1)])
        channel = await brokers.connect(0)
        (row,) = rows(await channel.request(produce(topic_id, batch(), acks=1)))
        assert row.error_code is ErrorCode.none
        follower = brokers.replica(1, topic_id)
        await until(lambda: follower.log.log_end_offset == 1, "the follower caught up")
    assert len(failures) == 1
