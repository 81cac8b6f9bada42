"""Locks, identity, checkpoints and the life of logs in a data directory."""

import errno
import gc
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from sparklog.node.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offsets,
    write_offsets,
)
from sparklog.node.storage.directory.directory_checkpoints import log_start_offset_to_keep
from sparklog.node.storage.directory.log_directory import DirectoryLockedError, LogDirectory
from sparklog.node.storage.directory.meta_properties import MetaProperties
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import Offset, TopicPartition
from tests.open_files import open_below
from tests.unit.sparklog.node.storage.batches import START_MS, make_batch

CONFIG = LogConfig(file_delete_delay_ms=1000)
META = MetaProperties("cluster-1", 3, UUID("b5435077-bc3c-4124-bd2c-b98876d532a1"))
TOPIC_ID = UUID(int=7)


def append(log: Log, count: int) -> None:
    """Append one batch."""
    batch = make_batch(count)
    log.append_as_leader(batch, read_header(batch), 0, START_MS)


def create_log(directory: LogDirectory, partition: TopicPartition, topic_id: UUID = TOPIC_ID) -> Log:
    """Begin a log, with files although it has no records."""
    log = directory.begin_log(partition, topic_id, CONFIG, START_MS)
    log.create_files()
    return log


def write_checkpoints(
    directory: LogDirectory,
    logs: Iterable[Log],
    high_watermarks: Mapping[TopicPartition, Offset] | None = None,
) -> None:
    """Write what a broker would of these logs."""
    write, hosted = directory.checkpoints.write, {log.topic_partition for log in logs}
    write(RECOVERY_POINT_CHECKPOINT, {log.topic_partition: log.recovery_point for log in logs}, hosted)
    starts = {log.topic_partition: log_start_offset_to_keep(log) for log in logs}
    write(
        LOG_START_OFFSET_CHECKPOINT,
        {partition: offset for partition, offset in starts.items() if offset is not None},
        hosted,
    )
    write(REPLICATION_OFFSET_CHECKPOINT, high_watermarks or {}, hosted)


def test_directories_of_logs_are_for_their_user_alone(tmp_path: Path) -> None:
    """Whoever else is logged in on the machine reads no records from its disk."""
    directory = LogDirectory.open(tmp_path / "data" / "broker-3")
    log = create_log(directory, TopicPartition("t", 0))
    made = [log.directory, directory.path, directory.path.parent]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
    log.close()
    directory.close()
    directory.path.chmod(0o750)
    LogDirectory.open(directory.path).close()
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o750


def test_lock_excludes_this_process_and_others_until_closed(tmp_path: Path) -> None:
    """Two brokers on one directory would destroy each other's logs."""
    directory = LogDirectory.open(tmp_path)
    with pytest.raises(DirectoryLockedError, match=str(tmp_path)):
        LogDirectory.open(tmp_path)
    script = (
        "import sys; from pathlib import Path\n"
        "from sparklog.node.storage.directory.log_directory import DirectoryLockedError, LogDirectory\n"
        "try: LogDirectory.open(Path(sys.argv[1]))\n"
        "except DirectoryLockedError: sys.exit(9)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    root = str(Path(__file__).parents[6])
    environment = {**os.environ, "PYTHONPATH": root}
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 9
    directory.close()
    assert subprocess.run(command, env=environment, timeout=60, check=False).returncode == 0
    LogDirectory.open(tmp_path).close()


def test_format_writes_kafkas_meta_properties(tmp_path: Path) -> None:
    """The identity follows the disk, and Kafka's tools read it."""
    directory = LogDirectory.open(tmp_path / "new")
    assert directory.meta is None
    directory.format(META)
    directory.close()
    lines = (tmp_path / "new" / "meta.properties").read_text().splitlines()
    assert sorted(lines) == [
        "cluster.id=cluster-1",
        "directory.id=tUNQd7w8QSS9LLmIdtUyoQ",
        "node.id=3",
        "sparklog.crc32c=c474bbd3",
        "version=1",
    ]
    directory = LogDirectory.open(tmp_path / "new")
    assert directory.meta == META
    directory.close()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "version=1",
        "version=0\ncluster.id=a\nnode.id=1\n",
        "version=1\ncluster.id=a\nnode.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
        "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=?\n",
        "version=1\ncluster.id=a\nnode.id=-1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
    ],
)
def test_open_with_malformed_identity_is_named_and_lets_go_of_the_lock(tmp_path: Path, content: str) -> None:
    """Guessing whose directory it is could mix two clusters' data."""
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(KafkaError, match=r"meta\.properties") as caught:
        LogDirectory.open(tmp_path)
    assert caught.value.error_code == ErrorCode.kafka_storage_error
    (tmp_path / "meta.properties").unlink()
    LogDirectory.open(tmp_path).close()


