"""Compacted topics of a running broker: what is cleaned, by whom, and what stands in nobody's way."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executor.logs import cleaner_processes
from sparklog.executor.logs.cleaner_processes import CleanerProcess
from sparklog.executor.logs.machine.cleaner_schedule import CleanerSchedule, SetAside
from sparklog.node.metadata.schemas import ConfigRecord, ResourceType
from sparklog.node.metrics import storage
from sparklog.node.storage.checkpoints import read_offsets, write_offsets
from sparklog.node.storage.cleaning.request import CleaningOutcome, CleaningRequest
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import TopicPartition
from tests.unit.executor.brokers import Brokers, with_brokers
from tests.unit.executor.logs.test_log_upkeep import Clock, directory_of
from tests.unit.executor.requests import produce, rows
from tests.unit.executor.tiers import Tier
from tests.unit.sparklog.node.storage.cleanings import records_from, state_of

CONFIG = {"log.cleaner.backoff.ms": "1000"}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.1",
}
CHECKPOINT = "cleaner-offset-checkpoint"
T0 = TopicPartition("t", 0)
START_MS = 1_700_000_000_000


async def put(brokers: Brokers, topic_id: UUID, count: int, keys: int = 5) -> None:
    """Write some keys over and over."""
    channel = await brokers.connect(0)
    for number in range(count):
        record = SimpleRecord(b"key-%d" % (number % keys), b"%0200d" % number, (), START_MS)
        (row,) = rows(await channel.request(produce(topic_id, build_batch([record]))))
        assert row.error_code is ErrorCode.none


def running_cleaners() -> list[int]:
    """Return the cleaner processes that this one has."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if b"sparklog.node.storage.cleaning.process" in command and parent == os.getpid():
                found.append(int(entry.name))
    return found


async def clean(brokers: Brokers, log: Log, condition: Callable[[], bool] | None = None) -> None:
    """Let time pass until the log has been cleaned, and nobody cleans any more."""
    clock = Clock(brokers)
    before = log.cleaned_offset
    clock.tick(1000)
    await clock.until(condition or (lambda: log.cleaned_offset != before), "a cleaning")
    await clock.until(lambda: not running_cleaners(), "the end of the cleaner")


@with_brokers(config=CONFIG)
async def test_compacted_topic_is_cleaned_and_its_table_is_what_it_was(brokers: Brokers) -> None:
    """What a consumer makes of the log is the same, and the log is shorter; other topics are left alone."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    other_id = await brokers.create_topic("u", [(0,)], {**COMPACTED, "cleanup.policy": "delete"})
    log, other = brokers.replica(0, topic_id).log, brokers.replica(0, other_id).log
    await put(brokers, topic_id, 60)
    channel = await brokers.connect(0)
    for _ in range(20):
        record = SimpleRecord(b"key", b"x" * 200, (), START_MS)
        await channel.request(produce(other_id, build_batch([record])))
    table, end = state_of(records_from(log, 0)), log.log_end_offset
    await clean(brokers, log)
    assert state_of(records_from(log, 0)) == table
    assert log.log_end_offset == end
    assert len(records_from(log, 0)) < 20
    assert len(records_from(other, 0)) == 20
    clock = Clock(brokers)
    checkpoint = directory_of(brokers) / CHECKPOINT
    await clock.until(checkpoint.exists, "the checkpoint")
    assert read_offsets(checkpoint) == {T0: log.segments.active.base_offset}


@with_brokers(config={**CONFIG, "sparklog.remote.uri": "file:///unused"}, owner_epoch=None)
async def test_tiered_topic_is_cleaned_no_further_than_the_tier_reaches(brokers: Brokers) -> None:
    """A later record that takes its place may be lost with all disks, and the bucket have neither."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    replica = brokers.replica(0, topic_id)
    log = replica.log
    await put(brokers, topic_id, 60)
    clock = Clock(brokers)
    for _ in range(3):
        clock.tick(1000)
        await clock.until(lambda: True, "a tick")
    assert (log.cleaned_offset, running_cleaners()) == (None, [])
    tier = replica.tier = Tier.of(replica)
    fourth = tier.tiered_end_offset = log.segments.all[3].base_offset
    await clean(brokers, log)
    assert log.cleaned_offset == fourth
    assert {offset for offset, *_ in records_from(log, 0)} >= set(range(fourth, 60))


@with_brokers(config=CONFIG)
async def test_log_that_is_not_dirty_enough_starts_no_process(brokers: Brokers) -> None:
    """Cleaning copies the whole log: it has to be worth it. And an idle broker has no cleaner."""
    topic_id = await brokers.create_topic("t", [(0,)], {**COMPACTED, "min.cleanable.dirty.ratio": "1"})
    log = brokers.replica(0, topic_id).log
    await put(brokers, topic_id, 20)
    clock = Clock(brokers)
    for _ in range(3):
        clock.tick(1000)
        await clock.until(lambda: True, "a tick")
    assert (log.cleaned_offset, running_cleaners()) == (None, [])


