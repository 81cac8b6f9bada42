"""Roles of a broker whose disk does not answer for a while."""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Iterator
from uuid import UUID

import pytest

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.node.metadata.schemas import PartitionChangeRecord
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_disk_failures import failing
from tests.unit.executor.requests import batch, produce, rows

THREADS = 2
WITHIN_S = 10.0


@contextlib.contextmanager
def slow_disk(brokers: Brokers, broker_id: int) -> Iterator[None]:
    """Keep all threads that work on a broker's logs waiting."""
    answers = threading.Event()
    brokers.waits_for_files = False
    for _ in range(THREADS):
        brokers.brokers[broker_id].replicas.executor.submit(answers.wait)
    try:
        yield
    finally:
        answers.set()


class Mistaken(RoleListener[Replica]):
    """Fails as a defect of the program does, for the replicas of topic u."""

    def became_leader(self, replica: Replica) -> None:
        if replica.topic_partition.topic == "u":
            raise LookupError("a defect")


def leader_epochs(brokers: Brokers, topic_id: UUID) -> list[int | None]:
    """Return the leader epochs of the partitions of a topic that broker 0 leads."""
    replicas = sorted(brokers.brokers[0].replicas.table.of_topic(topic_id), key=lambda each: each.key)
    return [each.leader_epoch for each in replicas if each.leadership is not None]


@with_brokers(count=2, config={"background.threads": str(THREADS)})
async def test_leadership_does_not_wait_for_the_files_of_other_partitions(brokers: Brokers) -> None:
    """Partitions that move leave and bring logs; producers of all others were silent until that was done."""
    topic_id = await brokers.create_topic("t", [(1, 0), (0, 1)])
    replica, table = brokers.replica(0, topic_id), brokers.brokers[0].replicas.table
    with slow_disk(brokers, 0):
        async with asyncio.timeout(WITHIN_S):
            await brokers.commit(
                PartitionChangeRecord(
                    partition_id=1, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, directories=None
                ),
                PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=0),
            )
            assert replica.leadership is not None, "in the image by which another log goes"
            assert table.get(topic_id, 1) is None
            coming = await brokers.create_topic("u", [(0, 1), (1, 0)])
            await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
            assert replica.leadership is None, "in an image after one by which a log comes"
            await brokers.elect(coming, 1, leader=0, isr=[0, 1])
            assert table.get(coming, 0) is None
    await until(lambda: leader_epochs(brokers, coming) == [0, 1], "the roles of the present image")


@with_brokers(count=2, config={"background.threads": str(THREADS)})
async def test_log_that_is_unwanted_by_the_time_it_is_open_is_deleted_again(brokers: Brokers) -> None:
    """A move may be given up, and a topic deleted, before the disk has answered."""
    table = brokers.brokers[0].replicas.table
    former = await brokers.create_topic("t", [(0, 1)])
    brokers.replica(0, former).log.create_files()
    with slow_disk(brokers, 0):
        async with asyncio.timeout(WITHIN_S):
            await brokers.delete_topic(former)
            deleted = await brokers.create_topic("t", [(0, 1)])
            await brokers.delete_topic(deleted)
            again = await brokers.create_topic("t", [(0, 1)])
    await until(lambda: leader_epochs(brokers, again) == [0], "the new log")
    assert table.get(deleted, 0) is None
    brokers.replica(0, again).log.create_files()
    path = brokers.brokers[0].directory.path
    assert sorted(each.name for each in path.glob("t-0*"))[:1] == ["t-0"]


@with_brokers(config={"background.threads": str(THREADS)})
async def test_failed_work_on_files_that_no_image_waits_for_ends_the_broker_with_its_logs_closed(
    brokers: Brokers,
) -> None:
    """The broker served on without opening a log, up to the next image; then it left its logs unflushed."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert row.error_code == 0
    broker, log = brokers.brokers[0], brokers.replica(0, topic_id).log
    broker.replicas.listeners.append(Mistaken())
    running = asyncio.create_task(broker.replicas.run())
    gone = await brokers.create_topic("gone", [(0,)])
    brokers.replica(0, gone).log.create_files()
    with slow_disk(brokers, 0):
        await brokers.delete_topic(gone)
        await brokers.create_topic("u", [(0,)])
        assert not running.done()
    with pytest.raises(LookupError, match="a defect"):
        await asyncio.wait_for(running, WITHIN_S)
    await brokers.stop(0)
    assert (log.directory / "00000000000000000001.snapshot").exists(), "the log was closed properly"
    assert broker.directory.has_unclosed_logs, "another one may not have been closed"


@with_brokers()
async def test_failed_work_on_a_log_that_is_tried_again_keeps_no_broker_from_closing_its_logs(
    brokers: Brokers,
) -> None:
    """As above, of the task that tries again."""
    topic_id = await brokers.create_topic("u", [(0,)])
    log = brokers.replica(0, topic_id).log
    log.create_files()
    await brokers.stop(0)
    (log.directory / "partition.metadata").write_bytes(b"")
    with failing("open", errno.EMFILE, of="partition.metadata"):
        await brokers.start(0)
        await brokers.commit()
    broker = brokers.brokers[0]
    broker.replicas.listeners.append(Mistaken())
    with pytest.raises(LookupError, match="a defect"):
        await asyncio.wait_for(broker.replicas.run(), WITHIN_S)
    await brokers.stop(0)
