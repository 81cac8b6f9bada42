"""Appending what a Produce brought for one partition: may it be, is it sound, where did it go.

The order of the questions is the order of the errors: whether the topic takes records of clients, whether
this broker leads, what the header says (`validate_produced`), what the records say (`produce_examination`),
whether enough replicas are in sync, whether the producer's sequence goes on.
"""

from executor.api.machine.delayed_produce import ACKS_ALL, ProducedPartition
from executor.api.produce_examination import Examination
from executor.partitions.table import PartitionTable
from sparklog.errors import ErrorCode, KafkaError, kafka_error
from sparklog.records.batch import CODEC_BITS, TRANSACTIONAL_BIT, validate_produced

__all__ = ["append_failed", "append_produced"]


def append_produced(
    produced: ProducedPartition,
    records: bytes | memoryview | None,
    table: PartitionTable,
    examination: Examination,
) -> None:
    """Append what came for one partition, or leave it to `examination`, or note what is wrong with it."""
    produce = produced.produce
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
        leader = replica.leading()
        settings = replica.settings
        header = validate_produced(
            records,
            now_ms=produce.wall_ms,
            max_message_bytes=settings.log.max_message_bytes,
            produce_version=produce.version,
            log_append_time=settings.log.log_append_time,
            timestamp_before_max_ms=settings.timestamp_before_max_ms,
            timestamp_after_max_ms=settings.timestamp_after_max_ms,
        )
        if header.attributes & TRANSACTIONAL_BIT:
            raise KafkaError(ErrorCode.invalid_txn_state, "transactions are not served")
        if (header.attributes & CODEC_BITS or settings.examines_all) and not examination.is_done(
            produced, replica, leader.leader_epoch, records, header
        ):
            return
        waiting = produced if produce.acks == ACKS_ALL else None
        produced.appended = replica.append(records, header, produce.now_ms, produce.wall_ms, waiting)
    except (KafkaError, OSError) as error:
        append_failed(produced, error, 0 if records is None else len(records))


def append_failed(produced: ProducedPartition, error: KafkaError | OSError, byte_count: int) -> None:
    """Note why what came for one partition was not appended."""
    failure = kafka_error(error)
    produced.fail(failure)
    if produced.replica is not None:
        produced.replica.traffic.produce_failed(failure, byte_count)
