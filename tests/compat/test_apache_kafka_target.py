"""Rows written exactly once into Apache Kafka: without transactions that wait for ever, so with a window.

A node of Kafka 4.3.1 takes longer to start than most tests. So these run when they are asked for:

    APACHE_KAFKA=1 python -m pytest tests/compat/test_apache_kafka_target.py
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark import TaskContext

from benchmarks.java_libraries import LibrariesUnavailableError
from sparklog.user.client.transactional_ids import TransactionsUnsupportedError
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.dataframe.writer import batch_writer
from sparklog.user.sink.machine.errors import TransactionsLostError
from tests.cluster import wait_for
from tests.compat.kafka_node import kafka_node
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import create_topic
from tests.compat.mortal import MortalProcesses
from tests.compat.sinks import VALUES, Query, commit_that_dies, seen

STEPS: Final = 10
names = (f"target-{number}" for number in itertools.count())

pytestmark = pytest.mark.skipif("APACHE_KAFKA" not in os.environ, reason="APACHE_KAFKA is not set")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node of Apache Kafka."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with contextlib.ExitStack() as stack:
        try:
            node = stack.enter_context(kafka_node(tmp_path_factory.mktemp("kafka"), settings))
        except LibrariesUnavailableError as error:
            pytest.skip(str(error))
        yield node.bootstrap_servers


@pytest.fixture(scope="module")
def processes() -> Iterator[MortalProcesses]:
    """Processes to be killed."""
    with MortalProcesses() as mortal:
        yield mortal


@pytest.fixture(autouse=True)
def connections(kafka: str) -> Iterator[None]:
    """Leave none."""
    yield
    this_process().drop(WriteOptions.parse({}, kafka).client)
    TaskContext._setTaskContext(None)


@pytest.fixture
def topic(kafka: str) -> str:
    name = next(names)
    create_topic(kafka, name, partitions=2, replication_factor=1)
    return name


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


def test_batch_write_is_whole_or_not_there(kafka: str, topic: str) -> None:
    """As on a cluster of ours; that its transactions time out is said in the decision."""
    options = WriteOptions.parse({"topic": topic}, kafka)
    writer: Any = batch_writer(options, VALUES, overwrite=False)
    writer.prepare()
    messages = [writer.write(rows("a")), writer.write(rows("b"))]
    assert [message.waits_for_ever for message in messages] == [False, False]
    assert seen(kafka, topic) == []
    writer.commit(messages)
    assert seen(kafka, topic) == ["a", "b"]
    writer = batch_writer(options, VALUES, overwrite=False)
    writer.prepare()
    messages = [writer.write(rows("c"))]
    writer.abort(messages)
    assert seen(kafka, topic) == ["a", "b"]


def test_story_of_a_reader_while_drivers_die_at_each_step_of_a_commit(
    kafka: str, topic: str, processes: MortalProcesses
) -> None:
    """Nothing of what the sink rests on is particular to clusters of ours."""
    query = Query(kafka, topic)
    written: list[str] = []
    for step in range(STEPS):
        values = [f"{step}-{each}" for each in "abc"]
        messages = processes.run(query.tasks, f"dead-{step}", step, values[:2], values[2:])
        commit_that_dies(processes, query, step, messages, step)
        query.commit(step, query.tasks(f"next-{step}", step, values[:1], [], values[1:]))
        written += values
        assert seen(kafka, topic) == written
        assert query.open_transactions() == []


def test_time_out_between_decision_and_end_fails_the_query_and_says_what_to_do(
    kafka: str, topic: str, processes: MortalProcesses
) -> None:
    """The driver came back too late: rows that were decided are gone, and nobody passes that over."""
    query = Query(kafka, topic, kafka__transaction__timeout__ms="1000")
    messages = query.tasks("dead", 0, ["a"], ["b"])
    commit_that_dies(processes, query, 0, messages, "EndTransactions")
    wait_for(lambda: not query.open_transactions(), "Kafka aborts what has timed out")
    again = query.tasks("next", 0, ["a", "b"])
    with pytest.raises(TransactionsLostError, match=r"2 of its 2 .*kafka\.transaction\.timeout\.ms"):
        query.commit(0, again)
    assert seen(kafka, topic) == []
    # As the error says: this batch at least once, and exactly once from then on.
    lenient = Query(kafka, topic, deliveryGuarantee="atLeastOnce")
    lenient.commit(0, lenient.tasks("next", 0, ["a", "b"]))
    query.commit(1, query.tasks("last", 1, ["c"]))
    assert seen(kafka, topic) == ["a", "b", "c"]


def test_time_out_beyond_what_is_allowed_names_the_option(kafka: str, topic: str) -> None:
    """Found by the first task; no other is to try."""
    query = Query(kafka, topic, kafka__transaction__timeout__ms="900001")
    (told,) = query.tasks("r", 0, ["a"])
    with pytest.raises(Exception, match=r"no transactions of 900001 ms: .*kafka\.transaction\.timeout\.ms"):
        query.commit(0, [told])


def test_target_without_transactions_of_version_2_is_refused_before_tasks_start(
    kafka: str, topic: str, kafka_program: KafkaProgram
) -> None:
    """Last of all, for it takes them from the node; rows may still be written at least once."""
    kafka_program(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-server", kafka, "downgrade", "--feature", "transaction.version=1"),
    )
    this_process().drop(WriteOptions.parse({}, kafka).client)
    query = Query(kafka, topic)
    with pytest.raises(
        TransactionsUnsupportedError, match=r"transaction.version is 1.*deliveryGuarantee=atLeastOnce"
    ):
        query.tasks("r", 0, ["a"])
    lenient = Query(kafka, topic, deliveryGuarantee="atLeastOnce")
    lenient.commit(0, lenient.tasks("r", 0, ["a"]))
    assert seen(kafka, topic) == ["a"]
