"""Followers over real logs, listeners and fetchers: elections, truncation, restarts, deletion."""

import asyncio
import logging

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from sparklog.executor.api.delete_records import DeleteRecordsHandler
from sparklog.node.metadata.schemas import ConfigRecord, PartitionChangeRecord, ResourceType
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import MILLISECOND, batch, delete_records, fetch, produce, rows


def list_offsets(topic: str, timestamp: int, leader_epoch: int = -1) -> ListOffsetsRequest:
    partition = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(ListOffsetsTopic(name=topic, partitions=(partition,)),),
        timeout=1000 * MILLISECOND,
    )


def epoch_end(topic: str, current_leader_epoch: int, leader_epoch: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    )
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=(OffsetForLeaderTopic(topic=topic, partitions=(partition,)),)
    )


@with_brokers(count=3)
async def test_followers_of_a_new_leader_cut_what_it_does_not_have(brokers: Brokers) -> None:
    """The deposed leader's unacknowledged records go, and all three logs agree to the byte."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(2)))
    await brokers.stop(1)
    await brokers.stop(2)
    await channel.request(produce(topic_id, batch(3), acks=1))
    assert brokers.replica(0, topic_id).log.log_end_offset == 5
    await brokers.stop(0)
    await brokers.elect(topic_id, 0, leader=1, isr=[1])
    await brokers.start(1)
    await brokers.start(2)
    writer = await brokers.connect(1)
    (row,) = rows(await writer.request(produce(topic_id, batch(4, b"other"))))
    assert row.base_offset == 2
    await brokers.start(0)
    replicas = [brokers.replica(broker_id, topic_id) for broker_id in range(3)]
    await until(lambda: {r.log.log_end_offset for r in replicas} == {6}, "the logs agree")
    regions = [r.log.read(0, max_bytes=1 << 20, up_to_offset=6).region for r in replicas]
    assert len({region.read() for region in regions if region is not None}) == 1


@with_brokers(count=2)
async def test_follower_whose_log_was_changed_behind_it_appends_nothing_until_it_follows_anew(
    brokers: Brokers,
) -> None:
    """Records behind a hole would make it a member of the ISR; its neighbours on the connection go on."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(3), batch(3)))
    changed, other = (brokers.replica(1, topic_id, partition) for partition in (0, 1))
    changed.log.truncate_to(0)
    await channel.request(produce(topic_id, batch(3), batch(3), acks=1))
    await until(lambda: other.log.log_end_offset == 6, "the other one goes on")
    assert changed.log.log_end_offset == 0
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: changed.log.log_end_offset == 6, "it fetches all of it")


@with_brokers(count=2)
async def test_follower_suspects_its_leader_from_the_loss_of_the_connection_until_it_is_served(
    brokers: Brokers,
) -> None:
    """Clients that ask it who leads are not to be sent to a dead broker."""
    await brokers.create_topic("t", [(0, 1)])
    suspicions = brokers.brokers[1].suspicions
    fetcher = next(iter(brokers.brokers[1].replicas._fetchers._fetchers.values()))
    await until(lambda: fetcher.requests_answered > 0, "the leader has answered a fetch")
    assert not suspicions.is_any_suspected({0})
    await brokers.stop(0)
    await until(lambda: suspicions.is_any_suspected({0}), "the leader is suspected")
    await brokers.start(0)
    await until(lambda: not suspicions.is_any_suspected({0}), "the leader is trusted")


