"""Types that every part of the system shares, under Kafka's own names.

All offsets that end a range are exclusive (`log_end_offset`, `high_watermark`, `last_stable_offset`). A
missing value is `None`; `unless_minus_one` and `or_minus_one` translate the `-1` of requests, records and
configuration keys where they are read and written.
"""

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

BrokerId: TypeAlias = int
Offset: TypeAlias = int
LeaderEpoch: TypeAlias = int
PartitionEpoch: TypeAlias = int
BrokerEpoch: TypeAlias = int
ProducerId: TypeAlias = int
ProducerEpoch: TypeAlias = int
TimestampMs: TypeAlias = int

NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of transactions in a two-phase commit (KIP-939): none, they wait for its decision."""

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CLUSTER_METADATA_TOPIC_ID: Final = UUID(int=1)
"""Fixed by KIP-595: the metadata log is found before any topic can be looked up."""


class TopicPartition(NamedTuple):
    """A partition by the topic's name, as clients and directories know it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the name of the partition's directory, `<topic>-<partition>`."""
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by topic id, which a deleted and recreated topic does not share (KIP-516)."""

    topic_id: UUID
    partition: int


class AbortedTransaction(NamedTuple):
    """A producer's transaction that ended in an abort marker, by its first offset in the partition."""

    producer_id: ProducerId
    first_offset: Offset


class SnapshotId(NamedTuple):
    """The id of a metadata snapshot: its exclusive end offset and its last record's leader epoch.

    Ids of one log are ordered as their snapshots: the later one holds more records.
    """

    end_offset: Offset
    leader_epoch: LeaderEpoch

    def __str__(self) -> str:
        """Return the name of the snapshot's file, without the suffix.

        >>> str(SnapshotId(1234, 5))
        '00000000000000001234-0000000005'
        """
        return f"{self.end_offset:020d}-{self.leader_epoch:010d}"


def unless_minus_one(number: int) -> int | None:
    """Return a number that was read; -1, Kafka's "none", becomes None."""
    return None if number == -1 else number


def or_minus_one(value: int | None) -> int:
    """Return a number to write; None becomes -1."""
    return -1 if value is None else value
