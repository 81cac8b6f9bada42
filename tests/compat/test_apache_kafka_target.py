"""Rows written exactly once into Apache Kafka: without transactions that wait for ever, so with a window.

A node of Kafka 4.3.1 takes longer to start than most tests. So these run when they are asked for:

    APACHE_KAFKA=1 python -m pytest tests/compat/test_apache_kafka_target.py
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark import TaskContext

from benchmarks.clusters import free_ports
from benchmarks.java_libraries import LibrariesUnavailableError, kafka_command
from sparklog.client.transactional_ids import TransactionsUnsupportedError
from sparklog.dataframe.options import WriteOptions
from sparklog.dataframe.worker_process import this_process
from sparklog.dataframe.writer import batch_writer
from sparklog.sink.machine.errors import TransactionsLostError
from tests.cluster import wait_for
from tests.compat.kafka_programs import KafkaProgram
from tests.compat.librdkafka import create_topic
from tests.compat.mortal import MortalProcesses
from tests.compat.sinks import VALUES, Query, commit_that_dies, seen

CLUSTER_ID: Final = "apacheAAAAAAAAAAAAAAAA"
START_TIMEOUT_S: Final = 90.0
ASK_S: Final = 2
STEPS: Final = 10
names = (f"target-{number}" for number in itertools.count())

pytestmark = pytest.mark.skipif("APACHE_KAFKA" not in os.environ, reason="APACHE_KAFKA is not set")


@pytest.fixture(scope="module")
def kafka(kafka_program: KafkaProgram, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node of Apache Kafka, combined, as it comes but for one replica of all."""
    directory = tmp_path_factory.mktemp("kafka")
    client, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
    properties = directory / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        f"controller.quorum.voters=1@{controller}\n"
        f"listeners=PLAINTEXT://{client},CONTROLLER://{controller}\n"
        f"advertised.listeners=PLAINTEXT://{client}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={directory}/logs\n"
        "offsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\n"
        "transaction.state.log.min.isr=1\n"
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=200\n"
    )
    kafka_program("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    try:
        command = kafka_command("kafka.Kafka", str(properties))
    except LibrariesUnavailableError as error:
        pytest.skip(str(error))
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: _answers(client), f"Kafka, see {directory}", START_TIMEOUT_S)
            yield client
        finally:
            process.kill()


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


def _answers(bootstrap_servers: str) -> bool:
    with contextlib.suppress(KafkaException):
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        return bool(admin.list_topics(timeout=ASK_S).brokers)
    return False