def test_logs_survive_a_clean_stop_without_recovery(tmp_path: Path) -> None:
    """The marker saves the scan, and tells the controller that nothing was lost (KIP-966)."""
    directory = LogDirectory.open(tmp_path)
    assert (directory.previous_stop, directory.previous_broker_epoch) == (PreviousStop.UNKNOWN, None)
    assert directory.load_all(lambda _: CONFIG, START_MS) == {}
    log = create_log(directory, TopicPartition("a-b", 3))
    append(log, 5)
    log.advance_log_start_offset(2)
    partition = TopicPartition("a-b", 3)
    log.close()
    write_checkpoints(directory, [log], {partition: 4})
    directory.write_clean_shutdown(41)
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":41}'

    directory = LogDirectory.open(tmp_path)
    assert (directory.previous_stop, directory.previous_broker_epoch) == (PreviousStop.CLEAN, 41)
    asked: list[str] = []

    def config_for(topic: str) -> LogConfig:
        asked.append(topic)
        return CONFIG

    logs = directory.load_all(config_for, START_MS)
    assert asked == ["a-b"]
    loaded = logs[partition]
    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.recovery_point) == (2, 5, 5)
    assert loaded.topic_id == TOPIC_ID
    assert directory.checkpoints.read(REPLICATION_OFFSET_CHECKPOINT) == {partition: 4}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    loaded.close(clean=False)
    directory.close()
    directory = LogDirectory.open(tmp_path)
    assert directory.previous_stop is PreviousStop.UNKNOWN
    (reloaded,) = directory.load_all(lambda _: CONFIG, START_MS).values()
    assert reloaded.log_end_offset == 5
    reloaded.close()
    directory.close()


def test_create_log_for_another_topic_id_is_refused(tmp_path: Path) -> None:
    """A topic deleted and made again is another topic; its records must not appear in the new one."""
    directory = LogDirectory.open(tmp_path)
    create_log(directory, TopicPartition("t", 0)).close()
    with pytest.raises(KafkaError, match="belongs to topic id"):
        create_log(directory, TopicPartition("t", 0), uuid4())
    directory.close()


def test_deleted_and_stray_logs_leave_their_names(tmp_path: Path) -> None:
    """Deleting is a rename at once and work later, not forgotten by a restart; so are strays."""
    directory = LogDirectory.open(tmp_path)
    long_name = "x" * 249
    doomed = create_log(directory, TopicPartition(long_name, 0))
    stray = create_log(directory, TopicPartition("s", 1))
    directory.delete_log(doomed, START_MS)
    stray_path = directory.remove_stray(stray, START_MS)
    assert not (tmp_path / f"{long_name}-0").exists()
    assert directory.remove_directories_due(START_MS + 999) == 0
    assert stray_path is not None and stray_path.name.endswith("-stray")
    assert directory.remove_directories_due(START_MS + 1000) == 2
    directory.remove_stray(create_log(directory, TopicPartition("s", 1)), START_MS)
    directory.delete_log(create_log(directory, TopicPartition("t", 0)), START_MS)
    directory.close()
    directory = LogDirectory.open(tmp_path)
    (tmp_path / "not a log").mkdir()
    assert directory.load_all(lambda _: CONFIG, START_MS) == {}
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert left == ["not a log"]
    directory.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_log_that_the_disk_does_not_give_fails_the_load_by_name_and_frees_the_others(
    tmp_path: Path, threads: int
) -> None:
    """The directory's disk is broken: no log of it counts, and none that was opened may be in the way."""
    directory = LogDirectory.open(tmp_path)
    for partition in range(6):
        create_log(directory, TopicPartition("t", partition)).close()
    log_file = next((tmp_path / "t-3").glob("*.log"))
    log_file.unlink()
    log_file.mkdir()
    gc.collect()
    before = open_below(tmp_path)
    with pytest.raises(KafkaError, match=r"t-3"):
        directory.load_all(lambda _: CONFIG, START_MS, threads=threads)
    gc.collect()  # files are closed when nothing refers to them, and tracebacks do
    assert open_below(tmp_path) == before
    log_file.rmdir()
    logs = directory.load_all(lambda _: CONFIG, START_MS, threads=threads)
    assert [partition.partition for partition in logs] == [0, 1, 2, 3, 4, 5]
    for log in logs.values():
        log.close()
    directory.close()


def test_log_whose_identity_is_unreadable_is_named_and_leaves_the_others_alone(tmp_path: Path) -> None:
    """One wrong file takes one partition offline, not the broker; the operator mends it and starts again."""
    directory = LogDirectory.open(tmp_path)
    for partition in range(3):
        create_log(directory, TopicPartition("t", partition)).close()
    metadata = tmp_path / "t-1" / "partition.metadata"
    metadata.write_text("nonsense")
    logs = directory.load_all(lambda _: CONFIG, START_MS, threads=2)
    assert [partition.partition for partition in logs] == [0, 2]
    assert list(directory.unreadable) == [TopicPartition("t", 1)]
    assert str(metadata) in str(directory.unreadable[TopicPartition("t", 1)])
    for log in logs.values():
        log.close()
    directory.close()


