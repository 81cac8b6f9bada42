"""Rows written exactly once, as Spark's processes call the writers, against brokers as processes.

Who dies at a step is a process of its own that is killed there with SIGKILL, a task's or the driver's.
"""

import itertools
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.jobs.sinks.__main__ import main as sinks
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from sparklog.user.client.coordinators import CoordinatorClient
from sparklog.user.client.errors import ApiTimeoutError, TopicReplacedError
from sparklog.user.client.group_offsets import committed_offsets
from sparklog.user.dataframe.errors import InvalidRowError
from sparklog.user.dataframe.options import ReadOptions, WriteOptions
from sparklog.user.dataframe.prepared_rows import PreparedRows
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.dataframe.writer import batch_writer
from sparklog.user.sink.client import SinkClient, TransactionTimeoutError
from sparklog.user.sink.machine.errors import (
    DifferentBatchError,
    OlderCheckpointError,
    SupersededRunError,
    TransactionsLostError,
)
from sparklog.user.sink.machine.names import DECISIONS_TOPIC
from sparklog.user.sink.machine.protocols import Commit, Settle, SinkBatch
from sparklog.user.sink.machine.steps import EndTransactions, ListOpenTransactions, Step, carry_out
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic
from tests.compat.mortal import MortalProcesses
from tests.compat.sinks import (
    READ,
    TASK_STEPS,
    VALUES,
    Query,
    commit_that_dies,
    seen,
    task_that_dies,
)

STORY: Final = [
    (step, sees == "the whole batch")
    for step, sees in re.findall(
        r"^\| [^|]*?(?:`(\w+)`)? \| (nothing of it|the whole batch) \|",
        (Path(__file__).parents[2] / "docs" / "streaming.md").read_text(),
        re.MULTILINE,
    )
]
"""Before which steps of a commit the driver dies, and whether a reader sees the batch then."""
names = (f"sink-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def process(cluster: LocalCluster) -> Iterator[None]:
    """Leave no connections."""
    yield
    this_process().drop(WriteOptions.parse({}, cluster.bootstrap_servers).client)
    TaskContext._setTaskContext(None)


@pytest.fixture(scope="module", autouse=True)
def used(cluster: LocalCluster) -> None:
    """Have brokers load what they do for the first transactions: no test's memory grows by that."""
    create_topic(cluster.bootstrap_servers, first := next(names))
    query = Query(cluster.bootstrap_servers, first)
    query.commit(0, query.tasks("r", 0, ["a"]))
    this_process().drop(query.options.client)


@pytest.fixture(scope="module")
def processes() -> Iterator[MortalProcesses]:
    """Processes to be killed."""
    with MortalProcesses() as mortal:
        yield mortal


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    name = next(names)
    create_topic(cluster.bootstrap_servers, name, partitions=2)
    return name


def test_commit_goes_through_the_steps_that_the_story_tells(cluster: LocalCluster, topic: str) -> None:
    """A step that is not told of is one at which nobody has died."""
    query = Query(cluster.bootstrap_servers, topic)
    performed = []
    query.commit(0, query.tasks("r", 0, ["a"]))
    batch = query.tasks("other", 1, ["b"])

    class Recording(SinkClient):
        def perform(self, step: Any) -> Any:
            performed.append(type(step).__name__)
            return super().perform(step)

    told = SinkBatch(query.sink, 1, "other", 1, (batch[0].transaction,), waits_for_ever=True)
    carry_out(Commit(told, None).steps(), Recording(query.client.cluster).perform)
    assert [*performed, ""] == [step for step, _ in STORY]


def test_story_of_a_reader_while_drivers_die_at_each_step_of_a_commit(
    cluster: LocalCluster, processes: MortalProcesses
) -> None:
    """It sees nothing of a batch, or all; never a part, and never twice, whoever goes on with it.

    The story is told in docs/streaming.md, and is played from there. The first driver finds no decision, the
    others find that of the batch before. Each next run replays the batch in other tasks.
    """
    servers = cluster.bootstrap_servers
    topic = next(names)
    create_topic(servers, topic, partitions=2)
    query = Query(servers, topic)
    written: list[str] = []
    for number, (step, is_seen) in enumerate(STORY):
        values = [f"{number}-{each}" for each in "abc"]
        messages = query.tasks(f"dead-{number}", number, values[:2], values[2:])
        commit_that_dies(processes, query, number, messages, number)
        expected = written + (values if is_seen else [])
        # What was decided gets to the partitions by itself, whoever is dead.
        wait_for(lambda expected=expected: seen(servers, topic) == expected, f"{expected} before {step}")
        assert seen(servers, topic) == expected, step
        written += values
        query.commit(number, query.tasks(f"next-{number}", number, values[:1], [], values[1:]))
        assert seen(servers, topic) == written
        assert query.open_transactions() == []


@pytest.mark.parametrize("step", range(TASK_STEPS))
def test_task_that_dies_at_any_step_is_tried_again_and_written_once(
    cluster: LocalCluster, topic: str, processes: MortalProcesses, step: int
) -> None:
    """What it has left is named by nobody, and is ended by the commit of its batch."""
    query = Query(cluster.bootstrap_servers, topic)
    task_that_dies(processes, query, "r", 0, ["a", "b"], step)
    query.commit(0, query.tasks("r", 0, ["a", "b"]))
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]
    assert query.open_transactions() == []


