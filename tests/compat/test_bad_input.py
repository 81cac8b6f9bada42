"""What a live broker makes of rubbish: an error or a closed connection, and it serves on."""

import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.records.builder import SimpleRecord, build_batch
from sparklog.wire.blocking import BlockingChannel
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import consume, create_topic, produce

NewName = Callable[[str], str]


def send_and_read(address: tuple[str, int], data: bytes, timeout_s: float = 5.0) -> bytes:
    """Send bytes on a connection of their own; return what comes back until it is closed or idle."""
    received = b""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except (ConnectionError, TimeoutError):
            pass
    return received


def resident_bytes(process_id: int) -> int:
    """Return how much memory a process has in RAM."""
    with open(f"/proc/{process_id}/statm") as statm:  # noqa: PTH123 - a file of the kernel
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def serving(cluster: LocalCluster, new_topic_name: NewName) -> Iterator[str]:
    """A topic with one record, which must still be there, on brokers that still live, after the test."""
    topic = new_topic_name("survivor")
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    processes = [cluster.process_id(broker_id) for broker_id in cluster.broker_ids]
    yield topic
    assert [cluster.process_id(broker_id) for broker_id in cluster.broker_ids] == processes
    assert all(cluster.is_running(broker_id) for broker_id in cluster.broker_ids)
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 2)
    assert [message.value() for message in messages] == [b"before", b"after"]


def header(api_key: int, api_version: int, client_id: bytes = b"bad", *, flexible: bool = False) -> bytes:
    """Return a request header, with the empty tagged fields of v2 where `flexible`."""
    return struct.pack(">hhih", api_key, api_version, 7, len(client_id)) + client_id + b"\x00" * flexible


def frame(body: bytes) -> bytes:
    """Return the body with its length in front."""
    return struct.pack(">i", len(body)) + body


def test_random_bytes_close_the_connection_only(cluster: LocalCluster, serving: str) -> None:
    """Port scanners and HTTP clients find every open port."""
    chance = random.Random(20260101)
    samples = [b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", b"\x00" * 64, b"\xff" * 64]
    samples += [chance.randbytes(chance.randrange(1, 3_000)) for _ in range(60)]
    samples += [frame(chance.randbytes(chance.randrange(0, 300))) for _ in range(60)]
    for sample in samples:
        send_and_read(cluster.address(0), sample)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(header(999, 0), id="unknown API key"),
        pytest.param(header(-1, 0), id="negative API key"),
        pytest.param(header(0, 99), id="unknown version of Produce"),
        pytest.param(header(0, 2) + b"\x00" * 20, id="version of Produce that is gone"),
        pytest.param(header(3, 1) + struct.pack(">i", 2**31 - 1), id="two billion topics"),
        pytest.param(header(3, 9, flexible=True) + b"\xff\xff\xff\xff\x07", id="as many, flexible"),
        pytest.param(header(3, 1) + struct.pack(">ih", 1, 30_000), id="a string beyond the frame"),
        pytest.param(header(3, 1) + struct.pack(">ih2s", 1, 2, b"\xff\xfe"), id="not UTF-8"),
        pytest.param(header(62, 4, flexible=True), id="a broker's registration, which brokers do not take"),
        pytest.param(struct.pack(">hh", 3, 1), id="half a header"),
    ],
)
def test_malformed_request_closes_the_connection_without_an_answer(
    cluster: LocalCluster, serving: str, body: bytes
) -> None:
    """Kafka closes too; what the client then sees is a lost connection, and the broker's log says why."""
    assert send_and_read(cluster.address(0), frame(body)) == b""


def test_malformed_request_after_a_good_one_is_no_different(cluster: LocalCluster, serving: str) -> None:
    """The connection's state must not make a frame more believable."""
    good = frame(header(18, 0))
    answer = send_and_read(cluster.address(0), good)
    assert answer
    assert send_and_read(cluster.address(0), good + frame(header(3, 1) + struct.pack(">i", 10**9))) == answer


def test_oversized_frame_takes_no_memory_and_is_refused(cluster: LocalCluster, serving: str) -> None:
    """A length is only a claim; memory follows what was received."""
    process_id = cluster.process_id(0)
    before = resident_bytes(process_id)
    connections = []
    try:
        for _ in range(20):
            connection = socket.create_connection(cluster.address(0), timeout=5)
            connections.append(connection)
            connection.sendall(struct.pack(">i", 100_000_000) + b"\x00" * 10)
        assert send_and_read(cluster.address(0), struct.pack(">i", 200_000_000) + b"\x00" * 100) == b""
        assert send_and_read(cluster.address(0), struct.pack(">i", -5) + b"\x00" * 100) == b""
        assert resident_bytes(process_id) - before < 50_000_000
    finally:
        for connection in connections:
            connection.close()


