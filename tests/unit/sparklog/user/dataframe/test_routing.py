"""Rows reach the partitions that Kafka's clients would choose, in order, in batches of the size asked for."""

import datetime
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.errors import InvalidRowError
from sparklog.user.dataframe.routing import RECORD_OVERHEAD_BYTES, RoutedRows, RowRouter, Targets


def router(
    *,
    topic: str | None = "t",
    partitions: int = 3,
    free: Sequence[int] | None = None,
    batch_size_bytes: int = 1 << 20,
    buffer_bytes: int = 1 << 30,
    newest_targets: Callable[[str], Targets] | None = None,
) -> RowRouter:
    def targets(_: str) -> Targets:
        return Targets(partitions, range(partitions) if free is None else free)

    return RowRouter(
        topic=topic,
        targets=targets,
        newest_targets=newest_targets or targets,
        batch_size_bytes=batch_size_bytes,
        buffer_bytes=buffer_bytes,
        seed=0,
    )


def route(subject: RowRouter, *batches: pa.RecordBatch) -> Iterator[RoutedRows]:
    for batch in batches:
        yield from subject.add(batch)
    yield from subject.drain()


def values(routed: Iterable[RoutedRows]) -> dict[TopicPartition, list[bytes]]:
    found = defaultdict(list)
    for topic_partition, rows in routed:
        found[topic_partition].extend(rows.column("value").to_pylist())
    return dict(found)


def test_keyed_rows_go_where_kafkas_partitioner_sends_them() -> None:
    """Records of one key from any client are in one partition; these are the Java client's answers."""
    keys = ["21", "foobar", "a-little-bit-long-string"]
    routed = route(router(partitions=10), pa.record_batch({"key": keys, "value": keys}))
    assert values(routed) == {
        TopicPartition("t", 0): [b"21"],
        TopicPartition("t", 6): [b"foobar"],
        TopicPartition("t", 2): [b"a-little-bit-long-string"],
    }


def test_rows_without_keys_stick_to_a_partition_for_a_batch() -> None:
    """Batches are full, and each partition gets its turn."""
    size = 100 - RECORD_OVERHEAD_BYTES
    subject = router(batch_size_bytes=1000)
    batch = pa.record_batch({"value": [bytes(size)] * 60})
    routed = list(subject.add(batch))
    assert [(each.topic_partition.partition, each.rows.num_rows) for each in routed] == [
        (1, 10),
        (2, 10),
        (0, 10),
    ] * 2
    assert list(subject.drain()) == []


def test_stickiness_goes_on_over_arrow_batches() -> None:
    """Spark's batch boundaries are not Kafka's."""
    size = 100 - RECORD_OVERHEAD_BYTES
    subject = router(batch_size_bytes=1000)
    batch = pa.record_batch({"value": [bytes(size)] * 4})
    assert [
        (each.topic_partition.partition, each.rows.num_rows) for each in route(subject, *[batch] * 6)
    ] == [(1, 10), (2, 10), (0, 4)]


def test_own_partition_wins_over_the_key() -> None:
    """As in ProducerRecord; a null leaves it to the key."""
    batch = pa.record_batch(
        {"key": ["foobar"] * 2, "value": ["own", "key"], "partition": pa.array([0, None], pa.int32())}
    )
    assert values(route(router(partitions=10), batch)) == {
        TopicPartition("t", 0): [b"own"],
        TopicPartition("t", 6): [b"key"],
    }


@pytest.mark.parametrize("partition", [3, -1, 2**31 - 1])
def test_own_partition_that_does_not_exist_is_refused(partition: int) -> None:
    """It is said which, before anything of the batch is sent."""
    batch = pa.record_batch({"value": ["v"], "partition": pa.array([partition], pa.int32())})
    with pytest.raises(InvalidRowError, match=f"partition {partition} does not exist: topic t has 3"):
        list(router().add(batch))


