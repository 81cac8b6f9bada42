"""What happens to logs as time passes: flushes, checkpoints. Time is what the tests say."""

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event
from uuid import UUID

from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.replicas import ClusterMembership, ControllerRequests, Replicas
from sparklog.node.storage.checkpoints import read_offsets, read_topic_id
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.requests import batch, produce, rows
from tests.unit.sparklog.node.serving.open_sockets import connected_to, open_sockets

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
FAR = str(10**9)


class NoProposals:
    """For a broker that leads nothing."""

    def propose(self, *arguments: object) -> None:
        raise AssertionError(arguments)


class Clock:
    """Ticks of a broker."""

    def __init__(self, brokers: Brokers, broker_id: int = 0) -> None:
        self.brokers = brokers
        self.broker_id = broker_id
        self.now_ms = int(asyncio.get_running_loop().time() * 1000)

    def tick(self, later_ms: int = 0) -> None:
        self.now_ms += later_ms
        self.brokers.brokers[self.broker_id].replicas.tick(self.now_ms)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Tick until it holds: a tick does nothing while what an earlier one started has not ended."""

        def holds() -> bool:
            self.tick()
            return condition()

        await until(holds, what)

    async def written(self, *names: str) -> set[str]:
        """Tick until these checkpoints are there; return which are, and remove them."""

        def there() -> set[str]:
            return {path.name for path in directory_of(self.brokers).glob("*-offset-checkpoint")}

        await self.until(lambda: there() >= set(names), f"{names} in {directory_of(self.brokers)}")
        found = there()
        for name in found:
            (directory_of(self.brokers) / name).unlink()
        return found


def directory_of(brokers: Brokers) -> Path:
    return brokers.brokers[0].directory.path


async def append(brokers: Brokers, topic_id: UUID, count: int) -> None:
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, batch(count))))
    assert row.error_code is ErrorCode.none


@with_brokers()
async def test_log_is_flushed_after_as_many_records_as_flush_messages_says(brokers: Brokers) -> None:
    """Who has no replicas can have the disk instead."""
    topic_id = await brokers.create_topic("t", [(0,)], {"flush.messages": "3"})
    clock = Clock(brokers)
    log = brokers.replica(0, topic_id).log
    await append(brokers, topic_id, 2)
    clock.tick(1000)
    await clock.written(HIGH_WATERMARKS)
    assert log.recovery_point == 0
    await append(brokers, topic_id, 1)
    clock.tick(1000)
    await clock.until(lambda: log.recovery_point == 3, "a flush")


@with_brokers()
async def test_new_log_is_flushed_soon_though_it_has_no_record(brokers: Brokers) -> None:
    """Its creation does not wait for the disk, and a power cut must not take the topic's id for long."""
    topic_id = await brokers.create_topic("t", [(0,)])
    log = brokers.replica(0, topic_id).log
    log.create_files()
    assert log.is_new
    clock = Clock(brokers)
    clock.tick(1000)
    await clock.until(lambda: not log.is_new, "a flush")


@with_brokers()
async def test_log_that_has_lost_its_identity_in_a_power_cut_gets_it_again(brokers: Brokers) -> None:
    """It has no records yet, since the identity is on the disk before the first one."""
    topic_id = await brokers.create_topic("t", [(0,)])
    brokers.replica(0, topic_id).log.create_files()
    path = directory_of(brokers) / "t-0" / "partition.metadata"
    await brokers.stop(0)
    path.write_bytes(b"")
    await brokers.start(0)
    await brokers.commit()
    log = brokers.replica(0, topic_id).log
    assert (log.topic_id, read_topic_id(path), log.identity_unsynced) == (topic_id, topic_id, True)


@with_brokers(config={"log.flush.interval.ms": "600000"})
async def test_log_is_flushed_after_flush_ms_of_its_topic_before_that_of_the_broker(brokers: Brokers) -> None:
    """A topic's own flush.ms must not need the broker's."""
    topic_id = await brokers.create_topic("t", [(0,)], {"flush.ms": "5000"})
    other_id = await brokers.create_topic("u", [(0,)])
    clock = Clock(brokers)
    log, other = brokers.replica(0, topic_id).log, brokers.replica(0, other_id).log
    await append(brokers, topic_id, 2)
    await append(brokers, other_id, 2)
    clock.tick(1000)
    await clock.written(HIGH_WATERMARKS)
    clock.tick(4999)
    clock.tick(1)
    assert (log.recovery_point, other.recovery_point) == (0, 0)
    clock.tick(1000)
    await clock.until(lambda: log.recovery_point == 2, "a flush")
    assert other.recovery_point == 0


