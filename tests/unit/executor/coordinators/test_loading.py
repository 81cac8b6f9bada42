"""Loading a coordinator from a real log: what is in it, what is not known, and what goes on meanwhile."""

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind
from sparklog.executor.coordinators.loading import BUFFERS, SLICE_WORK
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
)
from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS, encode_key, encode_value
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.records.key_values import KeyRun
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_disk_failures import failing

TOPIC = "offsets"


class Offsets:
    """A machine that keeps the last offset of each group, of raw records if it takes them."""

    def __init__(self) -> None:
        self.offsets: dict[str, int | None] = {}
        self.next_due_ms: int | None = None

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        key, value = record
        assert isinstance(key, OffsetCommitKey)
        self.offsets[key.group] = value.offset if isinstance(value, OffsetCommitValue) else None

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        raise AssertionError("there is none")

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        return ()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        return ()

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        return ()

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        return None


class RawOffsets(Offsets):
    """Takes records of even groups as they lie in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_count = 0

    def replay_raw(self, run: KeyRun) -> bool:
        for key, value in run.keys_and_values():
            decoded, _ = CONSUMER_OFFSETS_RECORDS.decode(key, None)
            if int(decoded.group) % 2:
                return False
            self.raw_count += 1
            self.offsets[decoded.group] = (
                None if value is None else CONSUMER_OFFSETS_RECORDS.decode(key, value)[1].offset  # type: ignore[union-attr]
            )
        return True


class ReleasedOffsets(RawOffsets):
    """Lets go of them one by one, and notes how many others had a turn before each."""

    def __init__(self) -> None:
        super().__init__()
        self.turns_of_others = 0
        self.turns_before: list[int] = []

    def release(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        while self.offsets:
            self.offsets.popitem()
            self.turns_before.append(self.turns_of_others)
            loop.call_soon(self._turn)
            yield

    def _turn(self) -> None:
        self.turns_of_others += 1


class Loads:
    """A runtime of such machines on broker 0, which hears of what is led from now on."""

    def __init__(self, brokers: Brokers, machine_type: type[Offsets] = Offsets, **kind: Any) -> None:
        self.machines: list[Any] = []
        replicas = brokers.brokers[0].replicas

        def new_machine(partition: int) -> Offsets:
            self.machines.append(machine_type())
            return self.machines[-1]

        self.runtime = CoordinatorRuntime(
            CoordinatorKind(
                topic=TOPIC,
                records=CONSUMER_OFFSETS_RECORDS,
                new_machine=new_machine,
                write_timeout_ms=60_000,
                **{"load_buffer_bytes": 2048} | kind,
            ),
            replicas.executor,
            replicas.lease.obey,
        )
        replicas.listeners.append(self.runtime)

    async def until_active(self) -> Any:
        await until(lambda: self.runtime.partitions == {0: CoordinatorState.ACTIVE}, "it is loaded")
        return self.machines[-1]

    def ask(self) -> list[Any]:
        """Ask for something; return where the answer will be."""
        answers: list[Any] = []
        self.runtime.submit_to(
            0,
            lambda machine, token, now: CoordinatorResult(replies=[Reply(token, "answer")]),
            lambda error_code: error_code,
        ).bind(answers.append)
        return answers


def commit(number: int, offset: int | None, version: int | None = None) -> tuple[bytes, bytes | None]:
    """The key and value of a record of a group of that number."""
    key = encode_key(OffsetCommitKey(group=str(number), topic="t", partition=0))
    if offset is None:
        return key, None
    return key, encode_value(OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1), version)


async def written(
    brokers: Brokers, *batches: Iterable[tuple[bytes | None, bytes | None]], codec: Codec = Codec.NONE
) -> Any:
    """Create the topic and write batches of records, as a leader before this one would have."""
    topic_id = await brokers.create_topic(TOPIC, [(0, *range(1, brokers.count))])
    for records in batches:
        append(brokers, topic_id, records, codec)
    return topic_id


def append(
    brokers: Brokers,
    topic_id: UUID,
    records: Iterable[tuple[bytes | None, bytes | None]],
    codec: Codec = Codec.NONE,
    partition: int = 0,
) -> None:
    """Append a batch to a partition that broker 0 leads."""
    batch = build_batch([SimpleRecord(*record, (), 1) for record in records], codec=codec)
    now_ms = int(time.time() * 1000)
    brokers.replica(0, topic_id, partition).append(batch, read_header(batch), 0, now_ms, None)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("machine_type", [Offsets, RawOffsets])
def test_load_of_many_batches_brings_the_last_of_each_key(
    tmp_path: Any, machine_type: type[Offsets], codec: Codec
) -> None:
    """Values of every version, tombstones, compressed batches and more than is read at a time."""

    @with_brokers()
    async def load(brokers: Brokers) -> None:
        batches = [
            [commit(group, 1000 * version + group, version) for group in range(200)] for version in range(5)
        ]
        topic_id = await written(brokers, *batches, [commit(7, None), commit(8, None)], codec=codec)
        loads = Loads(brokers, machine_type)
        await brokers.elect(topic_id, 0, leader=0, isr=[0])
        machine = await loads.until_active()
        expected = {str(group): 4000 + group for group in range(200)} | {"7": None, "8": None}
        assert machine.offsets == expected
        assert getattr(machine, "raw_count", 501) == 501

    load(tmp_path)


@with_brokers()
async def test_log_without_records_is_on_the_disk_before_its_coordinator_serves(brokers: Brokers) -> None:
    """The first record is appended on the loop, which stood still for a new directory and three fsyncs."""
    loads = Loads(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0,)])
    await loads.until_active()
    log = brokers.replica(0, topic_id).log
    assert (log.has_files, log.identity_unsynced) == (True, False)


@with_brokers()
async def test_load_lets_others_have_their_turn_and_refuses_for_now(brokers: Brokers) -> None:
    """A million records are loaded in slices; requests are answered COORDINATOR_LOAD_IN_PROGRESS."""
    count = 20 * SLICE_WORK
    topic_id = await written(
        brokers, *([commit(2 * group, 1) for group in range(500)] for _ in range(count // 500))
    )
    loads = Loads(brokers, RawOffsets)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    turns = 0
    while loads.runtime.partitions == {0: CoordinatorState.LOADING}:
        assert loads.ask() == [ErrorCode.coordinator_load_in_progress]
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 20
    assert loads.machines[0].raw_count == count // 500 * 500


@with_brokers()
async def test_loads_of_a_broker_take_turns_and_a_short_one_serves_before_a_long_one(
    brokers: Brokers,
) -> None:
    """After a failover a broker has many: a slice of each in every turn would keep all others waiting, and
    one after the other a group whose partition has few records."""
    topic_id = await brokers.create_topic(TOPIC, [(0,)] * 3)
    batch = [commit(2 * group, 1) for group in range(500)]
    for _ in range(20):
        append(brokers, topic_id, batch, partition=0)
    for partition in (1, 2):
        append(brokers, topic_id, batch, partition=partition)
    loads = Loads(brokers, RawOffsets, load_buffer_bytes=1 << 16)
    await brokers.commit(
        *(PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=0) for number in range(3))
    )
    replayed = [0]
    while loads.runtime.partitions != {
        0: CoordinatorState.LOADING,
        1: CoordinatorState.ACTIVE,
        2: CoordinatorState.ACTIVE,
    }:
        assert loads.runtime.partitions.get(0) is not CoordinatorState.ACTIVE
        replayed.append(sum(machine.raw_count for machine in loads.machines))
        await asyncio.sleep(0)
    assert max(after - before for before, after in pairwise(replayed)) < 2 * SLICE_WORK
    await until(lambda: loads.runtime.partitions[0] is CoordinatorState.ACTIVE, "the long one is loaded, too")
    assert [machine.raw_count for machine in loads.machines] == [10_000, 500, 500]


@contextmanager
def hanging_reads(directory: Path) -> Iterator[list[str]]:
    """Let no read of a directory's files return before the end; yields the files."""
    real, released, hanging = os.pread, threading.Event(), list[str]()

    def pread(file: int, length: int, offset: int, /) -> bytes:
        path = str(Path(f"/proc/self/fd/{file}").readlink())
        if path.startswith(f"{directory}/"):
            hanging.append(path)
            released.wait(timeout=30)
        return real(file, length, offset)

    os.pread = pread
    try:
        yield hanging
    finally:
        os.pread = real
        released.set()


