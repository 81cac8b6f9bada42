"""Replicas whose logs were cut and whose producers are still being read, beside a loop that goes on."""

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from sparklog.node.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_disk_failures import failing
from tests.unit.executor.requests import batch, fetch, produce, rows
from tests.unit.sparklog.node.storage.calls import calls_of

NO_BACKOFF_HELPS = {"replica.fetch.backoff.ms": "60000", "replica.fetch.wait.max.ms": "10"}


def sent(sequence: int, producer_id: int = 7) -> bytes:
    records = [SimpleRecord(None, b"v", (), 0)]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


async def answer(brokers: Brokers, broker_id: int, topic_id: UUID, data: bytes, acks: int = -1) -> Any:
    channel = await brokers.connect(broker_id)
    (row,) = rows(await channel.request(produce(topic_id, data, acks=acks)))
    return row.error_code, row.base_offset


@asynccontextmanager
async def cut_and_held(
    brokers: Brokers, cleaned_offset: int | None = None
) -> AsyncIterator[tuple[UUID, threading.Event]]:
    """Broker 0 has cut what only it had; reading its log beside the loop waits for the event.

    `cleaned_offset` is what its checkpoint says of the log then.
    """
    topic_id = await brokers.create_topic("t", [(0, 1)])
    assert await answer(brokers, 0, topic_id, sent(0)) == (ErrorCode.none, 0)
    await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == 1, "the first record at both")
    await brokers.stop(1)
    # The first batch of a producer is not taken back without loading.
    for offset, records in ((1, sent(1)), (2, sent(0, producer_id=8))):
        assert await answer(brokers, 0, topic_id, records, acks=1) == (ErrorCode.none, offset)
    checkpoint = brokers.brokers[0].directory.path / CLEANER_OFFSET_CHECKPOINT
    await brokers.stop(0)
    if cleaned_offset is not None:
        write_offsets(checkpoint, {TopicPartition("t", 0): cleaned_offset})
    await brokers.elect(topic_id, 0, leader=1, isr=[1])
    await brokers.start(1)
    assert await answer(brokers, 1, topic_id, batch(1, b"other")) == (ErrorCode.none, 1)
    may_go_on = threading.Event()

    def hold(path: str, _: object) -> None:
        if path.endswith(".log") and threading.current_thread().name.startswith("sparklog-log"):
            may_go_on.wait(20)

    with calls_of("pread", hold):
        try:
            await brokers.start(0)
            await until(lambda: brokers.replica(0, topic_id).log.loading is not None, "the cut")
            assert brokers.replica(0, topic_id).log.log_end_offset == 1
            yield topic_id, may_go_on
        finally:
            may_go_on.set()


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_follower_whose_log_was_cut_goes_on_as_soon_as_its_producers_are_loaded(
    brokers: Brokers,
) -> None:
    """Until then its loop serves everybody else, and it appends nothing; afterwards it does not wait."""
    async with cut_and_held(brokers) as (topic_id, may_go_on):
        replica = brokers.replica(0, topic_id)
        other_id = await brokers.create_topic("u", [(0, 1)])
        assert await answer(brokers, 0, other_id, batch()) == (ErrorCode.none, 0)
        assert (replica.log.log_end_offset, replica.log.loading is None) == (1, False)
        may_go_on.set()
        await until(lambda: replica.log.log_end_offset == 2, "the leader's record")
    assert replica.log.producers.producers[7].batches[-1].last_sequence == 0


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_follower_whose_log_was_cut_by_its_last_batches_fetches_on_without_reading_it(
    brokers: Brokers,
) -> None:
    """A former leader has a few batches of its own nearly always: writes with acks=all wait for its fetch."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    for sequence in range(3):
        assert await answer(brokers, 0, topic_id, sent(sequence)) == (ErrorCode.none, sequence)
    await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == 3, "the records at both")
    await brokers.stop(1)
    for sequence in (3, 4):
        assert await answer(brokers, 0, topic_id, sent(sequence), acks=1) == (ErrorCode.none, sequence)
    reading = []

    def note(path: str, _: object) -> None:
        if path.endswith(".log") and threading.current_thread().name.startswith("sparklog-log"):
            reading.append(path)

    with calls_of("pread", note):
        await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
        await brokers.start(1)
        assert await answer(brokers, 1, topic_id, sent(3)) == (ErrorCode.none, 3)
    replica = brokers.replica(0, topic_id)
    assert (replica.log.loading, replica.log.log_end_offset, reading) == (None, 4, [])
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    assert await answer(brokers, 0, topic_id, sent(3)) == (ErrorCode.none, 3)
    assert await answer(brokers, 0, topic_id, sent(4)) == (ErrorCode.none, 4)


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_log_cut_below_what_was_cleaned_has_the_file_say_so_before_it_takes_anything_in(
    brokers: Brokers,
) -> None:
    """Whoever crashes just after that would never clean what was written there since."""
    async with cut_and_held(brokers, cleaned_offset=3) as (topic_id, may_go_on):
        replica = brokers.replica(0, topic_id)
        checkpoint = brokers.brokers[0].directory.path / CLEANER_OFFSET_CHECKPOINT
        assert (read_offsets(checkpoint), replica.log.log_end_offset) == ({TopicPartition("t", 0): 3}, 1)
        may_go_on.set()
        await until(lambda: replica.log.log_end_offset == 2, "the leader's record")
        # Nobody has ticked: no job of the upkeep has run.
        assert read_offsets(checkpoint) == {TopicPartition("t", 0): 1}


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_leader_elected_before_its_producers_are_loaded_serves_nobody_until_they_are(
    brokers: Brokers,
) -> None:
    """It would append the retry of a record that it has."""
    async with cut_and_held(brokers) as (topic_id, may_go_on):
        replica = brokers.replica(0, topic_id)
        await brokers.elect(topic_id, 0, leader=0, isr=[0])
        assert replica.leadership is not None
        refused = ErrorCode.not_leader_or_follower
        assert (await answer(brokers, 0, topic_id, sent(0)))[0] is refused
        (row,) = rows(await (await brokers.connect(0)).request(fetch(topic_id, {0: 0})))
        assert row.error_code is refused
        may_go_on.set()
        await until(lambda: replica.log.loading is None, "the producers")
        assert await answer(brokers, 0, topic_id, sent(0)) == (ErrorCode.none, 0)
        assert await answer(brokers, 0, topic_id, sent(1)) == (ErrorCode.none, 1)
    assert replica.log.log_end_offset == 2


@with_brokers(count=2)
async def test_topic_deleted_while_its_producers_are_loaded_waits_for_nothing(brokers: Brokers) -> None:
    """The disk may be slow; the others' metadata is not held up, and nothing has failed afterwards."""
    async with cut_and_held(brokers) as (topic_id, _):
        await brokers.delete_topic(topic_id)
        other_id = await brokers.create_topic("t", [(0, 1)])
        assert await answer(brokers, 0, other_id, sent(5)) == (ErrorCode.none, 0)
    assert brokers.brokers[0].failed_directories == []


