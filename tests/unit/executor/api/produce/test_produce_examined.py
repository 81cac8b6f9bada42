"""Batches that a leader looks into: beside its loop, in the producer's order, and only while it leads."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sparklog.executor.replicas import EXAMINERS
from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.codec.frames import request_encoder
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import HEADER_BYTES, header_bytes, iterate_headers, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, fetch, produce, rows

TO_GZIP = {"compression.type": "gzip"}
"""A topic whose batches all go to the examiners."""
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def claiming(record_count: int, sent: bytes) -> bytes:
    """Return the batch with a header that speaks of `record_count` records, under a good CRC."""
    header = read_header(sent)._replace(record_count=record_count, last_offset_delta=record_count - 1)
    return header_bytes(header, sent[HEADER_BYTES:]) + sent[HEADER_BYTES:]


@contextmanager
def examiners_busy(brokers: Brokers) -> Iterator[None]:
    """Keep broker 0 from looking into anything for the time being."""
    over = threading.Event()
    for _ in range(EXAMINERS):
        brokers.brokers[0].replicas.examiners.submit(over.wait)
    try:
        yield
    finally:
        over.set()


@with_brokers(count=1)
async def test_produce_of_a_compressed_batch_that_claims_other_counts_than_it_has_is_refused(
    brokers: Brokers,
) -> None:
    """A hundred bytes would move the log's end by two billion offsets, and every reader with it."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    for codec in COMPRESSING:
        for claimed in (1, 4, 2**31 - 1):
            (row,) = rows(await channel.request(produce(topic_id, claiming(claimed, batch(3, codec=codec)))))
            assert (codec, claimed, row.error_code) == (codec, claimed, ErrorCode.invalid_record)
    assert brokers.replica(0, topic_id).log.log_end_offset == 0
    for codec in COMPRESSING:
        (row,) = rows(await channel.request(produce(topic_id, batch(3, codec=codec))))
        assert row.error_code is ErrorCode.none
    assert brokers.replica(0, topic_id).log.log_end_offset == 3 * len(COMPRESSING)


@pytest.mark.parametrize("config", [{}, {"compression.type": "uncompressed"}, {"cleanup.policy": "compact"}])
def test_produce_of_a_batch_that_expands_beyond_the_bound_is_refused(
    config: dict[str, str], tmp_path: object
) -> None:
    """Six kilobytes may stand for gigabytes; a producer that is told so splits an honest batch."""

    @with_brokers(count=1, config={"message.max.decompressed.bytes": "300000"})
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)], config)
        channel = await brokers.connect(0)
        for codec in COMPRESSING:
            bomb = batch(2, bytes(150_000), codec=codec)
            (row,) = rows(await channel.request(produce(topic_id, bomb)))
            assert (codec, row.error_code) == (codec, ErrorCode.message_too_large)
        assert brokers.replica(0, topic_id).log.log_end_offset == 0

    scenario(tmp_path)  # type: ignore[arg-type]


