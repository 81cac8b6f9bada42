"""A broker whose disk fails: what clients and the controller are told, what is never tried again."""

import asyncio
import dataclasses
import errno
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest

from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.replicas import ClusterMembership, ControllerRequests, Replicas
from sparklog.node.metadata.schemas import DAMAGED_DIRECTORY, LOST_DIRECTORY, PartitionChangeRecord
from sparklog.node.storage.checkpoints import write_topic_id
from sparklog.node.storage.directory.log_directory import CLEAN_SHUTDOWN_MARKER, LogDirectory
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicIdPartition
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_log_upkeep import Clock, NoProposals
from tests.unit.executor.requests import batch, fetch, produce, rows

SOON = {"log.flush.offset.checkpoint.interval.ms": "1000"}


@contextmanager
def failing(name: str, error_number: int, *, of: str = "") -> Iterator[list[str]]:
    """Have one of os's calls on files whose path has `of` in it fail; yields the paths for which it did."""
    real = getattr(os, name)
    failed: list[str] = []

    def call(file: Any, *arguments: Any) -> Any:
        path = str(Path(f"/proc/self/fd/{file}").readlink()) if isinstance(file, int) else str(file)
        if of in path:
            failed.append(path)
            raise OSError(error_number, os.strerror(error_number), path)
        return real(file, *arguments)

    setattr(os, name, call)
    try:
        yield failed
    finally:
        setattr(os, name, real)


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let nobody make a file in a directory; skips where not even this process can be kept from it."""
    if os.geteuid() != 0:
        directory.chmod(0o555)
        try:
            yield
        finally:
            directory.chmod(0o755)
        return
    chattr = shutil.which("chattr") or "false"
    if subprocess.run([chattr, "+i", str(directory)], check=False, capture_output=True).returncode != 0:
        pytest.skip("no directory can be made immutable here")
    try:
        yield
    finally:
        subprocess.run([chattr, "-i", str(directory)], check=True)


async def described(brokers: Brokers) -> list[tuple[ErrorCode, int]]:
    """Return error code and number of partitions of broker 0's directories."""
    channel = await brokers.connect(0)
    response = await channel.request(DescribeLogDirsRequest(topics=None))
    return [
        (result.error_code, sum(len(topic.partitions) for topic in result.topics))
        for result in response.results
    ]


async def produce_one(brokers: Brokers, topic_id: UUID, *, partition: int = 0) -> ErrorCode:
    """Produce a record to broker 0."""
    channel = await brokers.connect(0)
    records = [None] * partition + [batch(value=b"x" * 5000)]
    answered = rows(await channel.request(produce(topic_id, *records)))
    error_code: ErrorCode = answered[0].error_code
    return error_code


@with_brokers(directories_each=2)
async def test_append_that_the_disk_refuses_takes_its_directory_offline_and_no_other(
    brokers: Brokers,
) -> None:
    """Client and controller are told, DescribeLogDirs says so; the other directory goes on."""
    topic_id = await brokers.create_topic("t", [(0,)] * 4)
    one, other = (directory.path for directory in brokers.brokers[0].directories)
    directory_of = [brokers.replica(0, topic_id, number).log.directory.parent for number in range(4)]
    assert sorted(directory_of) == sorted([one, one, other, other])
    victim, sound = directory_of.index(one), directory_of.index(other)
    with failing("pwritev", errno.EIO, of=f"{one}/"):
        assert await produce_one(brokers, topic_id, partition=victim) is ErrorCode.kafka_storage_error
    assert await produce_one(brokers, topic_id, partition=victim) is ErrorCode.kafka_storage_error
    assert await produce_one(brokers, topic_id, partition=sound) is ErrorCode.none
    assert [directory.path for directory in brokers.brokers[0].failed_directories] == [one]
    assert sorted(map(str, await described(brokers))) == sorted(
        map(str, [(ErrorCode.kafka_storage_error, 0), (ErrorCode.none, 2)])
    )
    assert sum(replica.offline for replica in brokers.brokers[0].replicas.table) == 2
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(topic_id, {victim: 0})))
    assert row.error_code is ErrorCode.kafka_storage_error


