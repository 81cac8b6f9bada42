"""Every bit of a log's files, wrong once: the log is what it was, or ends before the damage and says so."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.node.storage import checkpoints
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.directory.meta_properties import MetaProperties
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import BatchHeader, read_header
from sparklog.protocol.types import TopicPartition
from tests.unit.sparklog.node.storage.batches import START_MS, headers_of, make_batch, read_all
from tests.unit.sparklog.node.storage.recovery.test_recovery import check_usable

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=200, segment_index_bytes=4096)
BATCHES = 16
TOPIC_ID = UUID("b5435077-bc3c-4124-bd2c-b98876d532a1")
CRC_COVERS_FROM = 21
"""The position in a batch: before it are offset, length, leader epoch, magic and the CRC itself."""
EPOCHS_BEGIN = {0: 0, 4: 7, 9: 14}
"""Leader epochs, and the batch with which each began; the last one has two batches."""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: thousands of logs are written, and no disk is tested."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="sparklog-", dir=memory) as path:
        yield Path(path)


class Kept:
    """A log on the disk, which a test damages in copies."""

    def __init__(self, directory: Path, stop: PreviousStop) -> None:
        log = Log.open(directory / "pristine" / "t-0", CONFIG, now_ms=START_MS, topic_id=TOPIC_ID)
        leader_epoch = 0
        for number in range(BATCHES):
            leader_epoch = next((e for e, first in EPOCHS_BEGIN.items() if first == number), leader_epoch)
            batch = make_batch(
                2,
                value_bytes=1,
                timestamp_ms=START_MS + 2 * number,
                producer_id=7,
                producer_epoch=0,
                base_sequence=2 * number,
            )
            log.append_as_leader(batch, read_header(batch), leader_epoch, START_MS)
        self.content = read_all(log)
        self.headers = headers_of(self.content)
        self.epochs = log.epochs.entries
        self.stop = stop
        log.flush_rolled()
        log.close(clean=stop is PreviousStop.CLEAN)
        self.recovery_point = log.log_end_offset if stop is PreviousStop.CLEAN else 0
        self._pristine = log.directory
        self.directory = directory / "t-0"
        self.restore()

    def restore(self) -> None:
        """Undo all damage."""
        if self.directory.exists():
            for path in self.directory.iterdir():
                if not (self._pristine / path.name).exists():
                    path.unlink()
        shutil.copytree(self._pristine, self.directory, dirs_exist_ok=True, copy_function=shutil.copyfile)

    def open(self, *, high_watermark: int = 0) -> Log:
        """Open the log as a broker that starts does."""
        return Log.open(
            self.directory,
            CONFIG,
            now_ms=START_MS,
            stop=self.stop,
            recovery_point=self.recovery_point,
            high_watermark=high_watermark,
        )

    def prefix(self, batches: int) -> bytes:
        """Return the first batches of the log."""
        return self.content[: sum(header.size_bytes for header in self.headers[:batches])]


def flipped_bits(path: Path, start: int, end: int, covered_start: int | None = None) -> Iterator[int]:
    """Flip one bit after the other between two positions; yields the position while one is wrong.

    From `covered_start` on a CRC covers the bytes, which finds any bit that is wrong: there one of each byte
    is enough, each time another one.
    """
    pristine = path.read_bytes()
    for position in range(start, end):
        is_covered = covered_start is not None and position >= covered_start
        for bit in (position % 8,) if is_covered else range(8):
            damaged = bytearray(pristine)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            yield position
    path.write_bytes(pristine)


def last_log_file(directory: Path) -> Path:
    """Return the active segment's file."""
    return max(directory.glob("*.log"))


