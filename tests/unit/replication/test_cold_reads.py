"""Reads that need the disk."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from executor.replication.cold_reads import is_cold, warm
from sparklog.errors import ErrorCode
from sparklog.records.batch import iterate_headers
from sparklog.storage.file_region import FileRegion, LogFile
from tests.unit.replication.brokers import Brokers, until, with_brokers
from tests.unit.replication.requests import batch, fetch, produce, rows
from tests.unit.replication.test_disk_failures import failing


def test_region_just_written_is_warm_and_so_is_one_read_again(
    tmp_path: Path,
) -> None:
    """The common case must cost nothing, the rare one must not stop the loop."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(4 << 20))
    region = FileRegion(LogFile.open(path), 0, 4 << 20)
    assert not is_cold(region)
    os.fsync(region.fileno())
    os.posix_fadvise(region.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    warm([region])
    assert not is_cold(region)


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
    """Produce, and start the broker again: nobody has read there yet."""
    topic_id = await brokers.create_topic("t", [(0,)], {"index.interval.bytes": "300"})
    channel = await brokers.connect(0)
    for number in range(count):
        await channel.request(produce(topic_id, batch(value=bytes(100))))
        if number % 10 == 9:
            brokers.replica(0, topic_id).log.roll(0)
    await brokers.stop(0)
    await brokers.start(0)
    await brokers.commit()
    replica = brokers.replica(0, topic_id)
    await until(lambda: replica.leader is not None and replica.high_watermark == count, "the leader")
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
async def test_fetch_whose_index_the_disk_does_not_give_takes_its_directory_offline(brokers: Brokers) -> None:
    """What goes wrong beside the loop counts as if it had gone wrong on it, and the request is answered."""
    topic_id = await restarted_with_batches(brokers, 15)
    channel = await brokers.connect(0)
    log = brokers.replica(0, topic_id).log
    with ColdFiles(log.directory).installed(), failing("pread", errno.EIO, of=f"{log.directory}/"):
        (row,) = rows(await channel.request(fetch(topic_id, {0: 4}, partition_max_bytes=400)))
    assert row.error_code is ErrorCode.kafka_storage_error
    assert brokers.brokers[0].directory.failure is not None