def test_task_that_was_tried_again_and_one_that_came_late_leave_nothing(
    cluster: LocalCluster, topic: str
) -> None:
    """Speculation runs two attempts of a task; both write, one is told of."""
    query = Query(cluster.bootstrap_servers, topic)
    query.tasks("r", 0, ["a"])
    query.commit(0, query.tasks("r", 0, ["a"]))
    assert seen(cluster.bootstrap_servers, topic) == ["a"]
    assert query.open_transactions() == []
    (late,) = query.tasks("r", 0, ["a"])
    assert (late.transaction, late.rows) == (None, 1)


def test_query_that_was_started_elsewhere_or_from_an_older_checkpoint_is_refused(
    cluster: LocalCluster, topic: str
) -> None:
    """The error says which batch, and what to do; nothing of it is seen, and nothing stays open."""
    query = Query(cluster.bootstrap_servers, topic)
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
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]
    assert query.open_transactions() == []


def test_batch_that_comes_again_with_other_rows_is_refused(cluster: LocalCluster, topic: str) -> None:
    """A decision of another checkpoint: what it decided is not what this query would write."""
    query = Query(cluster.bootstrap_servers, topic)
    query.commit(0, query.tasks("r", 0, ["a", "b"]))
    with pytest.raises(DifferentBatchError, match="batch 0 has 1 rows now, and had 2 when it was written"):
        query.commit(0, query.tasks("other", 0, ["a"]))
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]


def test_failed_batch_is_aborted_and_its_late_tasks_write_nothing(cluster: LocalCluster, topic: str) -> None:
    """A failed query must not hold up readers until somebody starts it again."""
    query = Query(cluster.bootstrap_servers, topic)
    messages = query.tasks("r", 0, ["a"])
    query.tasks("r", 0, ["killed"])
    query.abort(0, [*messages, None])
    assert query.open_transactions() == []
    (late,) = query.tasks("r", 0, ["late"])
    assert isinstance(late.error, Exception) and "was given up" in str(late.error)
    assert seen(cluster.bootstrap_servers, topic) == []


def test_batch_that_lost_a_transaction_before_its_end_fails_the_query(
    cluster: LocalCluster, topic: str, processes: MortalProcesses
) -> None:
    """As where another Kafka's time-out passes between decision and end; nobody may go on in silence."""
    query = Query(cluster.bootstrap_servers, topic)
    commit_that_dies(processes, query, 0, query.tasks("dead", 0, ["a", "b"], ["c"]), "EndTransactions")
    lost = query.client.perform(ListOpenTransactions(query.sink.writers_prefix))[:1]
    query.client.perform(EndTransactions(lost, False))
    with pytest.raises(TransactionsLostError, match="1 of its 2 transactions"):
        query.commit(0, query.tasks("next", 0, ["a", "b", "c"]))


