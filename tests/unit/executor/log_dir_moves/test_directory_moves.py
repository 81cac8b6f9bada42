"""Replicas move between the directories of their broker: nobody notices, whatever happens on the way."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest

from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.schemas import LOST_DIRECTORY, ConfigRecord, PartitionChangeRecord, ResourceType
from sparklog.node.storage.directory.meta_properties import read_meta_properties
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_cleaning import COMPACTED, START_MS, put
from tests.unit.executor.logs.test_disk_failures import failing
from tests.unit.executor.logs.test_log_upkeep import Clock
from tests.unit.executor.requests import batch, delete_records, fetch, produce, rows
from tests.unit.executor.tiers import Tier
from tests.unit.sparklog.node.storage.cleanings import clean_round, records_from
from tests.unit.sparklog.node.storage.test_cleaning import DAY_MS

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
MEBIBYTE = b"x" * 1_000_000


def alter(path: str | Path, *partitions: int, topic: str = "t") -> AlterReplicaLogDirsRequest:
    """The request to have partitions lie in the directory at `path`."""
    topics = (AlterReplicaLogDirTopic(name=topic, partitions=partitions or (0,)),)
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=str(path), topics=topics),))


class Scene:
    """A topic of one partition on broker 0, and where it lies of the broker's directories."""

    def __init__(self, brokers: Brokers, topic_id: UUID, channel: Channel) -> None:
        self.brokers = brokers
        self.topic_id = topic_id
        self.channel = channel

    @classmethod
    async def begin(
        cls, brokers: Brokers, *batches: bytes, replicas: tuple[int, ...] = (0,), **config: str
    ) -> "Scene":
        """Make the topic, with those batches in it, and have the controller told where it lies."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic_id = await brokers.create_topic("t", [replicas], settings)
        scene = cls(brokers, topic_id, await brokers.connect(0))
        for records in batches:
            await scene.produce(records)
        await scene.accept()
        return scene

    @property
    def paths(self) -> tuple[Path, Path]:
        """Where the replica lies, and where it doesn't."""
        lies_in = Path(self.replica.log.parent)
        (other,) = [each.path for each in self.brokers.brokers[0].directories if each.path != lies_in]
        return lies_in, other

    @property
    def replica(self) -> Any:
        return self.brokers.replica(0, self.topic_id)

    def id_of(self, path: Path) -> UUID:
        """Return the directory's id."""
        (found,) = [each.meta for each in self.brokers.brokers[0].directories if each.path == path]
        assert found is not None
        return found.directory_id

    @property
    def told(self) -> UUID | None:
        """What the broker told the controller last of where the replica lies."""
        told = self.brokers.brokers[0].told_directories
        return told[-1][1] if told else None

    async def produce(self, *records: bytes, expect: ErrorCode = ErrorCode.none) -> None:
        for each in records:
            (row,) = rows(await self.channel.request(produce(self.topic_id, each)))
            assert row.error_code == expect

    async def alter(self, path: str | Path, *partitions: int, topic: str = "t") -> list[ErrorCode]:
        """Ask for a move; return the answers."""
        answer = await self.channel.request(alter(path, *partitions, topic=topic))
        return [row.error_code for result in answer.results for row in result.partitions]

    async def accept(self) -> None:
        """The controller notes what it was told last."""
        if self.told is not None:
            registration = self.brokers.image.topics.partition(self.topic_id, 0)
            assert registration is not None
            directories = tuple(self.told if broker == 0 else None for broker in registration.replicas)
            await self.brokers.commit(
                PartitionChangeRecord(partition_id=0, topic_id=self.topic_id, directories=directories)
            )

    async def caught_up(self, path: Path) -> None:
        """Return when the controller has been told that the replica is about to lie there."""
        await until(lambda: self.told == self.id_of(path), "the controller is told")

    async def moved(self, path: Path) -> None:
        """Have the controller accept the move, and return when it is over and nothing is left behind."""
        await self.caught_up(path)
        await self.accept()
        await until(lambda: Path(self.replica.log.parent) == path, "the replica lies there")
        _, other = self.paths
        await until(lambda: logs_in(other) == [], "the other log has gone")

    async def base_offsets(self, channel: Channel | None = None) -> list[int]:
        """Read everything as a consumer does; return where batches begin."""
        found: list[int] = []
        offset, end_offset = self.replica.log.log_start_offset, self.replica.log.log_end_offset
        while offset < end_offset:
            request = fetch(self.topic_id, {0: offset}, max_wait_ms=100, max_bytes=1 << 22)
            (row,) = rows(await (channel or self.channel).request(request))
            assert row.error_code == ErrorCode.none
            for _, header in iterate_headers(memoryview(row.records)):
                found.append(header.base_offset)
                offset = header.next_offset
        return found

    async def described(self) -> dict[Path, list[tuple[bool, int]]]:
        """Return, by directory, whether what lies there is a copy, and how far it is behind."""
        answer = await self.channel.request(DescribeLogDirsRequest(topics=None))
        return {
            Path(result.log_dir): [
                (partition.is_future_key, partition.offset_lag)
                for topic in result.topics
                for partition in topic.partitions
            ]
            for result in answer.results
        }