@pytest.mark.parametrize("batch", [-1, *(pytest.param(batch, marks=pytest.mark.long) for batch in (-2, -3))])
@pytest.mark.parametrize("stop", [PreviousStop.KILLED, PreviousStop.UNKNOWN])
def test_bit_that_is_wrong_in_one_of_the_last_batches_ends_the_log_before_that_batch(
    directory: Path, batch: int, stop: PreviousStop
) -> None:
    """Not only what the CRC covers: a wrong offset or epoch does as much harm as a wrong record."""
    kept = Kept(directory, stop)
    damaged = BATCHES + batch
    file = last_log_file(kept.directory)
    size = file.stat().st_size
    end = size - sum(header.size_bytes for header in kept.headers[damaged + 1 :])
    start = end - kept.headers[damaged].size_bytes
    checked_end = end if batch > -3 else start + CRC_COVERS_FROM
    for position in flipped_bits(file, start, checked_end, start + CRC_COVERS_FROM):
        sound = file.read_bytes()
        log = kept.open(high_watermark=2 * damaged + 1)
        content, missing = read_all(log), log.missing
        log_end_offset, epochs = log.log_end_offset, log.epochs.entries
        log.close(clean=False)
        cut = list(kept.directory.glob("*.cut-*"))
        # An epoch that is newer than all in the checkpoint may have begun just before the machine stopped.
        newer_epoch = 12 <= position - start < 16 and stop is PreviousStop.UNKNOWN and batch == -1
        if newer_epoch and log_end_offset == 2 * BATCHES:
            assert content[: -kept.headers[-1].size_bytes] == kept.prefix(BATCHES - 1)
            assert not cut
        else:
            assert content == kept.prefix(damaged), position - start
            assert log_end_offset == 2 * damaged
            assert missing is not None
            assert epochs == tuple(entry for entry in kept.epochs if entry.start_offset < log_end_offset)
            assert b"".join(path.read_bytes() for path in cut) == sound[start:]
        kept.restore()
        file.write_bytes(sound)


@pytest.mark.parametrize("stop", [PreviousStop.KILLED, PreviousStop.UNKNOWN])
def test_append_torn_at_any_byte_is_cut_off_and_nothing_is_missing(
    directory: Path, stop: PreviousStop
) -> None:
    """Nobody was told of a batch that was not written to its end: the replica still counts."""
    kept = Kept(directory, stop)
    last = kept.headers[-1]
    size = last_log_file(kept.directory).stat().st_size
    for left in range(1, last.size_bytes):
        with last_log_file(kept.directory).open("r+b") as file:
            file.truncate(size - last.size_bytes + left)
        log = kept.open(high_watermark=2 * BATCHES - 2)
        assert (log.log_end_offset, log.missing) == (2 * BATCHES - 2, None)
        assert read_all(log) == kept.prefix(BATCHES - 1)
        log.close(clean=False)
        kept.restore()
    with last_log_file(kept.directory).open("r+b") as file:
        file.truncate(size - 1)
    log = kept.open(high_watermark=2 * BATCHES)
    assert log.missing == f"it ends at {2 * BATCHES - 2}, and was committed up to {2 * BATCHES}"
    log.close(clean=False)


@pytest.mark.parametrize("stop", list(PreviousStop))
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_bit_that_is_wrong_beside_the_log_changes_nothing(
    directory: Path, suffix: str, stop: PreviousStop
) -> None:
    """Indexes and snapshots are only short cuts; a wrong one must neither hide a record nor find another."""
    kept = Kept(directory, stop)
    for path in sorted(kept.directory.glob(f"*{suffix}"))[-3:]:
        used = min(path.stat().st_size, 160)
        for number, _ in enumerate(flipped_bits(path, 0, used)):
            if number % 11:
                continue
            damaged = path.read_bytes()
            log = kept.open(high_watermark=2 * BATCHES)
            assert (log.missing, log.log_end_offset) == (None, 2 * BATCHES)
            assert read_all(log, max_bytes=300) == kept.content
            assert log.epochs.entries == kept.epochs
            retry = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * BATCHES - 2)
            assert log.append_as_leader(retry, read_header(retry), 9, START_MS).duplicate
            check_lookups(log, kept.headers)
            log.close(clean=False)
            kept.restore()
            path.write_bytes(damaged)
    kept.restore()


def check_lookups(log: Log, headers: list[BatchHeader]) -> None:
    """Every offset and every time is found where it is."""
    for header in headers[::3]:
        result = log.read(header.last_offset, max_bytes=1, up_to_offset=log.log_end_offset)
        assert result.region is not None
        assert headers_of(result.region.read()) == [header]
        found = log.offset_for_timestamp(header.max_timestamp, log.log_end_offset)
        assert found is not None
        assert (found.timestamp_ms, found.offset) == (header.max_timestamp, header.last_offset)


