"""What a task sends to brokers that go on changing."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.producer import Producer
from sparklog.user.client.topics import Leader
from sparklog.user.dataframe.errors import InvalidRowError
from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.row_writer import RowWriter
from tests.unit.sparklog.user.client.brokers import FIRST, Brokers, with_client

SCHEMA = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])


def row_writer() -> RowWriter:
    options = {"topic": "t", "deliveryGuarantee": "atLeastOnce", "kafka.acks": "1"}
    return RowWriter(WriteOptions.parse(options, "own:9092"), SCHEMA)


def row_for(partition: int) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"v"], "partition": pa.array([partition], pa.int32())})


def started(producer: Producer) -> bool:
    producer.start()
    return True


def test_rows_that_are_written_already_are_counted_and_not_sent() -> None:
    """A task of a decided batch leaves no transaction behind; the driver checks how many rows it had."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        asked: list[Producer] = []
        empty = row_for(0).slice(0, 0)

        def decided(producer: Producer) -> bool:
            asked.append(producer)
            return False

        written = row_writer().write(client, iter([empty, row_for(0), row_for(2)]), decided)
        assert (written.counts.total(), written.unwritten_rows, len(asked)) == (0, 2, 1)
        assert (row_writer().write(client, iter([empty]), decided).unwritten_rows, len(asked)) == (0, 1)

    with_client(use)


def test_row_for_a_partition_that_was_just_added_is_written() -> None:
    """What is known of a topic may be five minutes old: the query died until it was."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        added = TopicPartition("t", 2)

        def rows() -> Iterator[pa.RecordBatch]:
            yield row_for(0)
            brokers.leaders[added] = Leader(2, 1)
            yield row_for(2)

        written = row_writer().write(client, rows(), started)
        assert written.counts == {FIRST: 1, added: 1}

    with_client(use)


def test_row_for_a_partition_that_does_not_exist_is_refused_when_brokers_say_so_now() -> None:
    """One question, and no more: a wrong row is a mistake nearly always."""

    def use(brokers: Brokers, client: ClusterClient) -> None:
        client.topic("t")
        brokers.asked_since()
        with pytest.raises(InvalidRowError, match="partition 2 does not exist: topic t has 2, from 0 on"):
            row_writer().write(client, iter([row_for(2)]), started)
        assert len(brokers.asked_since()) == 1

    with_client(use)
