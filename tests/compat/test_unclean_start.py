"""What a broker reads of its logs, and what it knows of its producers, when it starts after SIGKILL."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.node.calling.channel import Channel
from sparklog.node.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, read_offsets
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import create_topic
from tests.unit.executor.requests import produce, rows

BROKERS = 3
SEGMENT_BYTES = 1_048_576
BATCH_BYTES = 100_000
BATCHES = 35
EVENT_TIMES_MS = {"of-1970": 0, "of-2013": 1_357_000_000_000, "of-2100": 4_102_444_800_000}
TOPIC_CONFIG = {
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
CONFIG = {
    "min.insync.replicas": "2",
    "log.retention.check.interval.ms": "1000",
    "producer.id.expiration.check.interval.ms": "500",
}

NOT_YET = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_id,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
}
"""What a leader says that has just been elected, or has not heard of it yet."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own, since its brokers die."""
    with LocalCluster(brokers=BROKERS, config=CONFIG) as running:
        yield running


def sent(event_ms: int, number: int) -> bytes:
    """The n-th batch of an idempotent producer."""
    records = [SimpleRecord(None, bytes(BATCH_BYTES), (), event_ms + number)]
    return build_batch(records, producer_id=7_000_000, producer_epoch=0, base_sequence=number)


def produced(cluster: LocalCluster, topic: str, batches: list[bytes]) -> list[tuple[ErrorCode, int]]:
    """Produce the batches, one request each; return the answers."""
    leader = cluster.leader(topic)
    assert leader is not None

    topic_id = cluster.image.topics.by_name[topic].topic_id

    async def one(channel: Channel, batch: bytes) -> Any:
        async with asyncio.timeout(20):
            while True:
                (row,) = rows(await channel.request(produce(topic_id, batch)))
                if row.error_code not in NOT_YET:
                    return row

    async def run() -> list[Any]:
        channel = await Channel.connect(*cluster.address(leader), "test")
        try:
            return [await one(channel, batch) for batch in batches]
        finally:
            channel.close()

    return [(row.error_code, row.base_offset) for row in asyncio.run(run())]


def active_segment(cluster: LocalCluster, broker_id: int, topic: str) -> int:
    """Return the base offset of the newest segment on disk."""
    return max(int(path.stem) for path in (cluster.broker_directory(broker_id) / f"{topic}-0").glob("*.log"))


def recovery_points(cluster: LocalCluster, broker_id: int) -> dict[str, int]:
    path = cluster.broker_directory(broker_id) / RECOVERY_POINT_CHECKPOINT
    found = read_offsets(path) if path.exists() else {}
    return {topic: found.get(TopicPartition(topic, 0), 0) for topic in EVENT_TIMES_MS}


def test_killed_brokers_check_their_active_segments_and_take_no_retry_for_new(cluster: LocalCluster) -> None:
    """20 GB must not cost 160 s of reading, nor records of another century a duplicate each."""
    for topic, event_ms in EVENT_TIMES_MS.items():
        create_topic(cluster.bootstrap_servers, topic, config=TOPIC_CONFIG)
        batches = [sent(event_ms, number) for number in range(BATCHES)]
        assert produced(cluster, topic, batches) == [(ErrorCode.none, number) for number in range(BATCHES)]
    for broker_id in cluster.broker_ids:
        bases = {topic: active_segment(cluster, broker_id, topic) for topic in EVENT_TIMES_MS}
        assert min(bases.values()) > BATCHES // 2
        wait_for(
            lambda broker_id=broker_id, bases=bases: recovery_points(cluster, broker_id) == bases,
            f"broker {broker_id} has flushed what rolled",
        )
    for broker_id in cluster.broker_ids:
        cluster.kill(broker_id)
    for broker_id in cluster.broker_ids:
        cluster.launch(broker_id)
    cluster.wait_until_unfenced(*cluster.broker_ids)
    for broker_id in cluster.broker_ids:
        said = re.findall(
            r"(\d+) logs with (\d+) bytes loaded, (\d+) bytes of them checked",
            cluster.log_path(broker_id).read_text(),
        )
        logs, size_bytes, checked_bytes = (int(figure) for figure in said[-1])
        assert logs == len(EVENT_TIMES_MS)
        assert size_bytes > logs * BATCHES * BATCH_BYTES
        assert 0 < checked_bytes <= logs * SEGMENT_BYTES
    for topic, event_ms in EVENT_TIMES_MS.items():
        wait_for(lambda topic=topic: len(cluster.in_sync(topic)) == BROKERS, f"{topic} is in sync again")
        retry_and_next = [sent(event_ms, BATCHES - 1), sent(event_ms, BATCHES)]
        wanted = [(ErrorCode.none, BATCHES - 1), (ErrorCode.none, BATCHES)]
        assert produced(cluster, topic, retry_and_next) == wanted
