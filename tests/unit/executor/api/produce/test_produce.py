"""Produce over real logs and a real listener."""

import asyncio
import importlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.node.metadata.schemas import NO_LEADER, ConfigRecord, PartitionChangeRecord, ResourceType
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import (
    HEADER_BYTES,
    TimestampType,
    check_crc,
    header_bytes,
    iterate_headers,
    read_header,
)
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import MILLISECOND, batch, delete_records, fetch, produce, rows


@with_brokers(count=3)
async def test_produce_with_acks_all_is_answered_when_every_replica_has_it(brokers: Brokers) -> None:
    """The acknowledgement is the promise that everything else rests on."""
    topic_id = await brokers.create_topic("t", [(0, 1, 2)])
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch(3))))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    assert [brokers.replica(broker_id, topic_id).log.log_end_offset for broker_id in range(3)] == [3, 3, 3]
    assert brokers.replica(0, topic_id).high_watermark == 3
    (row,) = rows(await channel.request(produce(topic_id, batch(2))))
    assert row.base_offset == 3


@with_brokers(count=2)
async def test_produce_with_acks_all_waits_for_a_follower_and_acks_one_does_not(brokers: Brokers) -> None:
    """The two differ exactly when a follower does not fetch."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    channel = await brokers.connect(0)
    waiting = channel.request(produce(topic_id, batch(), timeout_ms=20_000))
    other = await brokers.connect(0)
    (row,) = rows(await other.request(produce(topic_id, batch(), acks=1)))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 1)
    assert not waiting.done()
    await brokers.start(1)
    (row,) = rows(await waiting)
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)


@with_brokers(count=2)
async def test_produce_that_replicas_do_not_get_in_time_is_timed_out(brokers: Brokers) -> None:
    """The records are in the log all the same; only the promise is not made."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch(), timeout_ms=50)))
    assert (row.error_code, row.base_offset) == (ErrorCode.request_timed_out, 0)
    assert brokers.replica(0, topic_id).log.log_end_offset == 1


@with_brokers(count=2)
async def test_produce_below_min_insync_replicas_is_refused_before_the_append(brokers: Brokers) -> None:
    """What cannot be acknowledged is not written."""
    topic_id = await brokers.create_topic("t", [(0, 1)], {"min.insync.replicas": "2"})
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    channel = await brokers.connect(0)
    for records in (batch(), batch()[:-1]):  # nothing is looked into that cannot be acknowledged
        (row,) = rows(await channel.request(produce(topic_id, records)))
        assert row.error_code is ErrorCode.not_enough_replicas
    assert brokers.replica(0, topic_id).log.log_end_offset == 0
    (row,) = rows(await channel.request(produce(topic_id, batch(), acks=1)))
    assert row.error_code is ErrorCode.none


@with_brokers(count=2, config={"replica.lag.time.max.ms": "100", "replica.fetch.wait.max.ms": "50"})
async def test_produce_waiting_when_the_isr_falls_below_the_minimum_is_told_so(brokers: Brokers) -> None:
    """It is in the log, but may be lost: NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    topic_id = await brokers.create_topic("t", [(0, 1)], {"min.insync.replicas": "2"})
    channel = await brokers.connect(0)
    await brokers.stop(1)
    waiting = channel.request(produce(topic_id, batch(), timeout_ms=20_000))
    loop = asyncio.get_running_loop()

    def ticked() -> bool:
        brokers.brokers[0].replicas.tick(int(loop.time() * 1000))
        return waiting.done()

    await until(ticked, "the ISR shrinks")
    (row,) = rows(await waiting)
    assert row.error_code is ErrorCode.not_enough_replicas_after_append
    assert brokers.proposals == [(0,)]


@with_brokers(count=2)
async def test_produce_waiting_when_the_leader_is_deposed_is_not_acknowledged(brokers: Brokers) -> None:
    """A deposed leader, however alive, acknowledges nothing."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    channel = await brokers.connect(0)
    waiting = channel.request(produce(topic_id, batch(), timeout_ms=20_000))
    await until(lambda: brokers.replica(0, topic_id).log.log_end_offset == 1, "the append")
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    (row,) = rows(await waiting)
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 1)


