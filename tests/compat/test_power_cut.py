"""The power goes where all replicas are; what any of their disks has is there when they are back."""

import os
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.storage.directory.running_marker import RUNNING_MARKER
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import consume, create_topic, produce

TOPIC = "kept"
VALUES = [b"%d" % number for number in range(10)]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    config = {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "2"}
    with LocalCluster(brokers=3, config=config) as running:
        yield running


def partition(cluster: LocalCluster) -> PartitionRegistration:
    return cluster.image.topics.by_name[TOPIC].partitions[0]


def test_longest_log_leads_after_all_machines_went_down(cluster: LocalCluster) -> None:
    """The last leader lost half of what it had acknowledged; a follower that is late has all of it."""
    create_topic(cluster.bootstrap_servers, TOPIC)
    for value in VALUES:
        # Once each, even if the leader changes before it has acknowledged it.
        produce(cluster.bootstrap_servers, TOPIC, [{"value": value}])
    leader, follower, first_down = partition(cluster).replicas
    assert partition(cluster).leader == leader
    cluster.kill(first_down)
    wait_for(lambda: set(partition(cluster).isr) == {leader, follower}, "the first one is out of the ISR")
    cluster.kill(follower)
    cluster.kill(leader)
    for broker_id in cluster.broker_ids:
        # What says that the machine went on when the process died.
        (cluster.broker_directory(broker_id) / RUNNING_MARKER).unlink()
    log = cluster.broker_directory(leader) / f"{TOPIC}-0" / f"{0:020}.log"
    os.truncate(log, log.stat().st_size // 2)

    cluster.launch(leader)
    cluster.launch(first_down)
    cluster.wait_until_unfenced(leader, first_down)
    assert partition(cluster).leader is None, "the follower was in sync to the end, and is not there"
    cluster.launch(follower)
    wait_for(lambda: len(partition(cluster).isr) == len(cluster.broker_ids), "all replicas are in sync again")
    assert partition(cluster).leader in (follower, first_down), "those with the longest logs"
    read = consume(cluster.bootstrap_servers, [TopicPartition(TOPIC, 0, OFFSET_BEGINNING)], len(VALUES))
    assert [message.value() for message in read] == VALUES
