"""What becomes of writes when a partition is offline, and when the topic of decisions is not what it was."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions
from pyspark import TaskContext

from sparklog.node.metadata.partition_for import partition_for
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.dataframe.writer import batch_writer
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.names import DECISIONS_TOPIC, SinkId, SinkKind
from sparklog.user.sink.machine.steps import EndTransactions, Step
from tests.advertised_metadata import wait_until_all_tell_of
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic
from tests.compat.sinks import VALUES, Query, seen


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own: a broker dies, and all sinks' decisions are moved or deleted."""
    with LocalCluster(brokers=3, config={"min.insync.replicas": "2"}) as running:
        yield running
        this_process().drop(WriteOptions.parse({}, running.bootstrap_servers).client)
    TaskContext._setTaskContext(None)


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
    with caplog.at_level(logging.WARNING, logger="sparklog.user.sink.client"):
        writer.commit(messages)
    (warning,) = caplog.messages
    assert "1 transactions of job-" in warning
    assert "are committed, and readers do not see that yet in lost-0." in warning
    cluster.restart(broker)
    assert wait_for(lambda: seen(servers, topic), "the rows") == ["a", "b"]
    this_process().drop(options.client)


def moving_query(servers: str, number: int, count: int) -> Query:
    """Return a query whose decisions lie in another partition of so many than of those that there are."""
    for name in (f"moves-{number}-{each}" for each in itertools.count()):
        text = SinkId(SinkKind.QUERY, name).text
        if partition_for(text, 8) < partition_for(text, count):
            create_topic(servers, name)
            return Query(servers, name)
    raise AssertionError("there is none")


@pytest.mark.long
def test_decisions_are_found_where_they_lie_when_their_topic_has_more_partitions(
    cluster: LocalCluster,
) -> None:
    """Where an old one is believed, what was decided since is written again."""
    servers = cluster.bootstrap_servers
    goes_on, rests = (moving_query(servers, number, 11) for number in range(2))
    for query in (goes_on, rests):
        query.commit(0, query.tasks("r", 0, ["a"]))
    admin = admin_client(servers)
    admin.create_partitions([NewPartitions(DECISIONS_TOPIC, 11)])[DECISIONS_TOPIC].result(TIMEOUT_S)
    wait_until_all_tell_of(servers, DECISIONS_TOPIC, 11)
    this_process().drop(goes_on.options.client)
    goes_on.commit(1, goes_on.tasks("r", 1, ["b"]))
    again = goes_on.tasks("r2", 1, ["b"])
    assert [message.transaction for message in again] == [None], "its task found it decided"
    goes_on.commit(1, again)
    for query, batch_id, value in ((goes_on, 1, "b"), (rests, 0, "a")):
        # As when the offset has expired, which nobody has committed for a week.
        group = query.sink.decider_id
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
        query.commit(batch_id, query.tasks("r3", batch_id, [value]))
    assert (seen(servers, goes_on.query_id), seen(servers, rests.query_id)) == (["a", "b"], ["a"])


@pytest.mark.long
def test_query_whose_decisions_were_deleted_while_it_runs_goes_on(cluster: LocalCluster) -> None:
    """Whoever decided before knows where that was, and the next one lies before it."""
    servers = cluster.bootstrap_servers
    create_topic(servers, "deleted")
    query = Query(servers, "deleted")
    for batch_id, value in enumerate("ab"):
        query.commit(batch_id, query.tasks("r", batch_id, [value]))
    admin = admin_client(servers)  # without a name it would be gone before its answer
    admin.delete_topics([DECISIONS_TOPIC])[DECISIONS_TOPIC].result(TIMEOUT_S)
    create_topic(servers, DECISIONS_TOPIC, partitions=8, config={"cleanup.policy": "compact"})
    query.commit(2, query.tasks("r", 2, ["c"]))
    query.commit(2, query.tasks("r2", 2, ["c"]))
    query.commit(3, query.tasks("r2", 3, ["d"]))
    assert seen(servers, "deleted") == ["a", "b", "c", "d"]
