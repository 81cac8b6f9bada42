"""The demo's observers count records, on a cluster without Spark."""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from sparklog.jobs.demo.observers import AcknowledgedObserver, ReadingAlong
from sparklog.protocol.types import TopicPartition
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import create_topic

RECORDS = 10
PAUSE_S = 1.0
MARKER = 1
"""The offset that the end of a transaction takes."""


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: Callable[[str], str]) -> Iterator[str]:
    """A topic of one partition."""
    name = new_topic_name("observed")
    create_topic(cluster.bootstrap_servers, name)
    yield name


def producer_of(cluster: LocalCluster, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    return producer


def write(producer: Producer, topic: str) -> None:
    """Write all records, and return when they are acknowledged."""
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    producer.flush()


def test_acknowledged_observer_when_the_transaction_commits_counts_no_pause_before_the_marker(
    cluster: LocalCluster, topic: str
) -> None:
    """The time from the last record to the commit is the writer's; it was shown as a partition's pause."""
    observed = (cluster.bootstrap_servers, topic, 1, time.monotonic())
    producer = producer_of(cluster, topic)
    with AcknowledgedObserver(*observed) as acknowledged, ReadingAlong(*observed) as consumer:
        producer.begin_transaction()
        write(producer, topic)
        wait_for(lambda: acknowledged.records == RECORDS, "all records acknowledged")
        time.sleep(PAUSE_S)  # the writer's own
        producer.commit_transaction()
        wait_for(lambda: acknowledged.records == RECORDS + MARKER, "the marker")
        wait_for(lambda: consumer.records == RECORDS, "the commit")
    assert consumer.ends == {TopicPartition(topic, 0): RECORDS}
    assert acknowledged.longest_pause_s({}) > PAUSE_S
    assert acknowledged.longest_pause_s(consumer.ends) < PAUSE_S


def test_acknowledged_observer_of_a_task_that_runs_again_observes_until_its_last_record(
    cluster: LocalCluster, topic: str
) -> None:
    """The aborted records of its first attempt were taken for the last ones, and no pause was seen."""
    observed = (cluster.bootstrap_servers, topic, 1, time.monotonic())
    producer = producer_of(cluster, topic)
    with AcknowledgedObserver(*observed) as acknowledged, ReadingAlong(*observed) as consumer:
        producer.begin_transaction()
        write(producer, topic)
        producer.abort_transaction()
        wait_for(lambda: acknowledged.records == RECORDS + MARKER, "the aborted records")
        time.sleep(PAUSE_S)  # until the task runs again
        producer.begin_transaction()
        write(producer, topic)
        producer.commit_transaction()
        wait_for(lambda: consumer.records == RECORDS, "the commit")
    assert acknowledged.longest_pause_s(consumer.ends) > PAUSE_S
