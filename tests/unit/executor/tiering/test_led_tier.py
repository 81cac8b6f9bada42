"""What a leader does with its log's tier: waits for it, copies, begins again where it ends."""

import asyncio
import contextlib
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType
from uuid import UUID, uuid4

import pytest

from sparklog.executor.partitions.replica import Replica
from sparklog.executor.tiering.bring_back_marker import BringBackMarker, read_marker, write_marker
from sparklog.executor.tiering.led_tier import FactsOfLog
from sparklog.executor.tiering.machine.events import AdoptTier
from sparklog.executor.tiering.segment_copies import COPIES_AT_A_TIME
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.metadata.schemas import (
    ConfigRecord,
    LeaderRecoveryState,
    PartitionChangeRecord,
    PartitionRecord,
    ResourceType,
    TopicRecord,
)
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import Metric
from sparklog.node.metrics.remote_log import TierErrorKind
from sparklog.node.remote_log.directory_store import DirectoryStore
from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest, encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.remote_log.machine.ownership import OWNER_NAME
from sparklog.node.remote_log.machine.periods import PERIODS_MS, period_of
from sparklog.node.remote_log.object_store import StoredObject
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.producers.producer_snapshots import decode_snapshot
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import iterate_headers, read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, until
from tests.unit.executor.requests import batch, delete_records, produce, rows
from tests.unit.executor.tiering.tiered_brokers import SEGMENTS, bucket_of, manifest_of, tiered_brokers

LEADER_EPOCH = 1000


async def append(brokers: Brokers, topic_id: UUID, records: bytes) -> int:
    """Produce a batch as a client; return its first offset."""
    channel = await brokers.connect(0)
    (row,) = rows(await channel.request(produce(topic_id, records)))
    assert row.error_code is ErrorCode.none
    base_offset: int = row.base_offset
    return base_offset


async def fill(brokers: Brokers, topic_id: UUID, batches: int) -> int:
    """Produce batches of five records of 1 KB; return the number of records."""
    for _ in range(batches):
        await append(brokers, topic_id, batch(5, b"v" * 1000))
    return 5 * batches


def has_copied(leader: Replica, count: int) -> bool:
    """Return whether a leader has claimed its manifest, and all of its log is there."""
    return leader.tier is not None and leader.tier.tiered_end_offset == count


def is_copied(brokers: Brokers, topic_id: UUID, end_offset: int) -> bool:
    manifest = manifest_of(brokers, 0, topic_id)
    return manifest is not None and manifest.end_offset == end_offset


def awaiting_manifest(brokers: Brokers, broker_id: int) -> float:
    """Return the gauge by which operators see that brokers do not reach the store."""
    return brokers.brokers[broker_id].replicas.metrics.snapshot(0)[remote_log.AWAITING_MANIFEST.of()]


async def lead_again(brokers: Brokers, topic_id: UUID, config: Mapping[str, str] = SEGMENTS) -> Replica:
    """Have broker 0 lead an earlier application's partition, of which it has nothing."""
    await brokers.commit(
        TopicRecord(name="t", topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=(0,),
            isr=(0,),
            leader=0,
            leader_epoch=LEADER_EPOCH,
            partition_epoch=LEADER_EPOCH,
            directories=(),
        ),
        *(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="t", name=name, value=value)
            for name, value in config.items()
        ),
    )
    return brokers.replica(0, topic_id)


def serves(replica: Replica) -> bool:
    try:
        replica.require_leader()
    except KafkaError:
        return False
    return True


