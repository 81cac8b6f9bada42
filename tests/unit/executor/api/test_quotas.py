"""Produce and Fetch under quotas: what counts, who is told to wait, and that nobody loses a record by it."""

import asyncio
from typing import Any
from uuid import UUID

from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.schemas import ClientQuotaRecord, QuotaEntityData
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import MILLISECOND, batch, fetch, produce, rows

VALUE_BYTES = 1_000
SHORT_WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
"""Of which a client may have one second's worth at once."""
LONG_WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "3"}
"""Three seconds' worth: what is asked for within them is too much on a busy machine, too."""
ENDLESS_WINDOWS = {"quota.window.num": "2", "quota.window.size.seconds": "600"}
"""Whoever is made to wait for one is not seen again."""


def quota(key: str, value: float) -> ClientQuotaRecord:
    """Return the record that sets a quota for any client id; tests' clients have one."""
    return ClientQuotaRecord(
        entity=(QuotaEntityData(entity_type="client-id", entity_name=None),), key=key, value=value
    )


async def fill(channel: Channel, topic_id: UUID, batches: int) -> None:
    """Append batches of one record."""
    for _ in range(batches):
        await channel.request(produce(topic_id, batch(value=bytes(VALUE_BYTES)), acks=1))


def offsets_of(row: Any) -> list[int]:
    """Return the base offsets of the batches in a row."""
    return [header.base_offset for _, header in iterate_headers(row.records)]


@with_brokers(count=1, config=SHORT_WINDOWS)
async def test_producer_beyond_its_quota_is_told_to_wait_and_its_records_are_kept(brokers: Brokers) -> None:
    """A throttled request is done all the same: an error would have it sent again."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(quota("producer_byte_rate", 10 * VALUE_BYTES))
    channel = await brokers.connect(0)
    answer = await channel.request(produce(topic_id, batch(value=bytes(VALUE_BYTES)), acks=1))
    assert answer.throttle_time == 0 * MILLISECOND
    answer = await channel.request(produce(topic_id, batch(value=bytes(20 * VALUE_BYTES)), acks=1))
    assert 0 * MILLISECOND < answer.throttle_time < 1_500 * MILLISECOND
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    other = await brokers.connect(0)
    (row,) = rows(await other.request(fetch(topic_id, {0: 0})))
    assert offsets_of(row) == [0, 1]


@with_brokers(count=1, config=LONG_WINDOWS)
async def test_consumer_beyond_its_quota_gets_an_empty_answer_and_then_all_records(brokers: Brokers) -> None:
    """What an empty answer does not tell must not count as told, or the consumer would wait for ever."""
    topic_id = await brokers.create_topic("t", [(0,)])
    writer, reader = await brokers.connect(0), await brokers.connect(0)
    await fill(writer, topic_id, 30)
    await brokers.commit(quota("consumer_byte_rate", 4 * VALUE_BYTES))
    full = await reader.request(fetch(topic_id, {0: 0}, session_epoch=0))
    offsets = offsets_of(*rows(full))
    assert offsets == list(range(11))
    assert full.throttle_time == 0 * MILLISECOND
    next_offset = len(offsets)
    throttled, session_epoch = 0, 1
    while next_offset < 30:
        answer = await reader.request(
            fetch(
                topic_id,
                {0: next_offset} if throttled == 0 else {},
                session_id=full.session_id,
                session_epoch=session_epoch,
            )
        )
        session_epoch += 1
        if answer.throttle_time:
            assert answer.responses == ()
            assert answer.session_id == full.session_id
            throttled += 1
        else:
            next_offset += len(offsets_of(*rows(answer)))
            break
    assert throttled >= 1
    assert next_offset > 11


@with_brokers(count=1, config=LONG_WINDOWS)
async def test_session_whose_first_answer_is_empty_is_not_begun(brokers: Brokers) -> None:
    """The client begins anew after such an answer, and its slot would be lost."""
    topic_id = await brokers.create_topic("t", [(0,)])
    writer, reader, other = [await brokers.connect(0) for _ in range(3)]
    await fill(writer, topic_id, 30)
    await brokers.commit(quota("consumer_byte_rate", 4 * VALUE_BYTES))
    await reader.request(fetch(topic_id, {0: 0}))
    answer = await other.request(fetch(topic_id, {0: 0}, session_epoch=0))
    assert answer.throttle_time > 0 * MILLISECOND
    assert (answer.session_id, answer.responses, answer.error_code) == (0, (), ErrorCode.none)


@with_brokers(count=2, config=SHORT_WINDOWS)
async def test_followers_are_not_clients(brokers: Brokers) -> None:
    """A quota for everybody must not take replicas out of the ISR."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.commit(quota("consumer_byte_rate", VALUE_BYTES), quota("request_percentage", 0.000_1))
    channel = await brokers.connect(0)
    for _ in range(5):
        other = await brokers.connect(0)
        answer = await other.request(produce(topic_id, batch(value=bytes(10 * VALUE_BYTES)), acks=-1))
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    await until(
        lambda: brokers.replica(1, topic_id).log.log_end_offset == 5, "the follower has what the leader has"
    )
    assert not channel.closed.done()


@with_brokers(count=1, config=SHORT_WINDOWS)
async def test_time_of_requests_counts_and_is_waited_for_no_longer_than_a_window(brokers: Brokers) -> None:
    """A percentage so small that every request exceeds it: the wait has the bound that Kafka gives it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(quota("request_percentage", 1e-6))
    channel = await brokers.connect(0)
    answer = await channel.request(fetch(topic_id, {0: 0}))
    assert answer.throttle_time == 1_000 * MILLISECOND


@with_brokers(count=1, config=ENDLESS_WINDOWS)
async def test_acks_0_is_not_held_back_by_time(brokers: Brokers) -> None:
    """It has no answer that could tell, so its time is forgiven, as in Kafka."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(quota("request_percentage", 1e-6))
    channel = await brokers.connect(0)
    unanswered = [
        channel.request(produce(topic_id, batch(value=bytes(VALUE_BYTES)), acks=0)) for _ in range(3)
    ]
    log = brokers.replica(0, topic_id).log
    await until(lambda: log.log_end_offset == len(unanswered), "three batches")


@with_brokers(count=1, config=SHORT_WINDOWS)
async def test_acks_0_is_held_back_by_bytes(brokers: Brokers) -> None:
    """Without an answer that could tell, its connection is not read from for as long."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.commit(quota("producer_byte_rate", 10 * VALUE_BYTES))
    channel = await brokers.connect(0)
    began_s = asyncio.get_running_loop().time()
    unanswered = [
        channel.request(produce(topic_id, batch(value=bytes(size_bytes)), acks=0))
        for size_bytes in (20 * VALUE_BYTES, VALUE_BYTES)
    ]
    log = brokers.replica(0, topic_id).log
    await until(lambda: log.log_end_offset == len(unanswered), "both batches")
    assert asyncio.get_running_loop().time() - began_s > 0.9