@with_brokers(
    config={
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "2000",
        "log.flush.start.offset.checkpoint.interval.ms": "3000",
    }
)
async def test_each_checkpoint_is_written_at_its_own_interval(brokers: Brokers) -> None:
    """High watermarks change all the time, the others seldom."""
    clock = Clock(brokers)
    clock.now_ms = int(brokers.brokers[0].replicas._upkeep.next_due_ms)
    everything = {RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS}
    assert await clock.written(*everything) == everything
    clock.tick(1000)
    assert await clock.written(HIGH_WATERMARKS) == {HIGH_WATERMARKS}
    clock.tick(1000)
    assert await clock.written(RECOVERY_POINTS, HIGH_WATERMARKS) == {RECOVERY_POINTS, HIGH_WATERMARKS}
    clock.tick(1000)
    assert await clock.written(LOG_START_OFFSETS, HIGH_WATERMARKS) == {LOG_START_OFFSETS, HIGH_WATERMARKS}


@with_brokers(
    config={
        "replica.high.watermark.checkpoint.interval.ms": FAR,
        "log.flush.offset.checkpoint.interval.ms": FAR,
        "log.flush.start.offset.checkpoint.interval.ms": FAR,
    }
)
async def test_checkpoints_of_a_truncated_or_replaced_log_are_written_at_once(brokers: Brokers) -> None:
    """Recovery would trust what was never fsynced, and cut a new topic at the old one's start."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await append(brokers, topic_id, 2)
    await append(brokers, topic_id, 3)
    replica = brokers.replica(0, topic_id)
    replica.log.flush()
    replica.log.advance_log_start_offset(1)
    partition = TopicPartition("t", 0)

    def said() -> list[int | None]:
        names = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
        return [read_offsets(directory_of(brokers) / name).get(partition) for name in names]

    clock = Clock(brokers)
    clock.tick(1000)
    await clock.until(lambda: said() == [5, 1, 5], "the first checkpoints")
    replica.log.truncate_to(2)
    clock.tick(1000)
    await clock.until(lambda: said() == [2, 1, 5], "the recovery point of the truncated log")
    await brokers.delete_topic(topic_id)
    await brokers.create_topic("t", [(0,)])
    clock.tick(1000)
    await clock.until(lambda: said() == [None] * 3, "no checkpoint of the new log, which has no directory")


@with_brokers(config={"num.recovery.threads.per.data.dir": "3"})
async def test_logs_opened_by_several_threads_are_all_there_after_a_restart(brokers: Brokers) -> None:
    """Opening side by side must not mix partitions up."""
    topic_id = await brokers.create_topic("t", [(0,)] * 8)
    channel = await brokers.connect(0)
    await channel.request(produce(topic_id, *(batch(count) for count in range(1, 9))))
    await brokers.stop(0)
    await brokers.start(0)
    await brokers.commit()
    ends = [brokers.replica(0, topic_id, partition).log.log_end_offset for partition in range(8)]
    assert ends == [1, 2, 3, 4, 5, 6, 7, 8]


@with_brokers(count=2, config={"replica.socket.receive.buffer.bytes": "15000"})
async def test_follower_asks_for_the_receive_buffer_that_is_configured(brokers: Brokers) -> None:
    """A window fit for the link between two sites; Linux doubles the number."""
    topic_id = await brokers.create_topic("t", [(0, 1)])
    await append(brokers, topic_id, 1)
    with open_sockets(connected_to(brokers.brokers[0].listener.port)) as connections:
        sizes = {item.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) for item in connections}
    assert 30_000 in sizes


@with_brokers()
async def test_checkpoints_stay_as_they_are_until_the_first_metadata(brokers: Brokers) -> None:
    """A broker that finds no controller knows no partitions; it must not forget their deleted records."""
    topic_id = await brokers.create_topic("t", [(0,)])
    await append(brokers, topic_id, 2)
    await append(brokers, topic_id, 3)
    brokers.replica(0, topic_id).log.advance_log_start_offset(2)
    directory = directory_of(brokers)
    await brokers.stop(0)
    before = {path.name: path.read_bytes() for path in directory.glob("*-offset-checkpoint")}
    assert len(before) == 3
    opened = LogDirectory.open(directory)
    loop = asyncio.get_running_loop()
    replicas = Replicas(
        ClusterMembership(broker_id=0, broker_epoch=lambda: None),
        ControllerRequests(isr_proposer=NoProposals()),
        [opened],
        brokers.config,
        BrokerSuspicions(loop),
    )
    await replicas.start()
    replicas.tick(int(loop.time() * 1000) + 10**6)
    await replicas.shutdown()
    opened.close()
    assert {path.name: path.read_bytes() for path in directory.glob("*-offset-checkpoint")} == before


@with_brokers(
    config={
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "log.flush.start.offset.checkpoint.interval.ms": "1000",
    }
)
async def test_checkpoints_of_a_log_that_is_offline_alone_or_unreadable_are_kept_for_its_repair(
    brokers: Brokers,
) -> None:
    """Without them its deleted records showed again, and nobody was told what a power cut had taken."""
    topic_id = await brokers.create_topic("t", [(0,), (0,)])

    async def go_on(offset: int) -> list[int | None]:
        """Append to the sound log up to there, delete all; return what the files say of the other then."""
        channel = await brokers.connect(0)
        count = offset - brokers.replica(0, topic_id, 1).log.log_end_offset
        (row,) = rows(await channel.request(produce(topic_id, None, batch(count))))
        assert row.error_code is ErrorCode.none
        log = brokers.replica(0, topic_id, 1).log
        log.flush()
        log.advance_log_start_offset(offset)
        clock = Clock(brokers)

        def said(partition: int) -> list[int | None]:
            names = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
            files = [directory_of(brokers) / name for name in names]
            return [read_offsets(path).get(TopicPartition("t", partition)) for path in files if path.exists()]

        def is_written() -> bool:
            clock.tick(1000)
            return said(1) == [offset] * 3

        await until(is_written, "the checkpoints of the sound log")
        return said(0)

    await append(brokers, topic_id, 5)
    replica = brokers.replica(0, topic_id)
    replica.log.flush()
    replica.log.advance_log_start_offset(2)
    assert await go_on(10) == [5, 2, 5]
    replica.fail_if_storage(KafkaError(ErrorCode.kafka_storage_error, "injected"))
    assert replica.offline
    assert await go_on(20) == [5, 2, 5]
    metadata = directory_of(brokers) / "t-0" / "partition.metadata"
    content = metadata.read_bytes()
    await brokers.stop(0)
    metadata.write_bytes(content.replace(b"topic_id", b"topic-id"))
    await brokers.start(0)
    await brokers.commit()
    assert await go_on(30) == [5, 2, 5]
    await brokers.stop(0)
    metadata.write_bytes(content)
    await brokers.start(0)
    await brokers.commit()
    log = brokers.replica(0, topic_id).log
    assert (log.log_start_offset, log.log_end_offset, log.missing) == (2, 5, None)
    await brokers.delete_topic(topic_id)
    topic_id = await brokers.create_topic("t", [(0,), (0,)])
    assert await go_on(40) == [None] * 3


@with_brokers(
    count=2,
    config={"producer.id.expiration.ms": "600000", "producer.id.expiration.check.interval.ms": "60000"},
)
async def test_looking_for_idle_producers_goes_by_appends_not_by_records_times(brokers: Brokers) -> None:
    """Records may be of 1970: a retry after a look was appended a second time, at whoever leads then."""
    topic_id = await brokers.create_topic("t", [(0, 1)], {"retention.ms": "-1"})
    old = build_batch([SimpleRecord(None, b"v", (), 0)], producer_id=7, producer_epoch=0, base_sequence=0)
    (row,) = rows(await (await brokers.connect(0)).request(produce(topic_id, old)))
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
    for broker_id in (0, 1):
        log = brokers.replica(broker_id, topic_id).log
        await until(lambda log=log: log.log_end_offset == 1, "the record at both")
    clock = Clock(brokers)
    for later_ms in (1_000, 60_000, 60_000):
        clock.tick(later_ms)
        # Written after the producers were looked at, in one run.
        await clock.written(HIGH_WATERMARKS)
    for leader in (0, 1):
        await brokers.elect(topic_id, 0, leader, (0, 1))
        (row,) = rows(await (await brokers.connect(leader)).request(produce(topic_id, old)))
        assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)
        assert brokers.replica(leader, topic_id).log.log_end_offset == 1


@with_brokers(
    config={"producer.id.expiration.ms": "1", "producer.id.expiration.check.interval.ms": "60000"},
)
async def test_idle_producers_are_forgotten_at_their_own_interval(brokers: Brokers) -> None:
    """Their memory must be given back, as often as the key says."""
    topic_id = await brokers.create_topic("t", [(0,)])
    sent = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    await (await brokers.connect(0)).request(produce(topic_id, sent))
    producers = brokers.replica(0, topic_id).log.producers
    clock = Clock(brokers)
    clock.tick(30_000)
    await clock.written(HIGH_WATERMARKS)
    assert 7 in producers.producers
    clock.tick(30_000)
    await clock.until(lambda: not producers.producers, "the producer to be forgotten")


ROLLING = {"segment.bytes": "1048576", "max.message.bytes": "2000000"}
SELDOM = {
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": FAR,
}


async def roll(brokers: Brokers, topic_id: UUID, segments: int) -> None:
    """Append until the leader's log has that many segments more."""
    wanted = len(brokers.replica(0, topic_id).log.segments.all) + segments
    while len(brokers.replica(0, topic_id).log.segments.all) < wanted:
        channel = await brokers.connect(0)
        (row,) = rows(await channel.request(produce(topic_id, batch(1, b"x" * 500_000))))
        assert row.error_code is ErrorCode.none