@with_brokers(config={**CONFIG, "log.cleaner.dedupe.buffer.size": str(24 * 8)})
async def test_log_with_more_keys_than_the_buffer_is_cleaned_whole_in_one_go(brokers: Brokers) -> None:
    """The rounds follow each other: no log stays half clean until somebody writes to it again."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    log = brokers.replica(0, topic_id).log
    await put(brokers, topic_id, 60, keys=20)
    table = state_of(records_from(log, 0))
    await clean(brokers, log, lambda: log.cleaned_offset == log.segments.active.base_offset)
    assert state_of(records_from(log, 0)) == table


@with_brokers(config=CONFIG)
async def test_log_that_cannot_be_cleaned_is_set_aside_and_others_are_cleaned(brokers: Brokers) -> None:
    """One damaged batch must not keep the cleaner from every other log."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    other_id = await brokers.create_topic("u", [(0,)], COMPACTED)
    log, other = brokers.replica(0, topic_id).log, brokers.replica(0, other_id).log
    await put(brokers, topic_id, 60)
    await put(brokers, other_id, 40)
    with (log.directory / f"{0:020}.log").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    await clean(brokers, other)
    assert log.cleaned_offset is None
    assert not brokers.replica(0, topic_id).offline
    tags = {"logDirectory": str(directory_of(brokers))}
    figures = brokers.brokers[0].replicas.metrics.snapshot(0)
    assert figures[storage.UNCLEANABLE_PARTITIONS.of(**tags)] == 1
    assert figures[storage.MAX_DIRTY_PERCENT.of()] < 50
    assert list(log.directory.glob("*.cleaned")) == []


@with_brokers(count=2, config=CONFIG)
async def test_leader_and_follower_clean_alone_and_say_the_same(brokers: Brokers) -> None:
    """Followers clean alone, when they see fit: what they say of the topic is the same."""
    topic_id = await brokers.create_topic("t", [(0, 1)], COMPACTED)
    await put(brokers, topic_id, 60)
    leader = brokers.replica(0, topic_id).log
    clock, other_clock = Clock(brokers), Clock(brokers, 1)

    def both_cleaned() -> bool:
        other_clock.tick(1000)
        return brokers.replica(1, topic_id).log.cleaned_offset is not None and (
            leader.cleaned_offset is not None
        )

    clock.tick(1000)
    await clock.until(both_cleaned, "both cleaned")
    follower = brokers.replica(1, topic_id).log
    assert state_of(records_from(follower, 0)) == state_of(records_from(leader, 0))


@with_brokers(config=CONFIG)
async def test_broker_that_stops_while_cleaning_leaves_no_process_and_a_whole_log(brokers: Brokers) -> None:
    """A cleaning may take an hour: nobody waits for it."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    log = brokers.replica(0, topic_id).log
    await put(brokers, topic_id, 60)
    clock = Clock(brokers)
    clock.tick(1000)
    await clock.until(lambda: bool(running_cleaners()), "a cleaner")
    table = state_of(records_from(log, 0))
    await brokers.stop(0)
    await brokers.start(0)
    await clock.until(lambda: not running_cleaners(), "the end of the cleaner")
    again = brokers.replica(0, topic_id).log
    assert again is not log
    assert state_of(records_from(again, 0)) == table
    assert list(again.directory.glob("*.cleaned")) == []


@with_brokers(config=CONFIG)
async def test_checkpoint_beyond_the_log_is_not_believed(brokers: Brokers) -> None:
    """A file from elsewhere must not have records taken for clean that nobody has looked at."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    await put(brokers, topic_id, 60)
    checkpoint = directory_of(brokers) / CHECKPOINT
    await brokers.stop(0)
    write_offsets(checkpoint, {T0: 10**6})
    await brokers.start(0)
    log = brokers.replica(0, topic_id).log
    assert log.cleaned_offset == 0
    await clean(brokers, log)
    assert log.cleaned_offset == log.segments.active.base_offset
    assert len(records_from(log, 0)) < 20