@with_brokers(count=1)
async def test_produce_behind_a_batch_that_is_examined_waits_and_other_connections_do_not(
    brokers: Brokers,
) -> None:
    """A later batch of the producer must not overtake: its sequence would be out of order."""
    topic_id = await brokers.create_topic("t", [(0,)], TO_GZIP)
    plain_id = await brokers.create_topic("plain", [(0,)])
    channel, other = await brokers.connect(0), await brokers.connect(0)
    with examiners_busy(brokers):
        answers = [
            channel.request(
                produce(
                    topic_id, batch(2, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
                )
            )
            for codec, sequence in ((Codec.ZSTD, 0), (Codec.GZIP, 2), (Codec.NONE, 4))
        ]
        await reached(brokers, answers[0])
        (row,) = rows(await other.request(produce(plain_id, batch(1))))
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
        assert brokers.replica(0, topic_id).log.log_end_offset == 0
        assert not any(answer.done() for answer in answers)
    assert [(row.error_code, row.base_offset) for answer in answers for row in rows(await answer)] == [
        (ErrorCode.none, offset) for offset in (0, 2, 4)
    ]


@with_brokers(count=1)
async def test_produce_of_many_records_or_headers_or_much_is_examined_by_a_thread(brokers: Brokers) -> None:
    """What takes a while must not take it from everybody."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    now_ms, headers = wall_clock_ms(), (("h", b""),) * 5_000
    crowded = build_batch([SimpleRecord(headers=headers, timestamp_ms=now_ms)])
    crowds = build_batch([SimpleRecord(headers=headers[:100], timestamp_ms=now_ms)] * 50)
    many, much = batch(5_000, b"", codec=Codec.ZSTD), batch(3, bytes(200_000), codec=Codec.ZSTD)
    for sent in (many, much, crowded, crowds):
        with examiners_busy(brokers):
            waiting = channel.request(produce(topic_id, sent))
            await reached(brokers, waiting)
        (row,) = rows(await waiting)
        assert row.error_code is ErrorCode.none
    assert brokers.replica(0, topic_id).log.log_end_offset == 5_054


@with_brokers(count=1)
async def test_produce_of_examined_and_other_partitions_is_answered_for_all(brokers: Brokers) -> None:
    """One request holds batches of many partitions, each with an outcome of its own."""
    topic_id = await brokers.create_topic("t", [(0,), (0,), (0,)])
    channel = await brokers.connect(0)
    many = batch(5_000, b"", codec=Codec.LZ4)
    request = produce(topic_id, many, batch(4), claiming(5_001, batch(5_000, b"", codec=Codec.GZIP)))
    answers = rows(await channel.request(request))
    assert [row.error_code for row in answers] == [ErrorCode.none, ErrorCode.none, ErrorCode.invalid_record]
    ends = [brokers.replica(0, topic_id, partition).log.log_end_offset for partition in range(3)]
    assert ends == [5_000, 4, 0]


@with_brokers(count=2)
async def test_produce_examined_while_the_leader_epoch_changes_is_not_appended(brokers: Brokers) -> None:
    """Another may have led in between: only a request that comes now is this leadership's."""
    topic_id = await brokers.create_topic("t", [(0, 1)], TO_GZIP)
    channel = await brokers.connect(0)
    with examiners_busy(brokers):
        waiting = channel.request(produce(topic_id, batch(2, codec=Codec.ZSTD)))
        await reached(brokers, waiting)
        await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
        await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    (row,) = rows(await waiting)
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@pytest.mark.parametrize("partitions", [1, 20])
def test_produce_examined_while_the_lease_runs_out_is_not_appended(partitions: int, tmp_path: object) -> None:
    """The lease that held when the request came says nothing about now, in one go or in steps."""

    @with_brokers(count=1)
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)] * partitions, TO_GZIP)
        channel = await brokers.connect(0)
        with examiners_busy(brokers):
            waiting = channel.request(produce(topic_id, *[batch(2, codec=Codec.ZSTD)] * partitions))
            await reached(brokers, waiting)
            brokers.brokers[0].holds_lease = False
        assert {row.error_code for row in rows(await waiting)} == {ErrorCode.not_leader_or_follower}
        ends = [brokers.replica(0, topic_id, each).log.log_end_offset for each in range(partitions)]
        assert ends == [0] * partitions

    scenario(tmp_path)  # type: ignore[arg-type]


@with_brokers(count=1)
async def test_produce_with_acks_none_of_a_client_that_leaves_is_appended_all_the_same(
    brokers: Brokers,
) -> None:
    """It has sent its records and closed, as it may; nobody will send them again."""
    topic_id = await brokers.create_topic("t", [(0,)], TO_GZIP)
    replica = brokers.replica(0, topic_id)
    encode = request_encoder("leaves")
    with examiners_busy(brokers):
        with socket.create_connection(("127.0.0.1", brokers.brokers[0].listener.port)) as client:
            for number, sent in enumerate((batch(2, codec=Codec.ZSTD), batch(3))):
                client.sendall(b"".join(map(bytes, encode(produce(topic_id, sent, acks=0), number))))
        other = await brokers.connect(0)
        await other.request(fetch(topic_id, {0: 0}))
        assert replica.log.log_end_offset == 0
    await until(lambda: replica.log.log_end_offset == 5, "both batches are appended")
    (row,) = rows(await other.request(fetch(topic_id, {0: 0})))
    assert [header.record_count for _, header in iterate_headers(row.records)] == [2, 3]


async def reached(brokers: Brokers, waiting: "asyncio.Future[object]") -> None:
    """Return when a request that was sent before is with the examiners."""
    examiners = brokers.brokers[0].replicas.examiners
    await until(lambda: examiners._work_queue.qsize() == 1, "a batch waits to be examined")
    assert not waiting.done()
