"""What a stream's writer does without a cluster."""

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from sparklog.user.dataframe.options import WriteOptions
from sparklog.user.dataframe.stream_writer import stream_writer

SCHEMA = StructType([StructField("value", BinaryType())])
NOBODY_LISTENS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


@pytest.mark.parametrize("messages", [[], [None]])
def test_batch_without_partitions_is_committed_without_asking_anybody(messages: list[None]) -> None:
    """Where nothing can be left, as after where("false"), Spark asks no task: that is no failed batch."""
    stream_writer(WriteOptions.parse(NOBODY_LISTENS, None), SCHEMA).commit(messages, 7)