def test_rows_for_partitions_that_are_not_known_have_them_asked_for_once_a_batch() -> None:
    """Partitions are added while a query runs; wrong rows by the million must not be a request each."""
    asked = []

    def newest_targets(topic: str) -> Targets:
        asked.append(topic)
        return Targets(4, range(4))

    subject = router(partitions=2, newest_targets=newest_targets)
    added = pa.record_batch(
        {"key": ["foobar"] * 3, "value": ["1", "2", "3"], "partition": pa.array([3, 3, None], pa.int32())}
    )
    assert values(route(subject, added)) == {
        TopicPartition("t", 3): [b"1", b"2"],
        TopicPartition("t", 2): [b"3"],  # by its key, of four
    }
    assert asked == ["t"]
    list(route(subject, added))
    assert asked == ["t"], "they are known now"
    missing = pa.record_batch({"value": ["v"] * 2, "partition": pa.array([4, 5], pa.int32())})
    for _ in range(2):
        with pytest.raises(InvalidRowError, match="partition 4 does not exist: topic t has 4"):
            list(subject.add(missing))
    assert asked == ["t"] * 3


def test_topic_column_is_followed_row_by_row() -> None:
    """One write may serve several topics, and rows keep their order in each."""
    batch = pa.record_batch({"topic": ["a", "b", "a"], "key": ["k", "k", "k"], "value": ["1", "2", "3"]})
    assert values(route(router(topic=None, partitions=1), batch)) == {
        TopicPartition("a", 0): [b"1", b"3"],
        TopicPartition("b", 0): [b"2"],
    }


def test_null_topic_is_refused() -> None:
    """There is nowhere to put the row."""
    with pytest.raises(InvalidRowError, match="null topic present in the data"):
        list(router(topic=None).add(pa.record_batch({"topic": ["a", None], "value": ["1", "2"]})))


def test_timestamps_become_milliseconds() -> None:
    """Kafka's unit, cut as the connector cuts it; nulls are left to the time of writing."""
    moment = datetime.datetime(2013, 1, 1, 5, 15, 0, 1999, tzinfo=datetime.UTC)
    batch = pa.record_batch(
        {"value": ["v", "v"], "timestamp": pa.array([moment, None], pa.timestamp("us", tz="Europe/Berlin"))}
    )
    (routed,) = route(router(), batch)
    assert routed.rows.column("timestamp").to_pylist() == [1357017300001, None]
    (routed,) = route(router(), pa.record_batch({"value": ["v"], "timestamp": [1357017300.0019]}))
    assert routed.rows.column("timestamp").to_pylist() == [1357017300001]


@pytest.mark.parametrize("first_ms", [0, 1_357_017_300_000, 2_177_452_800_000, 4_102_444_800_000])
def test_timestamps_in_seconds_of_whole_milliseconds_are_those(first_ms: int) -> None:
    """In some years, as in 2039, a quarter of them was one too early: a double's thousandfold is rounded."""
    milliseconds = np.arange(first_ms, first_ms + 1_000)
    batch = pa.record_batch({"value": ["v"] * 1_000, "timestamp": milliseconds / 1000})
    (routed,) = route(router(), batch)
    assert routed.rows.column("timestamp").to_pylist() == milliseconds.tolist()


@pytest.mark.parametrize(
    "timestamps",
    [
        pa.array([1_357_017_300_000]),
        pa.array(["yesterday"]),
        pa.array([None], pa.timestamp("us")),
        pa.array([1.0], pa.float32()),
    ],
    ids=["bigint", "string", "timestamp_ntz", "float"],
)
def test_timestamps_of_another_type_are_left_out(timestamps: pa.Array) -> None:
    """Spark's connector has no such column, so whatever a job has under that name must not stop it."""
    subject = router()
    (routed,) = route(subject, pa.record_batch({"value": ["v"], "timestamp": timestamps}))
    assert routed.rows.column_names == ["value"]
    assert subject.oldest_timestamps_ms == {}


def test_oldest_timestamp_of_each_topic_is_known() -> None:
    """By it the driver sees whether retention is about to delete what was written."""
    subject = router(topic=None)
    for topics, seconds in (["a", "b"], [20.0, 30.0]), (["a", "b"], [25.0, 5.0]), (["a", "a"], [None, 15.5]):
        list(subject.add(pa.record_batch({"topic": topics, "value": ["v", "w"], "timestamp": seconds})))
    assert subject.oldest_timestamps_ms == {"a": 15_500, "b": 5_000}


