"""Batches that a live broker must not append: what it has appended it serves to every consumer for years.

`survivor` sees to it that nothing of them is stored, and that nothing stored before is lost.
"""

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.records.batch import HEADER_BYTES, header_bytes, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic, produce

NewName = Callable[[str], str]

NOW_MS = wall_clock_ms()
DAY_MS = 24 * 60 * 60 * 1000
TWO = [SimpleRecord(key=b"k", value=b"v", timestamp_ms=NOW_MS)] * 2
GOOD = build_batch(TWO)


def with_bytes(position: int, value: bytes) -> bytes:
    """Return a batch with bytes replaced, its CRC left as it was."""
    return GOOD[:position] + value + GOOD[position + len(value) :]


def with_fields(**fields: int) -> bytes:
    """Return a batch whose header says something else, under a CRC that fits it."""
    payload = GOOD[HEADER_BYTES:]
    return header_bytes(read_header(GOOD)._replace(**fields), payload) + payload


BAD_BATCHES: dict[str, tuple[bytes | None, ErrorCode]] = {
    "nothing": (None, ErrorCode.invalid_record),
    "no bytes": (b"", ErrorCode.invalid_record),
    "a torn header": (GOOD[:30], ErrorCode.invalid_record),
    "a torn batch": (GOOD[:-1], ErrorCode.invalid_record),
    "two batches, as no client may": (GOOD + GOOD, ErrorCode.invalid_record),
    "wrong CRC": (with_bytes(17, bytes(4)), ErrorCode.corrupt_message),
    "a flipped bit in a record": (with_bytes(len(GOOD) - 1, b"\x55"), ErrorCode.corrupt_message),
    "magic 0": (with_bytes(16, b"\x00"), ErrorCode.invalid_record),
    "magic 1": (with_bytes(16, b"\x01"), ErrorCode.invalid_record),
    "magic 3": (with_bytes(16, b"\x03"), ErrorCode.corrupt_message),
    "a length beyond the records": (with_bytes(8, struct.pack(">i", 5_000)), ErrorCode.invalid_record),
    "the largest length": (with_bytes(8, struct.pack(">i", 2**31 - 1)), ErrorCode.invalid_record),
    "a negative length": (with_bytes(8, struct.pack(">i", -3)), ErrorCode.corrupt_message),
    "offsets that begin at 5": (with_fields(base_offset=5), ErrorCode.invalid_record),
    "offsets before 0": (with_fields(base_offset=-1), ErrorCode.invalid_record),
    "more offsets than records": (with_fields(last_offset_delta=9), ErrorCode.invalid_record),
    "no records": (with_fields(record_count=0, last_offset_delta=-1), ErrorCode.invalid_record),
    "less than no records": (with_fields(record_count=-7, last_offset_delta=-8), ErrorCode.invalid_record),
    "more records than bytes": (
        with_fields(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        ErrorCode.invalid_record,
    ),
    "a timestamp in days": (with_fields(base_timestamp=NOW_MS + 2 * DAY_MS), ErrorCode.invalid_timestamp),
    "the largest timestamp": (with_fields(base_timestamp=2**63 - 1), ErrorCode.invalid_timestamp),
    "a record too many": (with_fields(record_count=3, last_offset_delta=2), ErrorCode.invalid_record),
    "bytes behind the records": (
        header_bytes(read_header(GOOD), GOOD[HEADER_BYTES:] + b"\0") + GOOD[HEADER_BYTES:] + b"\0",
        ErrorCode.invalid_record,
    ),
    "the broker's own timestamps": (with_fields(attributes=0x08), ErrorCode.invalid_timestamp),
    "an unassigned codec": (with_fields(attributes=0x07), ErrorCode.unsupported_compression_type),
    "a control batch": (with_fields(attributes=0x20), ErrorCode.invalid_record),
    "a transaction without its id": (
        with_fields(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.transactional_id_authorization_failed,
    ),
    "a producer without a sequence": (with_fields(producer_id=1), ErrorCode.invalid_record),
    "a producer without an epoch": (
        with_fields(producer_id=1, base_sequence=0),
        ErrorCode.invalid_record,
    ),
}


def produce_to(address: tuple[str, int], topic: str, *batches: bytes | None) -> list[ErrorCode]:
    """Produce the n-th batch to partition n with acks=all; return the partitions' errors."""
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=10),
        topic_data=(
            TopicProduceData(
                name=topic,
                partition_data=tuple(
                    PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
                ),
            ),
        ),
    )
    with BlockingChannel(*address, "bad", timeout_s=15) as channel:
        response: Any = channel.request(request)
    return [row.error_code for row in response.responses[0].partition_responses]


def leader_address(cluster: LocalCluster, topic: str) -> tuple[str, int]:
    """Return where the leader of partition 0 listens."""
    leader = cluster.leader(topic)
    assert leader is not None
    return cluster.address(leader)


def test_bad_batch_is_refused_with_kafkas_error_and_not_stored(cluster: LocalCluster, survivor: str) -> None:
    """Clients decide by the code whether to retry, to split the batch, or to give up."""
    address = leader_address(cluster, survivor)
    answers = {what: produce_to(address, survivor, batch) for what, (batch, _) in BAD_BATCHES.items()}
    assert answers == {what: [error_code] for what, (_, error_code) in BAD_BATCHES.items()}


def served_topic(cluster: LocalCluster, topic: str, partitions: int = 1, **config: str) -> str:
    """Create a topic; return its name once each of its leaders has stored a record."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    create_topic(cluster.bootstrap_servers, topic, partitions, config=keys)
    records = [{"value": b"first", "partition": partition} for partition in range(partitions)]
    produce(cluster.bootstrap_servers, topic, records)
    return topic


def test_bad_batch_takes_no_other_partition_of_its_request_along(
    cluster: LocalCluster, survivor: str, new_topic_name: NewName
) -> None:
    """A producer puts the batches of many partitions into one request."""
    topic = served_topic(cluster, new_topic_name("half-bad"), partitions=4)
    leaders = [cluster.leader(topic, partition) for partition in range(4)]
    assert leaders[0] == leaders[3], "four partitions go round three brokers"
    bad, error_code = BAD_BATCHES["wrong CRC"]
    answers = produce_to(leader_address(cluster, topic), topic, bad, GOOD, GOOD, GOOD)
    elsewhere = ErrorCode.not_leader_or_follower
    assert answers == [error_code, elsewhere, elsewhere, ErrorCode.none]


def test_batch_whose_payload_is_not_what_its_codec_says_is_refused_where_it_is_opened(
    cluster: LocalCluster, survivor: str, new_topic_name: NewName
) -> None:
    """A topic with a codec of its own has batches recompressed, and so looks into them."""
    to_gzip = served_topic(cluster, new_topic_name("to-gzip"), compression_type="gzip")
    to_zstd = served_topic(cluster, new_topic_name("to-zstd"), compression_type="zstd")
    answers = {}
    for codec in Codec:
        topic = to_zstd if codec is Codec.GZIP else to_gzip
        address = leader_address(cluster, topic)
        answers[codec] = (
            *produce_to(address, topic, with_fields(attributes=codec)),
            *produce_to(address, topic, build_batch(TWO, codec=codec)),
        )
    expected = dict.fromkeys(Codec, (ErrorCode.invalid_record, ErrorCode.none))
    assert answers == expected | {Codec.NONE: (ErrorCode.none, ErrorCode.none)}
