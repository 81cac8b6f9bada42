"""Snapshots on disk: a name says that the file is whole."""

import errno
import os
from pathlib import Path

import pytest

from sparklog.node.metadata_log.snapshot_files import (
    PartialSnapshot,
    delete_snapshot,
    list_snapshots,
    remove_leftovers,
    set_aside,
    snapshot_path,
    snapshot_size_bytes,
)
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import SnapshotId

FIRST = SnapshotId(10, 1)
SECOND = SnapshotId(200, 1)
THIRD = SnapshotId(3000, 7)


def write(directory: Path, snapshot_id: SnapshotId, content: bytes = b"content") -> Path:
    with PartialSnapshot(directory, snapshot_id) as snapshot:
        snapshot.append(content)
        return snapshot.finish()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_snapshot_name_is_kafkas(tmp_path: Path) -> None:
    """Kafka's tools find a snapshot's id in the name of its file."""
    assert snapshot_path(tmp_path, THIRD).name == "00000000000000003000-0000000007.checkpoint"


def test_snapshots_are_listed_oldest_first_whatever_else_lies_there(tmp_path: Path) -> None:
    """The directory is the log's: segments, indexes and producer snapshots lie beside."""
    for snapshot_id in (THIRD, FIRST, SECOND):
        write(tmp_path, snapshot_id)
    for name in (
        "00000000000000000000.log",
        "00000000000000000010.snapshot",
        "00000000000000000010-0000000001.checkpoint.part",
        "00000000000000000011-0000000001.checkpoint.deleted",
        "00000000000000000012-0000000001.checkpoint.damaged",
        "11-1.checkpoint",
        "quorum-state",
    ):
        (tmp_path / name).touch()
    assert list_snapshots(tmp_path) == [FIRST, SECOND, THIRD]
    assert list_snapshots(tmp_path / "nowhere") == []


def test_partial_snapshot_has_no_name_before_it_is_finished(tmp_path: Path) -> None:
    """A process that is killed while it writes must leave no half a snapshot that looks whole."""
    with PartialSnapshot(tmp_path, FIRST) as snapshot:
        snapshot.append(b"abc")
        snapshot.append(memoryview(b"defg"))
        assert snapshot.size_bytes == 7
        assert list_snapshots(tmp_path) == []
        assert snapshot.finish() == snapshot_path(tmp_path, FIRST)
    assert names(tmp_path) == {"00000000000000000010-0000000001.checkpoint"}
    assert snapshot_size_bytes(tmp_path, FIRST) == 7
    assert snapshot_path(tmp_path, FIRST).read_bytes() == b"abcdefg"
    assert snapshot_size_bytes(tmp_path, SECOND) is None


def test_partial_snapshot_that_fails_is_removed(tmp_path: Path) -> None:
    """What nobody will finish must not fill the disk."""
    with pytest.raises(ZeroDivisionError), PartialSnapshot(tmp_path, FIRST) as snapshot:
        snapshot.append(b"abc")
        raise ZeroDivisionError
    assert names(tmp_path) == set()


def test_snapshot_that_the_disk_refuses_to_sync_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name says that it is on the disk: whoever trusts it deletes what it stands for."""

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(KafkaError) as refused, PartialSnapshot(tmp_path, FIRST) as snapshot:
        snapshot.append(b"abc")
        monkeypatch.setattr(os, "fsync", refuse)
        snapshot.finish()
    assert refused.value.error_code is ErrorCode.kafka_storage_error
    assert names(tmp_path) == set()


def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path) -> None:
    """An unfinished download and a deletion that was interrupted are of no use to anybody."""
    write(tmp_path, FIRST)
    (tmp_path / f"{SECOND}.checkpoint.part").touch()
    (tmp_path / f"{THIRD}.checkpoint.deleted").touch()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {f"{FIRST}.checkpoint"}


def test_deleted_snapshot_is_gone_and_one_that_was_gone_stays_so(tmp_path: Path) -> None:
    """Deletion may be repeated after a crash."""
    write(tmp_path, FIRST)
    for _ in range(2):
        delete_snapshot(tmp_path, FIRST)
        assert names(tmp_path) == set()


def test_damaged_snapshots_are_kept_aside_but_not_for_ever(tmp_path: Path) -> None:
    """Somebody may want to know what happened to the disk; nobody wants it filled."""
    for snapshot_id in (FIRST, SECOND, THIRD):
        set_aside(write(tmp_path, snapshot_id), "for a test")
    assert names(tmp_path) == {f"{SECOND}.checkpoint.damaged", f"{THIRD}.checkpoint.damaged"}
