"""Snapshots of the metadata in a live cluster: whoever was away, or is new, gets what it missed by one."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata_log.snapshot_files import list_snapshots
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId, SnapshotId
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import admin_client, create_topic, produce
from tests.unit.sparklog.node.metadata_log.metadata_logs import open_with_snapshots, replayed

CONFIG = {
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "metadata.max.retention.bytes": "1",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
}
"""Many snapshots, and nothing kept that may go."""
TOPICS = 40
ROUNDS = 15
TIMEOUT_S = 20.0
LOG_DIRECTORY = f"{CLUSTER_METADATA_TOPIC}-0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own: these tests kill brokers of it."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        create_topics(running)
        yield running


def create_topics(cluster: LocalCluster) -> None:
    """Create all topics, with a client that is gone afterwards."""
    admin = admin_client(cluster.bootstrap_servers)
    topics = [NewTopic(f"topic-{number}", 1, 3) for number in range(TOPICS)]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT_S)


def change_much(cluster: LocalCluster) -> None:
    """Change the configuration of every topic some times: hundreds of records, and several snapshots."""
    admin = admin_client(cluster.bootstrap_servers)
    for number in range(ROUNDS):
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                f"topic-{topic}",
                incremental_configs=[
                    ConfigEntry(
                        "retention.ms",
                        str(1_000_000 + number * TOPICS + topic),
                        incremental_operation=AlterConfigOpType.SET,
                    )
                ],
            )
            for topic in range(TOPICS)
        ]
        for future in admin.incremental_alter_configs(resources).values():
            future.result(TIMEOUT_S)


def snapshots(cluster: LocalCluster, broker_id: BrokerId) -> list[SnapshotId]:
    return list_snapshots(cluster.broker_directory(broker_id) / LOG_DIRECTORY)


def image_on_disk(cluster: LocalCluster, broker_id: BrokerId, scratch: Path) -> MetadataImage:
    """Return what the broker would begin with if it were started now."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(cluster.broker_directory(broker_id) / LOG_DIRECTORY, scratch / LOG_DIRECTORY)
    log, _, newest = open_with_snapshots(scratch)
    try:
        return replayed(log, newest).image
    finally:
        log.close(clean=False)


def says_the_same(cluster: LocalCluster, broker_id: BrokerId, scratch: Path) -> bool:
    """Whether the broker's disk has the controller's image; it may be writing while it is looked at.

    Control records move the offset and nothing else; the controller need not have told of them yet.
    """
    with contextlib.suppress(shutil.Error, KafkaError):
        image = cluster.image
        on_disk = image_on_disk(cluster, broker_id, scratch)
        return replace(on_disk, offset=image.offset, leader_epoch=image.leader_epoch) == image
    return False


def downloads(cluster: LocalCluster, broker_id: BrokerId) -> int:
    """Return how often the broker has gone over to a snapshot of the leader's."""
    return cluster.log_path(broker_id).read_text(errors="replace").count("begins behind the snapshot")


def test_broker_that_was_away_goes_on_from_a_snapshot(cluster: LocalCluster, tmp_path: Path) -> None:
    """The others have let go what it has not seen; it must miss nothing of that."""
    away = 2
    before = downloads(cluster, away)
    cluster.kill(away)
    change_much(cluster)
    create_topic(cluster.bootstrap_servers, "made-meanwhile", replication_factor=2)
    admin = admin_client(cluster.bootstrap_servers)
    admin.delete_topics(["topic-0"])["topic-0"].result(TIMEOUT_S)
    for broker_id in (0, 1):
        wait_for(lambda: len(snapshots(cluster, broker_id)) == 1, "only the newest snapshot is kept")  # noqa: B023
    cluster.restart(away)
    assert downloads(cluster, away) == before + 1
    wait_for(lambda: says_the_same(cluster, away, tmp_path / "copy"), "the broker's metadata on its disk")
    wait_for(lambda: away in cluster.in_sync("topic-1"), "the broker back in the ISR")
    produce(cluster.bootstrap_servers, "topic-1", [{"value": b"after"}], acks="all")
    assert not (cluster.broker_directory(away) / "topic-0-0").exists()
    create_topic(cluster.bootstrap_servers, "topic-0")


def test_broker_with_an_empty_directory_begins_with_a_snapshot(cluster: LocalCluster, tmp_path: Path) -> None:
    """A disk that was lost, or a broker that is new, need not read all that ever happened."""
    new = 1
    change_much(cluster)
    cluster.kill(new)
    shutil.rmtree(cluster.broker_directory(new))
    before = downloads(cluster, new)
    cluster.restart(new)
    assert downloads(cluster, new) == before + 1
    wait_for(lambda: says_the_same(cluster, new, tmp_path / "copy"), "the broker's metadata on its disk")
    wait_for(lambda: new in cluster.in_sync("topic-1"), "the broker back in the ISR")


@pytest.mark.parametrize(
    "brokers_end_by", [signal.SIGHUP, pytest.param(signal.SIGKILL, marks=pytest.mark.long)]
)
def test_driver_that_starts_over_snapshots_has_the_same_image(
    cluster: LocalCluster, tmp_path: Path, brokers_end_by: signal.Signals
) -> None:
    """It has nothing but what lies on the brokers' disks, and most of that is in snapshots."""
    change_much(cluster)
    before = cluster.image
    cluster.restart_controller(brokers_end_by)
    after = cluster.image
    assert after.topics.by_id.keys() == before.topics.by_id.keys()
    assert after.configs == before.configs
    assert after.features == before.features
    assert after.next_producer_id >= before.next_producer_id
    assert after.leader_epoch > before.leader_epoch
    produce(cluster.bootstrap_servers, "topic-1", [{"value": b"after"}], acks="all")
    for broker_id in cluster.broker_ids:
        wait_for(
            partial(says_the_same, cluster, broker_id, tmp_path / "copy"),
            f"the metadata on the disk of broker {broker_id}",
        )