@with_brokers()
async def test_disk_that_is_full_refuses_the_append_and_keeps_what_was_there(brokers: Brokers) -> None:
    """A real limit of the system: the batch that does not fit leaves nothing behind."""
    topic_id = await brokers.create_topic("t", [(0,)])
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    log = brokers.replica(0, topic_id).log
    size_bytes = log.size_bytes
    with file_size_limit(size_bytes + 100):
        assert await produce_one(brokers, topic_id) is ErrorCode.kafka_storage_error
    assert brokers.brokers[0].directory.failure is not None
    assert next(log.directory.glob("*.log")).stat().st_size == size_bytes
    directory = brokers.brokers[0].directory.path
    await brokers.stop(0)
    assert not (directory / CLEAN_SHUTDOWN_MARKER).exists()
    await brokers.start(0)
    await brokers.commit()
    replica = brokers.replica(0, topic_id)
    assert (replica.log.log_end_offset, replica.log.missing) == (1, None)
    assert await produce_one(brokers, topic_id) is ErrorCode.none


@with_brokers(config={"log.flush.interval.messages": "1"})
async def test_fsync_that_failed_once_is_not_tried_again(brokers: Brokers) -> None:
    """Linux drops what it could not write and calls the next fsync good: the log would claim what is gone."""
    topic_id = await brokers.create_topic("t", [(0,)])
    clock = Clock(brokers)
    clock.tick(1000)
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    log = brokers.replica(0, topic_id).log
    with failing("fdatasync", errno.EIO, of=".log") as failed:
        clock.tick(1000)
        await clock.until(lambda: brokers.brokers[0].directory.failure is not None, "the failed fsync")
        clock.tick(1000)
        assert len(failed) == 1
    with pytest.raises(KafkaError, match="flush"):
        log.flush()
    assert log.recovery_point == 0
    assert await produce_one(brokers, topic_id) is ErrorCode.kafka_storage_error


@with_brokers(config=SOON)
async def test_directory_that_is_read_only_goes_offline_with_the_next_checkpoint(brokers: Brokers) -> None:
    """A directory gone read-only takes no new file; what open files take then is not to be trusted."""
    await brokers.create_topic("t", [(0,)])
    clock = Clock(brokers)
    with read_only(brokers.brokers[0].directory.path):
        clock.tick(2000)
        await clock.until(lambda: brokers.brokers[0].directory.failure is not None, "the failed directory")
    assert [failed.path for failed in brokers.brokers[0].failed_directories] == [
        brokers.brokers[0].directory.path
    ]


@with_brokers()
async def test_killed_broker_says_that_it_has_everything_unless_its_disk_had_failed(brokers: Brokers) -> None:
    """KIP-966 counts on it: after a failed disk the page cache proves nothing."""
    directory = brokers.brokers[0].directory
    directory.note_running(41)
    directory.close()
    again = LogDirectory.open(directory.path)
    assert (again.previous_stop, again.previous_broker_epoch) == (PreviousStop.KILLED, 41)
    again.fail(OSError(errno.EIO, "injected"))
    again.close()
    after_failure = LogDirectory.open(directory.path)
    assert (after_failure.previous_stop, after_failure.previous_broker_epoch) == (PreviousStop.UNKNOWN, None)
    after_failure.close()