@with_brokers(count=2)
async def test_directory_that_fails_while_producers_are_loaded_stays_offline(brokers: Brokers) -> None:
    """What the loading brings then is of no use to anybody."""
    async with cut_and_held(brokers) as (topic_id, may_go_on):
        replica = brokers.replica(0, topic_id)
        broker = brokers.brokers[0]
        broker.replicas.failures.directory_failed(broker.directory, OSError(5, "Input/output error"))
        may_go_on.set()
    await brokers.stop(0)
    assert (replica.offline, replica.follower_state, replica.leadership) == (True, None, None)


@with_brokers()
async def test_producers_that_cannot_be_loaded_for_lack_of_memory_are_loaded_later(brokers: Brokers) -> None:
    """The replica served nothing, and fetched nothing, until the broker was started again."""
    topic_id = await brokers.create_topic("t", [(0,)])
    for offset, records in ((0, sent(0)), (1, sent(0, producer_id=8))):
        assert await answer(brokers, 0, topic_id, records) == (ErrorCode.none, offset)
    replica = brokers.replica(0, topic_id)
    replica.log.truncate_to(1)
    assert replica.log.loading is not None
    with failing("pread", errno.ENOMEM, of="/t-0/") as refused:
        replica.load_producers()
        await until(lambda: bool(refused), "the load that was refused")
    await until(lambda: replica.log.loading is None, "the load")
    assert (list(replica.log.producers.producers), replica.offline) == ([7], False)


