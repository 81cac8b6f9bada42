"""Which partition of an internal topic an id belongs to: its broker is the id's coordinator.

Source: Kafka's GroupCoordinatorService.partitionFor, Utils.abs; Java's String.hashCode.
"""

__all__ = ["java_string_hash", "partition_for"]

_MIN_VALUE = -(1 << 31)


def java_string_hash(string: str) -> int:
    """Return what Java's `String.hashCode` returns: over UTF-16 code units, in 32 bits.

    >>> java_string_hash("group"), java_string_hash("🚀")
    (98629247, 1773027)
    """
    encoded = string.encode("utf-16-be", "surrogatepass")
    total = 0
    for index in range(0, len(encoded), 2):
        total = (31 * total + (encoded[index] << 8 | encoded[index + 1])) & 0xFFFF_FFFF
    return total if total < 1 << 31 else total - (1 << 32)


def partition_for(string: str, partition_count: int) -> int:
    """Return the partition of an id in a topic of so many.

    >>> partition_for("group", 50)
    47
    """
    hash_code = java_string_hash(string)
    # Java has no positive number for the least of its negative ones: Kafka takes 0.
    return 0 if hash_code == _MIN_VALUE else abs(hash_code) % partition_count
