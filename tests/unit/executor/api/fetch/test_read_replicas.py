"""Consumers that read from a replica near to them (KIP-392)."""

from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from sparklog.executor.partitions.machine.damage import Damage
from sparklog.executor.partitions.machine.leader import FollowerProgress, PartitionLeader
from sparklog.executor.partitions.machine.preferred_read_replica import preferred_read_replica
from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.schemas import DAMAGED_DIRECTORY, PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicIdPartition
from tests.unit.executor.api.fetch.test_fetch import fill, offsets_of
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import fetch, rows

BY_RACK = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


def in_rack(rack: str, topic_id: UUID, offset: int, **rest: Any) -> Any:
    return fetch(topic_id, {0: offset}, rack_id=rack, **rest)


async def read(channel: Channel, request: Any) -> Any:
    (row,) = rows(await channel.request(request))
    return row


@with_brokers(count=3, config=BY_RACK)
async def test_consumer_with_a_rack_is_sent_to_the_replica_there_and_reads_committed_records_from_it(
    brokers: Brokers,
) -> None:
    """The leader names the follower at once and sends nothing; the follower has the same records."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3)
    await until(lambda: brokers.replica(1, topic_id).high_watermark == 3, "the follower knows")
    row = await read(leader, in_rack("rack-1", topic_id, 1, max_wait_ms=60_000, min_bytes=1_000_000))
    assert (row.error_code, row.preferred_read_replica, offsets_of(row)) == (ErrorCode.none, 1, [])
    assert (row.high_watermark, row.log_start_offset) == (3, 0)
    row = await read(follower, in_rack("rack-1", topic_id, 1))
    assert (row.error_code, row.preferred_read_replica, offsets_of(row)) == (ErrorCode.none, -1, [1, 2])


@with_brokers(count=2, config=BY_RACK)
async def test_consumer_reads_from_the_leader_without_a_replica_nearer_to_it(brokers: Brokers) -> None:
    """Without a rack, in the leader's own, or in one without replicas."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader = await brokers.connect(0)
    await fill(leader, topic_id, 1, acks=-1)
    for rack in ("", "rack-0", "elsewhere"):
        row = await read(leader, in_rack(rack, topic_id, 0))
        assert (row.preferred_read_replica, offsets_of(row)) == (-1, [0]), rack


@with_brokers(count=2)
async def test_consumer_with_a_rack_reads_from_the_leader_without_a_selector(brokers: Brokers) -> None:
    """As in Kafka, whose brokers have none by default."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader = await brokers.connect(0)
    await fill(leader, topic_id, 1, acks=-1)
    row = await read(leader, in_rack("rack-1", topic_id, 0))
    assert (row.preferred_read_replica, offsets_of(row)) == (-1, [0])


@with_brokers(count=2)
async def test_consumer_that_waits_at_a_follower_gets_records_when_they_are_committed(
    brokers: Brokers,
) -> None:
    """The follower learns the high watermark one fetch after the records, and no reader polls meanwhile."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    waiting = follower.request(in_rack("", topic_id, 0, max_wait_ms=60_000, min_bytes=1))
    await until(lambda: bool(brokers.replica(1, topic_id).progress.consumer_readers), "the fetch waits")
    await fill(leader, topic_id, 1, acks=-1)
    (row,) = rows(await waiting)
    assert (row.error_code, offsets_of(row)) == (ErrorCode.none, [0])


@with_brokers(count=2)
async def test_followers_records_beyond_its_high_watermark_are_not_read(brokers: Brokers) -> None:
    """They may be lost yet: an offset that the follower has and does not know to be committed is empty."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 2, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 2, "the follower knows")
    await brokers.stop(0)
    replica.progress.high_watermark = 1
    assert offsets_of(await read(follower, in_rack("", topic_id, 0))) == [0]
    row = await read(follower, in_rack("", topic_id, 1))
    assert (row.error_code, offsets_of(row)) == (ErrorCode.none, [])
    row = await read(follower, in_rack("", topic_id, 3))
    assert row.error_code == ErrorCode.offset_out_of_range


@with_brokers(count=2)
async def test_follower_answers_consumers_of_its_leader_epoch_alone(brokers: Brokers) -> None:
    """A consumer of another leadership may be on a branch of the log that no longer exists (KIP-320)."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    follower = await brokers.connect(1)
    epoch = brokers.replica(1, topic_id).leader_epoch
    assert epoch is not None
    row = await read(follower, in_rack("", topic_id, 0, leader_epoch=epoch + 1))
    assert row.error_code == ErrorCode.unknown_leader_epoch