@with_brokers(count=2, config=SELDOM)
async def test_segment_that_rolled_is_flushed_and_the_checkpoint_says_so_soon(brokers: Brokers) -> None:
    """At leaders and followers: whichever is killed, its next start checks the active segment and no more."""
    topic_id = await brokers.create_topic("t", [(0, 1)], ROLLING)
    await roll(brokers, topic_id, 3)
    for broker_id in (0, 1):
        log = brokers.replica(broker_id, topic_id).log
        clock = Clock(brokers, broker_id)
        await until(lambda log=log: len(log.segments.all) == 4, "the segments")
        base_offset = log.segments.active.base_offset
        path = brokers.brokers[broker_id].directory.path / RECOVERY_POINTS
        clock.tick(1000)
        await clock.until(lambda log=log: not log.has_rolled, "the flush")

        def says(path: Path = path) -> int | None:
            return read_offsets(path).get(TopicPartition("t", 0)) if path.exists() else None

        clock.tick(1000)
        await clock.until(lambda says=says, base=base_offset: says() == base, "the checkpoint")
        assert log.recovery_point == base_offset < log.log_end_offset


@with_brokers(config=SELDOM)
async def test_disk_that_takes_long_to_flush_delays_no_append_and_no_checkpoint(brokers: Brokers) -> None:
    """However many segments roll meanwhile, one flush is under way and nothing waits in a line."""
    topic_id = await brokers.create_topic("t", [(0,)] * 3, ROLLING)
    clock = Clock(brokers)
    may_end, real, under_way = Event(), os.fdatasync, []

    def slow(descriptor: int) -> None:
        under_way.append(descriptor)
        may_end.wait(20)
        real(descriptor)

    os.fdatasync = slow
    try:
        await roll(brokers, topic_id, 1)
        clock.tick(1000)
        await clock.until(lambda: bool(under_way), "a flush")
        for _ in range(3):
            await roll(brokers, topic_id, 2)
            clock.tick(1000)
            await clock.written(HIGH_WATERMARKS)
        assert len(under_way) == 1
    finally:
        may_end.set()
        os.fdatasync = real
    log = brokers.replica(0, topic_id).log

    def flushed() -> bool:
        clock.tick(1000)
        return not log.has_rolled

    await until(flushed, "the recovery point to catch up")


