"""The two clusters that programs of Kafka's ecosystem run with: one of ours, and Apache Kafka."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.cluster import LocalCluster
from tests.compat.kafka_node import KafkaNode, kafka_node

# Sessions of seconds, so that a killed member is missed soon.
_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}


@contextlib.contextmanager
def our_cluster() -> Iterator[LocalCluster]:
    """Run a cluster of three brokers."""
    with LocalCluster(brokers=3, config={**_SETTINGS, "min.insync.replicas": "2"}) as cluster:
        yield cluster


@contextlib.contextmanager
def kafka_beside(directory: Path) -> Iterator[KafkaNode]:
    """Run a node of Apache Kafka's.

    Raises:
        LibrariesUnavailableError: Kafka can't be fetched.
    """
    with kafka_node(directory, _SETTINGS) as node:
        yield node