@with_brokers(count=2)
async def test_follower_back_in_reach_joins_the_isr_again(brokers: Brokers) -> None:
    """Out of the ISR while away, in it as soon as it has caught up, without another append."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(5)))
    await brokers.start(1)
    replica = brokers.replica(0, topic_id)
    await until(lambda: replica.leadership is not None and replica.leadership.isr == {0, 1}, "the ISR grows")
    assert brokers.replica(1, topic_id).log.log_end_offset == 5


@with_brokers(count=2, config={"replica.fetch.wait.max.ms": "10000"})
async def test_follower_of_one_more_partition_does_not_wait_for_its_held_fetch(brokers: Brokers) -> None:
    """After an election acks=all must not wait for a long poll that is about other partitions."""
    await brokers.create_topic("quiet", [(0, 1)])
    held = next(iter(brokers.brokers[1].replicas._fetchers._fetchers.values()))
    loop = asyncio.get_running_loop()
    fetches = held._fetches
    await until(lambda: fetches._session_id > 0 and fetches.under_way == 1, "a fetch is held")
    topic_id = await brokers.create_topic("busy", [(0, 1)])
    channel = await brokers.connect(0)
    started = loop.time()
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert row.error_code is ErrorCode.none
    assert loop.time() - started < 8, "held fetches last 10 s"


@with_brokers(count=2)
async def test_follower_far_behind_starts_again_at_the_leaders_start(brokers: Brokers) -> None:
    """What it lacks is no longer anywhere."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    channel = await brokers.connect(0)
    for _ in range(5):
        await channel.request(produce(topic_id, batch()))
    (row,) = rows(await channel.request(delete_records("t", 3, timeout_ms=20)))
    assert row.error_code is ErrorCode.request_timed_out
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 5, "the follower catches up")
    assert follower.log.log_start_offset == 3


@with_brokers(count=2)
async def test_new_follower_of_a_log_that_starts_within_a_batch_catches_up(brokers: Brokers) -> None:
    """DeleteRecords goes by offsets, and a follower is sent whole batches: it could never be moved again."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    for _ in range(3):
        await channel.request(produce(topic_id, batch(10)))
    (row,) = rows(await channel.request(delete_records("t", 15)))
    assert row.error_code == ErrorCode.none
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(0, 1)))
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 30, "the follower has everything")
    assert (follower.log.log_start_offset, follower.log.first_segment_base_offset) == (15, 10)
    await brokers.stop(1)
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (15, 30)


@with_brokers(count=2)
async def test_delete_records_is_answered_when_the_followers_have_let_go_too(brokers: Brokers) -> None:
    """The low watermark in the answer holds on every replica."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    for _ in range(4):
        await channel.request(produce(topic_id, batch()))
    (row,) = rows(await channel.request(delete_records("t", 3)))
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 3)
    assert brokers.replica(1, topic_id).log.log_start_offset == 3
    (row,) = rows(await channel.request(delete_records("t", -1)))
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 4)
    (row,) = rows(await channel.request(delete_records("t", 9)))
    assert row.error_code is ErrorCode.offset_out_of_range


@with_brokers(count=3)
async def test_delete_records_with_a_broker_down_waits_only_until_it_is_fenced(brokers: Brokers) -> None:
    """Else nobody could delete records while one of three machines is being repaired."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    channel = await brokers.connect(0)
    for _ in range(3):
        await channel.request(produce(topic_id, batch()))
    await brokers.stop(2)
    waiting = asyncio.ensure_future(channel.request(delete_records("t", 2, timeout_ms=30_000)))
    live = brokers.replica(1, topic_id)
    await until(lambda: live.log.log_start_offset == 2, "the live follower lets go")
    assert not waiting.done()
    await brokers.fence(2)
    (row,) = rows(await waiting)
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 2)
    (row,) = rows(await channel.request(delete_records("t", 3, timeout_ms=30_000)))
    assert (row.error_code, row.low_watermark) == (ErrorCode.none, 3)


@with_brokers(count=1)
async def test_leaders_requests_while_the_lease_is_out_are_refused_whichever_comes_first(
    brokers: Brokers,
) -> None:
    """A process that was stopped finds its requests before its timers, and others may lead by then."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    for request in (
        fetch(topic_id, {0: 0}),
        list_offsets("t", -1),
        epoch_end("t", -1, 0),
        delete_records("t", -1),
    ):
        brokers.brokers[0].holds_lease = True
        (row,) = rows(await channel.request(produce(topic_id, batch())))
        assert row.error_code is ErrorCode.none
        brokers.brokers[0].holds_lease = False
        (row,) = rows(await channel.request(request))
        assert row.error_code is ErrorCode.not_leader_or_follower, request
    assert brokers.replica(0, topic_id).log.log_start_offset == 0


