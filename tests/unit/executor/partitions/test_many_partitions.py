"""Brokers with many partitions: what one change costs, and who waits for it. Work is counted, not timed."""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executor.loop.slices import SLICE_ITEMS
from sparklog.executor.partitions.roles import OPENED_TOGETHER
from sparklog.node.metadata.schemas import (
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    ResourceType,
)
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import steps_of
from sparklog.protocol.errors import ErrorCode
from tests.counted_work import counted_calls, counted_turns
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.requests import delete_records, rows

DESCRIPTORS = 4_096
FEW, MANY = 10, 60
"""How many other topics there are."""


class Client:
    """A connection as a handler sees it."""

    peer = "client:1"
    accepted_ms = 0
    client_software = ("", "")
    closed = False

    def on_close(self, callback: Callable[[], None]) -> None:
        """Stay open."""


@pytest.fixture(autouse=True)
def _enough_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, DESCRIPTORS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def calls_of(brokers: Brokers, change: Callable[[UUID], Awaitable[None]]) -> tuple[int, int]:
    """Return the calls that a change to one topic takes beside few other topics, and beside many."""
    counts = []
    others = 0
    for wanted in (FEW, MANY):
        while others < wanted:
            await brokers.create_topic(f"other-{others}", [(0,)])
            others += 1
        topic_id = await brokers.create_topic(f"topic-{wanted}", [(0,)])
        with counted_calls() as calls:
            await change(topic_id)
        counts.append(calls.value)
    return counts[0], counts[1]


@with_brokers()
async def test_change_of_one_partition_looks_at_no_other_topic(brokers: Brokers) -> None:
    """ISRs change all the time; each change must cost what it changes, not what there is."""

    async def change(topic_id: UUID) -> None:
        await brokers.elect(topic_id, 0, leader=0, isr=[0])

    few, many = await calls_of(brokers, change)
    assert many - few < (MANY - FEW) // 2


@with_brokers()
async def test_configuration_of_one_topic_looks_at_no_other_topic(brokers: Brokers) -> None:
    """As above."""

    async def change(topic_id: UUID) -> None:
        name = brokers.image.topics.by_id[topic_id].name
        await brokers.commit(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name=name, name="retention.ms", value="60000"
            )
        )
        assert brokers.replica(0, topic_id).settings.log.retention_ms == 60_000

    few, many = await calls_of(brokers, change)
    assert many - few < (MANY - FEW) // 2


@with_brokers()
async def test_deletion_of_one_topic_looks_at_no_other_topic(brokers: Brokers) -> None:
    """Deleting ten thousand topics one by one looked a hundred million times."""
    few, many = await calls_of(brokers, brokers.delete_topic)
    assert many - few < (MANY - FEW) // 2


@with_brokers()
async def test_images_that_concern_many_partitions_let_others_go_first(brokers: Brokers) -> None:
    """Clients, heartbeats and the lease must not wait for all partitions of a broker."""
    partitions = SLICE_ITEMS + 1
    with counted_turns() as turns:
        topic_id = await brokers.create_topic("t", [(0,)] * partitions)
    assert turns.value >= partitions // OPENED_TOGETHER
    with counted_turns() as turns:
        await brokers.fence(0)
    assert turns.value == 1
    with counted_turns() as turns:
        await brokers.commit(
            *(
                PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=0)
                for number in range(partitions)
            )
        )
    assert turns.value >= 2  # which partitions changed, and their roles
    assert {brokers.replica(0, topic_id, number).leader_epoch for number in range(partitions)} == {1}


