"""Followers of tiered partitions: they begin at the tier's end, with its epochs and producers."""

import shutil
from dataclasses import replace
from uuid import UUID

from sparklog.executor.partitions.replica import Replica
from sparklog.node.remote_log.object_store import StoreUnavailableError
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_log_upkeep import Clock
from tests.unit.executor.requests import batch, fetch, produce, rows
from tests.unit.executor.tiers import Tier

URI = {"sparklog.remote.uri": "file:///unused"}
CONFIG = {**URI, "log.retention.check.interval.ms": "1000", "replica.fetch.backoff.ms": "20"}
SMALL = {"internal.segment.bytes": "1000"}
CUT = {**SMALL, "local.retention.bytes": "0"}
VALUE = b"x" * 300


async def put(brokers: Brokers, broker_id: int, topic_id: UUID, count: int = 12) -> None:
    """Write records to a leader that needs no other replica, three to a segment."""
    channel = await brokers.connect(broker_id)
    for _ in range(count):
        (row,) = rows(await channel.request(produce(topic_id, batch(1, VALUE))))
        assert row.error_code is ErrorCode.none


async def leader_with_lost_follower(brokers: Brokers, config: dict[str, str]) -> tuple[UUID, Replica, Tier]:
    """Return a leader with twelve tiered records; the disk of broker 1, its follower, is lost."""
    topic_id = await brokers.create_topic("t", [(0, 1)], config)
    directory = brokers.brokers[1].directory.path
    await brokers.stop(1)
    shutil.rmtree(directory)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    leader = brokers.replica(0, topic_id)
    channel = await brokers.connect(0)
    for sequence in range(12):
        sent = batch(1, VALUE, producer_id=7, producer_epoch=0, base_sequence=sequence)
        await channel.request(produce(topic_id, sent))
    assert (leader.high_watermark, len(leader.log.segments.all)) == (12, 6)
    tier = Tier.of(leader)
    leader.tier = tier
    brokers.read_tier = tier.read
    return topic_id, leader, tier


async def cut(clock: Clock, replica: Replica) -> None:
    """Let the broker delete local segments."""
    before = replica.log.local_log_start_offset
    clock.tick(1000)
    await clock.until(lambda: replica.log.local_log_start_offset > before, "local retention")


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_replaced_follower_begins_where_the_tier_ends(brokers: Brokers) -> None:
    """It is in sync as soon as it has what the tier lacks, and could lead: epochs and producers are there."""
    topic_id, leader, tier = await leader_with_lost_follower(brokers, CUT)
    await cut(Clock(brokers), leader)
    await put(brokers, 0, topic_id, 2)
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 14, "the follower caught up")
    log = follower.log
    assert (log.log_start_offset, log.local_log_start_offset, follower.high_watermark) == (0, 12, 14)
    assert log.epochs.entries == leader.log.epochs.entries
    assert log.recovery_point >= 12, "a power cut must not leave an empty log"
    assert tier.reads == 1
    await until(lambda: brokers.proposals == [(0, 1)], "the follower joins the ISR")
    await brokers.elect(topic_id, 0, leader=1, isr=[1])
    channel = await brokers.connect(1)
    retry = batch(1, VALUE, producer_id=7, producer_epoch=0, base_sequence=11)
    (row,) = rows(await channel.request(produce(topic_id, retry)))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 11)


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_leader_tells_followers_that_records_are_in_the_tier(brokers: Brokers) -> None:
    """OFFSET_MOVED_TO_TIERED_STORAGE, and the log start offset with it."""
    topic_id, leader, _ = await leader_with_lost_follower(brokers, CUT)
    await cut(Clock(brokers), leader)
    channel = await brokers.connect(0)
    start = leader.log.local_log_start_offset
    for offset, expected in (
        (start - 1, ErrorCode.offset_moved_to_tiered_storage),
        (start, ErrorCode.none),
    ):
        (row,) = rows(await channel.request(fetch(topic_id, {0: offset}, replica=(1, 102))))
        assert (row.error_code, row.log_start_offset) == (expected, 0)
        assert leader.leadership is not None
        known = leader.leadership.followers[1].log_end_offset
        assert known == (None if expected is not ErrorCode.none else offset)


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_restarted_broker_takes_all_that_is_in_the_tier_alone_for_committed(brokers: Brokers) -> None:
    """Its checkpoint of the high watermark may be of before its log began there."""
    topic_id, leader, _ = await leader_with_lost_follower(brokers, CUT)
    await cut(Clock(brokers), leader)
    await brokers.start(1)
    await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == 12, "the follower caught up")
    directory = brokers.brokers[1].directory.path
    await brokers.stop(0)
    await brokers.stop(1)
    (directory / "replication-offset-checkpoint").unlink()
    await brokers.start(1)
    assert brokers.replica(1, topic_id).high_watermark == 12


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_replaced_follower_begins_at_the_tiers_end_though_the_leader_has_older_records(
    brokers: Brokers,
) -> None:
    """KIP-1023: a replaced broker need not copy what readers find in the tier."""
    topic_id, leader, _ = await leader_with_lost_follower(brokers, SMALL)
    await put(brokers, 0, topic_id, 1)
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 13, "the follower caught up")
    assert leader.log.local_log_start_offset == 0
    assert (follower.log.log_start_offset, follower.log.local_log_start_offset) == (0, 12)