@pytest.mark.parametrize("leader", [1, None])
def test_leader_that_is_deposed_with_a_smaller_minimum_commits_nothing_by_it(
    leader: int | None, tmp_path: Path
) -> None:
    """Both came in one image; to the controller the minimum was smaller only after it had lost the lead."""

    @with_brokers(count=2)
    async def scenario(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0, 1)], {"min.insync.replicas": "2"})
        await brokers.stop(1)
        await brokers.elect(topic_id, 0, leader=0, isr=[0])
        channel = await brokers.connect(0)
        (row,) = rows(await channel.request(produce(topic_id, batch(), acks=1)))
        assert row.error_code is ErrorCode.none
        replica = brokers.replica(0, topic_id)
        assert (replica.log.log_end_offset, replica.high_watermark) == (1, 0)
        await brokers.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, leader=NO_LEADER if leader is None else leader, isr=()
            ),
            ConfigRecord(
                resource_type=ResourceType.TOPIC,
                resource_name="t",
                name="min.insync.replicas",
                value="1",
            ),
        )
        assert replica.leadership is None
        assert replica.high_watermark == 0
        assert replica.settings.min_insync_replicas == 1

    scenario(tmp_path)


@with_brokers(count=2)
async def test_produce_while_the_lease_is_out_is_refused_until_it_is_renewed(brokers: Brokers) -> None:
    """The controller may have given the partitions away; only the metadata log can tell."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    brokers.brokers[0].holds_lease = False
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert row.error_code is ErrorCode.not_leader_or_follower
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0})))
    assert row.error_code is ErrorCode.not_leader_or_follower
    brokers.brokers[0].holds_lease = True
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)


@with_brokers(count=1)
async def test_produce_and_delete_records_of_an_internal_topic_are_refused(brokers: Brokers) -> None:
    """What its coordinator reads there it takes for its own."""
    topic_id = await brokers.create_topic("__consumer_offsets", [(0,)], {"cleanup.policy": "compact,delete"})
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch())))
    assert (row.error_code, row.base_offset) == (ErrorCode.invalid_topic_exception, -1)
    there, missing = rows(await channel.request(delete_records("__consumer_offsets", 0, partitions=2)))
    assert (there.error_code, there.low_watermark) == (ErrorCode.invalid_topic_exception, -1)
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@with_brokers(count=1)
async def test_produce_to_several_partitions_answers_for_each(brokers: Brokers) -> None:
    """One bad batch spoils its own partition only."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    damaged = bytearray(batch())
    damaged[-1] ^= 1
    channel = await brokers.connect(0)
    good, bad, missing = rows(await channel.request(produce(topic_id, batch(), bytes(damaged), batch())))
    assert (good.error_code, good.base_offset) == (ErrorCode.none, 0)
    assert (bad.error_code, bad.base_offset) == (ErrorCode.corrupt_message, -1)
    assert missing.error_code is ErrorCode.unknown_topic_or_partition


@with_brokers(count=1)
async def test_refused_records_are_told_where_the_log_starts_as_kafka_tells_it(brokers: Brokers) -> None:
    """By it a producer knows whether retention has removed its records."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    of_producer = {"producer_id": 7, "producer_epoch": 0}
    await channel.request(produce(topic_id, batch(3, **of_producer, base_sequence=0)))
    await channel.request(delete_records("t", 2))
    (row,) = rows(await channel.request(produce(topic_id, batch(1, **of_producer, base_sequence=9))))
    assert (row.error_code, row.base_offset) == (ErrorCode.out_of_order_sequence_number, -1)
    assert row.log_start_offset == 2
    damaged = batch()[:-1] + b"\xff"
    (row,) = rows(await channel.request(produce(topic_id, damaged)))
    assert (row.error_code, row.log_start_offset) == (ErrorCode.corrupt_message, -1)


@with_brokers(count=1)
async def test_records_of_a_transaction_without_its_id_have_the_whole_request_refused(
    brokers: Brokers,
) -> None:
    """A client that retries the request as a whole would write the rest of it twice."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    channel = await brokers.connect(0)
    of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    request = produce(topic_id, batch(), batch(**of_producer, transactional=True))
    codes = {row.error_code for row in rows(await channel.request(request))}
    assert codes == {ErrorCode.transactional_id_authorization_failed}
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@with_brokers(count=1)
async def test_produce_of_a_partition_that_is_there_twice_appends_the_last_and_answers_once(
    brokers: Brokers,
) -> None:
    """As Kafka: a client that reads one answer for each partition would take one for the other's."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    channel = await brokers.connect(0)
    once = produce(topic_id, batch(1), batch(5))
    (topic,) = once.topic_data
    again = topic.partition_data[0]
    twice = replace(
        once,
        topic_data=(topic, replace(topic, partition_data=(replace(again, records=batch(2)),))),
    )
    first, second = rows(await channel.request(twice))
    assert [(row.index, row.error_code, row.base_offset) for row in (first, second)] == [
        (0, ErrorCode.none, 0),
        (1, ErrorCode.none, 0),
    ]
    assert brokers.replica(0, topic_id).log.log_end_offset == 2


@with_brokers(count=1)
async def test_produce_of_a_batch_without_its_latest_timestamp_is_stored_with_it(brokers: Brokers) -> None:
    """Some clients send all of theirs so; look-ups by time and retention go by the header."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    for count, codec in enumerate(Codec):
        sent = batch(2, codec=codec)
        said = read_header(sent)
        without = header_bytes(said._replace(max_timestamp=-1), sent[HEADER_BYTES:]) + sent[HEADER_BYTES:]
        (row,) = rows(await channel.request(produce(topic_id, without)))
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 2 * count)
        (fetched,) = rows(await channel.request(fetch(topic_id, {0: 2 * count})))
        ((position, stored),) = iterate_headers(fetched.records)
        check_crc(fetched.records, position, stored)
        assert stored.max_timestamp == said.max_timestamp


