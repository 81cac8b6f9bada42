"""Another driver, with an empty disk, over the directories of an earlier application."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

from sparklog.driver.controller.machine import startup_grace
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.storage.directory.log_directory import CLEAN_SHUTDOWN_MARKER
from sparklog.protocol.errors import KafkaError
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import consume, create_topic, produce

CONFIG = {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster that all of these leave with its three brokers, under whatever driver."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        yield running


@pytest.fixture
def topic(new_topic_name: Callable[[str], str]) -> str:
    """A name for the topic of a test."""
    return new_topic_name("kept")


def values(cluster: LocalCluster, topic: str, count: int) -> list[bytes]:
    """Return what is in the first partition of the topic, which must be that many records."""
    messages = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], count)
    return [message.value() for message in messages]


def said(cluster: LocalCluster, text: str) -> str | None:
    """Return what the controller waits for, once it says so with `text` in it."""
    missing = cluster.controller.missing
    return missing if missing is not None and text in missing else None


@pytest.mark.parametrize("brokers_end_by", [signal.SIGHUP, signal.SIGKILL])
def test_new_driver_serves_the_cluster_that_was_there(
    cluster: LocalCluster, topic: str, brokers_end_by: signal.Signals
) -> None:
    """The driver's disk is nobody's memory: topics, settings and records are where the brokers are."""
    create_topic(cluster.bootstrap_servers, topic, config={"retention.ms": "123456789"})
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    cluster_id, topic_id = cluster.cluster_id, cluster.image.topics.by_name[topic].topic_id
    leader_epoch, next_producer_id = cluster.image.leader_epoch, cluster.image.next_producer_id
    cluster.restart_controller(brokers_end_by)
    image = cluster.image
    assert cluster.cluster_id == cluster_id
    assert image.topics.by_name[topic].topic_id == topic_id
    assert image.topic_configs(topic)["retention.ms"] == "123456789"
    assert image.leader_epoch > leader_epoch
    assert image.next_producer_id >= next_producer_id, "no producer id is given out twice"
    produce(cluster.bootstrap_servers, topic, [{"value": b"after"}])
    assert values(cluster, topic, 2) == [b"before", b"after"]


@pytest.mark.long
def test_new_driver_without_a_majority_waits_and_says_what_is_missing(
    cluster: LocalCluster, topic: str
) -> None:
    """It never forms a new cluster over old directories, and never goes on with less than was promised."""
    create_topic(cluster.bootstrap_servers, topic)
    produce(cluster.bootstrap_servers, topic, [{"value": b"before"}])
    cluster_id = cluster.cluster_id
    cluster.begin_new_controller(signal.SIGKILL)
    cluster.launch(0)
    missing = wait_for(lambda: said(cluster, "directory id"), "the controller says who is missing")
    assert cluster_id in missing
    assert "broker 1" in missing
    assert "broker 2, last on host 127.0.0.1" in missing
    assert cluster.controller.cluster_id is None
    assert cluster.image.brokers == {}
    cluster.launch(2)
    cluster.wait_until_unfenced(0, 2)
    assert values(cluster, topic, 1) == [b"before"]
    cluster.launch(1)
    cluster.wait_until_unfenced(1)


def test_new_driver_names_brokers_that_are_a_little_late(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list without them costs clients more than the wait; librdkafka's consumers may even lock up."""
    monkeypatch.setattr(startup_grace, "STARTUP_GRACE_MS", 60_000)
    cluster.begin_new_controller(signal.SIGKILL)
    cluster.launch(0)
    cluster.launch(1)
    cluster.wait_until_unfenced(0, 1)
    client = AdminClient({"bootstrap.servers": cluster.controller.bootstrap_servers})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    with ThreadPoolExecutor() as clients:
        answer = clients.submit(client.list_topics, timeout=60)
        cluster.launch(2)
        assert set(answer.result().brokers) == {0, 1, 2}
    cluster.wait_until_unfenced(2)


def test_brokers_of_a_dead_driver_serve_on_and_leave_in_order() -> None:
    """What needs no controller goes on while a lease lasts; Spark ends its executors within two seconds."""
    # A lease that a busy machine does not outlast before the producer has found its way.
    with LocalCluster(brokers=3, config=CONFIG | {"broker.session.timeout.ms": "30000"}) as cluster:
        create_topic(cluster.bootstrap_servers, "kept")
        bootstrap_servers = cluster.bootstrap_servers
        # All replicas have acknowledged it, so all know the topic: only the driver can tell them.
        produce(bootstrap_servers, "kept", [{"value": b"with a driver"}])
        cluster.controller.stop()
        # Producers' ids come from the driver, and the broker that is asked for one may have none left over.
        produce(bootstrap_servers, "kept", [{"value": b"without a driver"}], **{"enable.idempotence": False})
        for broker_id in cluster.broker_ids:
            cluster.signal(broker_id, signal.SIGHUP)
        for broker_id in cluster.broker_ids:
            assert cluster.wait_for_exit(broker_id) == 0
        assert (cluster.broker_directory(broker_id) / CLEAN_SHUTDOWN_MARKER).exists()


def test_old_driver_that_is_still_there_can_change_nothing(cluster: LocalCluster) -> None:
    """Two drivers at once: one has the voters, and the other has nothing that counts."""
    old = cluster.controller
    try:
        cluster.begin_new_controller(signal.SIGKILL, stop_old=False)
        for broker_id in cluster.broker_ids:
            cluster.launch(broker_id)
        cluster.wait_until_unfenced(*cluster.broker_ids)
        had = set(cluster.image.topics.by_name)
        create_topic(cluster.bootstrap_servers, "new")
        # Asked itself: a client would be led on, to the brokers that it names and the new one serves.
        host, _, port = old.bootstrap_servers.rpartition(":")
        topic = CreatableTopic(name="old", num_partitions=1, replication_factor=3, assignments=(), configs=())
        with BlockingChannel(host, int(port), "old", timeout_s=6) as channel, contextlib.suppress(KafkaError):
            channel.request(CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=4)))
        assert "old" not in old.image.topics.by_name
        assert set(cluster.image.topics.by_name) == had | {"new"}
    finally:
        old.stop()