@pytest.mark.parametrize("seconds", [-0.001, -0.0001])
def test_timestamp_before_1970_is_refused(seconds: float) -> None:
    """-1 means something else on the wire."""
    with pytest.raises(InvalidRowError, match="-1 ms is negative"):
        list(router().add(pa.record_batch({"value": ["v"], "timestamp": [seconds]})))


def test_rows_held_back_are_bounded() -> None:
    """Many partitions with a little each do not fill the memory."""
    subject = router(partitions=100, buffer_bytes=5_000)
    batch = pa.record_batch({"key": [str(number) for number in range(100)], "value": [bytes(100)] * 100})
    assert sum(each.rows.num_rows for each in subject.add(batch)) == 100


keys = st.none() | st.binary(max_size=20)


@given(
    st.lists(st.lists(st.tuples(keys, st.integers(0, 400)), max_size=30), max_size=6),
    st.integers(1, 5),
    st.integers(0, 1500),
)
def test_any_rows_are_routed_once_and_in_order(
    batches: list[list[tuple[bytes | None, int]]], partitions: int, batch_size_bytes: int
) -> None:
    """Nothing is lost, repeated or reordered within a partition, whatever the sizes."""
    number = 0
    drawn = []
    for batch in batches:
        value_column = []
        for _, size in batch:
            value_column.append(number.to_bytes(8, "big") + bytes(size))
            number += 1
        drawn.append(
            pa.record_batch(
                [pa.array([key for key, _ in batch], pa.binary()), pa.array(value_column, pa.binary())],
                names=["key", "value"],
            )
        )
    routed = values(route(router(partitions=partitions, batch_size_bytes=batch_size_bytes), *drawn))
    seen = []
    for written in routed.values():
        numbers = [int.from_bytes(value[:8], "big") for value in written]
        assert numbers == sorted(numbers)
        seen.extend(numbers)
    assert sorted(seen) == list(range(number))


def test_rows_that_wait_for_others_of_their_partition_keep_little_of_the_batches_they_came_in() -> None:
    """A slice keeps all that it was cut from: a worker held gigabytes for a partition with few rows."""
    subject = router(partitions=2, buffer_bytes=1 << 20)
    before_bytes = pa.total_allocated_bytes()
    found = 0
    for _ in range(50):
        values = pa.array([bytes(1000)] * 1000)
        partitions = pa.array([1, *[0] * 999], pa.int32())
        batch = pa.record_batch({"value": values, "partition": partitions})
        del values
        found += sum(routed.rows.num_rows for routed in subject.add(batch))
        del batch
        assert pa.total_allocated_bytes() - before_bytes < 8 << 20
    found += sum(routed.rows.num_rows for routed in subject.drain())
    assert found == 50_000


def test_rows_that_are_free_go_to_partitions_that_are_available() -> None:
    """As Kafka's own partitioner has it; those that are bound to another one wait for it."""
    subject = router(partitions=3, free=[1, 2], batch_size_bytes=2_000)
    free = pa.record_batch({"value": pa.array([bytes(100)] * 100)})
    bound = pa.record_batch({"value": pa.array([b"0"]), "partition": pa.array([0], pa.int32())})
    routed = values(route(subject, free, bound))
    assert {each.partition: len(rows) > 1 for each, rows in routed.items()} == {0: False, 1: True, 2: True}


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 1e300])
def test_timestamp_that_is_no_time_is_refused(seconds: float) -> None:
    """Trying again makes no other row of it: the job is to fail once, in one line."""
    with pytest.raises(InvalidRowError, match="not a time in seconds"):
        list(router().add(pa.record_batch({"value": ["v"], "timestamp": [seconds]})))


def test_header_without_a_key_is_refused() -> None:
    """As above."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([[{"key": "k", "value": None}], None, [{"key": None, "value": b"v"}]], kind)
    with pytest.raises(InvalidRowError, match="header's key is null"):
        list(router().add(pa.record_batch({"value": ["1", "2", "3"], "headers": headers})))
