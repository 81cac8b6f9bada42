"""What becomes of a batch write when a partition that it wrote to is offline, or decisions lie elsewhere."""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.worker_process import this_process
from sparklog.dataframe.writer import batch_writer
from sparklog.sink.client import SinkClient
from sparklog.sink.machine.steps import EndTransactions, Step
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import create_topic
from tests.compat.sinks import VALUES, seen


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own, since a broker dies."""
    with LocalCluster(brokers=3, config={"min.insync.replicas": "2"}) as running:
        yield running


def test_job_that_is_decided_succeeds_while_a_partition_of_it_is_offline(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka's commitTransaction does: who is told that it failed does it again, and all is there twice."""
    servers, topic = cluster.bootstrap_servers, "lost"
    create_topic(servers, topic, replication_factor=1, config={"min.insync.replicas": "1"})
    options = WriteOptions.parse({"topic": topic, "kafka.default.api.timeout.ms": "5000"}, servers)
    writer = batch_writer(options, VALUES, overwrite=False)
    writer.prepare()
    messages = [writer.write(iter([pa.record_batch({"value": ["a", "b"]})]))]
    broker = cluster.leader(topic)
    assert broker is not None
    perform = SinkClient.perform

    def lose_partition(self: SinkClient, step: Step) -> Any:
        if isinstance(step, EndTransactions):
            cluster.kill(broker)
            wait_for(lambda: cluster.leader(topic) is None, "nobody leads")
        return perform(self, step)

    monkeypatch.setattr(SinkClient, "perform", lose_partition)
    with caplog.at_level(logging.WARNING, logger="sparklog.sink.client"):
        writer.commit(messages)
    (warning,) = caplog.messages
    assert "1 transactions of job-" in warning
    assert "are committed, and readers do not see that yet in lost-0." in warning
    cluster.restart(broker)
    assert wait_for(lambda: seen(servers, topic), "the rows") == ["a", "b"]
    this_process().drop(options.client)
