"""WriteTxnMarkers and DescribeProducers over real logs and a real listener."""

import os
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import ProducerState
from kio.schema.write_txn_markers.v1 import request as v1
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from sparklog.executor.api.write_txn_markers import WriteTxnMarkersHandler
from sparklog.node.calling.channel import Channel
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.serving.requests import Api
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, fetch, rows

NONE = ErrorCode.none


def marker(
    producer_id: int,
    *partitions: int,
    topic: str = "t",
    epoch: int = 1,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 2,
) -> WritableTxnMarker:
    """A marker for partitions of one topic."""
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=partitions),),
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(channel: Channel, *markers: WritableTxnMarker) -> dict[int, list[Any]]:
    """Send markers; return by producer what became of each partition."""
    response = await channel.request(WriteTxnMarkersRequest(markers=markers))
    return {
        row.producer_id: [
            (topic.name, partition.partition_index, partition.error_code)
            for topic in row.topics
            for partition in topic.partitions
        ]
        for row in response.markers
    }


def begin(brokers: Brokers, topic_id: UUID, producer_id: int, *partitions: int, epoch: int = 0) -> None:
    """Have a producer's transaction begin in partitions that broker 0 leads."""
    for partition in partitions:
        replica = brokers.replica(0, topic_id, partition)
        replica.require_leader()
        records = batch(1, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        verification = replica.log.producers.begin_verification(
            producer_id, epoch, 0, 0, supports_epoch_bump=True
        )
        replica.append(records, read_header(records), 0, 0, None, verification)


async def fetched(channel: Channel, topic_id: UUID, *, isolation_level: int = 1) -> Any:
    """Return what a consumer gets from the start of partition 0."""
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0}, isolation_level=isolation_level)))
    return row


@with_brokers(count=3)
async def test_markers_of_interleaved_transactions_show_each_as_a_whole(brokers: Brokers) -> None:
    """A reader of committed records sees nothing of an open transaction, and nothing behind it."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    channel = await brokers.connect(0)
    begin(brokers, topic_id, 1, 0)
    begin(brokers, topic_id, 2, 0)
    assert await write(channel, marker(2, 0)) == {2: [("t", 0, NONE)]}
    row = await fetched(channel, topic_id)
    assert (row.high_watermark, row.last_stable_offset, row.records) == (3, 0, b"")
    row = await fetched(channel, topic_id, isolation_level=0)
    assert (row.high_watermark, row.last_stable_offset) == (3, 0), "whoever reads is told"
    assert await write(channel, marker(1, 0, committed=False)) == {1: [("t", 0, NONE)]}
    row = await fetched(channel, topic_id)
    assert (row.high_watermark, row.last_stable_offset) == (4, 4)
    assert [(each.producer_id, each.first_offset) for each in row.aborted_transactions] == [(1, 0)]
    followers = [brokers.replica(broker_id, topic_id) for broker_id in (1, 2)]
    await until(lambda: all(each.last_stable_offset == 4 for each in followers), "the followers")
    assert [len(each.log.aborted_transactions(0, 4)) for each in followers] == [1, 1]


@with_brokers(count=2)
async def test_markers_are_acknowledged_when_they_are_committed(brokers: Brokers) -> None:
    """The coordinator forgets the transaction then: a marker that is lost would never come again."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0,)])
    begin(brokers, topic_id, 1, 0, 1)
    await brokers.stop(1)
    channel = await brokers.connect(0)
    waiting = channel.request(WriteTxnMarkersRequest(markers=(marker(1, 0, 1),)))
    log = brokers.replica(0, topic_id).log
    await until(lambda: log.log_end_offset == 2, "the append")
    assert not waiting.done()
    await brokers.start(1)
    (row,) = (await waiting).markers
    assert [each.error_code for each in row.topics[0].partitions] == [NONE, NONE]


@with_brokers(count=2, config={"request.timeout.ms": "50"})
async def test_markers_that_replicas_do_not_get_in_time_are_timed_out(brokers: Brokers) -> None:
    """The coordinator sends them again; the connection is free for others meanwhile."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    begin(brokers, topic_id, 1, 0)
    await brokers.stop(1)
    channel = await brokers.connect(0)
    assert await write(channel, marker(1, 0)) == {1: [("t", 0, ErrorCode.request_timed_out)]}
    assert await write(channel, marker(1, 0)) == {1: [("t", 0, ErrorCode.request_timed_out)]}


@with_brokers(count=2)
async def test_markers_get_kafkas_error_for_each_partition(brokers: Brokers) -> None:
    """One partition's refusal is nothing to another, and coordinators act by the code."""
    topic_id = await brokers.create_topic("t", [(0,), (1, 0), (1,), (0, 1)], {"min.insync.replicas": "1"})
    channel = await brokers.connect(0)
    begin(brokers, topic_id, 1, 0)
    unknown, fenced = ErrorCode.unknown_topic_or_partition, ErrorCode.transaction_coordinator_fenced
    assert await write(
        channel,
        marker(1, 0, 1, 2, 9, coordinator_epoch=5),
        marker(2, 0, topic="no"),
        marker(-1, 0),
    ) == {
        1: [("t", 0, NONE), ("t", 1, ErrorCode.not_leader_or_follower), ("t", 2, unknown), ("t", 9, unknown)],
        2: [("no", 0, unknown)],
        -1: [("t", 0, ErrorCode.invalid_request)],
    }
    begin(brokers, topic_id, 1, 0, epoch=1)
    before = brokers.replica(0, topic_id).log.log_end_offset
    for late, error_code in (
        (marker(1, 0, epoch=0, coordinator_epoch=5), ErrorCode.invalid_producer_epoch),
        (marker(1, 0, epoch=1, coordinator_epoch=5), ErrorCode.invalid_producer_epoch),
        (marker(1, 0, epoch=2, coordinator_epoch=4), fenced),
    ):
        assert await write(channel, late) == {1: [("t", 0, error_code)]}
    assert brokers.replica(0, topic_id).log.log_end_offset == before
    assert await write(channel) == {}