@with_brokers(count=2)
async def test_error_of_a_follower_has_no_high_watermark_for_a_consumer(brokers: Brokers) -> None:
    """librdkafka goes back to the leader only for an offset above it, and otherwise resets its position."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    replica.log.advance_log_start_offset(2)
    row = await read(follower, in_rack("rack-1", topic_id, 1))
    assert (row.error_code, row.high_watermark, row.last_stable_offset) == (
        ErrorCode.offset_out_of_range,
        -1,
        -1,
    )


@with_brokers(count=2)
async def test_consumer_leaves_a_follower_with_damaged_records_and_the_follower_is_repaired(
    brokers: Brokers,
) -> None:
    """It got CORRUPT_MESSAGE, at which clients give up, though the leader has the records."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    break_header(replica.log.directory, at_offset=1)
    row = await read(follower, in_rack("rack-1", topic_id, 0, partition_max_bytes=250))
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert brokers.brokers[1].told_directories == [(TopicIdPartition(topic_id, 0), DAMAGED_DIRECTORY)]
    # As the controller does then.
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: replica.high_watermark == 3, "the follower has fetched the records again")
    assert offsets_of(await read(follower, in_rack("rack-1", topic_id, 1))) == [1, 2]


@with_brokers(count=2)
async def test_damaged_follower_that_is_the_last_in_sync_keeps_what_it_has(brokers: Brokers) -> None:
    """It may yet lead with the rest of the only copy."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    await brokers.stop(0)
    await brokers.elect(topic_id, 0, leader=0, isr=[1])
    break_header(replica.log.directory, at_offset=1)
    row = await read(follower, in_rack("rack-1", topic_id, 0, partition_max_bytes=250))
    assert row.error_code == ErrorCode.not_leader_or_follower
    assert (replica.damage, brokers.brokers[1].told_directories) == (None, [])


@with_brokers(count=2)
async def test_damaged_follower_is_not_truncated_while_the_metadata_counts_on_its_log(
    brokers: Brokers,
) -> None:
    """The ISR may shrink by lag before the report is committed; a leader from the ELR has all records."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    break_header(replica.log.directory, at_offset=1)
    await read(follower, in_rack("rack-1", topic_id, 0, partition_max_bytes=250))
    assert replica.damage is not None
    change = partial(PartitionChangeRecord, partition_id=0, topic_id=topic_id)
    await brokers.commit(change(isr=(0,), eligible_leader_replicas=(1,)))
    assert replica.log.log_end_offset == 3, "eligible to lead"
    await brokers.commit(change(leader=-1, isr=(), eligible_leader_replicas=(), last_known_elr=(0, 1)))
    assert replica.log.log_end_offset == 3, "perhaps the longest log"
    await brokers.commit(change(last_known_elr=(0,)))
    assert replica.log.log_end_offset == 3, "without a leader there is no other copy"
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await brokers.commit(change(last_known_elr=()))
    await until(lambda: replica.damage is None and replica.high_watermark == 3, "fetched again")
    assert offsets_of(await read(follower, in_rack("rack-1", topic_id, 1))) == [1, 2]


