"""The ends of replicas' logs, for a controller that looks for the longest one (KIP-966)."""

from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import LeaderEpoch


def log_end(table: PartitionTable, topic: str, partition: int, leader_epoch: LeaderEpoch) -> LogPosition:
    """Return where the log ends and the leader epoch of its last record; the replica need not lead.

    Raises:
        KafkaError: fenced_leader_epoch, unknown_leader_epoch: this broker's image is of another one;
            not_leader_or_follower, kafka_storage_error, or what `PartitionTable.find` raises.
    """
    replica = table.find(topic, partition)
    if replica.offline:
        raise KafkaError(ErrorCode.kafka_storage_error, f"{replica} is offline after an I/O error")
    if replica.leader_epoch is None:
        raise KafkaError(ErrorCode.unknown_leader_epoch, f"{replica} knows of no leader epoch yet")
    check_leader_epoch(leader_epoch, replica.leader_epoch)
    return position_of(replica.log)


def position_of(log: Log) -> LogPosition:
    end_offset = log.log_end_offset
    if end_offset == 0:
        return EMPTY_LOG
    # Not simply the latest epoch: nothing may have been written in that one.
    last_epoch = log.epochs.epoch_at(end_offset - 1)
    if last_epoch is None:
        last_epoch = log.epochs.latest
    return LogPosition(EMPTY_LOG.last_epoch if last_epoch is None else last_epoch, end_offset)
