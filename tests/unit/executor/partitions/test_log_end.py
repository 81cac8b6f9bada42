"""How far a replica's log reaches, asked of one that need not lead."""

from pathlib import Path

import pytest

from sparklog.executor.partitions.log_end import log_end, position_of
from sparklog.node.metadata.schemas import NO_LEADER, PartitionChangeRecord
from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.storage import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, with_brokers


@with_brokers()
async def test_partition_without_a_leader_says_where_its_log_ends(brokers: Brokers) -> None:
    """The controller names the epoch in which there is no leader: an older image may still have one."""
    topic_id = await brokers.create_topic("t", [(0,)])
    table = brokers.brokers[0].replicas.table
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NO_LEADER, isr=()))
    assert log_end(table, "t", 0, 1) == EMPTY_LOG
    for topic, partition, leader_epoch, error_code in (
        ("t", 0, 0, ErrorCode.fenced_leader_epoch),
        ("t", 0, 2, ErrorCode.unknown_leader_epoch),
        ("t", 1, 1, ErrorCode.unknown_topic_or_partition),
        ("u", 0, 1, ErrorCode.unknown_topic_or_partition),
    ):
        with pytest.raises(KafkaError) as raised:
            log_end(table, topic, partition, leader_epoch)
        assert raised.value.error_code is error_code
    brokers.replica(0, topic_id).go_offline()
    with pytest.raises(KafkaError) as raised:
        log_end(table, "t", 0, 1)
    assert raised.value.error_code is ErrorCode.kafka_storage_error


def test_epoch_in_which_nothing_was_written_is_not_that_of_the_last_record(tmp_path: Path) -> None:
    """A log would seem to reach further than one with the newest record."""
    log = Log.open(tmp_path / "t-0", LogConfig(), now_ms=0)
    log.assign_leader_epoch(2)
    assert position_of(log) == EMPTY_LOG
    batches = [build_batch([SimpleRecord(value=b"a")], base_offset=at, leader_epoch=3) for at in (0, 1)]
    log.append_as_follower(b"".join(batches), 0)
    log.assign_leader_epoch(7)
    assert position_of(log) == LogPosition(3, 2)
    log.close()
