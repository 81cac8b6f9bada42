"""Brokers that are lost for good and brokers that are added, without an administrator."""

from collections import Counter

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from benchmarks.probe import Probe
from sparklog.driver.controller.machine.balancing.moves import is_uneven
from sparklog.jobs.balance import main as show_plan
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.protocol.types import BrokerId
from tests.chaos.ledger import Ledger
from tests.chaos.reading import read_everything
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client

TOPIC = "kept"
PARTITIONS = 12
REPLICAS = 3


def partitions_of(cluster: LocalCluster) -> list[PartitionRegistration]:
    topic = cluster.image.topics.by_name.get(TOPIC)
    return [] if topic is None else [topic.partitions[number] for number in sorted(topic.partitions)]


def wait_until_whole(cluster: LocalCluster, shares: dict[BrokerId, int]) -> None:
    """Return when every partition is in sync on three brokers, and each broker holds its share."""

    def is_whole() -> bool:
        partitions = partitions_of(cluster)
        held = Counter(broker_id for each in partitions for broker_id in each.replicas)
        return held == shares and all(
            set(each.isr) == set(each.replicas) and len(each.replicas) == REPLICAS for each in partitions
        )

    wait_for(is_whole, f"partitions in sync on brokers {shares}")


def leaders_are_even(cluster: LocalCluster) -> bool:
    led = Counter(each.leader for each in partitions_of(cluster))
    return set(led) == {1, 2, 3, 4} and not is_uneven(led.values())


@pytest.mark.long
@pytest.mark.timeout(180)
def test_broker_lost_and_broker_added_leave_every_partition_whole_and_every_record_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A host that is gone, and one in its place, are the two things that happen to every cluster."""
    config = {"min.insync.replicas": "2", "sparklog.replace.after.ms": "5000"}
    ledger = Ledger(PARTITIONS)
    with LocalCluster(brokers=4, config=config) as cluster:
        admin = admin_client(cluster.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])[TOPIC].result(TIMEOUT_S)
        wait_until_whole(cluster, dict.fromkeys(range(4), 9))
        with Probe(cluster.bootstrap_servers, TOPIC, PARTITIONS) as probe:
            wait_for(lambda: all(map(len, probe.acknowledged_s)), "every partition is written to")
            cluster.kill(0)
            wait_until_whole(cluster, {1: 12, 2: 12, 3: 12})
            assert cluster.add_broker() == 4
            wait_until_whole(cluster, {1: 9, 2: 9, 3: 9, 4: 9})
            wait_for(lambda: leaders_are_even(cluster), "leaders on all four")
        assert show_plan([cluster.bootstrap_servers]) == 0
        assert capsys.readouterr().out == "The cluster is balanced: nothing would move.\n"
        read_everything(cluster.bootstrap_servers, TOPIC, PARTITIONS, ledger)
        verdict = ledger.verdict(probe.numbers, probe.offsets, probe.produced)
        assert verdict.is_clean, verdict
        assert probe.failed == []