@with_brokers(directories_each=2)
async def test_loads_from_a_disk_that_hangs_leave_the_others_room(brokers: Brokers) -> None:
    """Half of a broker's groups may lie on it: theirs wait, and nobody else's."""
    count = 2 * (BUFFERS + 1)
    topic_id = await brokers.create_topic(TOPIC, [(0,)] * count)
    for partition in range(count):
        append(brokers, topic_id, [commit(2, 1)], partition=partition)
    directory = brokers.brokers[0].directory.path
    on_it = {
        number for number in range(count) if brokers.replica(0, topic_id, number).log.parent == str(directory)
    }
    assert len(on_it) == BUFFERS + 1
    loads = Loads(brokers)
    with hanging_reads(directory) as hanging:
        await brokers.commit(
            *(
                PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=0)
                for number in sorted(range(count), key=lambda number: number not in on_it)
            )
        )
        await until(
            lambda: (
                loads.runtime.partitions
                == {
                    number: CoordinatorState.LOADING if number in on_it else CoordinatorState.ACTIVE
                    for number in range(count)
                }
            ),
            "those on the other disk are loaded",
        )
        assert len(hanging) == 1
    await until(lambda: set(loads.runtime.partitions.values()) == {CoordinatorState.ACTIVE}, "so are its own")


