"""Partitions are moved under load while the brokers that they move to, or from, are killed."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.request import ReassignablePartition, ReassignableTopic

from benchmarks.probe import Probe
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.protocol.errors import ErrorCode
from tests.chaos.ledger import Ledger
from tests.chaos.reading import read_everything
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client

BROKERS = PARTITIONS = 4
REPLICAS = 3
TOPIC = "moving"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own, with somewhere to move to."""
    with LocalCluster(brokers=BROKERS, config={"min.insync.replicas": "2"}) as running:
        yield running


def partitions_of(cluster: LocalCluster) -> list[PartitionRegistration]:
    topic = cluster.image.topics.by_name.get(TOPIC)
    return [] if topic is None else [topic.partitions[number] for number in sorted(topic.partitions)]


def shifted(places: int) -> list[tuple[int, ...]]:
    """Return replicas for each partition: those of the next shift lack the first, and have one more."""
    return [
        tuple((partition + places + each) % BROKERS for each in range(REPLICAS))
        for partition in range(PARTITIONS)
    ]


def move(cluster: LocalCluster, targets: Sequence[tuple[int, ...] | None]) -> None:
    """Ask the controller for it."""
    host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
    channel = BlockingChannel(host, int(port), "test", TIMEOUT_S)
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=target)
        for number, target in enumerate(targets)
    )
    try:
        response: Any = channel.request(
            AlterPartitionReassignmentsRequest(
                timeout=timedelta(seconds=10),
                topics=(ReassignableTopic(name=TOPIC, partitions=partitions),),
            )
        )
    finally:
        channel.close()
    errors = {answer.error_code for topic in response.responses for answer in topic.partitions}
    assert errors <= {ErrorCode.none, ErrorCode.no_reassignment_in_progress}, errors


def wait_until_moved(cluster: LocalCluster, replicas: Sequence[tuple[int, ...]]) -> None:
    """Return when every partition is where it was to go, and whole."""

    def is_there() -> bool:
        partitions = partitions_of(cluster)
        return all(
            not each.is_reassigning and each.replicas == wanted and set(each.isr) == set(wanted)
            for each, wanted in zip(partitions, replicas, strict=True)
        )

    wait_for(is_there, f"partitions on {replicas}", 40.0)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_partitions_moved_while_targets_and_sources_are_killed_lose_nothing(cluster: LocalCluster) -> None:
    """A move that is cut short goes on, or is called off; what was acknowledged is there either way."""
    new = NewTopic(TOPIC, PARTITIONS, replica_assignment=[list(each) for each in shifted(0)])
    admin = admin_client(cluster.bootstrap_servers)
    admin.create_topics([new])[TOPIC].result(TIMEOUT_S)
    wait_for(lambda: len(partitions_of(cluster)) == PARTITIONS, "the topic")
    ledger = Ledger(PARTITIONS)
    with Probe(cluster.bootstrap_servers, TOPIC, PARTITIONS) as probe:
        wait_for(lambda: all(map(len, probe.acknowledged_s)), "every partition is written to")

        move(cluster, shifted(1))
        target = shifted(1)[0][-1]
        cluster.kill(target)
        move(cluster, [None] * PARTITIONS)
        assert not any(each.is_reassigning for each in partitions_of(cluster))
        cluster.restart(target)

        leader = cluster.leader(TOPIC, 1)
        assert leader is not None
        move(cluster, shifted(2))
        cluster.kill(leader)
        cluster.restart(leader)
        wait_until_moved(cluster, shifted(2))
        written = [len(times_s) for times_s in probe.acknowledged_s]
        wait_for(
            lambda: all(len(now) > then for now, then in zip(probe.acknowledged_s, written, strict=True)),
            "every partition is written to afterwards",
        )
    read_everything(cluster.bootstrap_servers, TOPIC, PARTITIONS, ledger)
    verdict = ledger.verdict(probe.numbers, probe.offsets, probe.produced)
    assert verdict.is_clean, verdict
    assert probe.failed == []