def test_roles_of_many_partitions_are_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start opens logs in parts, each of which logged its roles: ten thousand lines in all."""
    caplog.set_level("INFO", "sparklog.executor.partitions.roles")
    partitions = 2 * OPENED_TOGETHER

    async def scenario() -> None:
        async with Brokers(tmp_path) as brokers:
            await brokers.create_topic("t", [(0,)] * partitions)
            await brokers.stop(0)
            await brokers.start(0)

    asyncio.run(scenario())
    lines = [each.getMessage() for each in caplog.records if "eading " in each.getMessage()]
    assert lines == [f"Leading {partitions} partitions in new epochs, following 0"] * 2


@with_brokers()
async def test_topics_deleted_together_wait_for_the_disk_side_by_side(brokers: Brokers) -> None:
    """One after the other, ten thousand renames kept the next image waiting for a quarter of a minute."""
    topics = [await brokers.create_topic(f"t{number}", [(0,)]) for number in range(20)]
    logs = [brokers.replica(0, topic_id).log for topic_id in topics]
    for log in logs:
        log.create_files()
    removals = [RemoveTopicRecord(topic_id=topic_id) for topic_id in topics]
    deleting = asyncio.create_task(brokers.commit(*removals))
    for _ in range(3):
        await asyncio.sleep(0)
    assert brokers.brokers[0].replicas.table.leader_count == 0
    await deleting
    assert all(log.directory.name.endswith("-delete") for log in logs)


@with_brokers(count=2)
async def test_partitions_moved_away_together_wait_for_the_disk_side_by_side(brokers: Brokers) -> None:
    """As above: a broker that is emptied would obey no other image meanwhile."""
    topic_id = await brokers.create_topic("t", [(0, 1)] * 20)
    logs = [brokers.replica(0, topic_id, number).log for number in range(20)]
    for log in logs:
        log.create_files()
    moves = [
        PartitionChangeRecord(partition_id=number, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1)
        for number in range(20)
    ]
    moving = asyncio.create_task(brokers.commit(*moves))
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(brokers.brokers[0].replicas.table) == 0
    await moving
    assert all(log.directory.name.endswith("-delete") for log in logs)


@with_brokers(config={"replica.lag.time.max.ms": "1000"})
async def test_isrs_of_many_partitions_are_checked_a_slice_at_a_time(brokers: Brokers) -> None:
    """What is due every fifteen seconds must not hold the loop every fifteen seconds."""
    await brokers.create_topic("t", [(0,)] * (SLICE_ITEMS + 1))
    replicas = brokers.brokers[0].replicas
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    with counted_calls() as due:
        replicas.tick(now_ms + 10_000)
    with counted_calls() as not_due:
        replicas.tick(now_ms + 10_001)
    assert due.value - not_due.value < 2 * SLICE_ITEMS


@with_brokers(count=2)
async def test_deletion_of_records_that_waits_for_many_partitions_looks_at_those_that_moved(
    brokers: Brokers,
) -> None:
    """Each of ten thousand partitions reports once; looking at all of them each time took seconds."""
    await brokers.stop(1)  # nobody has heard of it in the topics' leader epochs
    counts = []
    for partitions in (FEW, MANY):
        topic_id = await brokers.create_topic(f"t-{partitions}", [(0, 1)] * partitions)
        body = delete_records(f"t-{partitions}", 0, partitions=partitions)
        request = Request(ApiKey.DELETE_RECORDS, 2, 1, "test", body, memoryview(b""), Client(), "PLAINTEXT")
        steps = steps_of(brokers.brokers[0].apis[ApiKey.DELETE_RECORDS].handler(request))
        while (waiting := steps.send(None)) is None:
            pass
        assert isinstance(waiting, Deferred)
        with counted_calls() as calls:
            await brokers.elect(topic_id, 0, leader=0, isr=[0])
        counts.append(calls.value)
        steps.close()
    few, many = counts
    assert many - few < (MANY - FEW) // 2


@with_brokers(count=2)
async def test_deletion_of_records_of_many_partitions_is_answered_when_the_last_has_followed(
    brokers: Brokers,
) -> None:
    """Whatever is looked at in slices must still be looked at."""
    partitions = SLICE_ITEMS + 1
    await brokers.create_topic("t", [(0, 1)] * partitions)
    channel = await brokers.connect(0)
    response = await channel.request(delete_records("t", 0, timeout_ms=25_000, partitions=partitions))
    assert [(row.partition_index, row.error_code, row.low_watermark) for row in rows(response)] == [
        (number, ErrorCode.none, 0) for number in range(partitions)
    ]
