"""Producer snapshots that a roll has taken and that are not in their files yet.

Whoever rolls a log must not wait for a disk, nor for thousands of producers to be put into bytes: it captures
them as they are at that moment, and somebody beside it writes the file. Rules kept: a file is there whole or
not at all (renamed into place); what is forgotten while it is being written gets no file, or else a log that
was truncated and has grown again would one day begin with producers of what was cut off. A crash before the
file is written costs a longer replay.
"""

from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from sparklog.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_file, write_file
from sparklog.storage.machine.producer_states import ProducerState
from sparklog.storage.producer_snapshots import encode_snapshot
from sparklog.types import Offset, ProducerId


class UnwrittenSnapshots:
    """Snapshots of one log, by offset."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._captured: dict[Offset, Mapping[ProducerId, ProducerState]] = {}
        self._lock = Lock()
        self._writing = Lock()

    def __bool__(self) -> bool:
        return bool(self._captured)

    def add(self, offset: Offset, producers: Mapping[ProducerId, ProducerState]) -> None:
        """Have a snapshot of what `ProducerStates.capture` gave written with the next `write`."""
        self._captured[offset] = producers

    def move_to(self, directory: Path) -> None:
        """Write there from now on. Nothing is being written."""
        self._directory = directory

    def forget(self, *, below: Offset = 0, above: Offset) -> None:
        """Leave the snapshots of offsets below `below` and above `above` unwritten."""
        with self._lock:
            for offset in list(self._captured):
                if not below <= offset <= above:
                    del self._captured[offset]

    def forget_all(self) -> None:
        """Leave all of them unwritten."""
        with self._lock:
            self._captured.clear()

    def close(self) -> None:
        """Leave all of them unwritten, and touch no file any more. Blocks while one is being written.

        The directory may be another log's from then on, which writes files of the same names.
        """
        self.forget_all()
        with self._writing:
            pass

    def write(self) -> None:
        """Write and fsync them. Blocks.

        Raises:
            OSError: one could not be written; it and those after it are written by the next call.
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
