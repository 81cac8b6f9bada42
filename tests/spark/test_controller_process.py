"""The controller's process that is killed beside a running application."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

import sparklog
from sparklog.driver.cluster import SparkCluster
from sparklog.node.calling.blocking import BlockingChannel
from tests.cluster import wait_for
from tests.spark.sessions import REPOSITORY, spark_session

pytestmark = pytest.mark.long

TOPIC = "beside"
PRODUCER = """
import signal, sys, time
from confluent_kafka import Producer

acknowledged, errors, stopped = [time.monotonic()], [], []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
producer = Producer({"bootstrap.servers": sys.argv[1], "acks": "all", "linger.ms": 0})

def done(error, message):
    errors.append(str(error)) if error else acknowledged.append(time.monotonic())

number = 0
while not stopped:
    producer.produce(sys.argv[2], b"x", partition=number % 3, on_delivery=done)
    producer.poll(0.01)
    number += 1
    if number == 10:
        producer.flush(30)
        print("produces", flush=True)
producer.flush(30)
silence_s = max(later - earlier for earlier, later in zip(acknowledged, acknowledged[1:]))
print(silence_s, len(acknowledged) - 1, errors, flush=True)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A cluster of three brokers in an application of its own."""
    config = {"num.partitions": 3, "min.insync.replicas": 2}
    with spark_session("local[4]") as spark, sparklog.start(spark, config=config) as started:
        assert isinstance(started, SparkCluster)
        admin = admin_of(started)
        admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result()
        yield started


def admin_of(cluster: SparkCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def is_made(admin: AdminClient, topic: str) -> bool:
    """Make a topic; return whether it is there, maybe by an earlier request whose answer was lost."""
    error = admin.create_topics([NewTopic(topic, 1, 3)])[topic].exception()
    return error is None or error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def leader_epochs(cluster: sparklog.Cluster, topic: str = TOPIC) -> dict[int, int]:
    """Return the leader epoch of each partition: another one after its leader was fenced, and came back."""
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    with BlockingChannel(host, int(port), "test", timeout_s=20) as channel:
        response = channel.request(
            MetadataRequest(
                topics=(MetadataRequestTopic(topic_id=None, name=topic),),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        )
    return {each.partition_index: each.leader_epoch for each in response.topics[0].partitions}


@contextmanager
def producing(cluster: sparklog.Cluster, topic: str = TOPIC) -> Iterator[list[float]]:
    """Produce from another process meanwhile; afterwards there is the longest silence in seconds."""
    silences: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-c", PRODUCER, cluster.bootstrap_servers, topic],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline() == "produces\n"
        try:
            yield silences
        finally:
            producer.send_signal(signal.SIGTERM)
            told = producer.stdout.readline()
    silence_s, count, errors = told.split(" ", 2)
    assert errors == "[]\n"
    assert int(count) > 0
    silences.append(float(silence_s))


def test_controller_that_is_killed_is_back_in_seconds_and_no_broker_leaves(cluster: SparkCluster) -> None:
    """Clients go on meanwhile; then topics are made again, at the same address and in the same cluster."""
    before, cluster_id, address = leader_epochs(cluster), cluster.cluster_id, cluster.bootstrap_servers
    controller = cluster._controller
    process_id = controller.process_id
    assert process_id is not None
    with producing(cluster) as silences:
        began_s = time.monotonic()
        os.kill(process_id, signal.SIGKILL)
        wait_for(lambda: controller.process_id not in (None, process_id), "another process")
        wait_for(lambda: controller.leads, "its leadership")
        lead_s = time.monotonic() - began_s
        # Through the brokers, which have to have found it.
        admin = admin_of(cluster)
        wait_for(lambda: is_made(admin, "made"), "a topic")
    print(f"led again after {lead_s:.2f} s, longest silence {silences[0]:.2f} s")
    assert lead_s < 10
    assert silences[0] < 2
    assert leader_epochs(cluster) == before
    assert (cluster.cluster_id, cluster.bootstrap_servers, cluster.failure) == (cluster_id, address, None)
