"""Kafka's own programs move replicas between directories, and delete records below an offset."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import consume, create_topic, produce
from tests.compat.test_reassign_partitions import REASSIGN

DELETE_RECORDS: Final = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
RECORDS: Final = 50
DELETED: Final = 20


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """One broker with two directories, and a topic in one of them."""
    with LocalCluster(brokers=1, directories_each=2) as running:
        create_topic(running.bootstrap_servers, "t", replication_factor=1)
        produce(running.bootstrap_servers, "t", [{"value": b"%d" % number} for number in range(RECORDS)])
        yield running


def test_kafkas_programs_move_a_replica_to_another_directory_and_delete_its_records(
    cluster: LocalCluster, kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """Unmodified: kafka-log-dirs, kafka-reassign-partitions with directories, kafka-delete-records."""

    def tool(main_class: str, *arguments: str) -> str:
        return kafka_program(main_class, "--bootstrap-server", cluster.bootstrap_servers, *arguments).stdout

    directories = cluster.broker_directories(0)
    (source,) = (path for path in directories if (path / "t-0").exists())
    (target,) = (path for path in directories if path != source)
    plan = tmp_path / "plan.json"
    moved = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [str(target)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    named = ("--reassignment-json-file", str(plan))
    throttle = ("--throttle", "100000000", "--replica-alter-log-dirs-throttle", "100000000")
    executed = tool(REASSIGN, "--execute", *named, *throttle)
    assert f"Successfully started moving log directory to {target} for replica t-0 with broker 0" in executed
    wait_for(lambda: not (source / "t-0").exists(), "the replica lies in its new directory")
    verified = tool(REASSIGN, "--verify", *named)
    assert "Reassignment of replica t-0-0 completed successfully." in verified, verified

    offsets = tmp_path / "offsets.json"
    below = {"topic": "t", "partition": 0, "offset": DELETED}
    offsets.write_text(json.dumps({"version": 1, "partitions": [below]}))
    deleted = tool(DELETE_RECORDS, "--offset-json-file", str(offsets))
    assert f"partition: t-0\tlow_watermark: {DELETED}" in deleted
    messages = consume(
        cluster.bootstrap_servers, [TopicPartition("t", 0, OFFSET_BEGINNING)], RECORDS - DELETED
    )
    assert [int(message.value() or b"") for message in messages] == list(range(DELETED, RECORDS))
    described = tool(LOG_DIRS, "--describe", "--topic-list", "t")
    (broker,) = json.loads(next(line for line in described.splitlines() if line.startswith("{")))["brokers"]
    assert {
        each["logDir"]: [(row["partition"], row["offsetLag"], row["isFuture"]) for row in each["partitions"]]
        for each in broker["logDirs"]
    } == {str(source): [], str(target): [("t-0", 0, False)]}