def test_operator_ends_what_a_query_left_that_never_comes_back(
    cluster: LocalCluster,
    topic: str,
    processes: MortalProcesses,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was decided is committed, and only the rest aborted."""
    query = Query(cluster.bootstrap_servers, topic)
    commit_that_dies(processes, query, 0, query.tasks("dead", 0, ["a", "b"], ["c"]), "EndTransactions")
    query.tasks("other", 1, ["undecided"])
    assert sinks([cluster.bootstrap_servers]) == 0
    assert f"{query.sink.text}: 3 open transactions" in capsys.readouterr().out
    assert sinks([cluster.bootstrap_servers, "--end", query.sink.text]) == 0
    assert "committed 2 transactions, aborted 1" in capsys.readouterr().out
    assert sinks([cluster.bootstrap_servers, "--end", "nobody"]) == 1
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b", "c"]
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
    assert seen(cluster.bootstrap_servers, topic) == []
    writer.commit(messages)
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]
    writer = begin()
    messages = [writer.write(rows("c")), None]
    writer.abort(messages)
    late = writer.write(rows("d"))
    with pytest.raises(Exception, match="was given up"):
        writer.commit([late])
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]
    assert seen(cluster.bootstrap_servers, topic, kafka__isolation__level="read_uncommitted") == [
        "a",
        "b",
        "c",
    ]
    admin = admin_client(cluster.bootstrap_servers)  # without a name it would be gone before its answer
    groups = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not [each.group_id for each in groups.valid if "sparklog-sink.job-" in each.group_id]


def test_batch_write_that_was_decided_is_finished_though_another_sink_hides_its_decision(
    cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not find what was decided, behind another one's open transaction, would abort a part of it."""
    servers = cluster.bootstrap_servers

    def prepared(*values: str) -> tuple[Any, list[Any]]:
        writer = batch_writer(WriteOptions.parse({"topic": topic}, servers), VALUES, overwrite=False)
        writer.prepare()
        return writer, [writer.write(iter([pa.record_batch({"value": [value]})])) for value in values]

    writer, messages = prepared("first")
    writer.commit(messages)  # the topic of decisions is there after it
    writer, messages = prepared("a", "b")
    other = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    other.init_transactions(TIMEOUT_S)
    other.begin_transaction()
    (count,) = (
        len(described.partitions)
        for described in admin_client(servers).list_topics(DECISIONS_TOPIC).topics.values()
    )
    for partition in range(count):
        other.produce(DECISIONS_TOPIC, b"{}", key=b"another", partition=partition)
    other.flush(TIMEOUT_S)
    perform = SinkClient.perform

    def fail(self: SinkClient, step: Step) -> Any:
        if isinstance(step, EndTransactions):
            raise KafkaError(ErrorCode.network_exception, "the driver hears no more")
        return perform(self, step)

    monkeypatch.setattr(SinkClient, "perform", fail)
    with pytest.raises(Exception, match="hears no more"):
        writer.commit(messages)
    monkeypatch.undo()
    (sink,) = {message.batch.sink for message in messages if isinstance(message, PreparedRows)}
    impatient = ClientConfig(bootstrap_servers=parse_bootstrap_servers(servers), api_timeout_ms=500)
    with ClusterClient(impatient) as client, pytest.raises(ApiTimeoutError):
        carry_out(Settle(sink).steps(), SinkClient(client).perform)
    other.abort_transaction(TIMEOUT_S)
    writer.abort(messages)
    assert seen(servers, topic) == ["a", "b", "first"]


def test_topic_that_is_deleted_between_its_rows_and_their_commit_fails_the_batch(
    cluster: LocalCluster, topic: str
) -> None:
    """The coordinator drops what is deleted and commits the rest: the rows would be missing in silence."""
    query = Query(cluster.bootstrap_servers, topic)
    prepared = query.tasks("r", 0, ["a"])
    admin = admin_client(cluster.bootstrap_servers)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    create_topic(cluster.bootstrap_servers, topic)
    with pytest.raises(TopicReplacedError, match="it was deleted meanwhile"):
        query.commit(0, prepared)
    query.abort(0, prepared)
    query.commit(0, query.tasks("again", 0, ["a"]))
    assert seen(cluster.bootstrap_servers, topic) == ["a"]


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
    assert seen(cluster.bootstrap_servers, topic) == []


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
    query = Query(cluster.bootstrap_servers, topic)
    query.commit(0, query.tasks("r", 0, ["a"]))
    stranger = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": query.sink.decider_id}
    )
    stranger.init_transactions(20)
    stranger.begin_transaction()
    query.commit(1, query.tasks("r", 1, ["b"]))
    assert seen(cluster.bootstrap_servers, topic) == ["a", "b"]


