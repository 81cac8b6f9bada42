"""Feature levels and the metadata quorum, as a broker tells them to Kafka's own tools and to kafka-python."""

from typing import Final

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from tests.cluster import LocalCluster
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.test_kafka_python import command_line

FEATURES: Final = "org.apache.kafka.tools.FeatureCommand"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
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


def test_kafka_metadata_quorum_shows_the_leader_and_how_far_behind_each_voter_is(
    cluster: LocalCluster, kafka_program: KafkaProgram
) -> None:
    """The tool takes the leader from among the voters, and fails where it is not."""

    def tool(*arguments: str) -> list[str]:
        ran = kafka_program(QUORUM, "--bootstrap-server", cluster.bootstrap_servers, "describe", *arguments)
        return ran.stdout.splitlines()

    status = dict(line.split(":", 1) for line in tool("--status"))
    assert status["LeaderId"].strip() == str(CONTROLLER_ID)
    assert int(status["MaxFollowerLag"]) >= 0
    for broker_id in cluster.broker_ids:
        assert f'{{"id": {broker_id}, "directoryId": "' in status["CurrentVoters"]
    host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
    assert f'"PLAINTEXT://{host}:{port}"' in status["CurrentVoters"]
    _, *rows = (line.split() for line in tool("--replication"))
    assert [(row[0], row[-1]) for row in rows] == [
        (str(CONTROLLER_ID), "Leader"),
        *((str(broker_id), "Follower") for broker_id in cluster.broker_ids),
    ]
    assert all(row[3] == "0" for row in rows[:1])
    assert len(tool("--replication", "--human-readable")) == len(rows) + 1
    controllers = ("--bootstrap-controller", cluster.controller.bootstrap_servers)
    of_controller = kafka_program(QUORUM, *controllers, "describe", "--status").stdout
    assert f"LeaderId:               {CONTROLLER_ID}" in of_controller


def test_kafka_features_upgrades_to_a_release_but_for_what_is_not_here(
    cluster: LocalCluster, kafka_program: KafkaProgram
) -> None:
    """What is there already is accepted, and what is not is named."""
    ran = kafka_program(
        FEATURES,
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "upgrade",
        "--release-version",
        "4.3",
        check=False,
    )
    refused = {line.split()[3] for line in ran.stdout.splitlines() if line.startswith("Could not upgrade")}
    assert refused == {"share.version", "streams.version"}
    assert "kraft.version was upgraded to 1." in ran.stdout
    assert "metadata.version was upgraded to 30." in ran.stdout


def test_command_line_describes_the_quorum_through_a_broker(cluster: LocalCluster) -> None:
    """Whether every voter follows is the first question when the controller does not answer."""
    shown = command_line(cluster, "cluster", "describe-quorum")
    assert "__cluster_metadata" in shown
    assert all(f'"replica_id": {broker_id}' in shown for broker_id in cluster.broker_ids), shown