def test_leader_with_an_empty_log_goes_on_where_its_tier_ends(tmp_path: Path) -> None:
    """After the loss of all disks offsets must go on, and a producer's retry must not be appended again."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 6)
            last = batch(5, producer_id=7, producer_epoch=0, base_sequence=0)
            assert await append(brokers, topic_id, last) == count
            await until(lambda: is_copied(brokers, topic_id, count + 5), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id)
            await until(lambda: serves(replica), "it serves")
            log = replica.log
            assert (log.log_start_offset, log.local_log_start_offset) == (0, count + 5)
            assert (log.log_end_offset, replica.high_watermark) == (count + 5, count + 5)
            assert log.recovery_point == count + 5, "a power cut must not leave an empty log"
            assert await append(brokers, topic_id, last) == count
            assert await fill(brokers, topic_id, 1) == 5
            await until(lambda: is_copied(brokers, topic_id, count + 10), "what follows is copied")

    asyncio.run(play())


def test_copy_that_ends_inside_a_decided_transaction_names_no_open_one(tmp_path: Path) -> None:
    """Its marker is lost with all disks, and the last stable offset would wait for it for ever."""
    config = {"sparklog.remote.max.lag.ms": "600000"}
    marker = EndTransactionMarker(7, 0, committed=True, coordinator_epoch=0, transaction_version=1)

    async def play() -> None:
        async with tiered_brokers(tmp_path, **config) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            replica, now_ms, wall_ms = brokers.replica(0, topic_id), monotonic_ms(), wall_clock_ms()
            for sequence in range(0, 20, 5):
                producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
                sent = batch(5, b"v" * 1000, transactional=True, **producer)
                verification = replica.log.producers.begin_verification(
                    7, 0, sequence, wall_ms, supports_epoch_bump=False
                )
                replica.append(sent, read_header(sent), now_ms, wall_ms, None, verification)
            replica.append_marker(marker, now_ms, wall_ms, None)
            end_offset = replica.log.segments.all[-1].base_offset
            assert 0 < end_offset < 20
            await until(lambda: is_copied(brokers, topic_id, end_offset), "closed segments are copied")
            manifest = manifest_of(brokers, 0, topic_id)
            assert manifest is not None
            assert manifest.producers is not None
            snapshot = (bucket_of(tmp_path) / manifest.producers).read_bytes()
            (state,) = decode_snapshot(snapshot, wall_clock_ms()).producers.values()
            assert state.transaction_first_offset is None
            assert state.batches[-1].last_offset == end_offset - 1

    asyncio.run(play())


def test_copy_of_a_table_by_hour_is_cut_where_the_hour_changes(tmp_path: Path) -> None:
    """Each segment becomes a file of one partition of the table; all records are in one of them."""
    hour_ms = PERIODS_MS["hour"]
    hours = [0, 0, 1, 1, 2, 0]
    now_ms = wall_clock_ms() // hour_ms * hour_ms - 3 * hour_ms
    config = {"sparklog.table.enable": "true", "sparklog.table.partition.by": "hour"}

    async def play() -> None:
        async with tiered_brokers(tmp_path, **{"sparklog.remote.max.lag.ms": "2000"}) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            for hour in hours:
                records = [SimpleRecord(None, b"v", (), now_ms + hour * hour_ms)] * 5
                await append(brokers, topic_id, build_batch(records))
            await until(lambda: is_copied(brokers, topic_id, 5 * len(hours)), "all is copied")
            manifest = manifest_of(brokers, 0, topic_id)
            assert manifest is not None
            assert [
                (each.base_offset, each.end_offset, period_of(each, hour_ms)) for each in manifest.segments
            ] == [
                (start, end, now_ms // hour_ms + hour)
                for start, end, hour in [(0, 10, 0), (10, 20, 1), (20, 25, 2), (25, 30, 0)]
            ]
            assert [each.record_count for each in manifest.segments] == [10, 10, 5, 5]

    asyncio.run(play())


def test_manifests_are_encoded_and_decoded_beside_the_loop(tmp_path: Path) -> None:
    """One of 10,000 segments takes hundreds of milliseconds, in which the broker would answer no request."""
    coded: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_name in ("encode_manifest", "decode_manifest"):
            coded.add(frame.f_code.co_name)

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 3)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id)
            await until(lambda: serves(replica), "it serves")

    sys.setprofile(note)  # of this thread only, which is the loop's
    try:
        asyncio.run(play())
    finally:
        sys.setprofile(None)
    assert not coded


def test_compacted_log_is_brought_back_to_the_disk(tmp_path: Path) -> None:
    """Coordinators and the cleaner read local files; groups' offsets would be gone else."""
    config = {**SEGMENTS, "cleanup.policy": "compact"}
    records = [SimpleRecord(b"k%d" % number, b"v" * 1000, (), 1) for number in range(5)]

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            for _ in range(8):
                await append(brokers, topic_id, build_batch(records))
            await until(lambda: is_copied(brokers, topic_id, 40), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id, config)
            await until(lambda: serves(replica), "it serves")
            log = replica.log
            assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 0, 40)
            assert len(log.segments.all) > 2
            assert log.size_bytes > 40_000
            assert await append(brokers, topic_id, build_batch(records)) == 40

    asyncio.run(play())