@with_brokers(count=2)
async def test_damaged_follower_that_was_among_the_last_known_is_repaired_in_the_same_leader_epoch(
    brokers: Brokers,
) -> None:
    """It had begun to follow with its damage: it would go on at its former end, with a hole before that."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    replica.found_damage(Damage(1, 2, "a bit has flipped"))
    brokers.refuse_proposals = ErrorCode.ineligible_replica
    change = partial(PartitionChangeRecord, partition_id=0, topic_id=topic_id)
    await brokers.commit(change(leader=-1, isr=(), last_known_elr=(0, 1)))
    await brokers.commit(change(leader=0, isr=(0,), last_known_elr=(1,)))
    await fill(leader, topic_id, 1)
    await until(lambda: replica.log.log_end_offset == 4, "it follows with what it has")
    assert replica.damage is not None
    await brokers.commit(change(last_known_elr=()))
    assert replica.damage is None
    await fill(leader, topic_id, 1)
    await until(lambda: replica.high_watermark == 5, "all are fetched again")
    row = await read(follower, in_rack("rack-1", topic_id, 0))
    assert offsets_of(row) == [0, 1, 2, 3, 4]


@with_brokers(count=2)
async def test_damaged_follower_that_becomes_the_last_in_sync_leads_with_the_rest(brokers: Brokers) -> None:
    """The leader may die before the report is committed: no other replica can be elected without loss."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    leader, follower = await brokers.connect(0), await brokers.connect(1)
    await fill(leader, topic_id, 3, acks=-1)
    replica = brokers.replica(1, topic_id)
    await until(lambda: replica.high_watermark == 3, "the follower knows")
    replica.found_damage(Damage(1, 2, "a bit has flipped"))
    reports = brokers.brokers[1].replicas.reports
    assert reports.undeclared == 1
    await brokers.stop(0)
    await brokers.elect(topic_id, 0, leader=-1, isr=[1])
    assert (replica.damage, reports.undeclared, replica.log.log_end_offset) == (None, 0, 3)
    await brokers.elect(topic_id, 0, leader=1, isr=[1])
    assert offsets_of(await read(follower, in_rack("rack-1", topic_id, 0))) == [0]
    assert offsets_of(await read(follower, in_rack("rack-1", topic_id, 2))) == [2]
    row = await read(follower, in_rack("rack-1", topic_id, 1))
    assert row.error_code == ErrorCode.corrupt_message


def break_header(log_directory: Path, *, at_offset: int) -> None:
    """Give the batch with that offset an impossible length; all batches are of a size."""
    (path,) = log_directory.glob("*.log")
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(12)[8:], "big") + 12
        file.seek(at_offset * size + 8)
        file.write(b"\x7f\xff\xff\xff")


def leading(**followers: FollowerProgress) -> PartitionLeader:
    """Broker 0, with followers `b1`, `b2`, ... all in sync."""
    ids = [int(name[1:]) for name in followers]
    leader = PartitionLeader(
        broker_id=0,
        leader_epoch=1,
        partition_epoch=1,
        replicas=(0, *ids),
        isr=frozenset((0, *ids)),
        leader_epoch_start_offset=10,
        high_watermark=10,
        min_insync_replicas=1,
        replica_lag_time_max_ms=1000,
        brokers={},
        own_broker_epoch=1,
        started_ms=0,
    )
    leader.followers = dict(zip(ids, followers.values(), strict=True))
    return leader


def preferred(leader: PartitionLeader, offset: int, racks: dict[int, str], tiered_end: int = 0) -> int | None:
    return preferred_read_replica(leader, "here", racks.get, offset, tiered_end)


def test_preferred_replica_is_in_sync_has_the_offset_and_has_the_most_records() -> None:
    """Kafka's order: the end of the log, then who was caught up last."""
    leader = leading(
        b1=FollowerProgress(log_end_offset=8, log_start_offset=0, last_caught_up_ms=9),
        b2=FollowerProgress(log_end_offset=10, log_start_offset=5, last_caught_up_ms=1),
        b3=FollowerProgress(log_end_offset=10, log_start_offset=5, last_caught_up_ms=2),
        b4=FollowerProgress(),
    )
    racks = {0: "there", 1: "here", 2: "here", 3: "here", 4: "here"}
    assert preferred(leader, 7, racks) == 3
    assert preferred(leader, 2, racks) == 1
    assert preferred(leader, 11, racks) is None
    leader.isr = frozenset((0, 1))
    assert preferred(leader, 7, racks) == 1
    assert preferred(leader, 7, racks | {0: "here"}) is None


def test_preferred_replica_is_the_leader_for_what_a_followers_local_log_may_lack() -> None:
    """Else a follower would refuse the offset, and the leader send the consumer there again."""
    leader = leading(b1=FollowerProgress(log_end_offset=10, log_start_offset=0))
    racks = {0: "there", 1: "here"}
    assert preferred(leader, 4, racks, tiered_end=5) is None
    assert preferred(leader, 5, racks, tiered_end=5) == 1
