"""Checkpoints say offsets as Spark's Kafka connector does."""

import json

from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.stream_reader import StreamPosition


def test_stream_position_of_the_connector_is_read() -> None:
    """A query that ran with format("kafka") goes on."""
    written = '{"flights":{"0":23,"10":7},"t.2":{"0":0}}'
    assert StreamPosition.parse(json.loads(written)).offsets == {
        TopicPartition("flights", 0): 23,
        TopicPartition("flights", 10): 7,
        TopicPartition("t.2", 0): 0,
    }


def test_stream_position_is_written_as_the_connector_reads_it() -> None:
    """A query that ran with this format goes on with the connector's."""
    position = StreamPosition(
        {TopicPartition("b", 1): 5, TopicPartition("a", 0): 2, TopicPartition("b", 0): 4}
    )
    assert position.document() == {"a": {"0": 2}, "b": {"0": 4, "1": 5}}


def test_stream_position_of_a_first_batch_knows_where_that_began() -> None:
    """It is in the checkpoint and comes back, apart from the offsets."""
    position = StreamPosition({TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 2})
    assert StreamPosition.parse(json.loads(json.dumps(position.document()))) == position


def test_stream_position_of_a_first_batch_that_began_with_nothing_says_so() -> None:
    """A topic that appears before that batch is done again was not there, and is not lost."""
    position = StreamPosition({}, {})
    assert StreamPosition.parse(json.loads(json.dumps(position.document()))) == position
    assert StreamPosition.parse({}).first_starts is None
