"""Files of a metadata log's snapshots in its directory: names, listing, writing, deletion.

    <end offset, 20 digits>-<leader epoch, 10 digits>.checkpoint           a whole snapshot
    ... .checkpoint.part       one that is incomplete: being written or downloaded, or interrupted
    ... .checkpoint.deleted    one that is being removed
    ... .checkpoint.damaged    an unreadable one, kept for diagnosis (ours)

The rules this module keeps:

- A file with the plain name is complete and was fsynced before it got the name.
- At most `KEPT_DAMAGED` damaged ones are kept, the newest.

Everything here blocks and belongs off an event loop. `sparklog.node.metadata_log.machine.snapshot_batches`
has the contents of the files. Source: KIP-630.
"""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sparklog.node.storage.files import storage_errors, sync_directory
from sparklog.protocol.types import SnapshotId

CHECKPOINT_SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
DELETED_SUFFIX: Final = ".deleted"
DAMAGED_SUFFIX: Final = ".damaged"
KEPT_DAMAGED: Final = 2
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint(\.part|\.deleted|\.damaged)?", re.ASCII)

logger = logging.getLogger(__name__)


def snapshot_path(directory: Path, snapshot_id: SnapshotId) -> Path:
    return directory / f"{snapshot_id}{CHECKPOINT_SUFFIX}"


def list_snapshots(directory: Path) -> list[SnapshotId]:
    """Return the ids of the complete snapshots, oldest first; empty if the directory is missing.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    return sorted(snapshot_id for snapshot_id, suffix, _ in _files(directory) if not suffix)


def snapshot_size_bytes(directory: Path, snapshot_id: SnapshotId) -> int | None:
    """Return the size of a snapshot's file; `None` if there is none.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    path = snapshot_path(directory, snapshot_id)
    with storage_errors(f"look at {path}"):
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None


def delete_snapshot(directory: Path, snapshot_id: SnapshotId) -> None:
    """Remove a snapshot, in two steps: after a crash in between `remove_leftovers` removes the rest.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    path = snapshot_path(directory, snapshot_id)
    with storage_errors(f"delete {path}"):
        if path.exists():
            path.replace(path.with_name(path.name + DELETED_SUFFIX)).unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove incomplete and half-removed files of a process that ended. Call it before writing snapshots.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    with storage_errors(f"remove unfinished snapshots in {directory}"):
        for _, suffix, path in _files(directory):
            if suffix in (PART_SUFFIX, DELETED_SUFFIX):
                if suffix == PART_SUFFIX:
                    logger.warning("Removing %s: it is incomplete", path)
                path.unlink()


def set_aside(path: Path, reason: str) -> None:
    """Rename an unreadable snapshot to `.damaged`; remove the oldest such ones.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    with storage_errors(f"set {path} aside"):
        damaged = path.replace(path.with_name(path.name + DAMAGED_SUFFIX))
        logger.error("The snapshot %s cannot be used and is kept as %s: %s", path.name, damaged, reason)
        kept = sorted(entry for entry in _files(path.parent) if entry[1] == DAMAGED_SUFFIX)
        for _, _, oldest in kept[:-KEPT_DAMAGED]:
            oldest.unlink()
        sync_directory(path.parent)


class PartialSnapshot:
    """A snapshot that is being written, under a `.part` name until `finish` renames it.

    A context manager, at whose end an incomplete file is removed.
    """

    def __init__(self, directory: Path, snapshot_id: SnapshotId) -> None:
        """Create the file, replacing an incomplete one of the same id.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.snapshot_id = snapshot_id
        self._final_path = snapshot_path(directory, snapshot_id)
        self.path = self._final_path.with_name(self._final_path.name + PART_SUFFIX)
        self.size_bytes = 0
        """Bytes written so far."""
        self._finished = False
        with storage_errors(f"write {self.path}"):
            self._file = self.path.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file if it is not finished."""
        self.discard()

    def append(self, data: bytes | memoryview) -> None:
        """Append to the file.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: discard it then.
        """
        view = memoryview(data)
        with storage_errors(f"write {self.path}"):
            while view:
                written = self._file.write(view)
                self.size_bytes += written
                view = view[written:]

    def finish(self) -> Path:
        """fsync the file and give it its final name; return the path.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: discard it then.
        """
        with storage_errors(f"finish {self.path}"):
            os.fsync(self._file.fileno())
            self._file.close()
            self.path.replace(self._final_path)
            self._finished = True
            sync_directory(self._final_path.parent)
        return self._final_path

    def discard(self) -> None:
        """Remove the file if it is not finished; safe to call twice."""
        self._file.close()
        if not self._finished:
            self._finished = True
            with storage_errors(f"remove {self.path}"):
                self.path.unlink(missing_ok=True)


def _files(directory: Path) -> Iterator[tuple[SnapshotId, str, Path]]:
    with storage_errors(f"list the snapshots in {directory}"):
        entries = list(directory.iterdir()) if directory.exists() else []
    for path in entries:
        match = _NAME.fullmatch(path.name)
        if match is not None:
            end_offset, leader_epoch, suffix = match.groups()
            yield SnapshotId(int(end_offset), int(leader_epoch)), suffix or "", path