def id_in(path: Path) -> UUID:
    """Return the id of a directory that nobody has open."""
    meta = read_meta_properties(path)
    assert meta is not None
    return meta.directory_id


def logs_in(path: Path) -> list[str]:
    """Return the names of the logs in a directory, those left out that are deleted."""
    return sorted(
        entry.name.partition(".")[0] + ("-future" if entry.name.endswith("-future") else "")
        for entry in path.iterdir()
        if entry.is_dir() and not entry.name.endswith("-delete")
    )


@with_brokers(directories_each=2)
async def test_replica_lies_in_its_new_directory_when_the_metadata_says_so_and_not_before(
    brokers: Brokers,
) -> None:
    """KIP-858: a controller must not count with a directory that the replica has left."""
    scene = await Scene.begin(brokers, batch(10), batch(20))
    source, target = scene.paths
    assert await scene.alter(target) == [ErrorCode.none]
    await scene.caught_up(target)
    assert await scene.described() == {source: [(False, 0)], target: [(True, 0)]}
    assert (logs_in(source), logs_in(target)) == (["t-0"], ["t-0-future"])
    assert scene.replica.log.parent == str(source)
    await scene.produce(batch(5))
    await scene.moved(target)
    assert await scene.described() == {source: [], target: [(False, 0)]}
    assert logs_in(target) == ["t-0"]
    await scene.produce(batch(5))
    assert await scene.base_offsets() == [0, 10, 30, 35]


@with_brokers(directories_each=2)
async def test_move_under_load_loses_nothing_and_fails_no_request(brokers: Brokers) -> None:
    """Clients write and read all the while, back and forth, and see nothing of it."""
    scene = await Scene.begin(brokers, *[batch(10, MEBIBYTE[:20_000]) for _ in range(20)])
    reader = await brokers.connect(0)
    is_over = False
    appended = 20

    async def load() -> None:
        nonlocal appended
        while not is_over:
            await scene.produce(batch(10, MEBIBYTE[:2_000]))
            appended += 1

    loading = asyncio.ensure_future(load())
    channel = await brokers.connect(0)
    for _ in range(3):
        _, target = scene.paths
        answer = await channel.request(alter(target))
        assert answer.results[0].partitions[0].error_code == ErrorCode.none
        await scene.moved(target)
        offsets = await scene.base_offsets(reader)
        assert offsets == list(range(0, 10 * len(offsets), 10))
    is_over = True
    await loading
    assert await scene.base_offsets(reader) == list(range(0, 10 * appended, 10))