def test_api_versions_of_an_unknown_version_is_answered_in_version_zero(
    cluster: LocalCluster, serving: str
) -> None:
    """That is how a newer client finds out what it may speak, on the same connection."""
    unknown = frame(header(18, 99) + b"\x05\x00\x01")
    answer = send_and_read(cluster.address(0), unknown + frame(header(18, 0)))
    size, correlation_id, error_code = struct.unpack_from(">iih", answer)
    assert (correlation_id, error_code) == (7, ErrorCode.unsupported_version)
    second = answer[4 + size :]
    _, correlation_id, error_code = struct.unpack_from(">iih", second)
    assert (correlation_id, error_code) == (7, ErrorCode.none)


def corrupted(batch: bytes, position: int, value: bytes) -> bytes:
    """Return the batch with bytes replaced, its CRC left as it was."""
    return batch[:position] + value + batch[position + len(value) :]


GOOD = build_batch([SimpleRecord(key=b"k", value=b"v", timestamp_ms=1_700_000_000_000)])
BAD_BATCHES = {
    "wrong CRC": (corrupted(GOOD, len(GOOD) - 1, b"\x55"), {ErrorCode.corrupt_message}),
    "magic 1": (
        corrupted(GOOD, 16, b"\x01"),
        {ErrorCode.unsupported_for_message_format, ErrorCode.invalid_record, ErrorCode.corrupt_message},
    ),
    "a length beyond the records": (
        corrupted(GOOD, 8, struct.pack(">i", 5_000)),
        {ErrorCode.corrupt_message, ErrorCode.invalid_record},
    ),
    "a negative length": (
        corrupted(GOOD, 8, struct.pack(">i", -3)),
        {ErrorCode.corrupt_message, ErrorCode.invalid_record},
    ),
    "a torn header": (GOOD[:30], {ErrorCode.corrupt_message, ErrorCode.invalid_record}),
    "a control batch": (
        build_batch([SimpleRecord(key=b"\x00" * 4, value=b"\x00" * 6)], control=True),
        {ErrorCode.invalid_record},
    ),
    "two batches, as no client may": (GOOD + GOOD, {ErrorCode.invalid_record, ErrorCode.corrupt_message}),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batch_is_refused_with_a_named_error_and_not_stored(
    cluster: LocalCluster, serving: str, name: str
) -> None:
    """What is appended is served as it is to every consumer for years."""
    batch, expected = BAD_BATCHES[name]
    leader = cluster.leader(serving)
    assert leader is not None
    host, port = cluster.address(leader)
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=10),
        topic_data=(
            TopicProduceData(
                name=serving,
                partition_data=(PartitionProduceData(index=0, records=batch),),
            ),
        ),
    )
    channel = BlockingChannel(host, port, "bad", timeout_s=10)
    try:
        response: Any = channel.request(request)
    finally:
        channel.close()
    assert response.responses[0].partition_responses[0].error_code in expected


def test_unknown_and_illegal_topics_get_their_own_errors(
    cluster: LocalCluster, serving: str, new_topic_name: NewName
) -> None:
    """A client tells a typo from a topic that is only not there yet by the code."""
    host, port = cluster.address(0)
    channel = BlockingChannel(host, port, "bad", timeout_s=10)
    unknown = new_topic_name("never-created")
    names = [unknown, "no spaces", "", "." * 300, "../../etc/passwd"]
    try:
        response: Any = channel.request(
            MetadataRequest(
                topics=tuple(MetadataRequestTopic(topic_id=None, name=name) for name in names),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
        assert [topic.error_code for topic in response.topics] == [
            ErrorCode.unknown_topic_or_partition,
            *[ErrorCode.invalid_topic_exception] * 4,
        ]
        assert channel.request(ApiVersionsRequest()).error_code is ErrorCode.none
    finally:
        channel.close()


def test_second_process_on_a_locked_directory_ends_and_says_so(cluster: LocalCluster, serving: str) -> None:
    """Two brokers over one directory would corrupt it."""
    intruder = LocalCluster(brokers=1, directory=cluster.directory / "intruder")
    intruder.directory.mkdir()
    try:
        intruder.cluster_id = cluster.cluster_id
        intruder.controller = cluster.controller
        intruder.broker_directory = lambda broker_id: cluster.broker_directory(0)  # type: ignore[method-assign]
        intruder.launch(0)
        assert intruder.wait_for_exit(0) != 0
        assert "DirectoryLockedError" in intruder.log_tail(0)
    finally:
        intruder.kill(0)


def test_directory_of_another_cluster_is_refused_by_name(cluster: LocalCluster) -> None:
    """Reusing a directory by mistake must not mix two clusters' records."""
    with LocalCluster(brokers=1) as other:
        other.kill(0)
        directory = other.broker_directory(0)
        meta = (directory / "meta.properties").read_text()
        (directory / "meta.properties").write_text(meta.replace(other.cluster_id, "somebody-else"))
        other.launch(0)
        assert other.wait_for_exit(0) != 0
        wait_for(lambda: "ForeignDirectoryError" in other.log_tail(0), "the error in the log")
        assert "somebody-else" in other.log_tail(0)
