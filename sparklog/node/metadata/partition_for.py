"""The partition of an internal topic for an id; its leader is the id's coordinator.

Source: Kafka's GroupCoordinatorService.partitionFor, Utils.abs; Java's String.hashCode.
"""

import sys
from enum import IntEnum
from operator import mul
from typing import Final

from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.registrations import PartitionRegistration
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.errors import ErrorCode, KafkaError


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


COORDINATORS_TOPICS: Final = {
    CoordinatorType.GROUP: CONSUMER_OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE_TOPIC,
}
MAX_ID_LENGTH: Final = 2**15 - 1
"""The longest id that fits a coordinator's record; a request may have a longer one."""

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
_MIN_VALUE: Final = -(1 << 31)
_BLOCK: Final = 1024
_POWERS: Final = [pow(31, exponent, 1 << 32) for exponent in range(_BLOCK, -1, -1)]


def java_string_hash(string: str) -> int:
    """Return Java's `String.hashCode`: over UTF-16 code units, in 32 bits.

    >>> java_string_hash("group"), java_string_hash("🚀")
    (98629247, 1773027)
    """
    # By blocks: a Python loop over all characters takes three times as long.
    units = memoryview(string.encode(_UTF_16, "surrogatepass")).cast("H")
    total = 0
    for start in range(0, len(units), _BLOCK):
        block = units[start : start + _BLOCK]
        powers = _POWERS[-len(block) :]
        total = (total * _POWERS[-len(block) - 1] + sum(map(mul, block, powers))) & 0xFFFF_FFFF
    return total if total < 1 << 31 else total - (1 << 32)


def utf_16_length(string: str) -> int:
    """Return the length of a string in Java, in UTF-16 code units.

    >>> utf_16_length("offset"), utf_16_length("🚀")
    (6, 2)
    """
    return len(string) if string.isascii() else len(string.encode(_UTF_16, "surrogatepass")) // 2


def partition_for(string: str, partition_count: int) -> int:
    """Return an id's partition in a topic of `partition_count`.

    >>> partition_for("group", 50)
    47

    Raises:
        KafkaError: invalid_request: it is too long for a record; hashing 100 MB would take seconds.
    """
    _check_length(string)
    hash_code = java_string_hash(string)
    # Java has no absolute value of its smallest integer: Kafka takes 0.
    return 0 if hash_code == _MIN_VALUE else abs(hash_code) % partition_count


def coordinator_partition(
    image: MetadataImage, topic: str, key: str
) -> tuple[int, PartitionRegistration] | None:
    """Return an id's partition in a coordinators' topic; None if the topic does not exist.

    Raises:
        KafkaError: invalid_request: the id is too long for any coordinator.
    """
    _check_length(key)
    known = image.topics.by_name.get(topic)
    if known is None:
        return None
    partition = partition_for(key, len(known.partitions))
    return partition, known.partitions[partition]


def _check_length(key: str) -> None:
    if len(key) > MAX_ID_LENGTH:
        raise KafkaError(ErrorCode.invalid_request, f"an id of {len(key)} characters has no coordinator")