@with_brokers(count=2)
async def test_replica_that_cannot_be_opened_is_told_to_be_lost(brokers: Brokers) -> None:
    """One wrong file is one partition's misfortune: another broker leads it, and this one serves on."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    directory = brokers.brokers[0].directory.path
    brokers.replica(0, topic_id).log.create_files()
    await brokers.stop(0)
    metadata = directory / "t-0" / "partition.metadata"
    content = metadata.read_bytes()
    metadata.write_bytes(content.replace(b"topic_id", b"topic-id"))
    await brokers.start(0)
    await brokers.commit()
    broker = brokers.brokers[0]
    assert broker.told_directories[0] == (TopicIdPartition(topic_id, 0), LOST_DIRECTORY)
    assert broker.replicas.reports.undeclared == 1
    assert await produce_one(brokers, topic_id, partition=1) is ErrorCode.none
    await brokers.commit(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id,
            leader=1,
            isr=(1,),
            directories=(LOST_DIRECTORY, UUID(int=1000)),
        )
    )
    assert broker.replicas.reports.undeclared == 0


@with_brokers(count=2)
async def test_leader_whose_records_no_follower_takes_looks_and_gives_up(brokers: Brokers) -> None:
    """A bit flips on the disk after the append: the leader learns of it by the follower that refuses it."""
    topic_id = await brokers.create_topic("t", [(0, 1)], config={"min.insync.replicas": "1"})
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, 0, [0])
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    leader = brokers.replica(0, topic_id)
    # In sync by the metadata, though not started again: the third replica of a story with two.
    await brokers.elect(topic_id, 0, 0, [0, 1])
    flip(leader.log.directory, at_offset=1)
    await brokers.start(1)
    await until(lambda: leader.damage is not None, "the leader that looks")
    assert leader.leadership is None
    assert brokers.brokers[0].told_directories[-1] == (TopicIdPartition(topic_id, 0), DAMAGED_DIRECTORY)
    assert brokers.replica(1, topic_id).log.log_end_offset == 1
    await brokers.elect(topic_id, 0, 1, [1])
    assert leader.log.log_end_offset == 1, "cut before the damage, to be fetched again"
    assert len(list(leader.log.directory.glob("*.cut-1"))) == 1
    channel = await brokers.connect(1)
    answered = rows(await channel.request(produce(topic_id, batch(3), acks=1)))
    assert answered[0].error_code is ErrorCode.none
    await until(lambda: leader.log.log_end_offset == 4, "the repaired follower")


@with_brokers(count=2)
async def test_leader_with_the_only_copy_refuses_what_is_damaged_and_serves_the_rest(
    brokers: Brokers,
) -> None:
    """Nobody else could lead; a byte with a bad CRC is not served for all that."""
    topic_id = await brokers.create_topic("t", [(0, 1)], config={"min.insync.replicas": "1"})
    await brokers.stop(1)
    await brokers.elect(topic_id, 0, 0, [0])
    for _ in range(3):
        assert await produce_one(brokers, topic_id) is ErrorCode.none
    leader = brokers.replica(0, topic_id)
    flip(leader.log.directory, at_offset=1)
    await brokers.start(1)
    await brokers.commit()
    await until(lambda: bool(leader.unreadable.ranges), "the leader that looks")
    channel = await brokers.connect(0)
    answers = [rows(await channel.request(fetch(topic_id, {0: offset})))[0] for offset in (0, 1, 2)]
    assert [row.error_code for row in answers] == [
        ErrorCode.none,
        ErrorCode.corrupt_message,
        ErrorCode.none,
    ]
    assert len(answers[0].records) < leader.log.size_bytes / 2


def flip(log_directory: Any, *, at_offset: int) -> None:
    """Flip a bit in the records of the batch with that offset; all batches are of a size."""
    path = next(log_directory.glob("*.log"))
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[8:12], "big") + 12
    content[at_offset * size + 100] ^= 1
    with path.open("r+b") as file:
        file.write(content)


@with_brokers(directories_each=2)
async def test_replica_found_in_two_directories_is_the_longer_one_and_the_other_is_removed(
    brokers: Brokers,
) -> None:
    """A disk that had failed is back with what it had then; the replica was made anew elsewhere."""
    topic_id = await brokers.create_topic("t", [(0,)])
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    log_directory = brokers.replica(0, topic_id).log.directory
    one, other = (directory.path for directory in brokers.brokers[0].directories)
    elsewhere = (other if log_directory.parent == one else one) / log_directory.name
    shutil.copytree(log_directory, elsewhere)
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    await brokers.stop(0)
    await brokers.start(0)
    await brokers.commit()
    log = brokers.replica(0, topic_id).log
    assert (log.directory, log.log_end_offset) == (log_directory, 2)
    assert not elsewhere.exists()
    assert [path.name.endswith("-stray") for path in elsewhere.parent.iterdir() if path.is_dir()] == [True]


@with_brokers()
async def test_failure_of_a_log_that_is_told_after_its_topic_was_deleted_concerns_no_other(
    brokers: Brokers,
) -> None:
    """A look-up by time runs beside the loop, and the topic may be deleted before it fails."""
    gone, kept = await brokers.create_topic("gone", [(0,)]), await brokers.create_topic("kept", [(0,)])
    one, another = brokers.replica(0, gone), brokers.replica(0, kept)
    await brokers.delete_topic(gone)
    one.fail_if_storage(KafkaError(ErrorCode.kafka_storage_error, "cannot look a time up: it was removed"))
    assert one.offline
    assert not another.offline
    broker = brokers.brokers[0]
    assert broker.failed_directories == []
    assert broker.replicas.reports.undeclared == 0, "there is nothing left that could be damaged"
    assert await produce_one(brokers, kept) is ErrorCode.none


@with_brokers(config={"log.flush.interval.messages": "1"})
async def test_refusal_that_says_nothing_of_the_disk_leaves_replica_and_directory_online(
    brokers: Brokers,
) -> None:
    """Descriptors run out, and are there again: that must not cost a broker its logs."""
    topic_id = await brokers.create_topic("t", [(0,)])
    replica = brokers.replica(0, topic_id)
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    clock = Clock(brokers)
    for refusal in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        replica.log.reconfigure(dataclasses.replace(replica.log.config, segment_bytes=6000))
        with failing("open", refusal, of="/t-0/") as refused:
            assert await produce_one(brokers, topic_id) is ErrorCode.kafka_storage_error
            clock.tick(1000)
            await clock.until(lambda: len(refused) > 1, "a flush that was refused")
        assert (replica.offline, brokers.brokers[0].directory.failure) == (False, None)
        assert await produce_one(brokers, topic_id) is ErrorCode.none
    end = replica.log.log_end_offset
    assert end == 4

    def flushed() -> bool:
        clock.tick(1000)
        return replica.log.recovery_point == end

    await until(flushed, "a flush")
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(fetch(topic_id, {0: 3})))
    assert row.error_code is ErrorCode.none


@with_brokers(count=2)
async def test_files_that_cannot_be_created_for_lack_of_descriptors_are_when_there_are_some(
    brokers: Brokers,
) -> None:
    """The first record is refused, as any other would be; the client sends it again."""
    broker = brokers.brokers[0]
    topic_id = await brokers.create_topic("t", [(0, 1)])
    with failing("open", errno.EMFILE, of="broker-0/t-0/") as refused:
        assert await produce_one(brokers, topic_id) is ErrorCode.kafka_storage_error
    assert refused
    assert (broker.failed_directories, brokers.replica(0, topic_id).offline) == ([], False)
    assert await produce_one(brokers, topic_id) is ErrorCode.none


@with_brokers(count=2)
async def test_log_whose_name_is_taken_on_the_disk_is_lost_with_its_first_record(brokers: Brokers) -> None:
    """A deletion may have left its directory: the leader refused its producers until a restart."""
    broker = brokers.brokers[0]
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    logs = [brokers.replica(0, topic_id, partition).log for partition in (0, 1)]
    logs[0].directory.touch()
    logs[1].directory.mkdir()
    write_topic_id(logs[1].directory / "partition.metadata", UUID(int=1))
    for partition in (0, 1):
        assert await produce_one(brokers, topic_id, partition=partition) is ErrorCode.kafka_storage_error
        assert brokers.replica(0, topic_id, partition).offline
    assert broker.failed_directories == []
    assert broker.told_directories == [(TopicIdPartition(topic_id, each), LOST_DIRECTORY) for each in (0, 1)]


@with_brokers(count=2)
async def test_log_that_cannot_be_opened_for_lack_of_descriptors_is_opened_when_there_are_some(
    brokers: Brokers,
) -> None:
    """The controller hears that it is lost, so that others lead; but that must not be for ever."""
    topic_id = await brokers.create_topic("t", [(0, 1), (0, 1)])
    for partition in (0, 1):
        brokers.replica(0, topic_id, partition).log.create_files()
    path = brokers.brokers[0].directory.path
    await brokers.stop(0)
    for partition in (0, 1):
        (path / f"t-{partition}" / "partition.metadata").write_bytes(b"")
    with failing("open", errno.EMFILE, of="partition.metadata") as refused:
        await brokers.start(0)
        await brokers.commit()
        clock, broker = Clock(brokers), brokers.brokers[0]
        told = {(TopicIdPartition(topic_id, number), LOST_DIRECTORY) for number in (0, 1)}
        assert set(broker.told_directories) == told
        tried = len(refused)
        clock.tick(1000)
        await clock.until(lambda: len(refused) > tried, "another try")
    assert len(broker.replicas.table) == 0

    def there() -> bool:
        clock.tick(1000)
        return len(broker.replicas.table) == 2 and broker.replicas.reports.undeclared == 0

    await until(there, "both logs, and nothing that the controller would have to hear")
    assert broker.failed_directories == []
    for partition in (0, 1):
        assert await produce_one(brokers, topic_id, partition=partition) is ErrorCode.none


@with_brokers(directories_each=2)
async def test_start_without_descriptors_fails_and_leaves_every_directory_as_it_was(brokers: Brokers) -> None:
    """Taken for a disk that failed, the directory's replicas were made anew in the other, without records."""
    topic_id = await brokers.create_topic("t", [(0,)] * 2)
    for partition in (0, 1):
        assert await produce_one(brokers, topic_id, partition=partition) is ErrorCode.none
    paths = [directory.path for directory in brokers.brokers[0].directories]
    refused = brokers.replica(0, topic_id).log.directory
    await brokers.stop(0)
    for path in paths:
        directory = LogDirectory.open(path)
        directory.write_clean_shutdown(7)
        directory.close()
    opened = [LogDirectory.open(path) for path in paths]
    suspicions = BrokerSuspicions(asyncio.get_running_loop())
    replicas = Replicas(
        ClusterMembership(broker_id=0, broker_epoch=lambda: None),
        ControllerRequests(isr_proposer=NoProposals()),
        opened,
        brokers.config,
        suspicions,
    )
    with (
        failing("open", errno.EMFILE, of=f"{refused}/"),
        pytest.raises(KafkaError, match="RLIMIT_NOFILE"),
    ):
        await replicas.start()
    await replicas.shutdown()
    assert [directory.failure for directory in opened] == [None, None]
    for directory in opened:
        directory.close()
    for path in paths:
        directory = LogDirectory.open(path)
        assert (directory.previous_stop, directory.previous_broker_epoch) == (PreviousStop.CLEAN, 7)
        directory.close()
    await brokers.start(0)
    await brokers.commit()
    for partition in (0, 1):
        log = brokers.replica(0, topic_id, partition).log
        assert (log.log_end_offset, log.missing) == (1, None)