@with_brokers(count=2)
async def test_produce_to_a_follower_names_the_leader_and_where_it_is(brokers: Brokers) -> None:
    """The client need not ask for metadata first (KIP-951); he may not reach the brokers' own listener."""
    topic_id = await brokers.create_topic("t", [(1, 0)])
    channel = await brokers.connect(0)
    response = await channel.request(produce(topic_id, batch()))
    (row,) = rows(response)
    assert row.error_code is ErrorCode.not_leader_or_follower
    assert row.current_leader.leader_id == 1
    (node,) = response.node_endpoints
    assert (node.node_id, node.host, node.port) == (1, "b1.example", 9092)


@with_brokers(count=1)
async def test_produce_refuses_what_it_does_not_serve(brokers: Brokers) -> None:
    """Records of no known transaction and impossible acks get a named error, not silence."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for records in (batch(**of_producer, transactional=True), batch(transactional=True)):
        (row,) = rows(await channel.request(produce(topic_id, records)))
        assert row.error_code is ErrorCode.transactional_id_authorization_failed
    (row,) = rows(await channel.request(produce(topic_id, batch(), acks=2)))
    assert row.error_code is ErrorCode.invalid_required_acks
    assert brokers.replica(0, topic_id).log.log_end_offset == 0


@with_brokers(count=1)
async def test_produce_with_acks_none_has_no_answer_and_a_failure_ends_the_connection(
    brokers: Brokers,
) -> None:
    """That is all such a client can be told; it then looks for the leader."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    channel.request(produce(topic_id, batch(), acks=0)).cancel()
    await until(lambda: brokers.replica(0, topic_id).log.log_end_offset == 1, "the append")
    channel.request(produce(topic_id, None, batch(), acks=0)).cancel()
    await asyncio.wait_for(channel.closed, 10)


@with_brokers(count=1)
async def test_produce_of_an_idempotent_producer_twice_is_answered_with_the_first_offset(
    brokers: Brokers,
) -> None:
    """A retry is in the log once; a gap in the sequence is refused."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    first = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        (row,) = rows(await channel.request(produce(topic_id, first)))
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    gap = batch(1, producer_id=7, producer_epoch=0, base_sequence=5)
    (row,) = rows(await channel.request(produce(topic_id, gap)))
    assert row.error_code is ErrorCode.out_of_order_sequence_number
    assert brokers.replica(0, topic_id).log.log_end_offset == 2


@with_brokers(count=2)
async def test_produce_of_a_duplicate_waits_for_replicas_as_the_first_one_did(brokers: Brokers) -> None:
    """A retry must not be acknowledged sooner than what it repeats."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await brokers.stop(1)
    channel = await brokers.connect(0)
    records = batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        (row,) = rows(await channel.request(produce(topic_id, records, timeout_ms=30)))
        assert row.error_code is ErrorCode.request_timed_out
    assert brokers.replica(0, topic_id).log.log_end_offset == 1


