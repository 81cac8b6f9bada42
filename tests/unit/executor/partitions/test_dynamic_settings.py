"""What brokers obey that were told while they ran: topics' defaults, and the throttles of replication."""

import asyncio
from itertools import pairwise
from unittest.mock import patch
from uuid import UUID

from sparklog.executor.partitions.machine import replication_quota
from sparklog.node.metadata.schemas import ConfigRecord, MetadataRecord, PartitionChangeRecord, ResourceType
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce

BATCH_BYTES = 100_000


def told(key: str, value: str | None, broker: str = "") -> ConfigRecord:
    """Return the record that tells one broker, or all, something."""
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=key, value=value)


def throttled(side: str, listed: str | None) -> ConfigRecord:
    """Return the record that lists throttled replicas of topic `t`."""
    key = f"{side}.replication.throttled.replicas"
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=key, value=listed)


@with_brokers(count=1)
async def test_largest_batch_of_all_topics_changes_while_a_broker_runs(brokers: Brokers) -> None:
    """A topic with a value of its own keeps it; one broker's value wins over that of all."""
    topic_id = await brokers.create_topic("t", [(0,)])
    own_id = await brokers.create_topic("own", [(0,)])
    await brokers.commit(
        ConfigRecord(
            resource_type=ResourceType.TOPIC, resource_name="own", name="max.message.bytes", value="500000"
        )
    )
    channel = await brokers.connect(0)

    async def outcome(to: UUID) -> ErrorCode:
        answer = await channel.request(produce(to, batch(value=bytes(BATCH_BYTES)), acks=1))
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code

    await brokers.commit(told("message.max.bytes", "1000"))
    assert await outcome(topic_id) is ErrorCode.message_too_large
    assert await outcome(own_id) is ErrorCode.none
    await brokers.commit(told("message.max.bytes", "200000", "0"))
    assert await outcome(topic_id) is ErrorCode.none
    await brokers.commit(told("message.max.bytes", None, "0"))
    assert await outcome(topic_id) is ErrorCode.message_too_large
    await brokers.commit(told("message.max.bytes", None))
    assert await outcome(topic_id) is ErrorCode.none


RATE = 1_000_000
BATCHES = 20
ROUND_TRIPS = 200
ONE_BATCH_A_FETCH = {"replica.fetch.max.bytes": str(BATCH_BYTES)}


async def seconds_to_catch_up(brokers: Brokers, *records: MetadataRecord) -> float:
    """Return how long a follower that is not in sync takes for `BATCHES` under what `records` say."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    brokers.refuse_proposals = ErrorCode.invalid_update_version  # or it would be in sync at once
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0,)), *records)
    channel = await brokers.connect(0)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for _ in range(BATCHES):
        await channel.request(produce(topic_id, batch(value=bytes(BATCH_BYTES)), acks=1))
    log = brokers.replica(1, topic_id).log
    await until(lambda: log.log_end_offset == BATCHES, "the follower has caught up", 20)
    return loop.time() - began_s


@with_brokers(count=2, config=ONE_BATCH_A_FETCH)
async def test_leader_sends_no_faster_than_it_was_told(brokers: Brokers) -> None:
    """A replica that moves must leave the network to those that serve."""
    seconds = await seconds_to_catch_up(
        brokers, told("leader.replication.throttled.rate", str(RATE), "0"), throttled("leader", "0:0,0:1")
    )
    # The last batch may be sent as soon as those before it are within the rate.
    assert seconds > (BATCHES - 2) * BATCH_BYTES / RATE


@with_brokers(count=2, config=ONE_BATCH_A_FETCH)
async def test_follower_fetches_no_faster_than_it_was_told(brokers: Brokers) -> None:
    """The same for the broker that the replica moves to, told as one of all."""
    seconds = await seconds_to_catch_up(
        brokers, told("follower.replication.throttled.rate", str(RATE)), throttled("follower", "*")
    )
    assert seconds > (BATCHES - 2) * BATCH_BYTES / RATE


@with_brokers(count=2, config=ONE_BATCH_A_FETCH)
async def test_replica_that_is_not_listed_is_not_held_back(brokers: Brokers) -> None:
    """A rate of nothing for one topic's move must not stop another topic's replication."""
    await asyncio.wait_for(
        seconds_to_catch_up(
            brokers,
            told("leader.replication.throttled.rate", "0"),
            told("follower.replication.throttled.rate", "0"),
            throttled("leader", "1:0,0:1"),
            throttled("follower", "1:1,0:0"),
        ),
        10,
    )


@with_brokers(count=2)
async def test_replica_in_sync_is_not_held_back(brokers: Brokers) -> None:
    """It would leave the ISR, and whoever writes with acks=all would wait for it until then."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.commit(
        told("leader.replication.throttled.rate", "0"),
        told("follower.replication.throttled.rate", "0"),
        throttled("leader", "*"),
        throttled("follower", "*"),
    )
    channel = await brokers.connect(0)
    for _ in range(3):
        answer = await channel.request(produce(topic_id, batch(), acks=-1))
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