@with_brokers()
async def test_load_that_is_called_off_has_its_directory_wait_for_its_thread(brokers: Brokers) -> None:
    """A lease that is lost and comes back, over and over, would give a disk that hangs all threads."""
    topic_id = await written(brokers, [commit(2, 1)])
    loads = Loads(brokers)
    with hanging_reads(brokers.brokers[0].directory.path) as hanging:
        await brokers.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=0))
        await until(lambda: bool(hanging), "its read hangs")
        for _ in range(5):
            loads.runtime.reload(loads.runtime._coordinators[0])
            await asyncio.sleep(0)
        assert len(hanging) == 1
    await until(lambda: loads.runtime.partitions == {0: CoordinatorState.ACTIVE}, "it is loaded")


@with_brokers(count=2)
async def test_load_ends_with_the_leadership_that_it_is_for(brokers: Brokers) -> None:
    """What is half-loaded must never answer, nor go on reading."""
    topic_id = await written(brokers, *([commit(2 * group, 1) for group in range(500)] for _ in range(40)))
    loads = Loads(brokers, RawOffsets)
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    await until(lambda: loads.machines[0].raw_count > 0, "the load is under way")
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    assert (loads.runtime.partitions, loads.ask()) == ({}, [ErrorCode.not_coordinator])
    loaded = loads.machines[0].raw_count
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    machine = await loads.until_active()
    assert (machine.raw_count, loads.machines[0].raw_count, len(loads.machines)) == (20_000, loaded, 2)
    assert loaded < 20_000


@with_brokers(count=2)
async def test_partition_that_is_led_elsewhere_is_let_go_of_in_slices(brokers: Brokers) -> None:
    """A million offsets at once keep everybody waiting, and a full collection may not find them at all."""
    topic_id = await written(brokers, [commit(2 * group, 1) for group in range(50)])
    loads = Loads(brokers, ReleasedOffsets)
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    machine = await loads.until_active()
    await brokers.elect(topic_id, 0, leader=1, isr=[0, 1])
    await until(lambda: not machine.offsets, "all are let go of")
    assert machine.turns_before == list(range(50))


@with_brokers(count=2)
async def test_load_beyond_the_high_watermark_answers_when_it_is_committed(brokers: Brokers) -> None:
    """A coordinator that dies between append and commit has acknowledged nothing of it."""
    loads = Loads(brokers)
    topic_id = await brokers.create_topic(TOPIC, [(0, 1)])
    await brokers.stop(1)
    replica = brokers.replica(0, topic_id)
    append(brokers, topic_id, [commit(1, 5)])
    await brokers.elect(topic_id, 0, leader=0, isr=[0, 1])
    machine = await loads.until_active()
    answers = loads.ask()
    assert (machine.offsets, replica.high_watermark, answers) == ({"1": 5}, 0, [])
    await brokers.start(1)
    await until(lambda: answers == ["answer"], "it is committed")