@with_brokers(
    config=SELDOM
    | {
        "log.retention.check.interval.ms": "1000",
        "producer.id.expiration.ms": "1",
        "producer.id.expiration.check.interval.ms": "1000",
        "background.threads": "1",
    },
)
async def test_disk_that_takes_long_to_flush_delays_no_retention_deletion_nor_expiration(
    brokers: Brokers,
) -> None:
    """One after the other in one run, a disk that hung over one log kept all others from their upkeep."""
    config = ROLLING | {"file.delete.delay.ms": "0"}
    topic_id = await brokers.create_topic("t", [(0,)], config)
    other_id = await brokers.create_topic("u", [(0,)], config)
    clock = Clock(brokers)
    log, other = brokers.replica(0, topic_id).log, brokers.replica(0, other_id).log
    may_end, real, under_way = Event(), os.fdatasync, []

    def slow(descriptor: int) -> None:
        under_way.append(descriptor)
        may_end.wait(20)
        real(descriptor)

    os.fdatasync = slow
    try:
        await roll(brokers, topic_id, 1)
        clock.tick(1000)
        await clock.until(lambda: bool(under_way), "a flush")
        channel = await brokers.connect(0)
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=0)
        (row,) = rows(await channel.request(produce(other_id, sent)))
        assert row.error_code is ErrorCode.none
        await roll(brokers, other_id, 2)
        first = other.segments.all[0].file.path
        other.advance_log_start_offset(other.segments.active.base_offset)

        def is_kept_up() -> bool:
            clock.tick(1000)
            gone = not list(other.directory.glob(f"{first.stem}*"))
            return gone and len(other.segments.all) == 1 and not other.producers.producers

        await until(is_kept_up, "segments dropped, their files unlinked, and the producer forgotten")
        assert len(under_way) == 1
        assert log.recovery_point == 0
    finally:
        may_end.set()
        os.fdatasync = real
