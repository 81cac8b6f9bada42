"""Requests that are answered, or given up, hold themselves no more, and with that replicas and open files."""

import pytest
from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest

from sparklog.executor.api.delete_records import _Deletions
from sparklog.executor.api.produce.delayed_produce import DelayedProduce
from sparklog.executor.api.write_txn_markers import _Writes
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.garbage import uncollected
from tests.own_process import in_own_process
from tests.unit.executor.api.test_write_txn_markers import marker
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, delete_records, produce, rows

MANY = 20
"""More partitions than are answered in one go."""
OF_REQUESTS = (DelayedProduce, _Writes, _Deletions)


@in_own_process
@with_brokers(count=2)
async def test_requests_leave_no_garbage(brokers: Brokers) -> None:
    """Whatever is there when a broker freezes what lasts would stay for ever."""
    await brokers.create_topic("alone", [(0,)] * MANY)
    shared = await brokers.create_topic("shared", [(0, 1)])
    alone = brokers.image.topics.by_name["alone"].topic_id
    channel = await brokers.connect(0)
    with uncollected(*OF_REQUESTS) as left:
        for answered in (
            await channel.request(produce(alone, batch(), acks=1)),
            await channel.request(produce(alone, *[batch() for _ in range(MANY)], acks=1)),
            await channel.request(produce(shared, batch())),
        ):
            assert {row.error_code for row in rows(answered)} == {ErrorCode.none}
        await channel.request(delete_records("alone", 1))
        await channel.request(delete_records("shared", 1))
        for topic in ("alone", "shared", "nowhere"):
            await channel.request(WriteTxnMarkersRequest(markers=(marker(7, 0, topic=topic),)))
        await until(lambda: not left(), "nothing is left")


@in_own_process
@with_brokers(count=2)
async def test_requests_whose_client_has_gone_leave_no_garbage(brokers: Brokers) -> None:
    """What they wait for comes, or not, when nobody wants the answer any more."""
    shared = await brokers.create_topic("shared", [(0, 1)])
    await brokers.stop(1)
    channel = await brokers.connect(0)
    log = brokers.replica(0, shared).log
    with uncollected(*OF_REQUESTS) as left:
        waiting = channel.request(produce(shared, batch(), timeout_ms=20_000))
        await until(lambda: log.log_end_offset == 1, "the batch is there")
        channel.close()
        with pytest.raises(KafkaError):
            await waiting
        await brokers.start(1)
        await until(lambda: brokers.replica(0, shared).high_watermark == 1, "the follower has it")
        await until(lambda: not left(), "nothing is left")
