"""Rows written exactly once, as Spark's processes call the writers, against brokers as processes.

A driver that dies at a step of its commit is one whose client raises there; what tasks have prepared stays.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from jobs.sinks.__main__ import main as sinks
from sparklog.client.transactional_ids import Transactions
from sparklog.dataframe.errors import InvalidRowError
from sparklog.dataframe.options import ReadOptions, WriteOptions
from sparklog.dataframe.reader import SparklogReader
from sparklog.dataframe.stream_writer import stream_writer
from sparklog.dataframe.worker_process import this_process
from sparklog.dataframe.writer import batch_writer
from sparklog.errors import ErrorCode, KafkaError
from sparklog.sink.client import SinkClient, TransactionTimeoutError
from sparklog.sink.machine.errors import (
    OlderCheckpointError,
    SupersededRunError,
    TransactionsLostError,
)
from sparklog.sink.machine.names import SinkId, SinkKind
from sparklog.sink.machine.steps import EndTransactions, ListOpenTransactions
from tests.cluster import LocalCluster
from tests.compat.librdkafka import admin_client, create_topic

VALUES = StructType([StructField("value", StringType())])
READ = StructType([StructField("value", BinaryType())])
names = (f"sink-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def process(cluster: LocalCluster) -> Iterator[None]:
    """Leave no connections."""
    yield
    this_process().drop(WriteOptions.parse({}, cluster.bootstrap_servers).client)
    TaskContext._setTaskContext(None)


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = next(names)
    create_topic(cluster.bootstrap_servers, name, partitions=2)
    return name


class DiedError(Exception):
    """The driver."""


class Query:
    """A streaming query over a topic of its own; each of its runs is a driver's."""

    def __init__(self, cluster: LocalCluster, topic: str, **options: str) -> None:
        self.query_id = topic
        given = {"topic": topic, **{name.replace("__", "."): value for name, value in options.items()}}
        self.options = WriteOptions.parse(given, cluster.bootstrap_servers)
        self.sink = SinkId(SinkKind.QUERY, self.query_id)

    @property
    def client(self) -> SinkClient:
        return this_process().client(self.options.client)

    def tasks(self, run_id: str, batch_id: int, *parts: list[str]) -> list[Any]:
        """Return what tasks tell that have written these values; Spark sends it over a socket."""
        messages = []
        for values in parts:
            TaskContext._setTaskContext(None)
            TaskContext(
                localProperties={
                    "sql.streaming.queryId": self.query_id,
                    "streaming.sql.batchId": str(batch_id),
                    "spark.jobGroup.id": run_id,
                }
            )
            rows = iter([pa.record_batch({"value": values})])
            messages.append(pickle.loads(pickle.dumps(self._writer().write(rows))))
        return messages

    def commit(self, batch_id: int, messages: list[Any]) -> None:
        self._writer().commit(messages, batch_id)

    def abort(self, batch_id: int, messages: list[Any]) -> None:
        self._writer().abort(messages, batch_id)

    def open_transactions(self) -> list[str]:
        transactions: Transactions = self.client._transactions
        return [
            each.transactional_id for each in transactions.described(self.sink.writers_prefix, ["Ongoing"])
        ]

    def _writer(self) -> Any:
        writer = stream_writer(self.options, VALUES)
        writer.prepare()
        return writer


def seen(cluster: LocalCluster, topic: str, **options: str) -> list[str]:
    """Return what a reader of committed records sees, sorted."""
    given = {"subscribe": topic, **{name.replace("__", "."): value for name, value in options.items()}}
    reader = SparklogReader(ReadOptions.parse(given, cluster.bootstrap_servers), READ)
    return sorted(
        value.decode()
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for value in batch.column(0).to_pylist()
    )


def dead_driver(
    monkeypatch: pytest.MonkeyPatch, query: Query, batch_id: int, dies_before: Callable[[int, Any], bool]
) -> list[type]:
    """Have a run write a batch and die in its commit; return which steps it got through.

    `dies_before` is asked about each step, by how many there were before it and by what it is.
    """
    messages = query.tasks("dead", batch_id, ["a", "b"], ["c"])
    perform = SinkClient.perform
    performed: list[type] = []

    def perform_or_die(self: SinkClient, asked: Any) -> Any:
        if dies_before(len(performed), asked):
            raise DiedError
        performed.append(type(asked))
        return perform(self, asked)

    with monkeypatch.context() as until_death, pytest.raises(DiedError):
        until_death.setattr(SinkClient, "perform", perform_or_die)
        query.commit(batch_id, messages)
    return performed


def at_the_end(_: int, asked: Any) -> bool:
    """Die once the batch is decided, and before its transactions are committed."""
    return isinstance(asked, EndTransactions)


