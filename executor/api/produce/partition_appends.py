"""Appending what a Produce brought for one partition: may it be, is it sound, where did it go.

The order of the questions is the order of the errors: whether the topic takes records of clients, whether
this broker leads, whether enough replicas are in sync, what the header says (`validate_produced`), what the
records say (`produce_examination`), whether the producer's sequence goes on. Of a transaction the coordinator
is asked before the records are looked into (`transactional_appends`), and replicas may be missing afterwards.
"""

from typing import Final, NamedTuple

from sparklog.executor.api.produce.delayed_produce import ACKS_ALL, ProducedPartition
from sparklog.executor.api.produce.produce_examination import Examination
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.protocol.errors import ErrorCode, KafkaError, kafka_error
from sparklog.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader, validate_produced
from sparklog.protocol.types import LeaderEpoch, TimestampMs

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


class TransactionalBatch(NamedTuple):
    """A valid batch of a transaction, which is appended once it is verified."""

    produced: ProducedPartition
    replica: Replica
    leader_epoch: LeaderEpoch
    """In which it came."""
    records: bytes | memoryview
    header: BatchHeader


def append_produced(
    produced: ProducedPartition,
    records: bytes | memoryview | None,
    table: PartitionTable,
    examination: Examination,
    transactional: list[TransactionalBatch] | None = None,
) -> None:
    """Append the batch of a partition, leave it to `examination`, or set its error.

    A batch of a transaction goes into `transactional`; None, where the request has no transactional id.
    """
    produce = produced.settling
    try:
        if produce.refusal is not None:
            raise produce.refusal
        produced.replica = replica = table.find(produced.topic, produced.partition)
        if records is None:
            raise KafkaError(ErrorCode.invalid_record, "there are no records")
        if replica.is_internal:
            raise KafkaError(
                ErrorCode.invalid_topic_exception, f"{replica}: clients do not write to internal topics"
            )
        leader = replica.require_leader()
        if produce.acks == ACKS_ALL:
            replica.require_min_isr()
        header = validate_produced(
            records,
            max_message_bytes=replica.settings.log.max_message_bytes,
            produce_version=produce.version,
        )
        if header.attributes & TRANSACTIONAL_BIT and transactional is not None and header.producer_id >= 0:
            batch = TransactionalBatch(produced, replica, leader.leader_epoch, records, header)
            transactional.append(batch)
            return
        examined = examination.look(produced, replica, leader.leader_epoch, records, header)
        if examined is None:
            return
        waiting = produced if produce.acks == ACKS_ALL else None
        produced.appended = replica.append(*examined, produce.now_ms, produce.wall_ms, waiting)
    except (KafkaError, OSError) as error:
        append_failed(produced, error, 0 if records is None else len(records))


def append_verified(batch: TransactionalBatch, examination: Examination, now_ms: int, wall_ms: int) -> None:
    """Append a batch of a transaction, leave it to `examination`, or set its error."""
    produced, replica, leader_epoch, records, header = batch
    try:
        examined = examination.look(produced, replica, leader_epoch, records, header)
        if examined is not None:
            append_in_epoch(produced, replica, leader_epoch, *examined, now_ms, wall_ms)
    except (KafkaError, OSError) as error:
        append_failed(produced, error, len(records))


def append_in_epoch(
    produced: ProducedPartition,
    replica: Replica,
    leader_epoch: LeaderEpoch,
    records: bytes | memoryview,
    header: BatchHeader,
    now_ms: int,
    wall_ms: TimestampMs,
) -> None:
    """Append a batch that had to wait, if this broker still leads in the batch's epoch.

    Raises:
        KafkaError: not_leader_or_follower, or what `Replica.append` raises.
    """
    if replica.require_leader().leader_epoch != leader_epoch:
        raise KafkaError(
            ErrorCode.not_leader_or_follower,
            f"{replica.topic_partition} got another leader epoch while its records were looked into",
        )
    waiting = produced if produced.settling.acks == ACKS_ALL else None
    produced.appended = replica.append(records, header, now_ms, wall_ms, waiting, produced.verification)


def append_failed(produced: ProducedPartition, error: KafkaError | OSError, byte_count: int) -> None:
    """Set the error of a partition whose batch was not appended."""
    failure = kafka_error(error)
    produced.fail(failure)
    if produced.replica is not None:
        if failure.error_code not in _WITHOUT_LOG_START_OFFSET:
            produced.log_start_offset = produced.replica.log.log_start_offset
        produced.replica.traffic.produce_failed(failure, byte_count)