@with_brokers(count=2, config=ONE_BATCH_A_FETCH)
async def test_throttle_that_is_lifted_lets_a_waiting_replica_go_on(brokers: Brokers) -> None:
    """kafka-reassign-partitions takes the throttle away when a move is done, or was too slow."""
    moving = asyncio.ensure_future(
        seconds_to_catch_up(brokers, told("leader.replication.throttled.rate", "1"), throttled("leader", "*"))
    )

    def written() -> int:
        topic = brokers.image.topics.by_name.get("t")
        replica = topic and brokers.brokers[0].replicas.table.get(topic.topic_id, 0)
        return replica.log.log_end_offset if replica else 0

    await until(lambda: written() == BATCHES, "all is written")
    topic_id = brokers.image.topics.by_name["t"].topic_id
    assert brokers.replica(1, topic_id).log.log_end_offset < BATCHES
    await brokers.commit(told("leader.replication.throttled.rate", None))
    await asyncio.wait_for(moving, 10)


FOR_A_DAY = str(24 * 3_600_000)


@with_brokers(count=1)
async def test_value_for_all_topics_that_contradicts_one_of_a_topic_stops_no_broker(brokers: Brokers) -> None:
    """The topic was right when it was made; whoever changes a default does not know of all topics."""
    topic_id = await brokers.create_topic("t", [(0,)])
    own = {"min.compaction.lag.ms": FOR_A_DAY}
    await brokers.commit(
        *(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
            for name, value in own.items()
        )
    )
    await brokers.commit(told("log.cleaner.max.compaction.lag.ms", "1000"))
    config = brokers.replica(0, topic_id).log.config
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (int(FOR_A_DAY), 1000)
    await brokers.commit(told("log.cleaner.min.compaction.lag.ms", "5000", "0"))
    other_id = await brokers.create_topic("other", [(0,)])
    channel = await brokers.connect(0)
    answer = await channel.request(produce(other_id, batch(), acks=1))
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


@with_brokers(count=2, config=ONE_BATCH_A_FETCH)
async def test_follower_beyond_its_rate_rests_until_it_is_within_it(brokers: Brokers) -> None:
    """It looked now and then whether the throttle was lifted, and fetched something each time."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    brokers.refuse_proposals = ErrorCode.invalid_update_version
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(0,)),
        told("follower.replication.throttled.rate", "1"),
        throttled("follower", "*"),
    )
    channel = await brokers.connect(0)
    log = brokers.replica(1, topic_id).log
    with patch.object(replication_quota, "_MAX_REST_MS", 1):
        for _ in range(BATCHES):
            await channel.request(produce(topic_id, batch(value=bytes(BATCH_BYTES)), acks=1))
        await until(lambda: log.log_end_offset > 0, "the first batch")
        for _ in range(ROUND_TRIPS):
            await channel.request(produce(topic_id, acks=1))
        assert log.log_end_offset == 1
    await brokers.commit(told("follower.replication.throttled.rate", None))
    await until(lambda: log.log_end_offset == BATCHES, "the follower has caught up")


MANY_TOPICS = 300


@with_brokers(count=1)
async def test_many_topics_that_are_told_something_leave_the_loop_to_others(brokers: Brokers) -> None:
    """A throttle for a move is set on a broker; nobody's lease may run out while 10,000 topics read it."""
    topic_ids = [await brokers.create_topic(f"t-{number}", [(0,)]) for number in range(MANY_TOPICS)]
    logs = [brokers.replica(0, topic_id).log for topic_id in topic_ids]
    told_at_turn: list[int] = []

    async def count() -> None:
        while not told_at_turn or told_at_turn[-1] < MANY_TOPICS:
            told_at_turn.append(sum(log.config.retention_ms == 1234 for log in logs))
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await brokers.commit(told("log.retention.ms", "1234"))
    await counting
    assert max(after - before for before, after in pairwise(told_at_turn)) < MANY_TOPICS / 2