@pytest.mark.parametrize("stop", list(PreviousStop))
def test_bit_that_is_wrong_in_the_leader_epochs_is_outvoted_by_the_batches(
    directory: Path, stop: PreviousStop
) -> None:
    """Followers truncate by the epochs: a wrong one cuts off what was committed."""
    kept = Kept(directory, stop)
    path = kept.directory / "leader-epoch-checkpoint"
    undecided: list[bytes] = []
    for _ in flipped_bits(path, 0, path.stat().st_size):
        damaged = path.read_bytes()
        log = kept.open(high_watermark=2 * BATCHES)
        if log.missing is None:
            assert read_all(log) == kept.content, damaged
            assert log.epochs.entries == kept.epochs, damaged
        else:
            # The epoch is said to begin one batch later: that batch's word against the file's.
            undecided.append(damaged)
            assert log.log_end_offset in (entry.start_offset for entry in kept.epochs)
            assert read_all(log) == kept.prefix(log.log_end_offset // 2)
        log.close(clean=False)
        kept.restore()
        path.write_bytes(damaged)
    assert len(undecided) <= 1


def test_segment_that_is_gone_ends_the_log_before_the_gap(directory: Path) -> None:
    """What lies behind missing offsets is no continuation; a follower would never ask for them again."""
    for stop in PreviousStop:
        kept = Kept(directory / stop.name, stop)
        kept.recovery_point = 2 * BATCHES
        files = sorted(kept.directory.glob("*.log"))
        files[2].unlink()
        log = kept.open()
        assert log.log_end_offset == int(files[2].stem)
        assert read_all(log) == kept.prefix(log.log_end_offset // 2)
        assert log.missing is not None
        assert len(list(kept.directory.glob("*.cut-*"))) <= 3
        check_usable(log)
        log.close()


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
def test_bit_that_is_wrong_in_an_offset_checkpoint_is_noticed(directory: Path, name: str) -> None:
    """A digit more and recovery would trust what was never fsynced, or delete what is still wanted."""
    path = directory / f"{name}-offset-checkpoint"
    offsets = {TopicPartition("a-b", 3): 17, TopicPartition("c", 12): 2048}
    checkpoints.write_offsets(path, {})
    checkpoints.write_offsets(path, offsets)
    for file in (path, path.with_name(f"{path.name}.crc32c")):
        for _ in flipped_bits(file, 0, file.stat().st_size):
            try:
                assert checkpoints.read_offsets(path) == offsets
            except checkpoints.CorruptCheckpointError as error:
                assert str(path) in str(error)
    assert checkpoints.read_offsets(path) == offsets


def test_checkpoint_survives_a_crash_on_either_side_of_its_replacement(directory: Path) -> None:
    """The checksums are written first; until the checkpoint follows them, the old one is still right."""
    path = directory / "recovery-point-offset-checkpoint"
    old, new = {TopicPartition("t", 0): 5}, {TopicPartition("t", 0): 9}
    checkpoints.write_offsets(path, old)
    before = path.read_bytes()
    checkpoints.write_offsets(path, new)
    assert checkpoints.read_offsets(path) == new
    path.write_bytes(before)
    assert checkpoints.read_offsets(path) == old


def test_bit_that_is_wrong_in_an_identity_is_refused_by_name(directory: Path) -> None:
    """With one wrong character a log would be another topic's, or a directory another broker's."""
    path = directory / "partition.metadata"
    checkpoints.write_topic_id(path, TOPIC_ID)
    for _ in flipped_bits(path, 0, path.stat().st_size):
        try:
            assert checkpoints.read_topic_id(path) == TOPIC_ID
        except checkpoints.CorruptCheckpointError as error:
            assert "partition.metadata" in str(error)
    opened = LogDirectory.open(directory)
    meta = MetaProperties("cluster-1", 3, TOPIC_ID)
    opened.format(meta)
    opened.close()
    path = directory / "meta.properties"
    for _ in flipped_bits(path, 0, path.stat().st_size):
        try:
            opened = LogDirectory.open(directory)
        except KafkaError as error:
            assert "meta.properties" in str(error)
        else:
            assert opened.meta == meta
            opened.close()
