"""Which partition an id belongs to. The numbers come from a Java virtual machine."""

import pytest

from sparklog.node.metadata.partition_for import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("string", "hash_code", "partition"),
    [
        ("", 0, 0),
        ("group", 98629247, 47),
        ("größe", 98762257, 7),
        ("🚀", 1773027, 27),
        ("polygenelubricants", -(1 << 31), 0),
        ("a🚀ß" * 700, -1146440236, 36),
    ],
)
def test_partition_for_any_string_is_javas(string: str, hash_code: int, partition: int) -> None:
    """Kafka's clients and tools look for a group where its hash says, surrogates and MIN_VALUE included."""
    assert java_string_hash(string) == hash_code
    assert partition_for(string, 50) == partition
