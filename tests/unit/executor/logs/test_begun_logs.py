"""Replicas whose logs have no files: restarts, directories, checkpoints, followers."""

import shutil
from pathlib import Path
from uuid import UUID

from sparklog.executor.log_dir_moves.directory_moves import DirectoryMoves
from sparklog.node.metadata.schemas import LOST_DIRECTORY, PartitionChangeRecord
from sparklog.node.storage.checkpoints import read_offsets
from sparklog.node.storage.directory.log_directory import CLEAN_SHUTDOWN_MARKER
from sparklog.protocol.types import TopicIdPartition, TopicPartition
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_log_upkeep import HIGH_WATERMARKS, RECOVERY_POINTS, Clock, append

SOON = {
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "1000",
}


def logs_below(brokers: Brokers, broker_id: int = 0) -> list[str]:
    """Return the directories of logs in all directories of a broker."""
    directories = brokers.brokers[broker_id].directories
    return sorted(f"{each.path.name}/{path.name}" for each in directories for path in each.path.glob("t-*"))


def place_of(brokers: Brokers, topic_id: UUID, partition: int) -> Path:
    return brokers.replica(0, topic_id, partition).log.directory.parent


@with_brokers(count=2)
async def test_topic_has_directories_with_its_first_record_on_leader_and_follower(brokers: Brokers) -> None:
    """The topic is led and followed before, and after a restart that finds nothing on the disk."""
    topic_id = await brokers.create_topic("t", [(0, 1), (1, 0)])
    assert (logs_below(brokers, 0), logs_below(brokers, 1)) == ([], [])
    for broker_id in (0, 1):
        await brokers.stop(broker_id)
        await brokers.start(broker_id)
    await append(brokers, topic_id, 3)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 3, "the follower's records")
    assert (logs_below(brokers, 0), logs_below(brokers, 1)) == (["broker-0/t-0"], ["broker-1/t-0"])
    await brokers.stop(0)
    await brokers.start(0)
    assert brokers.replica(0, topic_id).log.log_end_offset == 3


@with_brokers(config=SOON)
async def test_log_without_files_is_in_no_checkpoint(brokers: Brokers) -> None:
    """Tools that read the checkpoints of Kafka look for the directories that these name."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    await append(brokers, topic_id, 3)
    clock = Clock(brokers)
    clock.tick(1000)
    path = brokers.brokers[0].directory.path

    def is_written() -> bool:
        return all((path / name).exists() for name in (RECOVERY_POINTS, HIGH_WATERMARKS))

    await clock.until(is_written, "the checkpoints")
    assert [read_offsets(path / name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)] == [
        {TopicPartition("t", 0): 0},
        {TopicPartition("t", 0): 3},
    ]


@with_brokers(directories_each=2)
async def test_log_without_files_is_after_a_restart_in_the_directory_that_the_metadata_names(
    brokers: Brokers,
) -> None:
    """Nothing on the disk says so, and another place would be a change for the controller to commit."""
    topic_id = await brokers.create_topic("t", [(0,)] * 4)
    broker = brokers.brokers[0]
    second = broker.directories[1].meta
    assert second is not None
    for partition in range(4):
        await brokers.commit(
            PartitionChangeRecord(
                partition_id=partition, topic_id=topic_id, directories=(second.directory_id,)
            )
        )
    await brokers.stop(0)
    await brokers.start(0)
    broker = brokers.brokers[0]
    assert {place_of(brokers, topic_id, number) for number in range(4)} == {broker.directories[1].path}
    assert broker.replicas.reports.undeclared == 0


@with_brokers(directories_each=2)
async def test_log_without_files_moves_to_another_directory(brokers: Brokers) -> None:
    """AlterReplicaLogDirs may come before the first record."""
    topic_id = await brokers.create_topic("t", [(0,)])
    broker = brokers.brokers[0]
    here = place_of(brokers, topic_id, 0)
    (there,) = (each for each in broker.directories if each.path != here)
    moves: DirectoryMoves = broker.replicas.directory_moves
    wanted = moves.wanted(TopicPartition("t", 0), str(there.path))
    assert wanted is not None
    await moves.move(*wanted)
    assert there.meta is not None
    told = there.meta.directory_id
    await until(lambda: told in [each for _, each in broker.told_directories], "the controller is asked")
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=(told,)))
    await until(lambda: place_of(brokers, topic_id, 0) == there.path, "the move")
    await append(brokers, topic_id, 2)
    assert (there.path / "t-0").exists()
    assert not (here / "t-0").exists()


@with_brokers(count=2)
async def test_topic_that_is_deleted_and_created_again_before_a_record_is_served(brokers: Brokers) -> None:
    """Deletion has no directory to rename, and the new topic owes the old one nothing."""
    await brokers.delete_topic(await brokers.create_topic("t", [(0, 1)]))
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await append(brokers, topic_id, 2)
    await brokers.delete_topic(topic_id)
    again = await brokers.create_topic("t", [(0, 1)])
    assert [name for name in logs_below(brokers) if not name.endswith("-delete")] == []
    await append(brokers, again, 1)
    assert brokers.replica(0, again).log.log_end_offset == 1
    assert brokers.brokers[0].failed_directories == []


@with_brokers(count=2)
async def test_log_whose_directory_has_gone_since_a_clean_stop_is_not_taken_for_one_without_records(
    brokers: Brokers,
) -> None:
    """It was in sync, and could be elected with nothing: acknowledged records were lost."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    await append(brokers, topic_id, 3)
    follower = brokers.replica(1, topic_id)
    await until(lambda: follower.log.log_end_offset == 3, "the follower's records")
    path = brokers.replica(0, topic_id).log.directory
    await brokers.stop(0)
    (path.parent / CLEAN_SHUTDOWN_MARKER).touch()
    shutil.rmtree(path)
    await brokers.start(0)
    await brokers.commit()
    assert brokers.brokers[0].told_directories == [(TopicIdPartition(topic_id, 0), LOST_DIRECTORY)]


@with_brokers()
async def test_topic_with_the_name_of_a_log_that_has_gone_is_a_new_one(brokers: Brokers) -> None:
    """Records of its namesake are no loss of this one."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await append(brokers, topic_id, 3)
    path = brokers.replica(0, topic_id).log.directory
    await brokers.stop(0)
    (path.parent / CLEAN_SHUTDOWN_MARKER).touch()
    shutil.rmtree(path)
    await brokers.delete_topic(topic_id)
    await brokers.start(0)
    again = await brokers.create_topic("t", [(0,)])
    assert brokers.replica(0, again).log.missing is None
