"""A cluster that begins again with empty disks, from its object store."""

import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.machine.ownership import OWNER_NAME, decode_owner, encode_owner
from sparklog.node.remote_log.machine.stored_metadata import LATEST_NAME, decode_stored_metadata
from tests.cluster import LocalCluster, wait_for


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


def config(bucket: Path, **more: str) -> dict[str, str]:
    return {"sparklog.remote.uri": f"file://{bucket}", "sparklog.remote.metadata.lag.ms": "100", **more}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "disks").mkdir()
    yield tmp_path / "disks"


def emptied(directory: Path) -> Path:
    """Return the directory as a new machine has it."""
    shutil.rmtree(directory)
    directory.mkdir()
    return directory


def wait_until_saved(bucket: Path, cluster: LocalCluster) -> None:
    def is_saved() -> bool:
        latest = bucket / LATEST_NAME
        return (
            latest.exists()
            and decode_stored_metadata(latest.read_bytes()).end_offset >= cluster.image.end_offset
        )

    wait_for(is_saved, "the newest metadata in the bucket")


def create(admin: AdminClient, *topics: NewTopic) -> None:
    for created in admin.create_topics(list(topics)).values():
        created.result(30)


ACLS = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"} | {
    "allow.everyone.if.no.acl.found": "true"
}


def test_cluster_begins_again_with_its_topics_configurations_and_acls(bucket: Path, directory: Path) -> None:
    """All directories are gone, and a smaller application starts over the same URI."""
    with LocalCluster(3, config(bucket, **ACLS), directory=directory) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        create(
            admin,
            NewTopic("three", 3, 3),
            NewTopic("one", 1, 1, config={"retention.ms": "123456789"}),
        )
        binding = AclBinding(
            ResourceType.TOPIC,
            "three",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for added in admin.create_acls([binding]).values():
            added.result(30)
        wait_until_saved(bucket, cluster)
        before, cluster_id = cluster.image, cluster.cluster_id
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
    with LocalCluster(2, config(bucket, **ACLS), directory=emptied(directory)) as cluster:
        assert cluster.cluster_id == cluster_id
        after = cluster.image
        assert {name: topic.topic_id for name, topic in after.topics.by_name.items()} == {
            name: topic.topic_id for name, topic in before.topics.by_name.items()
        }
        for name, topic in after.topics.by_name.items():
            for number, partition in topic.partitions.items():
                former = before.topics.by_name[name].partitions[number]
                assert partition.leader_epoch > former.leader_epoch
                assert len(partition.replicas) == min(2, len(former.replicas))
                assert partition.leader in partition.isr
        assert (after.acls, after.topic_configs("one")) == (before.acls, before.topic_configs("one"))
        assert after.next_producer_id > before.next_producer_id
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        described = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "one")])
        (values,) = [each.result(30) for each in described.values()]
        assert values["retention.ms"].value == "123456789"
        create(admin, NewTopic("later", 2, 2))
        wait_until_saved(bucket, cluster)


def test_directories_that_are_there_win_over_the_bucket(bucket: Path, directory: Path) -> None:
    """They are newer; and the cluster does not jump in its epochs at every start of a driver."""
    with LocalCluster(3, config(bucket), directory=directory) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), NewTopic("kept", 1, 3))
        wait_until_saved(bucket, cluster)
        leader_epoch = cluster.image.topics.by_name["kept"].partitions[0].leader_epoch
        cluster.restart_controller()
        partition = cluster.image.topics.by_name["kept"].partitions[0]
        assert partition.leader_epoch < leader_epoch + 100
        assert cluster.controller.owner_epoch == 2


def test_directories_that_the_cluster_has_left_behind_are_refused(bucket: Path, directory: Path) -> None:
    """The cluster went on elsewhere: a start over its old disks would undo that."""
    with LocalCluster(1, config(bucket), directory=directory) as cluster:
        wait_until_saved(bucket, cluster)
    elsewhere = directory.parent / "elsewhere"
    elsewhere.mkdir()
    with LocalCluster(1, config(bucket), directory=elsewhere) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), NewTopic("new", 1, 1))
        wait_until_saved(bucket, cluster)
    old = LocalCluster(1, config(bucket), directory=directory)
    try:
        old.controller.start()
        wait_for(lambda: old.controller.owner_epoch, "the ownership")
        old.launch(0)
        failure = wait_for(lambda: old.controller.failure, "the refusal")
        assert "another application has gone on with it since" in str(failure)
    finally:
        old.stop()


RECORDS = 300


def produce(cluster: LocalCluster, topic: str, values: Iterable[str], **more: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **more})
    for value in values:
        producer.produce(topic, value.encode())
    assert producer.flush(60) == 0


