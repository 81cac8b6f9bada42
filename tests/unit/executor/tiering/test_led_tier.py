"""What a leader does with its log's tier: waits for it, copies, begins again where it ends."""

import asyncio
from pathlib import Path

import pytest

from sparklog.node.remote_log.machine.ownership import OWNER_NAME
from sparklog.protocol.errors import KafkaError
from tests.unit.executor.brokers import Brokers, until
from tests.unit.executor.requests import batch, delete_records, produce, rows
from tests.unit.executor.tiering.tiered_brokers import SEGMENTS, bucket_of, manifest_of, tiered_brokers


async def fill(brokers: Brokers, topic_id: object, batches: int, broker_id: int = 0) -> None:
    channel = await brokers.connect(broker_id)
    for _ in range(batches):
        (row,) = rows(await channel.request(produce(topic_id, batch(5, b"v" * 1000))))  # type: ignore[arg-type]
        assert row.error_code == 0


def test_records_deleted_below_the_local_log_are_deleted_in_the_tier(tmp_path: Path) -> None:
    """The answer waits for followers, whose logs begin elsewhere than the leader's."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, 2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            await fill(brokers, topic_id, 10)
            leader = brokers.replica(0, topic_id)
            await until(lambda: leader.log.local_log_start_offset > 20, "the local log is short")
            channel = await brokers.connect(0)
            (row,) = rows(await channel.request(delete_records("t", 12)))
            assert (row.error_code, row.low_watermark) == (0, 12)

            def is_deleted() -> bool:
                manifest = manifest_of(brokers, 0, topic_id)
                return manifest is not None and manifest.log_start_offset == 12

            await until(is_deleted, "the manifest begins there")

    asyncio.run(play())