@with_brokers(
    count=2,
    config={**CONFIG, "follower.fetch.last.tiered.offset.enable": "false"},
    owner_epoch=None,
)
async def test_replaced_follower_fetches_what_the_leader_has_if_it_is_configured_so(brokers: Brokers) -> None:
    """As Kafka's do by default."""
    topic_id, _, tier = await leader_with_lost_follower(brokers, SMALL)
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 12, "the follower caught up")
    assert (follower.log.local_log_start_offset, tier.reads) == (0, 0)


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_follower_of_a_leader_without_anything_in_the_tier_fetches_all(brokers: Brokers) -> None:
    """The leader says so; nothing is looked for in the store."""
    topic_id, leader, tier = await leader_with_lost_follower(brokers, SMALL)
    leader.tier = None
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 12, "the follower caught up")
    assert (follower.log.local_log_start_offset, tier.reads) == (0, 0)


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_follower_tries_again_while_the_store_does_not_answer(brokers: Brokers) -> None:
    """With a pause in between; its log stays as it was."""
    topic_id, leader, tier = await leader_with_lost_follower(brokers, CUT)
    await cut(Clock(brokers), leader)
    tier.failures = [StoreUnavailableError("the bucket is away")] * 3
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 12, "the follower caught up")
    building = brokers.brokers[1].replicas.tier_building
    assert (tier.reads, building.built_count, building.failed_count) == (4, 1, 3)


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_follower_waits_for_a_manifest_that_reaches_its_leaders_records(brokers: Brokers) -> None:
    """One that ends before would leave a hole; no manifest is that old for long."""
    topic_id, leader, tier = await leader_with_lost_follower(brokers, CUT)
    await cut(Clock(brokers), leader)
    whole, old = tier.manifest, Tier.of(leader)
    local_start = leader.log.local_log_start_offset
    old.manifest = replace(whole, end_offset=local_start - 1)
    brokers.read_tier = old.read
    await brokers.start(1)
    follower = brokers.replica(1, topic_id)
    await until(lambda: old.reads > 1, "the follower tries again")
    assert follower.log.log_end_offset == 0
    old.manifest = whole
    await until(lambda: follower.log.log_end_offset == 12, "the follower caught up")


@with_brokers(count=2, config=CONFIG, owner_epoch=None)
async def test_follower_drops_only_what_its_leader_has_in_the_tier(brokers: Brokers) -> None:
    """It decides by local retention as its leader does, and each of them may lead next."""
    topic_id = await brokers.create_topic("t", [(0, 1)], CUT)
    await put(brokers, 0, topic_id)
    leader, follower = (brokers.replica(number, topic_id) for number in (0, 1))
    await until(lambda: follower.high_watermark == 12, "everything committed")
    asked, clock = brokers.brokers[0].listener.metrics.of("ListOffsets"), Clock(brokers, 1)
    before = asked.count

    def is_asked_again() -> bool:
        clock.tick(1000)
        return asked.count > before + 1

    await until(is_asked_again, "the end of the first check")
    assert follower.log.local_log_start_offset == 0
    tier = Tier.of(leader)
    tier.manifest, tier.tiered_end_offset = replace(tier.manifest, end_offset=7), 7
    leader.tier = tier
    await cut(clock, follower)
    assert (follower.log.log_start_offset, follower.log.local_log_start_offset) == (0, 6)
    assert leader.log.local_log_start_offset == 0