@with_brokers(
    directories_each=2,
    config={"sparklog.remote.uri": "file:///unused", "log.retention.check.interval.ms": "1000"},
    owner_epoch=None,
)
async def test_move_of_a_tiered_log_begins_where_its_files_do(brokers: Brokers) -> None:
    """The copy has the log's start and epochs, and no file of what is in the tier alone."""
    scene = await Scene.begin(
        brokers, *[batch(1, MEBIBYTE[:600])] * 6, internal_segment_bytes="1000", local_retention_bytes="0"
    )
    before = scene.replica.log
    tier = scene.replica.tier = Tier.of(scene.replica)
    tier.tiered_end_offset = 4
    clock = Clock(brokers)
    clock.tick(1000)
    await clock.until(lambda: before.local_log_start_offset == 4, "local retention")
    _, target = scene.paths
    await scene.alter(target)
    await scene.moved(target)
    after = scene.replica.log
    assert after is not before
    assert (after.log_start_offset, after.local_log_start_offset, after.log_end_offset) == (0, 4, 6)
    assert after.epochs.entries == before.epochs.entries


@with_brokers(count=2, directories_each=2)
async def test_move_of_a_follower_goes_on_over_elections_and_cuts(brokers: Brokers) -> None:
    """What a follower cuts its copy cuts too, by the epochs, whatever was copied meanwhile."""
    scene = await Scene.begin(brokers, batch(2), replicas=(0, 1))
    _, target = scene.paths
    await brokers.stop(1)
    await scene.channel.request(produce(scene.topic_id, batch(3), acks=1))
    assert await scene.alter(target) == [ErrorCode.none]
    await scene.caught_up(target)
    assert scene.replica.future.log.log_end_offset == 5
    await brokers.elect(scene.topic_id, 0, leader=1, isr=[1])
    await brokers.start(1)
    writer = await brokers.connect(1)
    await writer.request(produce(scene.topic_id, batch(1, b"other"), acks=1))
    await writer.request(produce(scene.topic_id, batch(4, b"other"), acks=1))
    await until(lambda: scene.replica.log.log_end_offset == 7, "the follower has cut its log")
    await scene.moved(target)
    logs = [brokers.replica(broker_id, scene.topic_id).log for broker_id in (0, 1)]
    regions = [log.read(0, max_bytes=1 << 20, up_to_offset=7).region for log in logs]
    assert len({region.read() for region in regions if region is not None}) == 1
    assert logs[0].epochs.entries == logs[1].epochs.entries
    await writer.request(produce(scene.topic_id, batch(1), acks=1))
    await until(lambda: scene.replica.log.log_end_offset == 8, "it follows with the log it has now")


@with_brokers(directories_each=2)
async def test_second_request_calls_the_first_off(brokers: Brokers) -> None:
    """To the directory where it lies; the controller, told of the other, is told that it stays."""
    scene = await Scene.begin(brokers, batch(10))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    assert await scene.alter(source) == [ErrorCode.none]
    assert await scene.described() == {source: [(False, 0)], target: []}
    await scene.accept()  # it was on its way
    await scene.caught_up(source)
    await until(lambda: logs_in(target) == [], "the copy has gone")
    assert scene.replica.log.parent == str(source)
    assert await scene.alter(source) == [ErrorCode.none]
    assert await scene.alter(target) == [ErrorCode.none]
    await scene.moved(target)
    assert await scene.base_offsets() == [0]


@with_brokers(directories_each=2, config={RATE: "1"})
async def test_move_goes_on_after_a_restart_with_what_it_has(brokers: Brokers) -> None:
    """A large log is not copied anew for it."""
    scene = await Scene.begin(brokers, *[batch(1, MEBIBYTE) for _ in range(3)])
    source, target = scene.paths
    await scene.alter(target)
    await until(lambda: scene.replica.future.log.log_end_offset > 0, "something is copied")
    copied = scene.replica.future.log.log_end_offset
    assert copied < 3
    await brokers.stop(0)
    assert (logs_in(source), logs_in(target)) == (["t-0"], ["t-0-future"])
    await brokers.start(0)
    assert scene.replica.future.log.log_end_offset >= copied
    await brokers.commit(
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="0", name=RATE, value=str(1 << 40))
    )
    scene.channel = await brokers.connect(0)
    await scene.moved(target)
    assert await scene.base_offsets() == [0, 1, 2]


