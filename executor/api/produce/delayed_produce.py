"""A Produce request on its way to its answer: the result of each partition, and the partitions that wait.

acks=1 is answered after the append, acks=all when everything appended is below the high watermark of an ISR
of at least min.insync.replicas, or when the request's timeout has passed; a partition that is not settled
by then is REQUEST_TIMED_OUT, and its records may yet be committed.

Order for the caller: that of `Settling`.
Source: Kafka's DelayedProduce.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from sparklog.executor.partitions.settling import Settling, SettlingPart
from sparklog.executor.records.refusal import RecordError, RecordsRefusedError
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.results import AppendInfo
from sparklog.protocol.codec.fixed.produce import PartitionProduce
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.records.batch import BatchHeader
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs

if TYPE_CHECKING:
    from sparklog.executor.partitions.replica import Replica

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

_WITHOUT_LOG_START_OFFSET: Final = frozenset(
    {
        ErrorCode.corrupt_message,
        ErrorCode.invalid_topic_exception,
        ErrorCode.kafka_storage_error,
        ErrorCode.message_too_large,
        ErrorCode.not_leader_or_follower,
        ErrorCode.record_list_too_large,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unsupported_compression_type,
    }
)
"""The refusals of Kafka's `ReplicaManager.appendRecordsToLeader` that do not tell where the log starts."""


class ProducedPartition(SettlingPart):
    __slots__ = (
        "appended",
        "log_start_offset",
        "message",
        "partition",
        "record_errors",
        "topic",
        "verification",
    )

    def __init__(self, produce: "DelayedProduce", topic: UUID | str | None, partition: int) -> None:
        super().__init__(produce)
        self.settling: DelayedProduce
        self.replica: Replica | None
        self.topic = topic
        self.partition = partition
        self.message: str | None = None
        self.record_errors: tuple[RecordError, ...] = ()
        """The records that failed, where the others were good (KIP-467)."""
        self.verification: Verification | None = None
        """The verification with which a transaction's first records are appended."""
        self.appended: AppendInfo | None = None
        """Where the records went, also if they cannot be acknowledged; None if they were refused."""
        self.log_start_offset: Offset | None = None
        """Start of the log that refused the records, where Kafka gives it."""

    def fail(self, error: KafkaError) -> None:
        """Set the error of records that were refused or cannot be acknowledged."""
        self.error_code = error.error_code
        self.message = error.message
        if isinstance(error, RecordsRefusedError):
            self.record_errors = error.record_errors

    def refuse(self, error: KafkaError | OSError, byte_count: int) -> None:
        """Set and count the error of a batch of `byte_count` bytes that was not appended."""
        failure = kafka_error(error)
        self.fail(failure)
        if self.replica is not None:
            if failure.error_code not in _WITHOUT_LOG_START_OFFSET:
                self.log_start_offset = self.replica.log.log_start_offset
            self.replica.traffic.produce_failed(failure, byte_count)


class WaitingBatch(NamedTuple):
    """A valid batch that waits for the transaction's coordinator, or for a thread that looks into it."""

    produced: ProducedPartition
    replica: "Replica"
    leader_epoch: LeaderEpoch
    """Epoch in which the request came."""
    records: bytes | memoryview
    header: BatchHeader


class DelayedProduce(Settling[ProducedPartition]):
    __slots__ = ("acks", "fixed_request", "listener_name", "now_ms", "refusal", "version", "wall_ms")

    late = "not all replicas in sync have the records yet"

    def __init__(
        self, body: Any, version: int, listener_name: str, now_ms: int, wall_ms: TimestampMs
    ) -> None:
        super().__init__()
        self.version = version
        self.listener_name = listener_name
        """By which it came."""
        self.acks: int = body.acks
        self.fixed_request: PartitionProduce | None = None
        """The request, if it is a fixed one: then the response may be, too."""
        self.refusal: KafkaError | None = None
        """Why nothing in the request can be appended, if so."""
        if self.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            self.refusal = KafkaError(
                ErrorCode.invalid_required_acks, f"acks may be 0, 1 or -1 (all), not {self.acks}"
            )
        self.now_ms = now_ms
        """When it came, by the monotonic clock,"""
        self.wall_ms = wall_ms
        """and by the other."""

    def add(self, topic: UUID | str | None, partition: int) -> ProducedPartition:
        """Add a partition, without an error so far."""
        produced = ProducedPartition(self, topic, partition)
        self.parts.append(produced)
        return produced