def test_reader_comes_to_the_end_of_a_log_that_was_brought_back_without_its_last_marker(
    tmp_path: Path,
) -> None:
    """A reader that waits at its start for the end of a compacted log would wait until the next record comes.

    So do the sink, which reads decisions, and the log's followers, which would leave the ISR.
    """
    config = {**SEGMENTS, "cleanup.policy": "compact"}
    marker = EndTransactionMarker(7, 0, committed=True, coordinator_epoch=0, transaction_version=1)

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            replica, now_ms, wall_ms = brokers.replica(0, topic_id), monotonic_ms(), wall_clock_ms()
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
            records = [SimpleRecord(b"k%d" % number, b"v", (), 1) for number in range(3)]
            sent = build_batch(records, transactional=True, **producer)
            verification = replica.log.producers.begin_verification(
                7, 0, 0, wall_ms, supports_epoch_bump=False
            )
            replica.append(sent, read_header(sent), now_ms, wall_ms, None, verification)
            replica.append_marker(marker, now_ms, wall_ms, None)
            await until(lambda: is_copied(brokers, topic_id, 4), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id, config)
            await until(lambda: serves(replica), "it serves")
            read = replica.log.read(3, max_bytes=1 << 20, up_to_offset=4, min_one_batch=True)
            assert read.region is not None
            ((_, header),) = iterate_headers(read.region.read())
            assert (header.base_offset, header.next_offset, header.record_count) == (3, 4, 0)
            assert header.partition_leader_epoch == 0
            assert await append(brokers, topic_id, build_batch(records)) == 4

    asyncio.run(play())


def test_log_has_a_marker_until_it_is_brought_back_in_full(tmp_path: Path) -> None:
    """A leader that cannot read its tier must not serve a part of it as the whole log."""
    config = {**SEGMENTS, "cleanup.policy": "compact"}

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            for _ in range(4):
                await append(brokers, topic_id, build_batch([SimpleRecord(b"k", b"v" * 1000, (), 1)]))
            await until(lambda: is_copied(brokers, topic_id, 4), "all is copied")
        segments, away = bucket_of(tmp_path) / "segments", tmp_path / "away"
        segments.rename(away)
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id, config)
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            await until(lambda: bool(list(remote_log.errors())), "records cannot be brought back")
            assert not serves(replica)
            marker = read_marker(replica.log.directory)
            assert marker == BringBackMarker(LEADER_EPOCH, 4)
            assert FactsOfLog(replica).now(marker).is_brought_back_in_part
            away.rename(segments)
            await until(lambda: serves(replica), "it serves")
            assert replica.log.log_end_offset == 4
            assert read_marker(replica.log.directory) is None

    asyncio.run(play())