@with_brokers(config=CONFIG)
async def test_checkpoint_of_another_format_is_not_believed(brokers: Brokers) -> None:
    """It costs a cleaning of the whole log, and nothing else."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    await put(brokers, topic_id, 60)
    checkpoint = directory_of(brokers) / CHECKPOINT
    await brokers.stop(0)
    checkpoint.write_text("9\nwhat is this\n")
    await brokers.start(0)
    log = brokers.replica(0, topic_id).log
    assert log.cleaned_offset is None
    await clean(brokers, log)
    assert len(records_from(log, 0)) < 20


@with_brokers(config=CONFIG)
async def test_cleaning_begins_only_when_the_files_of_the_last_one_have_their_names(brokers: Brokers) -> None:
    """The next one would read what was replaced, and write over what the log consists of."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    log = brokers.replica(0, topic_id).log
    await put(brokers, topic_id, 60)
    table = state_of(records_from(log, 0))
    rename, failed = Path.rename, CleanerSchedule.failed
    attempts: list[str] = []

    def renamed(path: Path, target: Path) -> Path:
        if str(target).endswith(".swap"):
            raise OSError(errno.ENOSPC, "no space left")
        return rename(path, target)

    def failed_long_ago(
        schedule: CleanerSchedule, topic_partition: TopicPartition, reason: str, now_ms: int
    ) -> SetAside:
        attempts.append(reason)
        return failed(schedule, topic_partition, reason, now_ms - 10_000_000)

    clock = Clock(brokers)
    with pytest.MonkeyPatch.context() as impatient:
        impatient.setattr(CleanerSchedule, "failed", failed_long_ago)
        with pytest.MonkeyPatch.context() as full:
            full.setattr(Path, "rename", renamed)
            clock.tick(1000)
            await clock.until(lambda: len(attempts) >= 2, "another attempt")
            cleaned = log.segments.all[0].file
            assert cleaned.path.name.endswith(".cleaned")
            assert os.fstat(cleaned.fileno()).st_nlink == 1
        clock.tick(1000)
        await clock.until(lambda: log.cleaned_offset is not None, "a cleaning")
    assert state_of(records_from(log, 0)) == table


DEADLY = """
import json, os, sys
from sparklog.node.storage.cleaning.cleaner import clean
from sparklog.node.storage.cleaning.request import CleaningRequest

for line in sys.stdin.buffer:
    directory = json.loads(line)["directory"]
    if directory.endswith("/t-0"):
        open(f"{directory}/{0:020}.log.cleaned", "w").close()
        os._exit(9)
    sys.stdout.buffer.write(clean(CleaningRequest.decode(line)).encode())
    sys.stdout.buffer.flush()
"""


@with_brokers(config=CONFIG)
async def test_log_whose_cleaner_is_killed_is_set_aside_and_others_are_cleaned(brokers: Brokers) -> None:
    """What needs more memory than there is would have every cleaner killed, and no log cleaned any more."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    other_id = await brokers.create_topic("u", [(0,)], COMPACTED)
    log, other = brokers.replica(0, topic_id).log, brokers.replica(0, other_id).log
    await put(brokers, topic_id, 60)
    await put(brokers, other_id, 40)
    modules = log.directory.parent.parent / "modules"
    modules.mkdir()
    (modules / "deadly_cleaner.py").write_text(DEADLY)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(modules)
        patched.setattr(cleaner_processes, "_MODULE", "deadly_cleaner")
        await clean(brokers, other)
    assert log.cleaned_offset is None
    assert list(log.directory.glob("*.cleaned")) == []


def told(key: str, value: str | None, broker: str = "") -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name=broker, name=key, value=value)


@with_brokers(config={"log.cleaner.backoff.ms": "100000", "log.cleaner.dedupe.buffer.size": "24"})
async def test_cleaner_obeys_what_it_is_told_while_its_broker_runs(brokers: Brokers) -> None:
    """A log that nobody can clean, or nobody yet, must not wait for a restart of the application."""
    topic_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    log = brokers.replica(0, topic_id).log
    await put(brokers, topic_id, 60)
    clock = Clock(brokers)
    clock.tick(1000)
    assert running_cleaners() == []
    await brokers.commit(
        told("log.cleaner.backoff.ms", "500"), told("log.cleaner.dedupe.buffer.size", "4096", broker="0")
    )
    await clean(brokers, log)
    assert log.cleaned_offset == log.segments.active.base_offset


@with_brokers(config=CONFIG, directories_each=1)
async def test_second_cleaner_takes_the_next_log_as_soon_as_there_may_be_two(brokers: Brokers) -> None:
    """One that cleans for an hour must not keep what was told from having any effect."""
    first_id = await brokers.create_topic("t", [(0,)], COMPACTED)
    second_id = await brokers.create_topic("u", [(0,)], COMPACTED)
    first, second = brokers.replica(0, first_id).log, brokers.replica(0, second_id).log
    await put(brokers, first_id, 60)
    await put(brokers, second_id, 40)
    may_go_on = threading.Event()
    cleaned = CleanerProcess.clean

    def held(process: CleanerProcess, request: CleaningRequest) -> CleaningOutcome:
        if request.directory.endswith("/t-0"):
            may_go_on.wait(20)
        return cleaned(process, request)

    clock = Clock(brokers)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CleanerProcess, "clean", held)
        try:
            clock.tick(1000)
            await brokers.commit(told("log.cleaner.threads", "2"))
            await clock.until(lambda: second.cleaned_offset is not None, "the other one")
            assert first.cleaned_offset is None
            await brokers.commit(told("log.cleaner.threads", "1"))
        finally:
            may_go_on.set()
        await clock.until(lambda: first.cleaned_offset is not None, "the first one")