@with_brokers(directories_each=2, config={RATE: "1"})
async def test_copy_is_flushed_and_closed_by_a_clean_stop(brokers: Brokers) -> None:
    """The next start takes all logs of a directory that was stopped cleanly for whole, copies too."""
    scene = await Scene.begin(brokers, *[batch(1, MEBIBYTE) for _ in range(3)])
    await scene.alter(scene.paths[1])
    await until(lambda: scene.replica.future.log.log_end_offset > 0, "something is copied")
    copy = scene.replica.future.log
    await brokers.stop(0)
    assert copy.recovery_point == copy.log_end_offset
    assert [index.stat().st_size for index in copy.directory.glob("*.index")] == [0]


@with_brokers(directories_each=2, config={RATE: "1"})
async def test_rate_holds_copies_back_and_can_be_raised_while_they_wait(brokers: Brokers) -> None:
    """replica.alter.log.dirs.io.max.bytes.per.second, as kafka-reassign-partitions sets and removes it."""
    scene = await Scene.begin(brokers, *[batch(1, MEBIBYTE) for _ in range(5)])
    _, target = scene.paths
    await scene.alter(target)
    await until(lambda: scene.replica.future.log.log_end_offset > 0, "it begins")
    lag = (await scene.described())[target][0][1]
    assert 0 < lag < 5
    await brokers.commit(
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="0", name=RATE, value=str(1 << 40))
    )
    await scene.moved(target)
    assert await scene.base_offsets() == [0, 1, 2, 3, 4]


@with_brokers(directories_each=2)
async def test_move_ends_with_its_topic(brokers: Brokers) -> None:
    """Nothing of it stays, and a topic of that name begins anew."""
    scene = await Scene.begin(brokers, batch(10))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    await brokers.delete_topic(scene.topic_id)
    await until(lambda: logs_in(source) == logs_in(target) == [], "both logs have gone")
    again = await Scene.begin(brokers, batch(1))
    assert await again.base_offsets() == [0]
    assert again.replica.future is None


@with_brokers(count=2, directories_each=2)
async def test_move_ends_when_the_partition_moves_away(brokers: Brokers) -> None:
    """Neither log is this broker's any more."""
    scene = await Scene.begin(brokers, batch(10), replicas=(0, 1))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    await brokers.commit(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=scene.topic_id,
            replicas=(1,),
            isr=(1,),
            leader=1,
            directories=(None,),
        )
    )
    await until(lambda: logs_in(source) == logs_in(target) == [], "both logs have gone")


@with_brokers(directories_each=2)
async def test_records_that_are_deleted_meanwhile_are_deleted_in_the_copy(brokers: Brokers) -> None:
    """Also where the log's new start lies above all that was copied, or within a batch."""
    scene = await Scene.begin(brokers, *[batch(10) for _ in range(5)])
    _, target = scene.paths
    await scene.channel.request(delete_records("t", 15))
    await scene.alter(target)
    await scene.caught_up(target)
    assert scene.replica.future.log.log_end_offset == 50
    await scene.produce(batch(10))
    await scene.channel.request(delete_records("t", 55))
    await scene.moved(target)
    log = scene.replica.log
    assert (log.log_start_offset, log.log_end_offset) == (55, 60)
    assert await scene.base_offsets() == [50]
    await brokers.stop(0)
    await brokers.start(0)
    assert scene.replica.log.log_start_offset == 55


