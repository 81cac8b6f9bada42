"""Reads that need the disk."""

import os
from pathlib import Path

from executor.replication.cold_reads import is_cold, warm
from sparklog.storage.file_region import FileRegion, LogFile
from tests.unit.replication.brokers import Brokers, with_brokers
from tests.unit.replication.requests import batch, fetch, produce, rows


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
