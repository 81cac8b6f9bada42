"""Reads that need the disk."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.executor.api.fetch.cold_reads import warm
from sparklog.node.storage.file_region import FileRegion, LogFile
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from tests.unit.executor.brokers import Brokers, until, with_brokers
from tests.unit.executor.logs.test_disk_failures import failing
from tests.unit.executor.requests import batch, fetch, produce, rows


def test_region_just_written_is_warm_and_so_is_one_read_again(
    tmp_path: Path,
) -> None:
    """The common case must cost nothing, the rare one must not stop the loop."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(4 << 20))
    region = FileRegion(LogFile.open(path), 0, 4 << 20)
    assert region.is_cached()
    os.fsync(region.fileno())
    os.posix_fadvise(region.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    warm([region])
    assert region.is_cached()


def test_warming_says_which_region_the_disk_does_not_give(tmp_path: Path) -> None:
    """A read that fails while it is sent only ends a connection; here it is known whose log it was."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100)
    sound = FileRegion(LogFile.open(path), 0, 100)
    directory = FileRegion(LogFile(tmp_path, os.open(tmp_path, os.O_RDONLY)), 0, 100)
    first, second = warm([sound, directory])
    assert first is None
    assert isinstance(second, IsADirectoryError)


def test_warming_a_region_that_was_truncated_ends(tmp_path: Path) -> None:
    """Whoever sends it finds out; here nothing may hang or raise."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(10))
    warm([FileRegion(LogFile.open(path), 0, 4 << 20)])


@with_brokers(count=1)
async def test_fetch_of_cold_records_is_answered_after_they_were_read_beside_the_loop(
    brokers: Brokers,
) -> None:
    """The answer is the same, and it keeps its place among those of the connection."""
    topic_id = await brokers.create_topic("t", [(0,)])
    channel = await brokers.connect(0)
    for _ in range(2):
        await channel.request(produce(topic_id, batch(value=bytes(100))))
    log = brokers.replica(0, topic_id).log
    log.flush()
    size_bytes = log.size_bytes // 2
    region = log.read(0, max_bytes=size_bytes, up_to_offset=2).region
    assert region is not None
    os.posix_fadvise(region.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    # Two requests in one go: the second is about what is in memory, and must not overtake the first.
    first = channel.request(fetch(topic_id, {0: 0}, partition_max_bytes=size_bytes))
    second = channel.request(fetch(topic_id, {0: 2}))
    (row,) = rows(await first)
    assert len(row.records) == size_bytes
    (row,) = rows(await second)
    assert len(row.records) == 0


class ColdFiles:
    """A log's files as if the page cache had nothing of them, until somebody beside the loop reads them."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.warmed: set[str] = set()
        self.stalls: list[str] = []
        """What the event loop read, or opened, and had to wait for."""
        self.is_warming, self.may_warm = threading.Event(), threading.Event()
        """Set when somebody reads beside the loop; cleared to keep whoever does so waiting."""
        self.may_warm.set()

    @contextmanager
    def installed(self) -> Iterator["ColdFiles"]:
        real_pread, real_preadv, real_open = os.pread, os.preadv, os.open

        def path_of(descriptor: int) -> str | None:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            return path if path.startswith(self.directory) else None

        def on_loop() -> bool:
            return threading.current_thread() is threading.main_thread()

        def pread(descriptor: int, length: int, position: int) -> bytes:
            path = path_of(descriptor)
            if path is not None and not on_loop():
                self.is_warming.set()
                self.may_warm.wait(20)
                self.warmed.add(path)
            elif path is not None and path not in self.warmed:
                self.stalls.append(path)
            return real_pread(descriptor, length, position)

        def preadv(descriptor: int, buffers: Any, position: int, flags: int = 0) -> int:
            path = path_of(descriptor)
            if path is not None and path not in self.warmed:
                assert flags & os.RWF_NOWAIT
                raise BlockingIOError(errno.EAGAIN, "not in memory")
            return real_preadv(descriptor, buffers, position, flags)

        def open_file(path: Any, *arguments: Any, **options: Any) -> int:
            if str(path).startswith(self.directory) and on_loop():
                self.stalls.append(str(path))
            return real_open(path, *arguments, **options)

        os.pread, os.preadv, os.open = pread, preadv, open_file
        try:
            yield self
        finally:
            os.pread, os.preadv, os.open = real_pread, real_preadv, real_open


async def restarted_with_batches(brokers: Brokers, count: int) -> UUID:
    """Produce, and start the broker again: nobody has read there yet.

    Opening the log looks for the largest timestamp of each segment all the same: that of its last batch,
    since timestamps rise.
    """
    topic_id = await brokers.create_topic("t", [(0,)], {"index.interval.bytes": "300"})
    channel = await brokers.connect(0)
    first_ms = int(time.time() * 1000) - count
    for number in range(count):
        records = build_batch([SimpleRecord(None, bytes(100), (), first_ms + number)])
        await channel.request(produce(topic_id, records))
        if number % 10 == 9:
            brokers.replica(0, topic_id).log.roll(0)
    await brokers.stop(0)
    await brokers.start(0)
    await brokers.commit()
    replica = brokers.replica(0, topic_id)
    await until(lambda: replica.leadership is not None and replica.high_watermark == count, "the leader")
    return topic_id


@with_brokers()
async def test_fetch_does_not_wait_on_the_loop_for_what_leads_to_the_records(brokers: Brokers) -> None:
    """One consumer far behind on a cold disk must not stop the others: nor by headers, nor by indexes."""
    topic_id = await restarted_with_batches(brokers, 35)
    channel = await brokers.connect(0)
    with ColdFiles(brokers.replica(0, topic_id).log.directory).installed() as cold:
        for offset in (15, 33, 7):
            # Two requests in one go: the second is about nothing cold, and must not overtake the first.
            first = channel.request(fetch(topic_id, {0: offset}, partition_max_bytes=400))
            second = channel.request(fetch(topic_id, {0: 35}))
            (row,) = rows(await first)
            assert [header.base_offset for _, header in iterate_headers(row.records)] == [offset, offset + 1]
            (row,) = rows(await second)
            assert (row.error_code, len(row.records)) == (ErrorCode.none, 0)
        assert cold.stalls == []
        assert {Path(path).suffix for path in cold.warmed} == {".log", ".index"}


@with_brokers()
async def test_fetch_that_finds_too_little_after_a_look_beside_the_loop_waits_as_any_other(
    brokers: Brokers,
) -> None:
    """It must lose neither the wake-up by an append nor its deadline."""
    topic_id = await restarted_with_batches(brokers, 15)
    replica = brokers.replica(0, topic_id)
    reader, writer = await brokers.connect(0), await brokers.connect(0)
    with ColdFiles(replica.log.directory).installed() as cold:
        waiting = reader.request(
            fetch(topic_id, {0: 13}, min_bytes=800, max_wait_ms=20_000), timeout_ms=25_000
        )
        await until(lambda: bool(cold.warmed and replica.progress.consumer_readers), "the request that waits")
        for _ in range(5):
            await writer.request(produce(topic_id, batch(value=bytes(100))))
        (row,) = rows(await waiting)
        assert len(row.records) >= 800
        (row,) = rows(await reader.request(fetch(topic_id, {0: 4}, min_bytes=100_000, max_wait_ms=20)))
        assert [header.base_offset for _, header in iterate_headers(row.records)] == [4, 5, 6, 7, 8, 9]
        assert cold.stalls == []


@pytest.mark.parametrize("happens", ["append", "stop", "deadline"])
@pytest.mark.parametrize("session_epoch", [0, -1])
def test_fetch_misses_nothing_of_what_happens_while_it_is_looked_up_beside_the_loop(
    tmp_path: Path, happens: str, session_epoch: int
) -> None:
    """Nobody wakes it meanwhile, and nobody does again: it has to see afterwards what has happened."""

    @with_brokers()
    async def misses_nothing(brokers: Brokers) -> None:
        topic_id = await restarted_with_batches(brokers, 15)
        replica = brokers.replica(0, topic_id)
        reader, writer = await brokers.connect(0), await brokers.connect(0)
        with ColdFiles(replica.log.directory).installed() as cold:
            cold.may_warm.clear()
            try:
                waiting = reader.request(
                    fetch(
                        topic_id,
                        {0: 13},
                        min_bytes=800,
                        max_wait_ms=1 if happens == "deadline" else 20_000,
                        session_epoch=session_epoch,
                    ),
                    timeout_ms=25_000,
                )
                await until(cold.is_warming.is_set, "the look-up")
                if happens == "append":
                    for _ in range(5):
                        await writer.request(produce(topic_id, batch(value=bytes(100))))
                elif happens == "stop":
                    replica.stop()
                assert not waiting.done()
            finally:
                cold.may_warm.set()
            (row,) = rows(await asyncio.wait_for(waiting, 15))
        if happens == "stop":
            assert row.error_code is ErrorCode.not_leader_or_follower
        else:
            offsets = [header.base_offset for _, header in iterate_headers(row.records)]
            assert offsets == list(range(13, 20 if happens == "append" else 15))

    misses_nothing(tmp_path)


@with_brokers()
async def test_fetch_whose_index_the_disk_does_not_give_takes_its_directory_offline(brokers: Brokers) -> None:
    """What goes wrong beside the loop counts as if it had gone wrong on it, and the request is answered."""
    topic_id = await restarted_with_batches(brokers, 15)
    channel = await brokers.connect(0)
    log = brokers.replica(0, topic_id).log
    with ColdFiles(log.directory).installed(), failing("pread", errno.EIO, of=f"{log.directory}/"):
        (row,) = rows(await channel.request(fetch(topic_id, {0: 4}, partition_max_bytes=400)))
    assert row.error_code is ErrorCode.kafka_storage_error
    assert brokers.brokers[0].directory.failure is not None


@with_brokers()
async def test_fetch_whose_look_up_meets_a_mistake_is_answered_with_an_error(brokers: Brokers) -> None:
    """Nobody else answers it: a client would wait for ever, and its session with it."""
    topic_id = await restarted_with_batches(brokers, 15)
    channel = await brokers.connect(0)

    def mistaken(*arguments: Any) -> bytes:
        raise RuntimeError("a mistake")

    with ColdFiles(brokers.replica(0, topic_id).log.directory).installed():
        os.pread, real_pread = mistaken, os.pread
        try:
            answer = channel.request(fetch(topic_id, {0: 4}, partition_max_bytes=400))
            (row,) = rows(await asyncio.wait_for(answer, 15))
        finally:
            os.pread = real_pread
    assert row.error_code is ErrorCode.unknown_server_error
