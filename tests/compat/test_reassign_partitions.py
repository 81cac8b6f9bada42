"""kafka-reassign-partitions, unmodified, and kafka-python move the partitions of a live cluster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.advertised_metadata import shown_in_time, wait_until_all_tell_of
from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, produce
from tests.compat.test_kafka_python import command_line

NewName = Callable[[str], str]

REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
RECORDS: Final = 50


def create_on(cluster: LocalCluster, topic: str, assignments: list[list[int]]) -> None:
    """Create a topic whose partitions lie where they are wanted, with records in each."""
    new = NewTopic(topic, len(assignments), replica_assignment=assignments)
    admin = admin_client(cluster.bootstrap_servers)
    admin.create_topics([new])[topic].result(TIMEOUT_S)
    wait_until_all_tell_of(cluster.bootstrap_servers, topic, len(assignments))
    for partition in range(len(assignments)):
        records = [{"value": b"%d" % number, "partition": partition} for number in range(RECORDS)]
        produce(cluster.bootstrap_servers, topic, records)


def replicas_of(cluster: LocalCluster, topic: str) -> list[list[int]]:
    """Return the replicas of each partition, as the controller has them."""
    image = cluster.controller.image.topics.by_name.get(topic)
    return [] if image is None else [list(image.partitions[n].replicas) for n in sorted(image.partitions)]


def plan(topic: str, assignments: list[list[int]]) -> dict[str, Any]:
    """Return what the tool calls a reassignment."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": replicas}
        for number, replicas in enumerate(assignments)
    ]
    return {"version": 1, "partitions": partitions}


def test_reassign_partitions_generates_executes_verifies_and_lists(
    cluster: LocalCluster, new_topic_name: NewName, kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """Unmodified: what it plans is carried out, no record is lost, and no log stays where none belongs."""
    topic = new_topic_name("moved")
    create_on(cluster, topic, [[0], [1], [0]])
    wanted = [[2], [1, 2], [2]]
    topics, assignment = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    assignment.write_text(json.dumps(plan(topic, wanted)))

    def tool(*arguments: str) -> str:
        return kafka_program(REASSIGN, "--bootstrap-server", cluster.bootstrap_servers, *arguments).stdout

    generated = tool("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2")
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[0], [1], [0]]
    assert len(proposed["partitions"]) == 3
    named = ("--reassignment-json-file", str(assignment))
    assert "Successfully started partition reassignments" in tool("--execute", *named)
    wait_for(lambda: replicas_of(cluster, topic) == wanted, "the replicas are where they are to be")
    for partition in range(3):
        shown_in_time(lambda: tool("--verify", *named), f"{topic}-{partition} is completed")
    assert "No partition reassignments found" in tool("--list")
    directories = [cluster.broker_directory(broker_id) for broker_id in cluster.broker_ids]
    wait_for(
        lambda: [len(list(path.glob(f"{topic}-?"))) for path in directories] == [0, 1, 3], "logs are removed"
    )
    partitions = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(3)]
    messages = consume(cluster.bootstrap_servers, partitions, 3 * RECORDS)
    assert len({(message.partition(), message.value()) for message in messages}) == 3 * RECORDS


def test_reassignment_by_command_line_moves_a_partition_but_not_to_a_broker_that_is_not_there(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """A client that shares no code with Kafka's own says what was wrong, and nothing is changed."""
    topic = new_topic_name("kept")
    create_on(cluster, topic, [[0, 1]])
    alter = ("partitions", "alter-reassignments", "-r")
    assert "InvalidReplicationAssignment" in command_line(cluster, *alter, f"{topic}:0=0,7")
    assert replicas_of(cluster, topic) == [[0, 1]]
    command_line(cluster, *alter, f"{topic}:0=2,1")
    wait_for(lambda: replicas_of(cluster, topic) == [[2, 1]], "the replica is moved")
    assert topic not in command_line(cluster, "partitions", "list-reassignments")