def test_stranger_with_a_tasks_id_makes_the_batch_fail_and_say_so(cluster: LocalCluster, topic: str) -> None:
    """What the task wrote is aborted by Kafka's own rules; a batch without it is not passed off as whole."""
    query = Query(cluster.bootstrap_servers, topic)
    messages = query.tasks("r", 0, ["a"], ["b"])
    stranger = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": messages[0].transaction.transactional_id,
        }
    )
    stranger.init_transactions(20)
    with pytest.raises(TransactionsLostError, match="1 of its 2 transactions"):
        query.commit(0, messages)
    assert seen(cluster.bootstrap_servers, topic) == ["b"]


def test_pattern_matches_no_decisions(cluster: LocalCluster, topic: str) -> None:
    """They are records of ours: whoever copies all topics would copy them, and write more while he does."""
    query = Query(cluster.bootstrap_servers, topic)
    query.commit(0, query.tasks("r", 0, ["a"]))
    options = ReadOptions.parse({"subscribePattern": ".*"}, cluster.bootstrap_servers)
    read = {each.offset_range.topic_partition.topic for each in SparklogReader(options, READ).partitions()}
    assert topic in read
    assert DECISIONS_TOPIC not in read


def test_time_out_that_the_cluster_does_not_allow_names_the_option(cluster: LocalCluster, topic: str) -> None:
    """As on another Kafka whose transaction.max.timeout.ms is smaller than is asked for."""
    query = Query(cluster.bootstrap_servers, topic, kafka__transaction__timeout__ms="2000000000")
    (told,) = query.tasks("r", 0, ["a"])
    with pytest.raises(KafkaError, match=r"kafka\.transaction\.timeout\.ms"):
        query.commit(0, [told])
    assert TransactionTimeoutError(1).error_code is ErrorCode.invalid_transaction_timeout


def test_first_offset_of_a_group_is_waited_for_by_who_asks_for_its_partition(
    cluster: LocalCluster, topic: str
) -> None:
    """The first of a sink says that a batch is decided: a task that did not find it would write it again."""
    servers, partition = cluster.bootstrap_servers, TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": topic})
    producer.init_transactions(20)
    producer.begin_transaction()
    member = Consumer({"bootstrap.servers": servers, "group.id": topic})
    offsets = [KafkaTopicPartition(topic, 0, 7)]
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 20)
    member.close()

    def asked(api_timeout_ms: int) -> dict[TopicPartition, int]:
        addresses = parse_bootstrap_servers(servers)
        config = ClientConfig(bootstrap_servers=addresses, api_timeout_ms=api_timeout_ms)
        with ClusterClient(config) as client:
            found = committed_offsets(CoordinatorClient(client), topic, stable=True, of=[partition])
        return {each: committed.offset for each, committed in found.items()}

    with pytest.raises(ApiTimeoutError):
        asked(500)
    producer.commit_transaction(20)
    assert asked(20_000) == {partition: 7}
