"""Errors between this client and a cluster, each with the remedy in its message.

All are `KafkaError`s with an `error_code`; the subclasses exist for callers that handle them.
"""

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TopicPartition


class ApiTimeoutError(KafkaError):
    """A call was retried until its time was up; the message ends with the last failure."""

    def __init__(self, action: str, timeout_ms: int, option: str, last_failure: object) -> None:
        super().__init__(
            ErrorCode.request_timed_out,
            f"{action} did not succeed within {timeout_ms} ms ({option}); last failure: {last_failure}",
        )


class ClusterStoppedError(KafkaError):
    """The cluster of this Spark application was stopped; its records are unreachable."""

    def __init__(self, bootstrap_server: str) -> None:
        super().__init__(
            ErrorCode.broker_not_available,
            f"this application's cluster was stopped (no process listens at {bootstrap_server}); "
            "sparklog.start(spark) starts one, or name another with the option kafka.bootstrap.servers",
        )

    @property
    def retriable(self) -> bool:
        """Never: a cluster that is started later has another address, and usually is another cluster."""
        return False


class UnknownTopicError(KafkaError):
    """A topic or partition does not exist, or stayed unknown until the time-out."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, f"{name} does not exist; {remedy}")


class TopicReplacedError(UnknownTopicError):
    """A topic was deleted, and maybe created again, while it was in use."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"topic {name} that rows were written to",
            "it was deleted meanwhile, and may have been created again. Nothing was "
            "committed; run it again, and all rows are written to the topic that exists then",
        )


class OffsetOutOfRangeError(KafkaError):
    """A partition does not have the requested offset, or has deleted it."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        offset: Offset,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range,
            f"{topic_partition} has offsets {log_start_offset} to {log_end_offset} (exclusive), not {offset}",
        )
        self.topic_partition = topic_partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetNotAvailableError(KafkaError):
    """An existing offset was not served before the poll timeout."""

    def __init__(self, topic_partition: TopicPartition, offset: Offset, timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.offset_not_available,
            f"offset {offset} of {topic_partition} was not readable within {timeout_ms} ms: fewer records "
            "are committed than were requested; check the partition's in-sync replicas, or raise "
            "kafkaConsumer.pollTimeoutMs",
        )
        self.topic_partition = topic_partition
        self.offset = offset


class TopicRecreatedError(KafkaError):
    """The topic was deleted and created again: offsets of the old one are meaningless in it (KIP-516)."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.inconsistent_topic_id, f"topic {topic} was deleted and created again while it was read"
        )

    @property
    def retriable(self) -> bool:
        """Never: the old topic does not come back, though a broker that lags behind may still report it."""
        return False


class DeliveryError(KafkaError):
    """Records could not be written, and none after them in the same partition."""

    def __init__(
        self, error_code: ErrorCode, topic_partition: TopicPartition, base_sequence: int | None, reason: str
    ) -> None:
        at = "" if base_sequence is None else f" (batch at sequence {base_sequence})"
        super().__init__(
            error_code,
            f"could not write to {topic_partition}{at}: {reason}",
        )
        self.topic_partition = topic_partition
