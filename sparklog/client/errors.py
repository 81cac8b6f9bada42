"""What can go wrong between this client and a cluster, each with the remedy in its message.

All are `KafkaError`s, so a caller may ask for `error_code`; the subclasses exist where a caller has
something to do about it.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import Offset, TopicPartition


class ApiTimeoutError(KafkaError):
    """A call was retried until its time was up; the message ends in the last failure."""

    def __init__(self, action: str, timeout_ms: int, option: str, last_failure: object) -> None:
        super().__init__(
            ErrorCode.request_timed_out,
            f"{action} did not succeed within {timeout_ms} ms ({option}); last failure: {last_failure}",
        )


class ClusterStoppedError(KafkaError):
    """The cluster that this Spark application ran itself runs no more; none of its records can be reached."""

    def __init__(self, bootstrap_server: str) -> None:
        super().__init__(
            ErrorCode.broker_not_available,
            f"this application's cluster was stopped (nobody listens at {bootstrap_server} any more); "
            "sparklog.start(spark) starts one, or name another with the option kafka.bootstrap.servers",
        )

    @property
    def retriable(self) -> bool:
        """Never: a cluster that is started later has another address, and is another one as a rule."""
        return False


class UnknownTopicError(KafkaError):
    """A topic or partition does not exist, or stayed unknown for as long as was waited for."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(ErrorCode.unknown_topic_or_partition, f"{name} does not exist; {remedy}")


class TopicReplacedError(UnknownTopicError):
    """A topic was deleted, and maybe made anew under its name, while something was done with it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"topic {name} that rows were written to",
            "it was deleted while they were, whether or not there is another of that name now. Nothing was "
            "committed; run it again, and all rows are written to the topic that is there then",
        )


class OffsetOutOfRangeError(KafkaError):
    """A partition no longer has, or does not have, the offset that was asked for."""

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
    """An offset that is known to exist was not served before the poll timeout."""

    def __init__(self, topic_partition: TopicPartition, offset: Offset, timeout_ms: int) -> None:
        super().__init__(
            ErrorCode.offset_not_available,
            f"offset {offset} of {topic_partition} was not readable within {timeout_ms} ms: fewer records "
            "are committed than were asked for; check the partition's in-sync replicas, or raise "
            "kafkaConsumer.pollTimeoutMs",
        )
        self.topic_partition = topic_partition
        self.offset = offset


class TopicRecreatedError(KafkaError):
    """A topic of the same name is another one now: offsets of the old one mean nothing in it (KIP-516)."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            ErrorCode.inconsistent_topic_id, f"topic {topic} was deleted and created anew while it was read"
        )

    @property
    def retriable(self) -> bool:
        """Never: the old topic does not come back. A broker that is behind may tell of it, for a while."""
        return False


class DeliveryError(KafkaError):
    """Records could not be written; none after them in the same partition was."""

    def __init__(
        self, error_code: ErrorCode, topic_partition: TopicPartition, base_sequence: int | None, reason: str
    ) -> None:
        at = "" if base_sequence is None else f" (batch at sequence {base_sequence})"
        super().__init__(
            error_code,
            f"could not write to {topic_partition}{at}: {reason}",
        )
        self.topic_partition = topic_partition
