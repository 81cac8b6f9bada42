"""Producer snapshots that a roll has taken and that are not in their files yet.

A roll must not wait for a disk, nor for the encoding of thousands of producers: it captures them as they are,
and another thread writes the file. Rules kept: a file is complete or missing (it is renamed into place); a
snapshot that is forgotten while it is being written gets no file, since a log that was truncated and has
grown again would otherwise load producers of removed batches. A crash before the file is written costs a
longer replay.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from sparklog.node.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_file, write_file
from sparklog.node.storage.machine.producer_states import ProducerState
from sparklog.node.storage.producers.producer_snapshots import encode_snapshot
from sparklog.protocol.types import Offset, ProducerId


class UnwrittenSnapshots:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._captured: dict[Offset, Mapping[ProducerId, ProducerState]] = {}
        self._lock = Lock()
        self._writing = Lock()

    def __bool__(self) -> bool:
        return bool(self._captured)

    def add(self, offset: Offset, producers: Mapping[ProducerId, ProducerState]) -> None:
        """Queue a snapshot from `ProducerStates.capture` for the next `write`."""
        self._captured[offset] = producers

    def move_to(self, directory: Path) -> None:
        """Set the directory after a rename. No `write` may be running."""
        self._directory = directory

    def forget(self, *, below: Offset = 0, above: Offset) -> None:
        with self._lock:
            for offset in list(self._captured):
                if not below <= offset <= above:
                    del self._captured[offset]

    def forget_all(self) -> None:
        with self._lock:
            self._captured.clear()

    def close(self) -> None:
        """Drop all of them, and touch no file afterwards. Blocks while one is being written.

        The directory may then belong to another log, with files of the same names.
        """
        self.forget_all()
        with self._writing:
            pass

    def write(self) -> None:
        """Write and fsync all snapshots. Blocks.

        Raises:
            OSError: one could not be written; the next call writes it and those after it.
        """
        with self._writing:
            for offset, producers in sorted(self._captured.copy().items()):
                if self._captured.get(offset) is not producers:
                    continue
                path = offset_file(self._directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
                temporary = path.with_name(path.name + ".tmp")
                write_file(temporary, encode_snapshot(producers))
                with self._lock:
                    if self._captured.get(offset) is producers:
                        temporary.replace(path)
                        del self._captured[offset]
                        continue
                temporary.unlink(missing_ok=True)