@with_brokers(directories_each=2)
async def test_directory_that_has_gone_altogether_is_offline_and_the_other_is_not(brokers: Brokers) -> None:
    """A volume that was unmounted says ENOENT, as a file does that somebody else took."""
    topic_id = await brokers.create_topic("t", [(0,)] * 2)
    log = brokers.replica(0, topic_id).log
    assert await produce_one(brokers, topic_id) is ErrorCode.none
    shutil.rmtree(log.directory.parent)
    log.reconfigure(dataclasses.replace(log.config, segment_bytes=6000))
    assert await produce_one(brokers, topic_id) is ErrorCode.kafka_storage_error
    assert [failed.path for failed in brokers.brokers[0].failed_directories] == [log.directory.parent]
    assert await produce_one(brokers, topic_id, partition=1) is ErrorCode.none


@with_brokers(directories_each=2)
async def test_volume_that_does_not_say_how_large_it_is_holds_up_nobody_else(brokers: Brokers) -> None:
    """A network's file system may hang, or fail: of the one nothing is known, the other is as ever."""
    channel, other = await brokers.connect(0), await brokers.connect(0)
    hanging, sound = sorted(str(each.path) for each in brokers.brokers[0].replicas.store.directories)
    may_answer = threading.Event()
    asked: list[str] = []
    real = shutil.disk_usage

    def disk_usage(path: Path) -> Any:
        if str(path) == hanging:
            asked.append(hanging)
            may_answer.wait()
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return real(path)

    with patch.object(shutil, "disk_usage", disk_usage):
        try:
            waiting = [channel.request(DescribeLogDirsRequest(topics=None)) for _ in range(2)]
            await until(lambda: bool(asked), "the volume is asked")
            await other.request(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
            assert not waiting[0].done()
        finally:
            may_answer.set()
        for response in await asyncio.gather(*waiting):
            codes = {row.log_dir: row.error_code for row in response.results}
            assert codes == {hanging: ErrorCode.kafka_storage_error, sound: ErrorCode.none}