@with_brokers(directories_each=2)
async def test_producers_are_known_in_the_new_directory_though_their_records_are_gone(
    brokers: Brokers,
) -> None:
    """With idempotence on, a batch is in the log once, whatever is retried."""
    scene = await Scene.begin(brokers)
    first, second = (
        batch(1, producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in range(2)
    )
    await scene.produce(first, batch(1))
    await scene.channel.request(delete_records("t", 1))
    _, target = scene.paths
    await scene.alter(target)
    await scene.moved(target)
    await scene.produce(first, second)
    assert scene.replica.log.log_end_offset == 3


@with_brokers(directories_each=2)
async def test_look_up_under_way_in_the_log_that_was_goes_on_in_the_one_that_is(brokers: Brokers) -> None:
    """ListOffsets, or a read that waits for a cold disk: its client is not told to ask for metadata again."""
    scene = await Scene.begin(brokers, batch(10))
    before = scene.replica.log
    _, target = scene.paths
    await scene.alter(target)
    await scene.moved(target)
    await scene.produce(batch(10))
    await until(lambda: before.directory.name.endswith("-delete"), "the other log is closed")
    found = before.read(0, max_bytes=1 << 20, up_to_offset=20)
    assert (found.next_offset, found.region is None) == (20, False)
    latest = before.offset_for_timestamp(-3, 20)
    assert latest is not None
    assert latest.offset in range(20)


@with_brokers(directories_each=2, config={"log.cleaner.backoff.ms": "1000"})
async def test_log_is_not_compacted_while_it_is_copied_and_is_as_clean_afterwards(brokers: Brokers) -> None:
    """A copy with records that the log has no more would have them come back when the tombstones go."""
    scene = await Scene.begin(brokers, **{**COMPACTED, "file_delete_delay_ms": "0"})
    await put(brokers, scene.topic_id, 60)
    log = scene.replica.log
    assert clean_round(log, START_MS) is not None
    cleaned_offset = log.cleaned_offset
    _, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    await put(brokers, scene.topic_id, 60)
    clock = Clock(brokers)
    for _ in range(3):
        clock.tick(1000)
        await clock.until(lambda: True, "a tick")
    assert log.cleaned_offset == cleaned_offset
    records = records_from(log, 0)
    await scene.moved(target)
    assert scene.replica.log.cleaned_offset == cleaned_offset
    assert records_from(scene.replica.log, 0) == records


@with_brokers(directories_each=2)
async def test_log_of_which_compaction_has_left_nothing_is_moved_with_its_end(brokers: Brokers) -> None:
    """There is nothing to copy up to there, and the next record gets the next offset."""
    settings = {**COMPACTED, "delete.retention.ms": "0", "file_delete_delay_ms": "0"}
    scene = await Scene.begin(brokers, **settings)
    for value in (b"value", None):
        record = SimpleRecord(b"key", value, (), START_MS)
        await scene.produce(build_batch([record]))
    log = scene.replica.log
    log.roll(START_MS)
    for days in range(3):
        clean_round(log, START_MS + days * DAY_MS)
    assert (records_from(log, 0), log.log_end_offset) == ([], 2)
    _, target = scene.paths
    await scene.alter(target)
    await scene.moved(target)
    await scene.produce(build_batch([SimpleRecord(b"key", b"value", (), START_MS)]))
    assert [record.offset for record in records_from(scene.replica.log, 0)] == [2]
    await brokers.stop(0)
    await brokers.start(0)
    assert scene.replica.log.log_end_offset == 3


@with_brokers(directories_each=2)
async def test_full_target_costs_the_move_and_nothing_else(brokers: Brokers) -> None:
    """Whatever else lies in that directory goes on: the copy is what can be done without."""
    scene = await Scene.begin(brokers, batch(10))
    _, target = scene.paths
    with failing("pwritev", errno.ENOSPC, of="-future"):
        await scene.alter(target)
        await until(lambda: scene.replica.future is None, "the move is given up")
    await until(lambda: logs_in(target) == [], "what was copied has gone")
    assert brokers.brokers[0].failed_directories == []
    await scene.produce(batch(1))
    await scene.alter(target)
    await scene.moved(target)


@with_brokers(directories_each=2)
async def test_target_that_fails_ends_the_move_and_the_replica_stays_online(brokers: Brokers) -> None:
    """The log lies elsewhere; a controller that was told of the failed directory is told so."""
    scene = await Scene.begin(brokers, batch(10))
    _, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    with failing("pwritev", errno.EIO, of="-future"):
        await scene.produce(batch(1))
        await until(lambda: scene.replica.future is None, "the move is over")
    assert [each.path for each in brokers.brokers[0].failed_directories] == [target]
    await scene.produce(batch(1))
    assert await scene.base_offsets() == [0, 10, 11]
    assert await scene.alter(target) == [ErrorCode.kafka_storage_error]


@with_brokers(count=2, directories_each=2)
async def test_copy_of_a_log_whose_disk_failed_is_what_the_next_start_goes_on_with(
    brokers: Brokers,
) -> None:
    """It need not be fetched again; but what it lacks, this replica had acknowledged."""
    scene = await Scene.begin(brokers, batch(10), replicas=(0, 1))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    with failing("pwritev", errno.EIO, of=f"{source.name}/t-0/"):
        await scene.produce(batch(1), expect=ErrorCode.kafka_storage_error)
    assert scene.replica.offline
    assert scene.replica.future is None
    await brokers.stop(0)
    shutil.rmtree(source / "t-0")
    await brokers.elect(scene.topic_id, 0, leader=1, isr=[1])
    await brokers.start(0)
    assert (logs_in(source), logs_in(target)) == ([], ["t-0"])
    assert scene.replica.log.log_end_offset == 10
    writer = await brokers.connect(1)
    await writer.request(produce(scene.topic_id, batch(1), acks=1))
    await until(lambda: scene.replica.log.log_end_offset == 11, "it has caught up")


@with_brokers(count=2, directories_each=2)
async def test_copy_whose_renaming_is_refused_is_the_log_after_the_next_attempt(brokers: Brokers) -> None:
    """An empty log took its place, though the copy may have the only records there are."""
    scene = await Scene.begin(brokers, batch(10), replicas=(0, 1))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    await brokers.stop(0)
    shutil.rmtree(source / "t-0")
    await brokers.elect(scene.topic_id, 0, leader=1, isr=[1])
    with failing("rename", errno.EBUSY, of="-future") as refused:
        await brokers.start(0)
        await brokers.commit()
    table, clock = brokers.brokers[0].replicas.table, Clock(brokers)
    assert refused
    assert table.get(scene.topic_id, 0) is None

    def is_open() -> bool:
        clock.tick(1000)
        return table.get(scene.topic_id, 0) is not None

    await clock.until(is_open, "the next attempt")
    assert scene.replica.log.directory == target / "t-0"
    assert list(target.glob("t-0*")) == [target / "t-0"]


@with_brokers(count=2, directories_each=2)
async def test_copy_that_the_metadata_names_says_that_it_may_lack_something(brokers: Brokers) -> None:
    """The disk of its log failed between the controller's word and the last of the copying."""
    scene = await Scene.begin(brokers, batch(10), replicas=(0, 1))
    source, target = scene.paths
    await scene.alter(target)
    await scene.caught_up(target)
    await brokers.stop(0)
    shutil.rmtree(source / "t-0")
    directories = (id_in(target), None)
    await brokers.commit(
        PartitionChangeRecord(partition_id=0, topic_id=scene.topic_id, directories=directories)
    )
    await brokers.start(0)
    assert logs_in(target) == ["t-0"]
    assert scene.told == LOST_DIRECTORY


@with_brokers(directories_each=2)
async def test_requests_that_cannot_be_met_get_kafkas_errors(brokers: Brokers) -> None:
    """As ReplicaManager.alterReplicaLogDirs answers them."""
    scene = await Scene.begin(brokers, batch(1))
    source, target = scene.paths
    assert await scene.alter("/nowhere") == [ErrorCode.log_dir_not_found]
    assert await scene.alter(target, 7) == [ErrorCode.replica_not_available]
    assert await scene.alter(target, topic="unknown") == [ErrorCode.replica_not_available]
    assert await scene.alter(target, topic="n" * 249) == [ErrorCode.invalid_topic_exception]
    assert (logs_in(source), logs_in(target)) == (["t-0"], [])


@with_brokers(count=2, directories_each=2)
async def test_replica_that_is_yet_to_come_is_made_where_it_was_asked_for(brokers: Brokers) -> None:
    """kafka-reassign-partitions asks for the directory before the broker has the replica (KIP-113)."""
    topic_id = await brokers.create_topic("t", [(1,)])
    for number in range(3):
        await brokers.create_topic(f"other{number}", [(0,)])
    scene = Scene(brokers, topic_id, await brokers.connect(0))
    paths = [each.path for each in brokers.brokers[0].directories]
    counts = [len(logs_in(path)) for path in paths]
    fuller = paths[counts.index(max(counts))]
    assert await scene.alter(fuller) == [ErrorCode.replica_not_available]
    await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=(1, 0)))
    assert scene.replica.log.parent == str(fuller)