@with_brokers()
async def test_marker_of_version_1_ends_a_transaction_of_its_own_epoch(brokers: Brokers) -> None:
    """Kafka's tool aborts what hangs with it, and coordinators of older transactions do everything."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    begin(brokers, topic_id, 1, 0)
    request = v1.WriteTxnMarkersRequest(
        markers=(
            v1.WritableTxnMarker(
                producer_id=1,
                producer_epoch=0,
                transaction_result=False,
                topics=(v1.WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),),
                coordinator_epoch=0,
            ),
        )
    )
    (row,) = (await channel.request(request)).markers
    assert row.topics[0].partitions[0].error_code is NONE
    assert brokers.replica(0, topic_id).last_stable_offset == 2


@with_brokers()
async def test_marker_that_is_the_first_batch_of_a_log_waits_for_the_disk_in_a_thread(
    brokers: Brokers,
) -> None:
    """An aborted transaction may have written nothing; the loop stood still for three fsyncs a partition."""
    await brokers.create_topic("t", [(0,), (0,)])
    fsync, syncing = os.fsync, list[threading.Thread]()

    def watched(descriptor: int) -> None:
        syncing.append(threading.current_thread())
        fsync(descriptor)

    os.fsync = watched
    try:
        written = await write(await brokers.connect(0), marker(7, 0, 1, committed=False))
    finally:
        os.fsync = fsync
    assert written == {7: [("t", 0, NONE), ("t", 1, NONE)]}
    assert len(syncing) >= 6
    assert threading.current_thread() not in syncing


class _Groups:
    """A group coordinator that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, EndTransactionMarker]] = []
        self.answers: list[Callable[[ErrorCode], None]] = []

    def complete(
        self, partition: int, end: EndTransactionMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        self.asked.append((partition, end))
        self.answers.append(answer)


@with_brokers()
async def test_markers_of_offsets_are_left_to_the_group_coordinator(brokers: Brokers) -> None:
    """It has to know which offsets the marker makes good, and answers when it does."""
    await brokers.create_topic("__consumer_offsets", [(0,), (0,), (0,)])
    topic_id = await brokers.create_topic("t", [(0,)])
    replicas, groups = brokers.brokers[0].replicas, _Groups()
    handler = WriteTxnMarkersHandler(
        replicas.table, replicas.delayed, 10_000, complete_group_transaction=groups.complete
    )
    listener = await Listener.start(
        "127.0.0.1", 0, Service(apis={ApiKey.WRITE_TXN_MARKERS: Api(1, 2, handler.handle)})
    )
    channel = await Channel.connect("127.0.0.1", listener.port, "test")
    begin(brokers, topic_id, 7, 0)
    offsets = marker(7, 0, 1, 2, topic="__consumer_offsets", coordinator_epoch=3)
    waiting = channel.request(WriteTxnMarkersRequest(markers=(offsets, marker(7, 0))))
    await until(lambda: len(groups.asked) == 3, "the coordinator is asked")
    assert groups.asked == [(number, EndTransactionMarker(7, 1, True, 3, 2)) for number in range(3)]
    codes = (NONE, ErrorCode.coordinator_load_in_progress, ErrorCode.not_enough_replicas)
    for answer, code in zip(groups.answers, codes, strict=True):
        assert not waiting.done()
        answer(code)
    (row,) = (await waiting).markers
    assert [[each.error_code for each in topic.partitions] for topic in row.topics] == [
        [NONE, ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas],
        [NONE],
    ]
    channel.close()
    await listener.close()


@with_brokers()
async def test_describe_producers_tells_of_open_transactions(brokers: Brokers) -> None:
    """Kafka's tool finds what hangs by it, and ends it with the epochs it is told."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    begin(brokers, topic_id, 1, 0)
    await write(channel, marker(1, 0, coordinator_epoch=4))
    begin(brokers, topic_id, 1, 0, epoch=1)
    begin(brokers, topic_id, 2, 0)
    request = DescribeProducersRequest(
        topics=(
            TopicRequest(name="t", partition_indexes=(0, 5)),
            TopicRequest(name="no", partition_indexes=(0,)),
        )
    )
    (found, missing), (unknown,) = [topic.partitions for topic in (await channel.request(request)).topics]
    assert found.active_producers == (
        ProducerState(
            producer_id=1,
            producer_epoch=1,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=4,
            current_txn_start_offset=2,
        ),
        ProducerState(
            producer_id=2,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=0,
            coordinator_epoch=-1,
            current_txn_start_offset=3,
        ),
    )
    assert missing.error_code is unknown.error_code is ErrorCode.unknown_topic_or_partition


@with_brokers(count=3)
async def test_describe_producers_of_a_follower_tells_of_open_transactions(brokers: Brokers) -> None:
    """`find-hanging --broker-id` asks about all that a broker has, and gives up at the first error."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 2)])
    begin(brokers, topic_id, 7, 0)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 1, "the follower")
    channel = await brokers.connect(1)
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0, 1)),))
    found, elsewhere = (await channel.request(request)).topics[0].partitions
    assert found.error_code is NONE
    assert [(each.producer_id, each.current_txn_start_offset) for each in found.active_producers] == [(7, 0)]
    assert elsewhere.error_code is ErrorCode.not_leader_or_follower
    follower.go_offline()
    (failed, _) = (await channel.request(request)).topics[0].partitions
    assert failed.error_code is ErrorCode.kafka_storage_error