def test_new_log_owes_nothing_to_a_deleted_one_of_its_name(tmp_path: Path) -> None:
    """A topic that is made again begins at offset 0, whatever the last checkpoint says of its predecessor."""
    directory = LogDirectory.open(tmp_path)
    log = create_log(directory, TopicPartition("t", 0))
    append(log, 5)
    append(log, 5)
    log.advance_log_start_offset(5)
    log.flush()
    write_checkpoints(directory, [log], {log.topic_partition: 10})
    directory.delete_log(log, START_MS)
    again = create_log(directory, TopicPartition("t", 0), uuid4())
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (0, 0, 0)
    append(again, 1)
    again.close(clean=False)
    directory.close()
    directory = LogDirectory.open(tmp_path)
    assert directory.checkpoints.read(REPLICATION_OFFSET_CHECKPOINT) == {}, (
        "a broker killed here must not take 10 for committed"
    )
    (reloaded,) = directory.load_all(lambda _: CONFIG, START_MS).values()
    assert (reloaded.log_start_offset, reloaded.log_end_offset, reloaded.missing) == (0, 1, None)
    reloaded.close()
    directory.close()


def test_log_shorter_than_its_checkpoint_has_the_file_say_so_before_it_takes_anything_in(
    tmp_path: Path,
) -> None:
    """What is written where something was missing is not fsynced: a crash must not find it trusted."""
    directory = LogDirectory.open(tmp_path)
    directory.format(META)
    short = create_log(directory, TopicPartition("t", 0))
    whole = create_log(directory, TopicPartition("t", 1))
    for log in (short, whole):
        append(log, 4)
        append(log, 3)
        log.flush()
    write_checkpoints(directory, [short, whole], {})
    write_offsets(tmp_path / CLEANER_OFFSET_CHECKPOINT, {short.topic_partition: 7, whole.topic_partition: 7})
    lost = short.segments.active.positions.get(4)
    assert lost is not None
    os.truncate(short.segments.active.file.path, lost)
    for log in (short, whole):
        log.close(clean=False)
    directory.close()

    directory = LogDirectory.open(tmp_path)
    logs = directory.load_all(lambda topic: CONFIG, START_MS)
    said = read_offsets(tmp_path / RECOVERY_POINT_CHECKPOINT)
    assert said == {TopicPartition("t", 0): 4, TopicPartition("t", 1): 7}
    # A cleaned offset beyond the log is not believed at all.
    said = read_offsets(tmp_path / CLEANER_OFFSET_CHECKPOINT)
    assert said == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 7}
    assert not logs[TopicPartition("t", 0)].is_checkpointed_too_high
    for log in logs.values():
        log.close(clean=False)
    directory.close()


def test_corrupt_checkpoints_cost_time_not_data(tmp_path: Path) -> None:
    """Recovery then begins at the start of the log."""
    directory = LogDirectory.open(tmp_path)
    log = create_log(directory, TopicPartition("t", 0))
    append(log, 5)
    log.close()
    directory.close()
    for name in ("recovery-point", "log-start"):
        (tmp_path / f"{name}-offset-checkpoint").write_text("nonsense")
    (tmp_path / "replication-offset-checkpoint").write_text("nonsense")
    directory = LogDirectory.open(tmp_path)
    (loaded,) = directory.load_all(lambda _: CONFIG, START_MS).values()
    assert loaded.log_end_offset == 5
    assert directory.checkpoints.read(REPLICATION_OFFSET_CHECKPOINT) == {}
    total_bytes, free_bytes = directory.volume_bytes() or (0, 0)
    assert 0 < free_bytes < total_bytes
    loaded.close()
    directory.close()


def test_directory_that_cannot_be_removed_keeps_no_other_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that somebody has removed by hand."""
    directory = LogDirectory.open(tmp_path)
    for topic in ("gone", "stuck", "t"):
        directory.delete_log(create_log(directory, TopicPartition(topic, 0)), START_MS)
    (gone,), (stuck,) = tmp_path.glob("gone-0.*"), tmp_path.glob("stuck-0.*")
    shutil.rmtree(gone)
    real = shutil.rmtree

    def refused(path: Path) -> None:
        if path == stuck:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        real(path)

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(KafkaError, match="stuck-0"):
        directory.remove_directories_due(START_MS + 1000)
    assert [path.name for path in tmp_path.glob("*-delete")] == [stuck.name]
    assert not directory.has_directories_due(START_MS + 1000)
    directory.close()


def test_start_of_a_log_is_kept_until_the_files_before_it_have_other_names(tmp_path: Path) -> None:
    """Deleted records came back for good after a kill in between: nobody asks for their deletion again."""
    directory = LogDirectory.open(tmp_path)
    log = create_log(directory, TopicPartition("t", 0))
    for _ in range(3):
        append(log, 2)
        log.roll(START_MS)
    log.advance_log_start_offset(4)
    assert log_start_offset_to_keep(log) == 4
    assert log.delete_old_segments(START_MS, log.log_end_offset) == 2
    assert log_start_offset_to_keep(log) == 4
    log.delete_files_due(START_MS)
    assert log_start_offset_to_keep(log) is None
    log.close()
    directory.close()