STEPS = 9
"""Of a run's first commit."""


def test_story_of_a_reader_while_drivers_die_at_each_step_of_a_commit(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees nothing of a batch, or all; never a part, and never twice, whoever goes on with it."""
    create_topic(cluster.bootstrap_servers, first := next(names))
    other = Query(cluster, first)  # decisions have their topic from now on
    other.commit(0, other.tasks("r", 0, ["a"]))
    for step in range(STEPS):
        topic = next(names)
        create_topic(cluster.bootstrap_servers, topic, partitions=2)
        query = Query(cluster, topic)
        performed = dead_driver(monkeypatch, query, 0, lambda number, _, step=step: number == step)
        assert seen(cluster, topic) == (["a", "b", "c"] if EndTransactions in performed else [])
        # The next run replays the batch in other tasks, and only then knows the next one.
        query.commit(0, query.tasks("next", 0, ["a"], [], ["b", "c"]))
        assert seen(cluster, topic) == ["a", "b", "c"]
        query.commit(1, query.tasks("next", 1, ["d"]))
        assert seen(cluster, topic) == ["a", "b", "c", "d"]
        assert query.open_transactions() == []


def test_task_that_was_tried_again_and_one_that_came_late_leave_nothing(
    cluster: LocalCluster, topic: str
) -> None:
    """Speculation runs two attempts of a task; both write, one is told of."""
    query = Query(cluster, topic)
    query.tasks("r", 0, ["a"])
    query.commit(0, query.tasks("r", 0, ["a"]))
    assert seen(cluster, topic) == ["a"]
    assert query.open_transactions() == []
    (late,) = query.tasks("r", 0, ["a"])
    assert (late.transaction, late.rows) == (None, 1)


def test_query_that_was_started_elsewhere_or_from_an_older_checkpoint_is_refused(
    cluster: LocalCluster, topic: str
) -> None:
    """The error says which batch, and what to do; nothing of it is seen, and nothing stays open."""
    query = Query(cluster, topic)
    query.commit(0, query.tasks("first", 0, ["a"]))
    query.commit(1, query.tasks("copy", 1, ["b"]))
    messages = query.tasks("first", 2, ["c"])
    with pytest.raises(SupersededRunError):
        query.commit(2, messages)
    query.abort(2, messages)
    (told,) = query.tasks("older", 0, ["a"])
    with pytest.raises(Exception, match="batch 0 would be written a second time") as raised:
        query.commit(0, [told])
    assert not isinstance(raised.value, OlderCheckpointError), "told by the task, raised on the driver"
    assert seen(cluster, topic) == ["a", "b"]
    assert query.open_transactions() == []


def test_failed_batch_is_aborted_and_its_late_tasks_write_nothing(cluster: LocalCluster, topic: str) -> None:
    """A failed query must not hold up readers until somebody starts it again."""
    query = Query(cluster, topic)
    messages = query.tasks("r", 0, ["a"])
    query.tasks("r", 0, ["killed"])
    query.abort(0, [*messages, None])
    assert query.open_transactions() == []
    (late,) = query.tasks("r", 0, ["late"])
    assert isinstance(late.error, Exception) and "was given up" in str(late.error)
    assert seen(cluster, topic) == []


def test_batch_that_lost_a_transaction_before_its_end_fails_the_query(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another Kafka's time-out passes between decision and end; nobody may go on in silence."""
    query = Query(cluster, topic)
    dead_driver(monkeypatch, query, 0, at_the_end)
    lost = query.client.perform(ListOpenTransactions(query.sink.writers_prefix))[:1]
    query.client.perform(EndTransactions(lost, False))
    with pytest.raises(TransactionsLostError, match="1 of its 2 transactions"):
        query.commit(0, query.tasks("next", 0, ["a", "b", "c"]))


def test_operator_ends_what_a_query_left_that_never_comes_back(
    cluster: LocalCluster,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was decided is committed, and only the rest aborted."""
    query = Query(cluster, topic)
    dead_driver(monkeypatch, query, 0, at_the_end)
    query.tasks("other", 1, ["undecided"])
    assert sinks([cluster.bootstrap_servers]) == 0
    assert f"{query.sink.text}: 3 open transactions" in capsys.readouterr().out
    assert sinks([cluster.bootstrap_servers, "--end", query.sink.text]) == 0
    assert "committed 2 transactions, aborted 1" in capsys.readouterr().out
    assert sinks([cluster.bootstrap_servers, "--end", "nobody"]) == 1
    assert seen(cluster, topic) == ["a", "b", "c"]
    assert query.open_transactions() == []


def test_batch_write_is_seen_whole_or_not_at_all(cluster: LocalCluster, topic: str) -> None:
    """A job that fails has stopped writing when save() raises, and leaves no group behind."""
    options = WriteOptions.parse({"topic": topic}, cluster.bootstrap_servers)

    def begin() -> Any:
        writer = batch_writer(options, VALUES, overwrite=False)
        writer.prepare()
        return pickle.loads(pickle.dumps(writer))

    def rows(*values: str) -> Iterator[pa.RecordBatch]:
        return iter([pa.record_batch({"value": list(values)})])

    writer = begin()
    messages = [writer.write(rows("a")), writer.write(rows("b"))]
    assert seen(cluster, topic) == []
    writer.commit(messages)
    assert seen(cluster, topic) == ["a", "b"]
    writer = begin()
    messages = [writer.write(rows("c")), None]
    writer.abort(messages)
    late = writer.write(rows("d"))
    with pytest.raises(Exception, match="was given up"):
        writer.commit([late])
    assert seen(cluster, topic) == ["a", "b"]
    assert seen(cluster, topic, kafka__isolation__level="read_uncommitted") == ["a", "b", "c"]
    groups = admin_client(cluster.bootstrap_servers).list_consumer_groups().result()
    assert not [each.group_id for each in groups.valid if "sparklog-sink.job-" in each.group_id]


def test_version_of_an_application_is_written_once_to_each_topic(cluster: LocalCluster, topic: str) -> None:
    """foreachBatch does a batch again after a failure; the options mean what they do for Delta tables."""
    other = f"{topic}-other"
    create_topic(cluster.bootstrap_servers, other)
    for version, value in ((4, "a"), (4, "again"), (3, "older"), (9, "b")):
        for target in (topic, other):
            given = {"topic": target, "txnAppId": "etl.daily", "txnVersion": str(version)}
            writer = batch_writer(
                WriteOptions.parse(given, cluster.bootstrap_servers), VALUES, overwrite=False
            )
            writer.prepare()
            writer.commit([writer.write(iter([pa.record_batch({"value": [value]})]))])
    assert seen(cluster, topic) == seen(cluster, other) == ["a", "b"]


def test_rows_that_are_no_records_fail_the_job_and_not_each_attempt(
    cluster: LocalCluster, topic: str
) -> None:
    """Four attempts meet the same row; the task tells, and the driver raises."""
    schema = StructType([StructField("topic", StringType()), StructField("value", StringType())])
    options = WriteOptions.parse({"kafka.max.block.ms": "500"}, cluster.bootstrap_servers)
    for name, error in ((None, InvalidRowError), ("no/topic", KafkaError)):
        writer = batch_writer(options, schema, overwrite=False)
        writer.prepare()
        rows = pa.record_batch({"topic": pa.array([topic, name]), "value": ["a", "b"]})
        message = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
        with pytest.raises(error):
            writer.commit([message])
        writer.abort([message])
    assert seen(cluster, topic) == []


def test_missing_topic_is_found_on_the_driver(cluster: LocalCluster) -> None:
    """Before tasks are started, each of which would wait for it."""
    for guarantee in ("exactlyOnce", "atLeastOnce"):
        given = {"topic": "__cluster_metadata", "kafka.max.block.ms": "300", "deliveryGuarantee": guarantee}
        options = WriteOptions.parse(given, cluster.bootstrap_servers)
        with pytest.raises(KafkaError, match="__cluster_metadata"):
            batch_writer(options, VALUES, overwrite=False).prepare()


def test_stranger_with_the_deciders_id_is_fenced_by_the_next_decision(
    cluster: LocalCluster, topic: str
) -> None:
    """A transactional id of somebody else: he is fenced, and nothing is lost."""
    query = Query(cluster, topic)
    query.commit(0, query.tasks("r", 0, ["a"]))
    stranger = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": query.sink.decider_id}
    )
    stranger.init_transactions(20)
    stranger.begin_transaction()
    query.commit(1, query.tasks("r", 1, ["b"]))
    assert seen(cluster, topic) == ["a", "b"]


def test_time_out_that_the_cluster_does_not_allow_names_the_option(cluster: LocalCluster, topic: str) -> None:
    """As on another Kafka whose transaction.max.timeout.ms is smaller than is asked for."""
    query = Query(cluster, topic, kafka__transaction__timeout__ms="2000000000")
    (told,) = query.tasks("r", 0, ["a"])
    with pytest.raises(KafkaError, match=r"kafka\.transaction\.timeout\.ms"):
        query.commit(0, [told])
    assert TransactionTimeoutError(1).error_code is ErrorCode.invalid_transaction_timeout
