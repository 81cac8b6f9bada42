"""The demo's observers count records, on a cluster without Spark."""

import time
from collections.abc import Callable

from confluent_kafka import Producer

from sparklog.jobs.demo.observers import AcknowledgedObserver
from tests.cluster import LocalCluster, wait_for
from tests.compat.ecosystem.reading import committed_values
from tests.compat.librdkafka import create_topic

RECORDS = 10


def test_acknowledged_observer_when_the_transaction_commits_counts_no_marker(
    cluster: LocalCluster, new_topic_name: Callable[[str], str]
) -> None:
    """The time from the last record to the commit is the writer's; it was shown as a partition's pause."""
    topic = new_topic_name("observed")
    create_topic(cluster.bootstrap_servers, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    with AcknowledgedObserver(
        cluster.bootstrap_servers, topic, 1, time.monotonic(), expected_records=RECORDS
    ) as observer:
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        producer.flush()
        wait_for(lambda: observer.records >= RECORDS, "all records acknowledged")
        ((_, advances),) = observer.advances.items()
        seen_s = list(advances)
        producer.commit_transaction()
        wait_for(lambda: len(committed_values(cluster.bootstrap_servers, topic)[0]) == RECORDS, "the commit")
    assert (observer.records, advances) == (RECORDS, seen_s)