@asynccontextmanager
async def about_to_cut_what_is_checkpointed(brokers: Brokers) -> AsyncIterator[tuple[UUID, list[int]]]:
    """Broker 0 follows the new leader with two records of its own on its disk.

    Yields the topic and what its recovery-point checkpoint says whenever something is appended.
    """
    topic_id = await brokers.create_topic("t", [(0, 1)])
    assert await answer(brokers, 0, topic_id, batch()) == (ErrorCode.none, 0)
    await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == 1, "the first record at both")
    await brokers.stop(1)
    for offset in (1, 2):
        assert await answer(brokers, 0, topic_id, batch(), acks=1) == (ErrorCode.none, offset)
    log = brokers.replica(0, topic_id).log
    log.flush()
    checkpoint = log.directory.parent / RECOVERY_POINT_CHECKPOINT
    told: list[int] = []

    def note(path: str, _: object) -> None:
        if path.startswith(str(log.directory)):
            told.append(read_offsets(checkpoint).get(log.topic_partition, 0))

    with calls_of("pwritev", note):
        yield topic_id, told


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_follower_whose_log_was_cut_appends_when_its_recovery_point_is_written(
    brokers: Brokers,
) -> None:
    """A power failure would have recovery trust what is being written over what was on the disk."""
    async with about_to_cut_what_is_checkpointed(brokers) as (topic_id, told):
        await brokers.stop(0)
        await brokers.elect(topic_id, 0, leader=1, isr=[1])
        await brokers.start(1)
        assert await answer(brokers, 1, topic_id, batch(1, b"other")) == (ErrorCode.none, 1)
        await brokers.start(0)
        await until(lambda: brokers.replica(0, topic_id).log.log_end_offset == 2, "the leader's record")
        assert told == [1]


@with_brokers(count=2, config=NO_BACKOFF_HELPS)
async def test_checkpoint_begun_before_a_log_was_cut_is_not_what_remains_of_it(brokers: Brokers) -> None:
    """A slow disk may still be at what was true before."""
    async with about_to_cut_what_is_checkpointed(brokers) as (topic_id, told):
        replica = brokers.replica(0, topic_id)
        is_writing, may_go_on = threading.Event(), threading.Event()

        def hold(path: str, _: object) -> None:
            # The checksums are there, what they are of comes next.
            if path.endswith("broker-0") and not is_writing.is_set():
                is_writing.set()
                may_go_on.wait(20)

        with calls_of("fsync", hold) as synced:
            try:
                loop = asyncio.get_running_loop()
                brokers.brokers[0].replicas.tick(int(loop.time() * 1000) + 3_600_000)
                await until(is_writing.is_set, "the checkpoint being written")
                await brokers.start(1)
                await brokers.elect(topic_id, 0, leader=1, isr=[1])
                await until(lambda: replica.log.log_end_offset == 1, "the cut")
                assert await answer(brokers, 1, topic_id, batch(1, b"other"), acks=1) == (ErrorCode.none, 1)
                assert replica.log.loading is not None
            finally:
                may_go_on.set()
            await until(lambda: replica.log.log_end_offset == 2, "the leader's record")
            last = f"broker-0/{REPLICATION_OFFSET_CHECKPOINT}"
            await until(lambda: any(last in path for path in synced), "the end of the older run")
        checkpoint = replica.log.directory.parent / RECOVERY_POINT_CHECKPOINT
        assert (told, read_offsets(checkpoint)[replica.topic_partition]) == ([1], 1)
