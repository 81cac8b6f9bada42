"""Offsets of a partition whose first records lie in an object store."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from sparklog.node.remote_log.object_store import StoreUnavailableError
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.remote_reads.tiered import REMOTE, Tiered, segment
from tests.unit.executor.requests import MILLISECOND, batch, delete_records, fetch, produce, rows

EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -3, -4, -5, -6


async def listed(
    channel: Any, timestamp: int, topic: str = "t", timeout_ms: int = 0, replica_id: int = -1
) -> tuple[int, int, int]:
    """Return offset, timestamp and leader epoch that ListOffsets answers."""
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=0,
        topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),),
        timeout=timeout_ms * MILLISECOND,
    )
    (row,) = rows(await channel.request(request))
    if row.error_code is not ErrorCode.none:
        raise LookupError(row.error_code.name)
    return row.offset, row.timestamp, row.leader_epoch


async def refused(channel: Any, timestamp: int, timeout_ms: int = 0) -> str:
    """Return the name of the error that ListOffsets answers."""
    with pytest.raises(LookupError) as error:
        await listed(channel, timestamp, timeout_ms=timeout_ms)
    return str(error.value)


async def produce_at(channel: Any, tiered: Tiered, *timestamps: int) -> None:
    records = [SimpleRecord(None, b"v", (), time_ms) for time_ms in timestamps]
    (row,) = rows(await channel.request(produce(tiered.topic_id, build_batch(records))))
    assert row.error_code is ErrorCode.none


@with_brokers(config=REMOTE)
async def test_special_times_tell_where_tier_and_local_log_begin_and_end(brokers: Brokers) -> None:
    """kafka-get-offsets, followers and an orderly stop ask for them."""
    tiered = await Tiered.create(
        brokers, [segment(range(3, 8)), segment(range(8, 12))], log_start=3, epochs=((0, 0), (2, 8))
    )
    channel = await brokers.connect(0)
    for _ in range(2):
        assert await listed(channel, EARLIEST) == (3, -1, 0)
        assert await listed(channel, EARLIEST_LOCAL) == (12, -1, 2)
        assert await listed(channel, LATEST_TIERED) == (11, -1, 2)
        assert (await listed(channel, EARLIEST_PENDING_UPLOAD))[0] == 12
        await channel.request(produce(tiered.topic_id, batch(5)))
    await tiered.append(segment(range(12, 14)))
    assert (await listed(channel, LATEST_TIERED))[0] == 13
    assert (await listed(channel, EARLIEST_PENDING_UPLOAD))[0] == 14
    assert (await listed(channel, EARLIEST_LOCAL))[0] == 12


@with_brokers(config=REMOTE)
async def test_special_times_of_a_tier_without_records(brokers: Brokers) -> None:
    """Nothing is tiered yet, or this topic has no tier at all."""
    await Tiered.create(brokers, [])
    plain_id = await brokers.create_topic("plain", [(0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(plain_id, batch(3)))
    assert await listed(channel, LATEST_TIERED) == (-1, -1, -1)
    assert (await listed(channel, EARLIEST_PENDING_UPLOAD))[0] == 0
    assert await listed(channel, LATEST_TIERED, "plain") == (-1, -1, -1)
    assert await listed(channel, EARLIEST_PENDING_UPLOAD, "plain") == (-1, -1, -1)


@with_brokers(config=REMOTE)
async def test_follower_gets_no_tiered_end_while_its_leader_may_not_delete_local_records(
    brokers: Brokers,
) -> None:
    """The manifest may be another leader's by now: what the follower deletes by it may be nowhere else."""
    tiered = await Tiered.create(brokers, [segment(range(12))])
    channel = await brokers.connect(0)
    assert await listed(channel, LATEST_TIERED, replica_id=1) == (11, -1, 0)
    tiered.may_drop_local = False
    assert await listed(channel, LATEST_TIERED, replica_id=1) == (-1, -1, -1)
    assert await listed(channel, LATEST_TIERED) == (11, -1, 0)


@with_brokers(config=REMOTE)
async def test_last_tiered_offset_of_a_leader_that_has_not_read_its_manifest_is_not_available(
    brokers: Brokers,
) -> None:
    """A query would be planned as if there were no tier; a follower is to keep what it has."""
    tiered = await Tiered.create(brokers, [segment(range(12))])
    tiered.replica.tier, tiered.replica.awaits_tier = None, True
    channel = await brokers.connect(0)
    assert await refused(channel, LATEST_TIERED) == "offset_not_available"
    assert await listed(channel, LATEST_TIERED, replica_id=1) == (-1, -1, -1)


@with_brokers(config=REMOTE)
async def test_time_is_looked_up_in_the_tier_before_the_local_log(brokers: Brokers) -> None:
    """The first record that is not earlier, wherever it lies; only row groups that may have it are read."""
    times = {offset: 1_000 + offset * 10 for offset in range(20)}
    tiered = await Tiered.create(
        brokers, [segment(range(12), timestamps=times), segment(range(12, 20), timestamps=times)], log_start=2
    )
    channel = await brokers.connect(0)
    await produce_at(channel, tiered, 5_000, 6_000)
    assert await listed(channel, 1_071) == (8, 1_080, 0)
    assert len(tiered.store.gets) == 2
    assert await listed(channel, 0) == (2, 1_020, 0)
    assert await listed(channel, 1_120) == (12, 1_120, 0)
    assert await listed(channel, 1_191) == (20, 5_000, 0)
    assert await listed(channel, 6_000) == (21, 6_000, 0)
    assert await listed(channel, 6_001) == (-1, -1, -1)