def test_adoption_of_a_leadership_that_is_over_leaves_the_marker_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread goes on: without the marker a crash would leave a part of the tier as the whole log."""
    config = {**SEGMENTS, "cleanup.policy": "compact"}
    flush = Log.flush
    may_flush = [threading.Event(), threading.Event()]
    flushing: list[int] = []

    def flush_when_allowed(log: Log) -> None:
        if threading.current_thread().name.startswith("sparklog-remote-copy") and len(flushing) < 2:
            flushing.append(threading.get_ident())
            may_flush[len(flushing) - 1].wait()
        flush(log)

    def has_flushed(ident: int) -> bool:
        frame = sys._current_frames().get(ident)
        while frame is not None and frame.f_code.co_name != "_flush":
            frame = frame.f_back
        return frame is None

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            await append(brokers, topic_id, build_batch([SimpleRecord(b"k", b"v", (), 1)]))
            await until(lambda: is_copied(brokers, topic_id, 1), "all is copied")
        monkeypatch.setattr(Log, "flush", flush_when_allowed)
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            try:
                replica = await lead_again(brokers, topic_id, config)
                await until(lambda: len(flushing) == 1, "the tier is brought back")
                await brokers.elect(topic_id, 0, leader=0, isr=[0])
                remote_log = brokers.brokers[0].replicas.remote_log
                assert remote_log is not None
                machine = remote_log._led[replica]._machine
                await until(lambda: isinstance(machine._manifest_effect, AdoptTier), "it adopts its tier")
                for _ in range(3):  # as long as it takes to write the marker, unless that has to wait
                    marker = BringBackMarker(LEADER_EPOCH, 1)
                    await remote_log._adoption_threads.run(partial(write_marker, tmp_path, marker))
                may_flush[0].set()
                await until(lambda: len(flushing) == 2, "the next leadership has brought it back")
                await until(lambda: has_flushed(flushing[0]) or flushing[0] == flushing[1], "it is over")
                assert read_marker(replica.log.directory) == BringBackMarker(LEADER_EPOCH + 1, 1)
            finally:
                for event in may_flush:
                    event.set()
            await until(lambda: serves(replica), "it serves")
            assert read_marker(replica.log.directory) is None

    asyncio.run(play())


def test_facts_of_closed_segments_are_gathered_once(tmp_path: Path) -> None:
    """They are asked for every second, of each partition that is led."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], {"internal.segment.bytes": "10000"})
            count = await fill(brokers, topic_id, 5)
            facts = FactsOfLog(brokers.replica(0, topic_id))
            before = facts.now(None).segments
            await append(brokers, topic_id, batch(1))
            after = facts.now(None).segments
            assert len(before) == len(after) > 2
            assert all(old is new for old, new in zip(before[:-1], after[:-1], strict=True))
            assert (before[-1].end_offset, after[-1].end_offset) == (count, count + 1)
            assert after[-1].size_bytes > before[-1].size_bytes
            await fill(brokers, topic_id, 3)
            rolled = facts.now(None).segments
            assert len(rolled) > len(after)
            assert all(one.end_offset == other.base_offset for one, other in pairwise(rolled))

    asyncio.run(play())


def test_leader_adopts_its_tier_while_all_reads_of_followers_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker follows more partitions than it leads, and clients wait for its leaders."""
    get, hung_id = DirectoryStore.get, uuid4()

    async def get_or_hang(store: DirectoryStore, name: str) -> StoredObject:
        if name == manifest_name(hung_id, 0):
            await asyncio.get_running_loop().create_future()
        return await get(store, name)

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
        monkeypatch.setattr(DirectoryStore, "get", get_or_hang)
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            reads = [asyncio.create_task(remote_log._read_tier(hung_id, 0)) for _ in range(40)]
            replica = await lead_again(brokers, topic_id)
            try:
                await until(lambda: serves(replica), "it serves")
            finally:
                for read in reads:
                    read.cancel()
                await asyncio.gather(*reads, return_exceptions=True)

    asyncio.run(play())


def test_first_manifest_of_a_later_leader_is_written_after_one_look_at_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster with a thousand new partitions would ask a thousand times more."""
    reads: list[str] = []
    get = DirectoryStore.get

    async def counted(store: DirectoryStore, name: str) -> StoredObject:
        reads.append(name)
        return await get(store, name)

    monkeypatch.setattr(DirectoryStore, "get", counted)

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = uuid4()
            await lead_again(brokers, topic_id)
            name = manifest_name(topic_id, 0)
            await until((bucket_of(tmp_path) / name).exists, "the manifest is written")
            assert reads == [name, OWNER_NAME]

    asyncio.run(play())


def test_marker_of_a_log_that_has_gone_on_since_does_not_count(tmp_path: Path) -> None:
    """A follower may have caught up with a leader that has more than the tier; it must not begin again."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 1)
            log = brokers.replica(0, topic_id).log
            assert BringBackMarker(leader_epoch=1, end_offset=count).applies_to(log)
            assert not BringBackMarker(leader_epoch=1, end_offset=count - 1).applies_to(log)
            assert not BringBackMarker(leader_epoch=0, end_offset=count).applies_to(log)

    asyncio.run(play())


@pytest.mark.parametrize("fault", ["the bucket is away", "another directory is mounted"])
def test_leader_with_an_empty_log_refuses_until_it_knows_its_tier(tmp_path: Path, fault: str) -> None:
    """It would begin at offset 0 else, and readers would take new records for those that they have read."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            bucket, away = bucket_of(tmp_path), tmp_path / "away"
            bucket.rename(away)
            if fault == "the bucket is away":
                bucket.touch()
            replica = await lead_again(brokers, topic_id)
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            await until(lambda: bool(list(remote_log.errors())), "the store was asked")
            assert not serves(replica)
            if fault == "the bucket is away":
                bucket.unlink()
            else:
                assert not (bucket / OWNER_NAME).exists()
                assert not list(bucket.glob("manifests/*/*"))
                shutil.rmtree(bucket, ignore_errors=True)
            away.rename(bucket)
            await until(lambda: serves(replica), "it serves")
            assert replica.log.log_end_offset == count
            await until(lambda: not list(remote_log.errors()), "no error is left")

    asyncio.run(play())