@with_brokers(count=1)
async def test_produce_obeys_the_topics_configuration(brokers: Brokers) -> None:
    """max.message.bytes, compression.type and LogAppendTime are the topic's to say."""
    config = {
        "max.message.bytes": "2000",
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
    }
    topic_id = await brokers.create_topic("t", [(0,)], config)
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch(value=bytes(3000)))))
    assert row.error_code is ErrorCode.message_too_large
    (row,) = rows(await channel.request(produce(topic_id, batch(5, codec=Codec.LZ4))))
    assert row.error_code is ErrorCode.none
    assert row.log_append_time is not None
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0})))
    ((_, header),) = iterate_headers(row.records)
    assert header.codec is Codec.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_of_every_version_is_answered_in_it(version: int, tmp_path: object) -> None:
    """Clients of eight years speak these."""

    @with_brokers(count=1)
    async def body(brokers: Brokers) -> None:
        topic_id = await brokers.create_topic("t", [(0,)])
        module = importlib.import_module(f"kio.schema.produce.v{version}.request")
        named = {"topic_id": topic_id} if version >= 13 else {"name": "t"}
        request = module.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout=1000 * MILLISECOND,
            topic_data=(
                module.TopicProduceData(
                    **named, partition_data=(module.PartitionProduceData(index=0, records=batch()),)
                ),
            ),
        )
        channel = await brokers.connect(0)
        response = await channel.request(request)
        assert response.__version__ == version
        (row,) = rows(response)
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)

    body(tmp_path)  # type: ignore[arg-type]


@with_brokers(count=1)
async def test_produce_stamps_the_leader_epoch_and_leaves_the_rest(brokers: Brokers) -> None:
    """Batches are stored as they came, but for what a leader assigns."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    channel = await brokers.connect(0)
    sent = batch(2, b"payload")
    await channel.request(produce(topic_id, sent))
    (row,) = rows(await channel.request(fetch(topic_id, {0: 0})))
    assert read_header(row.records).partition_leader_epoch == 1
    assert bytes(row.records)[16:] == sent[16:]


@with_brokers(count=1)
async def test_produce_onto_a_failed_disk_takes_the_partition_offline(brokers: Brokers) -> None:
    """The client hears KAFKA_STORAGE_ERROR, from then on at once, and other partitions go on."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    replica = brokers.replica(0, topic_id)
    replica.fail_if_storage(KafkaError(ErrorCode.kafka_storage_error, "the disk is gone"))
    channel = await brokers.connect(0)
    bad, good = rows(await channel.request(produce(topic_id, batch(), batch())))
    assert bad.error_code is ErrorCode.kafka_storage_error
    assert good.error_code is ErrorCode.none
    table = brokers.brokers[0].replicas.table
    assert [replica.topic_partition for replica in table if replica.offline] == [replica.topic_partition]


@with_brokers(count=1)
async def test_produce_without_a_key_to_a_compacted_topic_is_refused(brokers: Brokers) -> None:
    """Compaction keeps the last record of each key: one without could never go."""
    topic_id = await brokers.create_topic("t", [(0,)], {"cleanup.policy": "compact"})
    channel = await brokers.connect(0)
    for codec in (Codec.NONE, Codec.ZSTD):
        (row,) = rows(await channel.request(produce(topic_id, batch(3, codec=codec))))
        assert row.error_code is ErrorCode.invalid_record
        assert "key" in row.error_message
        assert [each.batch_index for each in row.record_errors] == [0, 1, 2]
    assert brokers.replica(0, topic_id).log.log_end_offset == 0
    now_ms = int(time.time() * 1000)
    keyed = build_batch([SimpleRecord(b"key", b"value", (), now_ms)] * 3, codec=Codec.ZSTD)
    (row,) = rows(await channel.request(produce(topic_id, keyed)))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)


@with_brokers(count=1)
async def test_produce_of_one_record_older_than_the_topic_allows_is_refused(brokers: Brokers) -> None:
    """A batch's header names its first and its latest timestamp only; the old one hides between them."""
    topic_id = await brokers.create_topic("t", [(0,)], {"message.timestamp.before.max.ms": "60000"})
    channel = await brokers.connect(0)
    now_ms = int(time.time() * 1000)
    ages_ms = (0, 120_000, 0)
    records = [SimpleRecord(None, b"value", (), now_ms - age_ms) for age_ms in ages_ms]
    (row,) = rows(await channel.request(produce(topic_id, build_batch(records))))
    assert row.error_code is ErrorCode.invalid_timestamp
    assert [each.batch_index for each in row.record_errors] == [1], "a producer sends the others again"
    (row,) = rows(await channel.request(produce(topic_id, build_batch([records[0], records[2]]))))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