@with_brokers(count=2)
async def test_delete_records_of_a_client_that_is_gone_waits_no_more(brokers: Brokers) -> None:
    """Its timeout is the client's choice and may be weeks."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))
    await brokers.stop(1)
    replicas = brokers.brokers[0].replicas
    waiting = asyncio.ensure_future(channel.request(delete_records("t", 1, timeout_ms=2**31 - 1)))
    handler = next(one for one in replicas.listeners if isinstance(one, DeleteRecordsHandler))
    await until(lambda: len(replicas.delayed) == 1, "it waits for the follower")
    channel.close()
    await until(lambda: len(replicas.delayed) == 0, "it is forgotten")
    assert not handler.waiting
    await asyncio.gather(waiting, return_exceptions=True)


@with_brokers(count=2)
async def test_list_offsets_answers_ends_and_times(brokers: Brokers) -> None:
    """Start, end, the newest time, a time between, a time after everything, a wrong epoch."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    for _ in range(3):
        await channel.request(produce(topic_id, batch()))

    async def ask(timestamp: int, leader_epoch: int = -1) -> tuple[ErrorCode, int]:
        (row,) = rows(await channel.request(list_offsets("t", timestamp, leader_epoch)))
        return row.error_code, row.offset

    assert await ask(-2) == (ErrorCode.none, 0)
    assert await ask(-1) == (ErrorCode.none, 3)
    assert await ask(0) == (ErrorCode.none, 0)
    assert await ask(1 << 50) == (ErrorCode.none, -1)
    assert (await ask(-3))[0] is ErrorCode.none
    assert await ask(-5) == (ErrorCode.none, -1)
    assert await ask(-1, 7) == (ErrorCode.unknown_leader_epoch, -1)


@with_brokers(count=1)
async def test_list_offsets_by_a_special_time_of_a_later_version_is_refused(brokers: Brokers) -> None:
    """-1 would be taken for an answer; the client is to learn that its question was not understood."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))

    async def refused_versions(timestamp: int) -> list[int]:
        refused = []
        for version in range(1, 12):
            request = downgrade(list_offsets("t", timestamp), version)
            (row,) = rows(await channel.request(request))
            if row.error_code is not ErrorCode.none:
                assert (row.error_code, row.offset) == (ErrorCode.unsupported_version, -1)
                refused.append(version)
        return refused

    assert await refused_versions(-1) == await refused_versions(-2) == []
    assert await refused_versions(-3) == list(range(1, 7))
    assert await refused_versions(-4) == list(range(1, 8))
    assert await refused_versions(-5) == list(range(1, 9))
    assert await refused_versions(-6) == list(range(1, 11))
    assert await refused_versions(-7) == await refused_versions(-(2**63)) == list(range(1, 12))


@with_brokers(count=2)
async def test_list_offsets_of_a_new_leader_waits_for_its_high_watermark(brokers: Brokers) -> None:
    """The end of the log must not seem to go back after an election (KIP-207)."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch()))
    await brokers.stop(1)
    await channel.request(produce(topic_id, batch(), acks=1))
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    (row,) = rows(await channel.request(list_offsets("t", -1)))
    assert row.error_code is ErrorCode.offset_not_available


