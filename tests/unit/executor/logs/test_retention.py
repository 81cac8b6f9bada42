"""Retention as brokers do it: who decides, and what is said of records that stay."""

import logging
import time
from uuid import UUID

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.logs.test_log_upkeep import Clock
from tests.unit.executor.requests import produce, rows

CONFIG = {"log.retention.check.interval.ms": "1000"}
SMALL = {"internal.segment.bytes": "1000", "retention.ms": "1000"}
LONG_AGO_MS = 1_700_000_000_000


async def put(brokers: Brokers, broker_id: int, topic_id: UUID, timestamp_ms: int = LONG_AGO_MS) -> None:
    """Write twelve records, of which three are a segment."""
    channel = await brokers.connect(broker_id)
    for _ in range(12):
        batch = build_batch([SimpleRecord(None, b"x" * 300, (), timestamp_ms)])
        (row,) = rows(await channel.request(produce(topic_id, batch)))
        assert row.error_code is ErrorCode.none


@with_brokers(count=2, config=CONFIG)
async def test_follower_never_begins_above_its_leader(brokers: Brokers) -> None:
    """Whoever leads next must have what the last one had: consumers were told where the log begins."""
    topic_id = await brokers.create_topic("t", [(0, 1)], SMALL)
    own_id = await brokers.create_topic("u", [(1,)], SMALL)
    await put(brokers, 0, topic_id)
    await put(brokers, 1, own_id)
    leader, follower = (brokers.replica(number, topic_id).log for number in (0, 1))
    of_leader, of_follower = Clock(brokers), Clock(brokers, 1)
    await of_follower.until(lambda: brokers.replica(1, topic_id).high_watermark == 12, "everything committed")
    of_follower.tick(1000)
    own = brokers.replica(1, own_id).log
    await of_follower.until(lambda: own.log_start_offset == 12, "retention of what the follower leads")
    assert (leader.log_start_offset, follower.log_start_offset) == (0, 0)
    assert len(follower.segments.all) > 2
    of_leader.tick(1000)
    await of_leader.until(lambda: leader.log_start_offset == 12, "the leader's retention")
    of_follower.tick(1000)

    def followed() -> bool:
        of_follower.tick(1000)
        return follower.log_start_offset == 12 and len(follower.segments.all) == 1

    await of_leader.until(followed, "the follower's retention")


@with_brokers(config=CONFIG)
async def test_records_from_the_future_are_said_to_keep_their_log(brokers: Brokers) -> None:
    """A producer with a wrong clock fills the disk: whoever looks for the reason finds the topic's name."""
    await brokers.create_topic("u", [(0,)], SMALL)
    topic_id = await brokers.create_topic(
        "t", [(0,)], {**SMALL, "message.timestamp.after.max.ms": str(2**62)}
    )
    await put(brokers, 0, topic_id, int(time.time() * 1000) + 10**9)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("sparklog.executor.logs.jobs.retention")
    logger.addHandler(handler)
    try:
        clock = Clock(brokers)
        for _ in range(3):
            clock.tick(1000)
            await clock.until(lambda: bool(said), "a warning")
    finally:
        logger.removeHandler(handler)
    assert len(said) == 1
    assert said[0].startswith("t-0 has records from the future: its oldest segment, which begins at offset 0")
