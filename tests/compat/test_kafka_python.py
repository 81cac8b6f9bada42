"""kafka-python 3 and its command line against a live cluster."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.advertised_metadata import shown_in_time, wait_until_all_tell_of
from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic

NewName = Callable[[str], str]


def command_line(cluster: LocalCluster, *arguments: str) -> str:
    """Run `python -m kafka.admin` and return what it printed; fails with its complaint if it failed."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "kafka.admin",
            "-b",
            cluster.bootstrap_servers,
            "--format",
            "json",
            *arguments,
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_kafka_python_with_codec_reads_what_it_wrote(
    cluster: LocalCluster, new_topic_name: NewName, codec: str | None
) -> None:
    """A client that shares no code with librdkafka frames its batches differently."""
    topic = new_topic_name("python")
    create_topic(cluster.bootstrap_servers, topic, partitions=2)
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, acks="all", compression_type=codec, linger_ms=5
    )
    futures = [
        producer.send(topic, key=b"k%d" % number, value=b"v%d" % number, headers=[("h", b"%d" % number)])
        for number in range(200)
    ]
    for future in futures:
        future.get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    found = {}
    for record in consumer:
        found[record.key] = (record.value, record.headers)
        if len(found) == 200:
            break
    consumer.close()
    assert found == {b"k%d" % n: (b"v%d" % n, [("h", b"%d" % n)]) for n in range(200)}


def test_command_line_topics_creates_lists_describes_and_deletes(
    cluster: LocalCluster, new_topic_name: NewName
) -> None:
    """There are no kafka-topics.sh here: somebody else's command line takes their place."""
    topic = new_topic_name("by-command")
    command_line(
        cluster, "topics", "create", "-t", topic, "--num-partitions", "2", "--replication-factor", "3"
    )
    wait_until_all_tell_of(cluster.bootstrap_servers, topic, 2)
    assert topic in command_line(cluster, "topics", "list")
    (described,) = json.loads(command_line(cluster, "topics", "describe", "-t", topic))
    assert (described["error_code"], described["name"]) == (0, topic)
    partitions = {each["partition_index"]: sorted(each["replica_nodes"]) for each in described["partitions"]}
    assert partitions == {0: [0, 1, 2], 1: [0, 1, 2]}
    command_line(cluster, "topics", "delete", "-t", topic)
    wait_until_all_tell_of(cluster.bootstrap_servers, topic, 0)
    assert topic not in command_line(cluster, "topics", "list")


def test_command_line_configs_describes_and_alters(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """Dynamic topic configuration through the tool a user has at hand."""
    topic = new_topic_name("by-command")
    create_topic(cluster.bootstrap_servers, topic)
    named = ("-r", "TOPIC", "-n", topic)
    command_line(cluster, "configs", "alter", *named, "-c", "retention.ms=4242424")
    shown_in_time(lambda: command_line(cluster, "configs", "describe", *named), "4242424")


def test_command_line_cluster_and_log_dirs_describe(cluster: LocalCluster, new_topic_name: NewName) -> None:
    """Cluster and disks are what one looks at first when something is wrong."""
    topic = new_topic_name("by-command")
    create_topic(cluster.bootstrap_servers, topic)
    assert cluster.cluster_id in command_line(cluster, "cluster", "describe")
    shown = command_line(cluster, "cluster", "describe-log-dirs")
    assert str(cluster.broker_directory(0)) in shown
