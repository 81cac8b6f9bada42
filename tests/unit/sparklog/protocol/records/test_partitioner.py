"""Keys to partitions, as every Kafka client does it."""

import aiokafka.partitioner
import kafka.partitioner.default
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.records.partitioner import NO_KEY, murmur2, partition_for_keys
from tests.examples import examples

KAFKA_VECTORS = {
    b"": 275646681,
    b"21": -973932308,
    b"foobar": -790332482,
    b"locations": 273370380,
    b"\x00": 375494588,
    b"\xff\x80\xff": -1548634621,
    b"\x80\xff\xff\xff": 498215646,
    b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7": -248068958,
}
"""From kafka-clients 4.3.1; among them those of its own tests."""


def test_murmur2_gives_kafkas_hashes() -> None:
    """A key must hash alike in every client, or its order across them is lost."""
    hashes = murmur2(pa.array(list(KAFKA_VECTORS)))
    assert hashes.view(np.int32).tolist() == list(KAFKA_VECTORS.values())


@given(st.lists(st.none() | st.binary(max_size=70), max_size=80), st.integers(1, 1000))
@examples(40)
def test_partitions_agree_with_other_clients(keys: list[bytes | None], partition_count: int) -> None:
    """All lengths side by side, nulls between them."""
    expected = [
        NO_KEY if key is None else (kafka.partitioner.default.murmur2(key) & 0x7FFFFFFF) % partition_count
        for key in keys
    ]
    for key in keys:
        if key is not None:
            assert kafka.partitioner.default.murmur2(key) == aiokafka.partitioner.murmur2(key)
    column = pa.array(keys, pa.binary())
    partitions = partition_for_keys(column, partition_count)
    assert partitions.dtype == np.int32
    assert partitions.tolist() == expected
    assert partition_for_keys(column.slice(3), partition_count).tolist() == expected[3:]
    halves = pa.chunked_array([column.slice(0, 5), column.slice(5)])
    assert partition_for_keys(halves, partition_count).tolist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.string_view()])
def test_partitions_of_other_key_types_are_those_of_their_bytes(kind: pa.DataType) -> None:
    """Spark may hand over any of them."""
    keys = ["a", None, "Grüße", ""]
    as_bytes = pa.array([None if key is None else key.encode() for key in keys])
    assert partition_for_keys(pa.array(keys, kind), 7).tolist() == partition_for_keys(as_bytes, 7).tolist()


def test_partitions_of_no_keys_at_all_are_none() -> None:
    """A DataFrame without keys has a column of nulls, or no rows."""
    assert partition_for_keys(pa.nulls(3), 4).tolist() == [NO_KEY] * 3
    assert partition_for_keys(pa.array([None, None], pa.binary()), 4).tolist() == [NO_KEY] * 2
    assert partition_for_keys(pa.array([], pa.binary()), 4).tolist() == []
    assert partition_for_keys(pa.chunked_array([], pa.binary()), 4).tolist() == []
