"""Brokers copy what their topics have to the object store, and keep only the end of it on their disks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce
from tests.compat.tiering import LOCAL_FEW, local_start, tiered_config, wait_for_copy, wait_for_local_start


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


def test_records_are_copied_and_leave_the_disks(cluster: LocalCluster, store: Path) -> None:
    """A disk that old records never leave is full some day, tier or not."""
    create_topic(cluster.bootstrap_servers, "copied", config=LOCAL_FEW)
    records = [{"value": b"%06d" % number + b"v" * 1000} for number in range(6000)]
    produce(cluster.bootstrap_servers, "copied", records)
    manifest = wait_for_copy(cluster, store, "copied", len(records))
    assert (manifest.log_start_offset, manifest.segments[0].base_offset) == (0, 0)
    assert sum(segment.record_count for segment in manifest.segments) == len(records)
    wait_for_local_start(cluster, "copied", 3000)


def test_consumer_reads_from_the_first_record_on(cluster: LocalCluster, store: Path) -> None:
    """Records that only the bucket has are the same to a client: offsets, keys, values, headers, times."""
    topic = "read"
    create_topic(cluster.bootstrap_servers, topic, config=LOCAL_FEW)
    records = [
        {
            "key": b"k%d" % (number % 7) if number % 3 else None,
            "value": b"%06d" % number + bytes(1000) if number % 11 else None,
            "headers": [("h", b"%d" % number)] if number % 5 == 0 else None,
            "timestamp": 1_700_000_000_000 + number,
        }
        for number in range(5000)
    ]
    produce(cluster.bootstrap_servers, topic, records)
    wait_for_copy(cluster, store, topic, len(records))
    leader = cluster.leader(topic)
    assert leader is not None
    wait_for(lambda: local_start(cluster, leader, topic) > 3000, "the leader keeps the end alone", TIMEOUT_S)
    read = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, 0)], len(records))
    told = [
        {
            "key": message.key(),
            "value": message.value(),
            "headers": message.headers(),
            "timestamp": message.timestamp()[1],
        }
        for message in read
    ]
    assert told == records
    assert [message.offset() for message in read] == list(range(len(records)))