def test_process_that_is_killed_at_any_file_operation_has_everything_when_it_is_back(
    tmp_path: Path,
) -> None:
    """From the first file of the copy to the last of the other log: each is a place to stop at."""
    states: list[tuple[Path, Any]] = []

    async def move() -> tuple[UUID, str, str]:
        async with (
            asyncio.timeout(60),
            Brokers(tmp_path / "live", 1, directories_each=2) as brokers,
        ):
            # Each state has copies of all files, and indexes are written up to their largest size.
            config = {"file_delete_delay_ms": "0", "segment_index_bytes": "4096"}
            scene = await Scene.begin(brokers, batch(10), batch(10), **config)
            source, target = scene.paths
            with every_operation(lambda: states.append(keep(tmp_path, len(states), brokers))):
                await scene.alter(target)
                await scene.moved(target)
            return scene.topic_id, source.name, target.name

    topic_id, source, target = asyncio.run(move())

    async def look(state: Path, image: Any) -> str:
        brokers = Brokers(state, 1, directories_each=2)
        brokers.image = image
        async with asyncio.timeout(20), brokers:
            scene = Scene(brokers, topic_id, await brokers.connect(0))
            assert await scene.base_offsets() == [0, 10]
            await scene.produce(batch(1))
            lies_in = Path(scene.replica.log.parent).name
            return lies_in if scene.replica.future is None else f"{lies_in}, and is copied"

    seen = [asyncio.run(look(state, image)) for state, image in states]
    assert set(seen) == {source, f"{source}, and is copied", target}
    assert seen == sorted(seen, key=[source, f"{source}, and is copied", target].index)


def keep(tmp_path: Path, number: int, brokers: Brokers) -> tuple[Path, Any]:
    """Copy what a process leaves that is killed now; return where to, with the metadata of then."""
    state = tmp_path / f"state-{number}"
    shutil.copytree(tmp_path / "live", state)
    return state, brokers.image


class every_operation:  # noqa: N801
    """Calls `before` before each rename, removal, fsync and write by which a directory changes."""

    NAMES = ("rename", "replace", "unlink", "rmdir", "fsync", "fdatasync", "pwritev", "mkdir")

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._real = {name: getattr(os, name) for name in self.NAMES}
        self._busy = False

    def __enter__(self) -> None:
        for name, real in self._real.items():
            setattr(os, name, self._watched(real))

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if not self._busy:
                self._busy = True
                try:
                    self._before()
                finally:
                    self._busy = False
            return real(*arguments, **named)

        return call
