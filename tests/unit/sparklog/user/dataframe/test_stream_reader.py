"""What a stream's reader does without a cluster."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.protocol.types import TopicPartition
from sparklog.user.client.topics import Leader
from sparklog.user.dataframe.errors import DataSourceSchemaError
from sparklog.user.dataframe.range_reader import OffsetRangePartition
from sparklog.user.dataframe.schemas import record_schema
from sparklog.user.dataframe.stream_reader import Document, SelfPositionedStreamReader, SparklogStreamReader
from tests.unit.sparklog.user.client.brokers import Brokers, with_brokers


def test_schema_that_is_not_one_of_records_is_refused_before_a_task_starts() -> None:
    """Each attempt of each task failed of it, a batch later, with the driver's own checks all passed."""
    options = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}
    reader = SparklogStreamReader(options, None, StructType([StructField("vlaue", StringType())]))
    with pytest.raises(DataSourceSchemaError, match="did you mean 'value'"):
        reader.getDefaultReadLimit()


class TestSelfPositionedStreamReader:
    """Calls in the order in which Spark 4.0 and 4.1 make them, over real connections."""

    def test_new_query_reads_all_there_is_first_and_then_within_its_limit(self) -> None:
        """Spark asks for the end of the first batch before it asks where the query begins."""

        def use(brokers: Brokers) -> None:
            reader = self_positioned_reader(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="10")
            brokers.end_offset = 25
            first = reader.latestOffset()
            assert planned(reader, reader.initialOffset(), first) == [(0, 25)]
            brokers.end_offset = 60
            second = reader.latestOffset()
            assert planned(reader, first, second) == [(25, 35)]
            assert reader.latestOffset() == {"t": {"0": 45}}

        with_brokers(use)

    def test_new_query_from_the_latest_offset_does_not_begin_behind_its_first_batch(self) -> None:
        """Records come between the two questions: a beginning of its own would lie behind the batch's end."""

        def use(brokers: Brokers) -> None:
            reader = self_positioned_reader(brokers, startingOffsets="latest")
            brokers.end_offset = 25
            first = reader.latestOffset()
            brokers.end_offset = 30
            assert reader.initialOffset() == {"t": {"0": 25}}
            assert planned(reader, {"t": {"0": 25}}, first) == []

        with_brokers(use)

    def test_query_that_goes_on_reads_all_there_is_first_and_then_within_its_limit(self) -> None:
        """It may be one of availableNow, which would end with the rest unread."""

        def use(brokers: Brokers) -> None:
            reader = self_positioned_reader(brokers, startingOffsets="earliest", maxOffsetsPerTrigger="10")
            brokers.end_offset = 60
            stands = {"t": {"0": 25}}
            assert planned(reader, stands, stands) == []
            first = reader.latestOffset()
            assert planned(reader, stands, first) == [(25, 60)]
            brokers.end_offset = 90
            assert planned(reader, first, reader.latestOffset()) == [(60, 70)]

        with_brokers(use)

    def test_first_batch_done_again_begins_where_it_began(self) -> None:
        """After a crash Spark asks again where to begin, and the latest offset is another one by then."""

        def use(brokers: Brokers) -> None:
            first = {"t": {"0": 12}, "start of the first batch/t": {"0": 6}}
            brokers.end_offset = 15
            again = self_positioned_reader(brokers, startingOffsets="latest")
            assert planned(again, first, first) == []
            assert planned(again, again.initialOffset(), first) == [(6, 12)]
            assert planned(again, first, again.latestOffset()) == [(12, 15)]

        with_brokers(use)


def self_positioned_reader(brokers: Brokers, **options: str) -> SelfPositionedStreamReader:
    brokers.leaders = {TopicPartition("t", 0): Leader(0, 1)}
    servers = f"127.0.0.1:{brokers.listeners[-1].port}"
    given = {"subscribe": "t", "kafka.bootstrap.servers": servers, **options}
    return SelfPositionedStreamReader(given, None, record_schema(include_headers=False))


def planned(reader: SparklogStreamReader, start: Document, end: Document) -> list[tuple[int, int]]:
    """Return the offsets of each task of a batch."""
    partitions = reader.partitions(start, end)
    assert all(isinstance(each, OffsetRangePartition) for each in partitions)
    return [(each.offset_range.start_offset, each.offset_range.end_offset) for each in partitions]  # type: ignore[attr-defined]
