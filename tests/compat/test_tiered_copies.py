"""Brokers copy what their topics have to the object store; retention, DeleteRecords and deletion reach it."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from sparklog.node.remote_log.opened_store import check_access, open_store
from tests.certificates import Authority, server_keys
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic, produce
from tests.compat.tiering import (
    CONFIG,
    LOCAL_FEW,
    leader_local_start,
    manifest_of,
    segment_objects,
    tiered_config,
    topic_objects,
    wait_for_copy,
)
from tests.s3_server import BUCKET, s3_server

COUNT = 5000
"""Records of 1 KB: five segments, of which one stays on disks."""


@pytest.fixture(scope="module", autouse=True)
def client_of_clouds() -> None:
    """Start the threads of obstore, which stay, before anybody counts threads."""

    async def ask(options: dict[str, str]) -> None:
        store = open_store(f"s3://{BUCKET}/prefix", options)
        await check_access(store)
        await store.close()

    with s3_server() as server:
        asyncio.run(ask(server.options))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


def records(count: int = COUNT) -> list[dict[str, Any]]:
    """Return records of all sorts: without key, without value, with headers."""
    now_ms = int(time.time() * 1000)
    return [
        {
            "key": b"k%d" % (number % 7) if number % 3 else None,
            "value": b"%06d" % number + bytes(1000) if number % 11 else None,
            "headers": [("h", b"%d" % number)] if number % 5 == 0 else None,
            "timestamp": now_ms + number,
        }
        for number in range(count)
    ]


def test_records_are_copied_leave_the_leaders_disk_and_are_read_from_the_first_on(
    cluster: LocalCluster, store: Path
) -> None:
    """Records that only the bucket has are the same to a client; a disk that keeps all is full some day."""
    create_topic(cluster.bootstrap_servers, "copied", config=LOCAL_FEW)
    sent = records()
    produce(cluster.bootstrap_servers, "copied", sent)
    manifest = wait_for_copy(cluster, store, "copied", COUNT)
    assert (manifest.log_start_offset, manifest.segments[0].base_offset) == (0, 0)
    assert sum(segment.record_count for segment in manifest.segments) == COUNT
    wait_for(lambda: leader_local_start(cluster, "copied") > COUNT // 3, "the disk is relieved", TIMEOUT_S)
    read = consume(cluster.bootstrap_servers, [TopicPartition("copied", 0, 0)], COUNT)
    assert [message.offset() for message in read] == list(range(COUNT))
    told = [
        {
            "key": message.key(),
            "value": message.value(),
            "headers": message.headers(),
            "timestamp": message.timestamp()[1],
        }
        for message in read
    ]
    assert told == sent


def test_cluster_over_s3_with_tls_copies_deletes_and_reads(tmp_path: Path) -> None:
    """Most clusters have a cloud's store, whose conditions, ranges and TLS are another's code."""
    authority = Authority()
    (tmp_path / "authority.pem").write_text(authority.pem)
    certificate = Path(server_keys(authority.certify(), tmp_path)["ssl.keystore.location"])
    with s3_server(certificate) as server:
        given = {**server.options, "root_certificate": str(tmp_path / "authority.pem")}
        options = {f"sparklog.remote.option.{name}": value for name, value in given.items()}
        config = {
            **CONFIG,
            "min.insync.replicas": "1",
            "sparklog.remote.uri": f"s3://{BUCKET}/prefix",
            **options,
        }
        with LocalCluster(brokers=1, config=config) as cluster:
            create_topic(cluster.bootstrap_servers, "t", replication_factor=1, config=LOCAL_FEW)
            sent = records(3000)
            produce(cluster.bootstrap_servers, "t", sent)
            wait_for(lambda: leader_local_start(cluster, "t") > 900, "the disk is relieved", TIMEOUT_S)
            read = consume(cluster.bootstrap_servers, [TopicPartition("t", 0, 0)], len(sent))
            assert [message.value() for message in read] == [record["value"] for record in sent]
            admin = admin_client(cluster.bootstrap_servers)
            deletion = admin.delete_records([TopicPartition("t", 0, 1500)])
            assert [each.result(TIMEOUT_S).low_watermark for each in deletion.values()] == [1500]


def first_offset(cluster: LocalCluster, topic: str) -> int | None:
    (message,) = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], 1)
    return message.offset()


def test_retention_deletes_in_the_store_and_moves_the_log_start(cluster: LocalCluster, store: Path) -> None:
    """A bucket that only grows is a bill that only grows."""
    create_topic(cluster.bootstrap_servers, "retained", config={"retention.bytes": str(2 << 20)})
    produce(cluster.bootstrap_servers, "retained", records())

    def is_cut() -> bool:
        manifest = manifest_of(cluster, store, "retained")
        return (
            manifest is not None
            and manifest.end_offset == COUNT
            and manifest.log_start_offset > COUNT // 4
            and segment_objects(store, "retained") == {segment.name for segment in manifest.segments}
        )

    wait_for(is_cut, "the objects below the log start are gone", TIMEOUT_S)
    manifest = manifest_of(cluster, store, "retained")
    assert manifest is not None
    assert first_offset(cluster, "retained") == manifest.log_start_offset


def test_records_deleted_on_request_are_gone_from_the_store(cluster: LocalCluster, store: Path) -> None:
    """A user who has records deleted means all copies of them."""
    create_topic(cluster.bootstrap_servers, "cut", config=LOCAL_FEW)
    produce(cluster.bootstrap_servers, "cut", records())
    wait_for_copy(cluster, store, "cut", COUNT)
    before = segment_objects(store, "cut")
    wait_for(lambda: leader_local_start(cluster, "cut") > COUNT // 3, "the disk is relieved", TIMEOUT_S)
    admin = admin_client(cluster.bootstrap_servers)
    deletion = admin.delete_records([TopicPartition("cut", 0, 1500)])
    assert [each.result(TIMEOUT_S).low_watermark for each in deletion.values()] == [1500]

    def is_deleted() -> bool:
        manifest = manifest_of(cluster, store, "cut")
        return (
            manifest is not None
            and manifest.log_start_offset == 1500
            and len(segment_objects(store, "cut")) < len(before)
        )

    wait_for(is_deleted, "the store has lost what lies below", TIMEOUT_S)
    assert first_offset(cluster, "cut") == 1500


def test_deleted_topic_leaves_the_store(cluster: LocalCluster, store: Path) -> None:
    """Another topic of that name begins with nothing."""
    create_topic(cluster.bootstrap_servers, "deleted")
    produce(cluster.bootstrap_servers, "deleted", records(100))
    wait_for_copy(cluster, store, "deleted", 100)
    topic_id = cluster.image.topics.by_name["deleted"].topic_id
    assert topic_objects(store, topic_id)
    admin = admin_client(cluster.bootstrap_servers)
    for deletion in admin.delete_topics(["deleted"]).values():
        deletion.result(TIMEOUT_S)
    wait_for(lambda: not topic_objects(store, topic_id), "no object of the topic is left", TIMEOUT_S)
