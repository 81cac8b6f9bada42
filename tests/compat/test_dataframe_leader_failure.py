"""A leader dies while a task writes or reads: nothing is lost, nothing is there twice.

The writer and reader are run as Spark's tasks run them, but in this process, so that the moment of the
failure is known.
"""

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.dataframe.options import ReadOptions, WriteOptions
from sparklog.user.dataframe.prepared_rows import WrittenRecords
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.schemas import record_schema
from sparklog.user.dataframe.worker_process import this_process
from sparklog.user.dataframe.writer import SparklogWriter
from tests.cluster import LocalCluster
from tests.compat.librdkafka import create_topic

PARTITIONS = 3
BATCHES = 60
ROWS_A_BATCH = 500
COLUMNS = record_schema(include_headers=False)
WRITTEN = StructType([COLUMNS["key"], COLUMNS["value"]])
VALUES_AND_PARTITIONS = StructType([COLUMNS["value"], COLUMNS["partition"]])
OFFSETS = StructType([COLUMNS["offset"]])


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, config={"min.insync.replicas": "1"}) as running:
        yield running


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: Callable[[str], str]) -> str:
    """A topic of a cluster all of whose brokers run, whatever the test before has killed."""
    for broker_id in cluster.broker_ids:
        if not cluster.is_running(broker_id):
            cluster.restart(broker_id)
    name = new_topic_name("t")
    create_topic(cluster.bootstrap_servers, name, PARTITIONS)
    return name


def kill_a_leader(cluster: LocalCluster, topic: str) -> None:
    options = WriteOptions.parse({}, cluster.bootstrap_servers)
    with ClusterClient(options.client) as client:
        leader = client.leader(TopicPartition(topic, 0))
    cluster.kill(leader.broker_id)


def numbered_rows(in_the_middle: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    for batch in range(BATCHES):
        if batch == BATCHES // 2:
            in_the_middle()
        first = batch * ROWS_A_BATCH
        numbers = [str(number) for number in range(first, first + ROWS_A_BATCH)]
        yield pa.record_batch({"key": numbers, "value": numbers})


def write(cluster: LocalCluster, topic: str, rows: Iterator[pa.RecordBatch]) -> WrittenRecords:
    options = WriteOptions.parse({"topic": topic, "kafka.batch.size": "2048"}, cluster.bootstrap_servers)
    writer = SparklogWriter(options, WRITTEN)
    writer.prepare()
    written = writer.write(rows)
    assert isinstance(written, WrittenRecords)
    writer.commit([written])
    this_process().drop(options.client)
    return written


def read(cluster: LocalCluster, topic: str, schema: StructType, **options: str) -> Iterator[pa.RecordBatch]:
    reader = SparklogReader(
        ReadOptions.parse({"subscribe": topic} | options, cluster.bootstrap_servers), schema
    )
    for partition in reader.partitions():
        yield from reader.read(partition)


def test_write_while_a_leader_is_killed_has_each_row_once_and_in_order(
    cluster: LocalCluster, topic: str
) -> None:
    """Retries keep their sequence numbers across leaders, whatever was in flight."""
    written = write(cluster, topic, numbered_rows(lambda: kill_a_leader(cluster, topic)))
    assert written.counts.total() == BATCHES * ROWS_A_BATCH
    by_partition: dict[int, list[int]] = {}
    for batch in read(cluster, topic, VALUES_AND_PARTITIONS):
        numbers = [int(value) for value in batch.column("value").to_pylist()]
        by_partition.setdefault(batch.column("partition")[0].as_py(), []).extend(numbers)
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sorted(itertools.chain.from_iterable(by_partition.values())) == list(range(BATCHES * ROWS_A_BATCH))


def test_read_while_a_leader_is_killed_has_each_record_once(cluster: LocalCluster, topic: str) -> None:
    """The reader goes on with the new leader where it was."""
    write(cluster, topic, numbered_rows(lambda: None))
    small_fetches = {"kafka.max.partition.fetch.bytes": "4096"}
    count = 0
    killed = False
    for batch in read(cluster, topic, OFFSETS, **small_fetches):
        count += batch.num_rows
        if not killed and count > 1_000:
            kill_a_leader(cluster, topic)
            killed = True
    assert killed
    assert count == BATCHES * ROWS_A_BATCH