def consumer(cluster: LocalCluster, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def consumed(cluster: LocalCluster, topic: str, count: int, group: str) -> list[str]:
    """Return the values of the next `count` records of a group, whose offsets are committed then."""
    reader = consumer(cluster, group)
    reader.subscribe([topic])
    values: list[str] = []
    deadline_s = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline_s:
        for message in reader.consume(count - len(values), 1):
            assert message.error() is None, message.error()
            values.append((message.value() or b"").decode())
    reader.commit(asynchronous=False)
    reader.close()
    return values


def abandon_transaction(cluster: LocalCluster, topic: str) -> None:
    """Begin a transaction, write, and never end it."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "open"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"never committed")
    assert producer.flush(60) == 0


def test_orderly_stop_leaves_everything_in_the_bucket(bucket: Path, directory: Path) -> None:
    """Disks may go, and the cluster goes on: records, committed offsets, and ids of producers."""
    # A record of a restored cluster needs its followers, or their time to leave the ISR.
    settings = config(bucket, **{"replica.lag.time.max.ms": "3000"})
    before = [f"before-{number}" for number in range(RECORDS)]
    with LocalCluster(3, settings, directory=directory) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), NewTopic("t", 3, 3))
        produce(cluster, "t", before)
        first = consumed(cluster, "t", 100, "group")
        abandon_transaction(cluster, "t")
        cluster_id = cluster.cluster_id
        cluster.copy_all()
        latest = decode_stored_metadata((bucket / LATEST_NAME).read_bytes())
        assert latest.is_final and latest.is_copied
    with LocalCluster(3, settings, directory=emptied(directory)) as cluster:
        assert cluster.cluster_id == cluster_id
        rest = consumed(cluster, "t", RECORDS - 100, "group")
        assert sorted(first + rest) == sorted(before)
        produce(cluster, "t", ["after"])
        assert consumed(cluster, "t", 1, "group") == ["after"]
        cluster.copy_all()


def test_killed_cluster_begins_again_where_its_copies_end(bucket: Path, directory: Path) -> None:
    """What was in the bucket is there once, and offsets that were handed out are not handed out again."""
    settings = config(bucket, **{"sparklog.remote.max.lag.ms": "500", "replica.lag.time.max.ms": "3000"})
    before = [f"before-{number}" for number in range(RECORDS)]
    with LocalCluster(3, settings, directory=directory) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), NewTopic("t", 1, 3))
        produce(cluster, "t", before)
        wait_for(lambda: tiered_end(bucket, cluster, "t") == RECORDS, "the copy of all records")
        wait_until_saved(bucket, cluster)
        for broker_id in cluster.broker_ids:
            cluster.kill(broker_id)
    with LocalCluster(3, settings, directory=emptied(directory)) as cluster:
        produce(cluster, "t", ["after"])
        assert consumed(cluster, "t", RECORDS + 1, "other") == [*before, "after"]
        low, high = consumer(cluster, "ends").get_watermark_offsets(TopicPartition("t", 0), timeout=30)
        assert (low, high) == (0, RECORDS + 1)


@pytest.mark.long
def test_start_after_one_that_left_no_metadata_leads_in_higher_epochs(bucket: Path, directory: Path) -> None:
    """The start between has claimed manifests, and in its epochs the next one could not copy, nor serve."""
    settings = {"sparklog.remote.max.lag.ms": "200", "replica.lag.time.max.ms": "3000"}
    with LocalCluster(1, config(bucket, **settings), directory=directory) as cluster:
        create(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), NewTopic("t", 1, 1))
        produce(cluster, "t", ["before"])
        wait_for(lambda: tiered_end(bucket, cluster, "t") == 1, "the copy")
        wait_until_saved(bucket, cluster)
        cluster.kill(0)
    killed = bucket.with_name("killed")
    unsaved = config(bucket, **settings) | {"sparklog.remote.metadata.lag.ms": "600000"}
    with LocalCluster(1, unsaved, directory=emptied(directory)) as cluster:
        produce(cluster, "t", ["between"])
        wait_for(lambda: tiered_end(bucket, cluster, "t") == 2, "the copy")
        # The store as a kill at this moment would leave it.
        shutil.copytree(bucket, killed)
        leader_epoch = cluster.image.topics.by_name["t"].partitions[0].leader_epoch
        next_producer_id = cluster.image.next_producer_id
    owner = killed / OWNER_NAME
    owner.write_bytes(encode_owner(replace(decode_owner(owner.read_bytes()), is_stopped=True)))
    with LocalCluster(1, config(killed, **settings), directory=emptied(directory)) as cluster:
        assert cluster.image.topics.by_name["t"].partitions[0].leader_epoch > leader_epoch
        assert cluster.image.next_producer_id >= next_producer_id
        produce(cluster, "t", ["after"])
        assert consumed(cluster, "t", 3, "group") == ["before", "between", "after"]
        wait_for(lambda: tiered_end(killed, cluster, "t") == 3, "the copy")


def tiered_end(bucket: Path, cluster: LocalCluster, topic: str) -> int:
    """Return the end of partition 0's copy in the bucket."""
    name = manifest_name(cluster.image.topics.by_name[topic].topic_id, 0)
    path = bucket / name
    return decode_manifest(name, path.read_bytes()).end_offset if path.exists() else 0