@with_brokers(count=1)
async def test_offset_for_leader_epoch_answers_where_epochs_end(brokers: Brokers) -> None:
    """A consumer that was cut off finds out where its log and this one part (KIP-320)."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(2)))
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await channel.request(produce(topic_id, batch(3)))

    async def ask(leader_epoch: int) -> tuple[int, int]:
        (row,) = rows(await channel.request(epoch_end("t", 1, leader_epoch)))
        return row.leader_epoch, row.end_offset

    assert await ask(0) == (0, 2)
    assert await ask(1) == (1, 5)
    assert await ask(9) == (-1, -1)


@with_brokers(count=2)
async def test_broker_restarted_cleanly_has_its_records_and_high_watermarks(brokers: Brokers) -> None:
    """A shutdown closes logs and writes checkpoints; nothing is fetched again."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(7)))
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.high_watermark == 7, "the follower learns the high watermark")
    await brokers.stop(1)
    await brokers.stop(0)
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    assert (follower.log.log_end_offset, follower.high_watermark) == (7, 7)


@with_brokers(count=1)
async def test_topic_recreated_under_its_name_does_not_show_the_old_records(brokers: Brokers) -> None:
    """Topic ids keep the two apart (KIP-516), on the disk too."""
    first = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(first, batch(5)))
    await brokers.delete_topic(first)
    second = await brokers.create_topic("t", [(0,)])
    (row,) = rows(await channel.request(fetch(second, {0: 0})))
    assert (row.error_code, row.high_watermark) == (ErrorCode.none, 0)
    (row,) = rows(await channel.request(produce(first, batch())))
    assert row.error_code is ErrorCode.unknown_topic_id


@with_brokers(count=1)
async def test_topic_deleted_while_its_broker_was_away_is_set_aside_at_start(brokers: Brokers) -> None:
    """The directory is kept under a name that says so, and a new topic of that name starts empty."""
    first = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await channel.request(produce(first, batch(5)))
    directory = brokers.replica(0, first).log.directory.parent
    await brokers.stop(0)
    await brokers.delete_topic(first)
    second = await brokers.create_topic("t", [(0,)])
    await brokers.start(0)
    assert brokers.replica(0, second).log.log_end_offset == 0
    assert [path.name for path in directory.iterdir() if path.name.endswith("-stray")]


@with_brokers(count=3)
async def test_topic_recreated_while_a_replica_was_away_is_copied_to_it_from_the_start(
    brokers: Brokers,
) -> None:
    """What lies there under the topic's name is longer than the new log, and no part of it."""
    first = await brokers.create_topic("t", [(0, 1, 2)])
    channel = await brokers.connect(0)
    await channel.request(produce(first, batch(5)))
    directory = brokers.replica(2, first).log.directory.parent
    await brokers.stop(2)
    await brokers.delete_topic(first)
    second = await brokers.create_topic("t", [(0, 1, 2)])
    await channel.request(produce(second, batch(2, b"other"), acks=1))
    assert brokers.replica(0, second).high_watermark == 0
    await brokers.start(2)
    leader, returned = brokers.replica(0, second), brokers.replica(2, second)
    await until(lambda: returned.log.log_end_offset == 2, "the replica that was away has what is new")
    await until(lambda: leader.high_watermark == 2, "it counts")
    held = [replica.log.read(0, max_bytes=1 << 20, up_to_offset=2).region for replica in (leader, returned)]
    assert len({None if region is None else region.read() for region in held}) == 1
    assert [path.name for path in directory.iterdir() if path.name.endswith("-stray")]


@with_brokers(count=2)
async def test_follower_of_a_deleted_topic_is_refused_by_the_leader_of_its_successor(
    brokers: Brokers,
) -> None:
    """It asks for where its own log ends, and that says nothing about the new one."""
    first = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(first, batch(5)))
    await brokers.stop(1)
    await brokers.delete_topic(first)
    second = await brokers.create_topic("t", [(0, 1)])
    await channel.request(produce(second, batch(5), acks=1))
    late = fetch(first, {0: 5}, replica=(1, brokers.image.brokers[1].broker_epoch), leader_epoch=0)
    (row,) = rows(await channel.request(late))
    assert row.error_code is ErrorCode.unknown_topic_id
    leader = brokers.replica(0, second).leadership
    assert leader is not None
    assert (leader.followers[1].log_end_offset, leader.high_watermark) == (None, 0)


