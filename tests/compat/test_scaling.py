"""A cluster grows and shrinks under a producer: brokers join, take replicas, are drained, and end."""

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]
from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.request import ReassignablePartition, ReassignableTopic

from benchmarks.probe import Probe
from sparklog.jobs.scale.__main__ import main as scale
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from tests.chaos.ledger import Ledger
from tests.chaos.reading import read_everything
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client

TOPIC = "scaled"
CONFIG = {"min.insync.replicas": "2", "leader.imbalance.check.interval.seconds": "1"}
PARTITIONS = 6
SPREAD = [(number % 5, (number + 1) % 5, (number + 2) % 5) for number in range(PARTITIONS)]


def partitions_of(cluster: LocalCluster) -> list[PartitionRegistration]:
    topic = cluster.image.topics.by_name.get(TOPIC)
    return [] if topic is None else [topic.partitions[number] for number in sorted(topic.partitions)]


def voters(cluster: LocalCluster) -> set[int]:
    found = cluster.controller.ask(lambda active: {key.node_id for key in active.quorum.voters.keys}, 5.0)
    return found or set()


def spread(client: ClusterClient) -> None:
    """Move the partitions over all five brokers, as Kafka's tool does."""
    _, channel = client.any_channel()
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in enumerate(SPREAD)
    )
    channel.request(
        AlterPartitionReassignmentsRequest(topics=(ReassignableTopic(name=TOPIC, partitions=partitions),))
    )


@pytest.mark.long
@pytest.mark.timeout(240)
def test_cluster_that_grows_and_shrinks_under_a_producer_loses_and_doubles_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Brokers come with load and go after it, while producers go on."""
    with LocalCluster(brokers=3, config=CONFIG) as cluster:
        admin = admin_client(cluster.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
        wait_for(lambda: len(partitions_of(cluster)) == PARTITIONS, "the topic")
        ledger = Ledger(PARTITIONS)
        client = ClusterClient(
            ClientConfig(bootstrap_servers=parse_bootstrap_servers(cluster.bootstrap_servers))
        )
        with client, Probe(cluster.bootstrap_servers, TOPIC, PARTITIONS) as probe:
            wait_for(lambda: all(map(len, probe.acknowledged_s)), "every partition is written to")

            assert scale([cluster.bootstrap_servers, "--racks", "5", "--timeout", "1"]) == 1
            assert "has not had its size of 5 racks of 1 broker within 1 s" in capsys.readouterr().err
            cluster.launch(3)
            cluster.launch(4)
            cluster.wait_until_unfenced(0, 1, 2, 3, 4)
            wait_for(lambda: voters(cluster) == {0, 1, 2, 3, 4}, "new brokers vote")
            spread(client)
            wait_for(
                lambda: (
                    all(not each.is_reassigning for each in partitions_of(cluster))
                    and {each.leader for each in partitions_of(cluster)} >= {3, 4}
                ),
                "partitions are led by the new brokers",
            )

            assert scale([cluster.bootstrap_servers, "--racks", "2"]) == 1
            refusal = capsys.readouterr().err
            assert f"topic {TOPIC}: its partitions have 3 replicas" in refusal
            assert "brokers would be 2" in refusal
            assert scale([cluster.bootstrap_servers, "--racks", "3", "--no-wait"]) == 0
            wait_for(lambda: cluster.controller.drained == {3, 4}, "brokers 3 and 4 are drained")
            assert voters(cluster) == {0, 1, 2}
            assert {each for found in partitions_of(cluster) for each in found.replicas} == {0, 1, 2}
            for broker_id in (3, 4):
                cluster.controller.shut_down_broker(broker_id, "the cluster becomes smaller")
                assert cluster.wait_for_exit(broker_id) == 0
            wait_for(lambda: set(cluster.image.brokers) == {0, 1, 2}, "brokers 3 and 4 are unregistered")
            assert scale([cluster.bootstrap_servers, "--racks", "3"]) == 0
            assert "3 brokers (rack-0: 0, rack-1: 1, rack-2: 2)" in capsys.readouterr().out
            written = [len(times_s) for times_s in probe.acknowledged_s]
            wait_for(
                lambda: all(len(now) > then for now, then in zip(probe.acknowledged_s, written, strict=True)),
                "every partition is written to afterwards",
            )
        silence_s = max(probe.longest_gaps_s(0.0))
        with capsys.disabled():
            print(f"{sum(probe.produced)} records, longest silence of a partition {silence_s:.3f} s")
        read_everything(cluster.bootstrap_servers, TOPIC, PARTITIONS, ledger)
        verdict = ledger.verdict(probe.numbers, probe.offsets, probe.produced)
        assert verdict.is_clean, verdict
        assert probe.failed == []