@pytest.mark.parametrize("election", ["clean", "unclean"])
def test_new_leader_serves_at_once_in_an_outage_of_the_store_after_a_clean_election(
    tmp_path: Path, election: str
) -> None:
    """Its log has all that is committed, and clients would wait for half a minute with it."""
    is_clean = election == "clean"

    async def play() -> None:
        async with tiered_brokers(tmp_path, count=2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            replica = brokers.replica(1, topic_id)
            await until(lambda: replica.log.log_end_offset == count, "the follower has it, too")
            bucket_of(tmp_path).rename(tmp_path / "away")
            state = LeaderRecoveryState.RECOVERED if is_clean else LeaderRecoveryState.RECOVERING
            await brokers.commit(
                PartitionChangeRecord(
                    partition_id=0, topic_id=topic_id, leader=1, isr=(1,), leader_recovery_state=int(state)
                )
            )
            assert serves(replica) == is_clean
            assert replica.tier is None
            assert replica.awaits_tier
            assert awaiting_manifest(brokers, 1) == 1
            (tmp_path / "away").rename(bucket_of(tmp_path))
            await until(lambda: manifest_of(brokers, 1, topic_id) is not None, "the manifest is read")
            assert serves(replica)
            assert not replica.awaits_tier
            assert awaiting_manifest(brokers, 1) == 0

    asyncio.run(play())


def test_new_leader_of_an_idle_partition_waits_for_its_manifest(tmp_path: Path) -> None:
    """Its last record is older than the last leader, whose log a power cut may have shortened."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, count=2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            replica = brokers.replica(1, topic_id)
            await until(lambda: replica.log.log_end_offset == count, "the follower has it, too")
            await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
            leader = brokers.replica(0, topic_id)
            await until(lambda: has_copied(leader, count), "nothing more is written to the bucket")
            bucket_of(tmp_path).rename(tmp_path / "away")
            await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
            assert not serves(replica)
            (tmp_path / "away").rename(bucket_of(tmp_path))
            await until(lambda: serves(replica), "it serves")

    asyncio.run(play())


def test_new_leader_of_an_idle_partition_that_led_before_serves_at_once_in_an_outage_of_the_store(
    tmp_path: Path,
) -> None:
    """No record was written since its broker was started, and it has all that there is for all that."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, count=2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == count, "it is in sync")
            await brokers.stop(1)
            await brokers.start(1)
            await brokers.elect(topic_id, 0, leader=1, isr=[1])
            await until(lambda: manifest_of(brokers, 1, topic_id) is not None, "the manifest is known")
            replica = brokers.replica(1, topic_id)
            await until(lambda: replica.complete_epoch == replica.leader_epoch, "it has all")
            await until(lambda: has_copied(replica, count), "nothing more is written to the bucket")
            bucket_of(tmp_path).rename(tmp_path / "away")
            await brokers.elect(topic_id, 0, leader=1, isr=[1])
            assert serves(replica)
            assert replica.log.log_end_offset == count
            (tmp_path / "away").rename(bucket_of(tmp_path))
            await until(lambda: manifest_of(brokers, 1, topic_id) is not None, "the manifest is read")

    asyncio.run(play())


def test_new_leader_of_an_idle_partition_that_has_only_followed_waits_for_its_manifest(
    tmp_path: Path,
) -> None:
    """In an outage its leader may have served a log that a power cut had shortened: the tier has more."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, count=2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            await brokers.stop(1)
            await brokers.elect(topic_id, 0, leader=0, isr=[0])
            await until(lambda: serves(brokers.replica(0, topic_id)), "the leader serves")
            count = await fill(brokers, topic_id, 4)
            await brokers.elect(topic_id, 0, leader=0, isr=[0])
            await brokers.start(1)
            replica = brokers.replica(1, topic_id)
            await until(lambda: replica.high_watermark == count, "it has all that its leader has")
            leader = brokers.replica(0, topic_id)
            await until(lambda: has_copied(leader, count), "nothing more is written to the bucket")
            bucket_of(tmp_path).rename(tmp_path / "away")
            await brokers.elect(topic_id, 0, leader=1, isr=[1])
            assert not serves(replica)
            (tmp_path / "away").rename(bucket_of(tmp_path))
            await until(lambda: serves(replica), "it serves")

    asyncio.run(play())


def test_leader_whose_epoch_an_earlier_application_has_reached_says_what_helps(tmp_path: Path) -> None:
    """It is the only application: to stop it because of another one would be the wrong advice."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
        name = manifest_name(topic_id, 0)
        path = bucket_of(tmp_path) / name
        manifest = decode_manifest(name, path.read_bytes())
        path.write_bytes(encode_manifest(replace(manifest, owner_epoch=0, leader_epoch=LEADER_EPOCH)))
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            replica = await lead_again(brokers, topic_id)
            remote_log_manager = brokers.brokers[0].replicas.remote_log
            assert remote_log_manager is not None
            await until(lambda: any(remote_log_manager.errors()), "its tier ends")
            (error,) = remote_log_manager.errors()
            assert (error.kind, serves(replica)) == (TierErrorKind.OTHER, False)
            assert "start it from the store again" in error.message

    asyncio.run(play())


def test_leader_that_was_restarted_waits_for_its_manifest(tmp_path: Path) -> None:
    """A crash may have shortened its log, and it is the last one in sync all the same."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            await brokers.stop(0)
            bucket_of(tmp_path).rename(tmp_path / "away")
            await brokers.start(0)
            for _ in range(2):
                await brokers.elect(topic_id, 0, leader=0, isr=[0])
                replica = brokers.replica(0, topic_id)
                assert replica.log.log_end_offset == count
                assert not serves(replica)
            (tmp_path / "away").rename(bucket_of(tmp_path))
            await until(lambda: serves(replica), "it serves")

    asyncio.run(play())


def test_local_log_drops_nothing_that_the_store_does_not_have(tmp_path: Path) -> None:
    """The rule by which a tier may be trusted at all."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            bucket, away = bucket_of(tmp_path), tmp_path / "away"
            bucket.rename(away)
            bucket.touch()
            count = await fill(brokers, topic_id, 8)
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            await until(lambda: bool(list(remote_log.errors())), "copies fail")
            log = brokers.replica(0, topic_id).log
            assert log.local_log_start_offset == 0
            bucket.unlink()
            away.rename(bucket)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            await until(lambda: log.local_log_start_offset > 0, "the disk is relieved")
            assert log.log_start_offset == 0

    asyncio.run(play())


def test_records_deleted_below_the_local_log_are_deleted_in_the_tier(tmp_path: Path) -> None:
    """The answer waits for followers, whose logs begin elsewhere than the leader's."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, 2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)
            await fill(brokers, topic_id, 10)
            leader = brokers.replica(0, topic_id)
            await until(lambda: leader.log.local_log_start_offset > 20, "the local log is short")
            channel = await brokers.connect(0)
            (row,) = rows(await channel.request(delete_records("t", 12)))
            assert (row.error_code, row.low_watermark) == (ErrorCode.none, 12)

            def is_deleted() -> bool:
                manifest = manifest_of(brokers, 0, topic_id)
                return manifest is not None and manifest.log_start_offset == 12

            await until(is_deleted, "the manifest begins there")

    asyncio.run(play())


def test_tier_that_a_topic_gets_while_it_is_led_has_all_of_its_records(tmp_path: Path) -> None:
    """Topics are tiered by a change of their configuration, too, long after their first record."""
    config = {**SEGMENTS, "remote.storage.enable": "false"}
    del config["local.retention.bytes"]

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            count = await fill(brokers, topic_id, 6)
            assert brokers.replica(0, topic_id).tier is None
            await brokers.commit(
                ConfigRecord(
                    resource_type=ResourceType.TOPIC,
                    resource_name="t",
                    name="remote.storage.enable",
                    value="true",
                )
            )
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            manifest = manifest_of(brokers, 0, topic_id)
            assert manifest is not None
            assert sum(segment.record_count for segment in manifest.segments) == count

    asyncio.run(play())


def test_metrics_say_what_is_copied_and_what_is_not(tmp_path: Path) -> None:
    """An operator who sees the lag grow has time to act before disks are full."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            metrics = brokers.brokers[0].replicas.metrics

            def figure(metric: Metric) -> float:
                return metrics.snapshot(monotonic_ms())[metric.of(topic="t")]

            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            manifest = manifest_of(brokers, 0, topic_id)
            assert manifest is not None
            size_bytes = sum(segment.size_bytes for segment in manifest.segments)
            assert (figure(remote_log.LOG_SIZE_BYTES), figure(remote_log.COPY_LAG_BYTES)) == (size_bytes, 0)
            bucket_of(tmp_path).rename(tmp_path / "away")
            bucket_of(tmp_path).touch()
            await fill(brokers, topic_id, 4)
            await until(lambda: figure(remote_log.COPY_LAG_TIME) > 0, "the lag is told")
            await until(lambda: figure(remote_log.COPY_LAG_SEGMENTS) >= 1, "so are closed segments")
            assert figure(remote_log.COPY_LAG_RECORDS) == count
            assert figure(remote_log.COPY_LAG_BYTES) > 20 * 1000

    asyncio.run(play())


def test_remote_size_is_that_of_the_present_leader_alone(tmp_path: Path) -> None:
    """A former leader that went on with its last figure would count the tier twice (KAFKA-21124)."""

    async def play() -> None:
        async with tiered_brokers(tmp_path, count=2) as brokers:
            topic_id = await brokers.create_topic("t", [(0, 1)], SEGMENTS)

            def sizes() -> list[float | None]:
                name = remote_log.LOG_SIZE_BYTES.of(topic="t")
                every = (brokers.brokers[each].replicas.metrics for each in (0, 1))
                return [metrics.snapshot(monotonic_ms()).get(name) for metrics in every]

            count = await fill(brokers, topic_id, 4)
            await until(lambda: is_copied(brokers, topic_id, count), "all is copied")
            manifest = manifest_of(brokers, 0, topic_id)
            assert manifest is not None
            size_bytes = sum(segment.size_bytes for segment in manifest.segments)
            assert sizes() == [size_bytes, None]
            await until(lambda: brokers.replica(1, topic_id).log.log_end_offset == count, "it is in sync")
            await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
            await until(lambda: manifest_of(brokers, 1, topic_id) is not None, "the manifest is read")
            assert sizes() == [0, size_bytes]

    asyncio.run(play())


def test_tier_that_ends_during_a_long_copy_does_not_stop_the_others(tmp_path: Path) -> None:
    """The thread of a copy outlives its leadership by minutes, in which nothing else would be copied."""

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            topic_id = await brokers.create_topic("t", [(0,)], SEGMENTS)
            other_id = await brokers.create_topic("other", [(0,)], SEGMENTS)
            tier = remote_log._led[brokers.replica(0, topic_id)]
            release = asyncio.Event()
            task = asyncio.get_running_loop().create_task(ignoring_cancellation(release))
            await asyncio.sleep(0)
            tier._tasks.add(task)
            remote_log.stopped(tier.replica)
            try:
                count = await fill(brokers, other_id, 4)
                await until(lambda: is_copied(brokers, other_id, count), "the other topic is copied")
            finally:
                release.set()

    asyncio.run(play())


async def ignoring_cancellation(release: asyncio.Event) -> None:
    while not release.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await release.wait()


def test_log_is_brought_back_while_copies_have_all_of_their_threads(tmp_path: Path) -> None:
    """Leaders that do not serve yet must not wait for the copies of those that do."""
    config = {**SEGMENTS, "cleanup.policy": "compact"}

    async def play() -> None:
        async with tiered_brokers(tmp_path) as brokers:
            topic_id = await brokers.create_topic("t", [(0,)], config)
            await append(brokers, topic_id, build_batch([SimpleRecord(b"k", b"v", (), 1)]))
            await until(lambda: is_copied(brokers, topic_id, 1), "all is copied")
        async with tiered_brokers(tmp_path, disks="others") as brokers:
            remote_log = brokers.brokers[0].replicas.remote_log
            assert remote_log is not None
            release = threading.Event()
            for _ in range(COPIES_AT_A_TIME):
                remote_log._threads.executor.submit(release.wait)
            try:
                replica = await lead_again(brokers, topic_id, config)
                await until(lambda: serves(replica), "it serves")
            finally:
                release.set()

    asyncio.run(play())
