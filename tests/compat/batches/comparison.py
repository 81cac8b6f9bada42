"""Batches sent to a broker of ours: Apache Kafka's answers to them, and the readers of those that were taken.

Kafka's own reader looks at each batch that ours takes (`BatchReader.java`), and so do the readers of
DataFrames; at the end a Java consumer and librdkafka read the topics from begin to end.
"""

import base64
import contextlib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData

from benchmarks.java_libraries import kafka_command
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.decode import decode_batches
from tests.cluster import LocalCluster
from tests.compat.batches.cases import TOPICS, Case
from tests.compat.kafka_node import KafkaNode
from tests.compat.librdkafka import consume, create_topic

READER: Final = Path(__file__).with_name("BatchReader.java")
COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")


class Answer(NamedTuple):
    """What a broker says of a batch."""

    error_code: ErrorCode
    refused_records: tuple[int, ...]
    base_offset: int
    message: str | None

    @property
    def stated(self) -> tuple[str, tuple[int, ...]]:
        """What both have to say."""
        return self.error_code.name, self.refused_records


class BatchReader:
    """Kafka's readers, in a JVM."""

    def __enter__(self) -> Self:
        command = kafka_command(str(READER), java_options=("-Xmx256m", "-XX:TieredStopAtLevel=1"))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def reads(self, batch: bytes) -> str:
        """Return how many records are in the batch, as `read 5`, or why it cannot be read."""
        return self._ask("batch " + base64.b64encode(batch).decode())

    def consumes(self, bootstrap_servers: str, topic: str) -> str:
        """Return how many records a consumer finds in a topic, or why it does not get to its end."""
        return self._ask(f"consume {bootstrap_servers} {topic}")

    def _ask(self, line: str) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline().strip()


def known_difference(case: Case, ours: Answer, theirs: Answer, reader: str) -> str | None:
    """Return why both may differ over a case, if it is known; `reader` is what Kafka's makes of the batch."""
    if ours.error_code is ErrorCode.none:
        if theirs.error_code is ErrorCode.unknown_server_error and case.topic == "recompressed":
            return "Kafka cannot write timestamps below -1 again"
        return None
    if theirs.error_code is ErrorCode.unknown_server_error:
        return "Kafka fails without a name"
    if theirs.error_code in (ErrorCode.none, ours.error_code) and reader.startswith("error"):
        return "Kafka's reader refuses what it takes, or would but for single records"
    if theirs.error_code in (
        ErrorCode.none,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.invalid_producer_epoch,
    ):
        message = ours.message or ""
        for what in KNOWN:
            if what in message:
                return f"refused as a whole here: {what}"
    return None


KNOWN: Final = (
    "offset",
    "a key of ",
    "a length is negative",
    "contains a field of length",
    "producer id",
    "timestamp type",
    "behind its first frame",
    "behind its first member",
    "the snappy block at",
    "not zstd",
    "zstd frame is incomplete",
    "exactly one batch",
)
"""What is refused here alone, or before single records are looked at, as the refusals say it."""


class Comparison:
    """A broker of ours, the answers of Kafka's, and their differences."""

    def __init__(
        self, ours: BlockingChannel, kafkas_answer: Callable[[Case], Answer], reader: BatchReader
    ) -> None:
        self._ours = ours
        self._kafkas_answer = kafkas_answer
        self._reader = reader
        self.answers: Counter[str] = Counter()
        """How often what was answered."""
        self.known: Counter[str] = Counter()
        """How many differences of each kind that is known."""
        self.disagreements: list[str] = []
        self.ends = dict.fromkeys(TOPICS, 0)
        """How many records our topics have."""

    def compare(self, case: Case) -> None:
        """Compare the answers to a batch, and read a batch that ours takes."""
        ours, theirs = send(self._ours, case), self._kafkas_answer(case)
        self.answers[ours.error_code.name] += 1
        reader = ""
        if ours.error_code is ErrorCode.none or ours.stated != theirs.stated:
            reader = self._reader.reads(case.batch)
        if ours.error_code is ErrorCode.none:
            self._check_readable(case, ours, reader)
        if ours.stated != theirs.stated:
            why = known_difference(case, ours, theirs, reader)
            if why is None:
                self.disagreements.append(f"{case.name}: {ours} here, {theirs} in Kafka; {reader}")
            else:
                self.known[why] += 1

    def _check_readable(self, case: Case, ours: Answer, reader: str) -> None:
        try:
            rows = sum(
                batch.num_rows
                for batch in decode_batches(case.batch, columns=COLUMNS, topic="t", partition=0)
            )
        except KafkaError as error:
            self.disagreements.append(f"{case.name}: taken, and DataFrames stop at it: {error}")
            return
        if reader != f"read {rows}":
            self.disagreements.append(f"{case.name}: taken with {rows} records, but Java: {reader}")
        if ours.base_offset == self.ends[case.topic]:
            self.ends[case.topic] += rows

    def consume_all(self, bootstrap_servers: str) -> None:
        """Read our topics from begin to end."""
        for topic, count in self.ends.items():
            told = self._reader.consumes(bootstrap_servers, topic)
            if told != f"read {count}":
                self.disagreements.append(f"a Java consumer of {topic}, which has {count} records: {told}")
            start = TopicPartition(topic, 0, OFFSET_BEGINNING)
            found = len(consume(bootstrap_servers, [start], count)) if count else 0
            if found != count:
                self.disagreements.append(f"librdkafka finds {found} of {count} records of {topic}")


def send(channel: BlockingChannel, case: Case) -> Answer:
    """Return the answer of a broker to a batch."""
    return _answer(channel.request(_request(case)))


def _request(case: Case) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=case.batch)
    return ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout=timedelta(seconds=10),
        topic_data=(TopicProduceData(name=case.topic, partition_data=(data,)),),
    )


def _answer(response: Any) -> Answer:
    row = response.responses[0].partition_responses[0]
    refused = tuple(each.batch_index for each in row.record_errors)
    return Answer(row.error_code, refused, row.base_offset, row.error_message)


@contextlib.contextmanager
def comparison(cluster: LocalCluster, kafkas_answer: Callable[[Case], Answer]) -> Iterator[Comparison]:
    """Compare a cluster of one broker, which gets the topics, with answers of Kafka's."""
    _create_topics(cluster.bootstrap_servers)
    with BlockingChannel(*cluster.address(0), "batches", 30) as ours, BatchReader() as reader:
        yield Comparison(ours, kafkas_answer, reader)


@contextlib.contextmanager
def asked_of(node: KafkaNode) -> Iterator[Callable[[Case], Answer]]:
    """Yield the function that sends a batch to a node of Kafka's, which gets the topics."""
    _create_topics(node.bootstrap_servers)
    with BlockingChannel(*node.client, "batches", 30) as channel:
        yield partial(send, channel)


def _create_topics(bootstrap_servers: str) -> None:
    for topic, config in TOPICS.items():
        create_topic(bootstrap_servers, topic, replication_factor=1, config=config)
