"""Feature levels and the metadata quorum, as a broker tells them to Kafka's own tools and to kafka-python."""

from typing import Final

from tests.cluster import LocalCluster
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.test_kafka_python import command_line

FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
ELR: Final = "eligible.leader.replicas.version"


def test_kafka_features_describes_levels_and_tries_to_lower_one(
    cluster: LocalCluster, kafka_program: KafkaProgram
) -> None:
    """What an operator does before and after an upgrade."""

    def tool(*arguments: str) -> str:
        return kafka_program(FEATURES, "--bootstrap-server", cluster.bootstrap_servers, *arguments).stdout

    described = tool("describe")
    (line,) = (line for line in described.splitlines() if f"Feature: {ELR}" in line)
    assert "FinalizedVersionLevel: 1" in line
    assert "can be downgraded" in tool("downgrade", "--feature", f"{ELR}=0", "--dry-run")
    assert cluster.image.features[ELR] == 1


def test_command_line_describes_the_quorum_through_a_broker(cluster: LocalCluster) -> None:
    """Whether every voter follows is the first question when the controller does not answer."""
    shown = command_line(cluster, "cluster", "describe-quorum")
    assert "__cluster_metadata" in shown
    assert all(f'"replica_id": {broker_id}' in shown for broker_id in cluster.broker_ids), shown