@with_brokers()
async def test_load_passes_over_record_types_of_other_versions(brokers: Brokers) -> None:
    """Share groups' records in a topic that Kafka wrote keep nobody's offsets from being read."""
    topic_id = await written(brokers, [(b"\0\x0erest", b"\0\0"), commit(1, 5), (b"\x7f\x01", None)])
    loads = Loads(brokers)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    assert (await loads.until_active()).offsets == {"1": 5}


@pytest.mark.parametrize(
    ("record", "skips"),
    [
        ((commit(1, 5)[0], b"\0\x05new"), False),
        ((commit(1, 5)[0], b"\0\x04"), True),
        ((None, b"\0\x04"), True),
    ],
)
def test_load_of_what_cannot_be_read_serves_nobody(tmp_path: Any, record: Any, skips: bool) -> None:
    """An offset that is not known would be one that is answered wrongly."""

    @with_brokers()
    async def load(brokers: Brokers) -> None:
        topic_id = await written(brokers, [record])
        loads = Loads(brokers, skips_unknown_versions=skips)
        logging.disable(logging.ERROR)
        try:
            await brokers.elect(topic_id, 0, leader=0, isr=[0])
            await until(lambda: not loads.runtime.partitions, "it is given up")
        finally:
            logging.disable(logging.NOTSET)
        assert loads.ask() == [ErrorCode.not_coordinator]
        replica = brokers.replica(0, topic_id)
        assert (replica.leadership is None, replica.offline) == (False, False)

    load(tmp_path)


@with_brokers()
async def test_load_of_a_kind_that_may_passes_over_newer_versions(brokers: Brokers) -> None:
    """As Kafka's transaction coordinator does."""
    topic_id = await written(brokers, [(commit(1, 5)[0], b"\0\x05new"), commit(2, 6)])
    loads = Loads(brokers, skips_unknown_versions=True)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    assert (await loads.until_active()).offsets == {"2": 6}


@with_brokers()
async def test_load_that_the_system_refuses_is_tried_again(brokers: Brokers) -> None:
    """Without memory for a moment a broker must not leave its groups without a coordinator for good."""
    topic_id = await written(brokers, *([commit(group, 5)] for group in range(100)))
    loads = Loads(brokers)
    with failing("pread", errno.ENOMEM, of=f"{TOPIC}-0") as failed:
        await brokers.elect(topic_id, 0, leader=0, isr=[0])
        await until(lambda: bool(failed), "the log cannot be read")
        assert loads.ask() == [ErrorCode.coordinator_load_in_progress]
    assert (await loads.until_active()).offsets == {str(group): 5 for group in range(100)}
    assert not brokers.replica(0, topic_id).offline


@with_brokers()
async def test_load_that_a_disk_fails_is_of_no_partition_that_is_led(brokers: Brokers) -> None:
    """Another broker coordinates from then on: who is told of partitions that failed would look here."""
    topic_id = await written(brokers, [commit(1, 5)])
    loads = Loads(brokers)
    logging.disable(logging.ERROR)
    try:
        with failing("pread", errno.EIO, of=f"{TOPIC}-0"):
            await brokers.elect(topic_id, 0, leader=0, isr=[0])
            await until(lambda: not loads.runtime.partitions, "it is given up")
    finally:
        logging.disable(logging.NOTSET)
    assert (brokers.replica(0, topic_id).offline, loads.runtime.failed) == (True, set())


@with_brokers()
async def test_load_of_a_log_that_begins_elsewhere_meanwhile_begins_there(brokers: Brokers) -> None:
    """Where somebody has records deleted, only those that are left count."""
    topic_id = await written(brokers, *([commit(2 * group, 1) for group in range(500)] for _ in range(40)))
    append(brokers, topic_id, [commit(8, 2)])
    loads = Loads(brokers, RawOffsets)
    await brokers.elect(topic_id, 0, leader=0, isr=[0])
    await until(lambda: loads.machines[0].raw_count > 0, "the load is under way")
    brokers.replica(0, topic_id).delete_records(20_000)
    assert (await loads.until_active()).offsets == {"8": 2}