@with_brokers(count=1)
async def test_topic_configuration_changed_is_obeyed_at_once(brokers: Brokers) -> None:
    """Dynamic configs reach the partitions through the metadata log like everything else."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    await brokers.commit(
        ConfigRecord(
            resource_type=ResourceType.TOPIC, resource_name="t", name="max.message.bytes", value="100"
        )
    )
    (row,) = rows(await channel.request(produce(topic_id, batch(value=bytes(200)))))
    assert row.error_code is ErrorCode.message_too_large


@with_brokers(count=2, config={"broker.heartbeat.interval.ms": "100"})
async def test_lost_leader_is_noted_at_once_and_warned_of_when_it_stays_away(brokers: Brokers) -> None:
    """A leader that leaves with a whole cluster is no cause for alarm; one that nobody replaces is."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("sparklog.executor.fetching.fetcher")
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(1)))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        await brokers.stop(0)
        await until(
            lambda: any(record.levelno == logging.WARNING for record in records), "the follower warns"
        )
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(handler)
    noted, warned = (record for record in records if "fetching from broker 0" in record.getMessage())
    assert noted.levelno == logging.INFO
    # Waited for by a monotonic clock, told here by the wall's: they differ by a little.
    assert warned.created - noted.created >= 0.19


@with_brokers(count=3)
async def test_partition_that_is_moved_is_copied_to_the_new_replica_and_deleted_from_the_old(
    brokers: Brokers,
) -> None:
    """In this order: the new one is asked for by itself, the old one goes when the metadata says so."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(5)))
    await brokers.commit(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(2, 1, 0),
            adding_replicas=(2,),
            removing_replicas=(0,),
        )
    )
    leader = brokers.replica(0, topic_id)
    await until(lambda: leader.leadership is not None and leader.leadership.isr == {0, 1, 2}, "the ISR grows")
    assert brokers.replica(2, topic_id).log.log_end_offset == 5
    await brokers.commit(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(2, 1),
            isr=(1, 2),
            leader=2,
            adding_replicas=(),
            removing_replicas=(),
        )
    )
    assert brokers.brokers[0].replicas.table.get(topic_id, 0) is None
    assert leader.log.directory.name.endswith("-delete")
    writer = await brokers.connect(2)
    (row,) = rows(await writer.request(produce(topic_id, batch(1))))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 5)


@with_brokers(count=2)
async def test_partition_that_comes_back_to_a_broker_begins_with_an_empty_log(brokers: Brokers) -> None:
    """Its old log, of which the leader no longer knows how far it went, is not what it goes on with."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(5)))
    old_log = brokers.replica(1, topic_id).log
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(0,), isr=(0,), leader=0)
    )
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(0, 1)))
    replica = brokers.replica(0, topic_id)
    await until(
        lambda: replica.leadership is not None and replica.leadership.isr == {0, 1}, "it is in sync again"
    )
    new_log = brokers.replica(1, topic_id).log
    assert new_log is not old_log
    assert (old_log.directory.name.endswith("-delete"), new_log.log_end_offset) == (True, 5)


@with_brokers(count=2)
async def test_replica_whose_log_was_begun_again_takes_its_next_role_with_what_is_there(
    brokers: Brokers,
) -> None:
    """Its high watermark is not above its log, whichever role it had when the records went."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, batch(5)))
    replica = brokers.replica(0, topic_id)
    await until(lambda: replica.high_watermark == 5, "all is committed")
    replica.log.truncate_fully_and_start_at(0)
    replica.load_producers()
    await until(lambda: replica.log.loading is None, "the producers are known")
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    assert (replica.high_watermark, replica.log.log_end_offset) == (0, 0)
