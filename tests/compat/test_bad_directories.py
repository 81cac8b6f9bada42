"""Data directories that a broker must leave alone, and what is in them stays."""

from dataclasses import replace
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from sparklog.node.storage.directory.meta_properties import read_meta_properties, write_meta_properties
from tests.cluster import LocalCluster
from tests.compat.librdkafka import consume, create_topic, produce


def test_second_process_on_a_locked_directory_ends_and_says_so(tmp_path: Path) -> None:
    """Two brokers over one directory would corrupt it."""
    intruder = LocalCluster(brokers=1, directory=tmp_path)
    with LocalCluster(brokers=1) as cluster:
        create_topic(cluster.bootstrap_servers, "kept", replication_factor=1)
        produce(cluster.bootstrap_servers, "kept", [{"value": b"before"}])
        try:
            intruder.controller = cluster.controller
            intruder.broker_directory = lambda broker_id: cluster.broker_directory(0)  # type: ignore[method-assign]
            intruder.launch(0)
            assert intruder.wait_for_exit(0) != 0
            assert "DirectoryLockedError" in intruder.log_tail(0)
        finally:
            intruder.kill(0)
        assert cluster.is_running(0)
        assert cluster.controller.failure is None
        produce(cluster.bootstrap_servers, "kept", [{"value": b"after"}])
        messages = consume(cluster.bootstrap_servers, [TopicPartition("kept", 0, OFFSET_BEGINNING)], 2)
        assert [message.value() for message in messages] == [b"before", b"after"]


def test_directory_of_another_cluster_is_refused_by_name_and_left_as_it_is() -> None:
    """Reusing a directory by mistake must not mix two clusters' records, nor cost either of them any."""
    with LocalCluster(brokers=1) as cluster:
        create_topic(cluster.bootstrap_servers, "kept", replication_factor=1)
        produce(cluster.bootstrap_servers, "kept", [{"value": b"before"}])
        cluster.kill(0)
        directory = cluster.broker_directory(0)
        meta = read_meta_properties(directory)
        assert meta is not None
        write_meta_properties(directory, replace(meta, cluster_id="somebody-else"))
        cluster.launch(0)
        assert cluster.wait_for_exit(0) != 0
        assert "ForeignDirectoryError" in cluster.log_tail(0)
        assert "somebody-else" in cluster.log_tail(0)
        write_meta_properties(directory, meta)
        cluster.restart(0)
        (message,) = consume(cluster.bootstrap_servers, [TopicPartition("kept", 0, OFFSET_BEGINNING)], 1)
        assert message.value() == b"before"