@with_brokers(config=REMOTE)
async def test_largest_timestamp_is_that_of_tier_and_local_log_together(brokers: Brokers) -> None:
    """Also where what has the largest of a row group does not count any more."""
    times = {0: 9_999, 1: 100, 2: 300, 3: 200, 4: 8_888, 5: 300, 6: 50}
    tiered = await Tiered.create(
        brokers,
        [segment(range(5), end=4, timestamps=times, row_group_rows=2), segment([5, 6], timestamps=times)],
        log_start=1,
    )
    tiered.replica.tier = tiered
    channel = await brokers.connect(0)
    assert await listed(channel, MAX_TIMESTAMP) == (2, 300, 0)
    await produce_at(channel, tiered, 299)
    assert await listed(channel, MAX_TIMESTAMP) == (2, 300, 0)
    await produce_at(channel, tiered, 301)
    assert await listed(channel, MAX_TIMESTAMP) == (8, 301, 0)


@with_brokers(config=REMOTE)
async def test_time_is_found_in_records_that_leave_the_local_log_during_the_look_up(
    brokers: Brokers,
) -> None:
    """The search of the tier ends before them, and that of the local log begins behind them."""
    tiered = await Tiered.create(
        brokers, [segment(range(12), timestamps={0: 9_999}, row_group_rows=12)], log_start=2
    )
    log = tiered.replica.log
    channel = await brokers.connect(0)
    await produce_at(channel, tiered, 4_500, 5_000)
    log.roll(0)
    await produce_at(channel, tiered, 4_100)
    tiered.store.gate.clear()
    asked = asyncio.ensure_future(listed(channel, 4_000))
    await until(lambda: bool(tiered.store.gets), "the tier is searched")
    await tiered.append(segment(range(12, 14), timestamps={12: 4_500, 13: 5_000}))
    log.reconfigure(replace(log.config, remote_storage_enable=True, local_retention_bytes=0))
    assert log.delete_old_segments(0, 15, tiered_end=14) == 1
    assert log.local_log_start_offset == 14
    tiered.store.gate.set()
    assert await asked == (12, 4_500, 0)


@with_brokers(config={**REMOTE, "remote.fetch.max.wait.ms": "100"})
async def test_time_that_the_store_does_not_give_is_an_error_that_clients_retry(brokers: Brokers) -> None:
    """An answer of the local log alone would be a wrong one."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    await produce_at(channel, tiered, 5_000)
    tiered.store.errors = [StoreUnavailableError("503")] * 10
    assert await refused(channel, 1_001) == "kafka_storage_error"


@with_brokers(config=REMOTE)
async def test_time_that_the_store_does_not_give_in_time_is_an_error_that_clients_retry(
    brokers: Brokers,
) -> None:
    """The request says how long it may take (KIP-1075)."""
    tiered = await Tiered.create(brokers, [segment(range(5))])
    channel = await brokers.connect(0)
    tiered.store.gate.clear()
    assert await refused(channel, 1_001, timeout_ms=50) == "request_timed_out"
    tiered.store.gate.set()
    assert await listed(channel, 1_001) == (1, 1_001, 0)


@with_brokers(config=REMOTE)
async def test_leader_epochs_end_where_they_ended_in_the_tier(brokers: Brokers) -> None:
    """Consumers that come back find out by them whether their records were lost (KIP-320)."""
    epochs = ((0, 0), (2, 8), (5, 10))
    await Tiered.create(brokers, [segment(range(8)), segment(range(8, 12))], epochs=epochs)
    channel = await brokers.connect(0)
    ends = []
    for leader_epoch in (0, 1, 2, 4):
        partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=leader_epoch)
        topics = (OffsetForLeaderTopic(topic="t", partitions=(partition,)),)
        (row,) = rows(await channel.request(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)))
        ends.append((row.leader_epoch, row.end_offset))
    assert ends == [(0, 8), (0, 8), (2, 10), (2, 10)]


@with_brokers(config=REMOTE)
async def test_records_are_deleted_below_the_local_log(brokers: Brokers) -> None:
    """The log start moves at once; the tier's objects follow in the background."""
    tiered = await Tiered.create(brokers, [segment(range(12))])
    channel = await brokers.connect(0)
    await channel.request(produce(tiered.topic_id, batch(2)))
    (row,) = rows(await channel.request(delete_records("t", 7)))
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 7)
    assert (await listed(channel, EARLIEST))[0] == 7
    assert (await listed(channel, EARLIEST_LOCAL))[0] == 12
    assert await listed(channel, 0) == (7, 1_007, 0)
    (row,) = rows(await channel.request(fetch(tiered.topic_id, {0: 6})))
    assert row.error_code is ErrorCode.offset_out_of_range
    (row,) = rows(await channel.request(delete_records("t", 13)))
    assert (await listed(channel, EARLIEST))[0] == (await listed(channel, EARLIEST_LOCAL))[0] == 13


@with_brokers(config=REMOTE)
async def test_log_dirs_count_what_lies_on_the_disk(brokers: Brokers) -> None:
    """The tier's bytes take no room there."""
    tiered = await Tiered.create(brokers, [segment(range(12))])
    channel = await brokers.connect(0)
    await channel.request(produce(tiered.topic_id, batch(2)))
    answer = await channel.request(DescribeLogDirsRequest(topics=None))
    ((row,),) = [topic.partitions for topic in answer.results[0].topics]
    assert (row.partition_size, row.offset_lag) == (tiered.replica.log.size_bytes, 0)
    assert row.partition_size < 200
