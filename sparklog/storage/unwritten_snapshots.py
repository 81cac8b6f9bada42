"""Producer snapshots that a roll has taken and that are not in their files yet.

Whoever rolls a log must not wait for a disk: it takes the content, which is of that moment, and somebody
beside it writes the file. Rules kept: a file is there whole or not at all (renamed into place); what is
forgotten while it is being written gets no file, or else a log that was truncated and has grown again would
one day begin with producers of what was cut off. A crash before the file is written costs a longer replay.
"""

from pathlib import Path
from threading import Lock

from sparklog.storage.files import PRODUCER_SNAPSHOT_SUFFIX, offset_file, write_file
from sparklog.types import Offset

__all__ = ["UnwrittenSnapshots"]


class UnwrittenSnapshots:
    """Snapshots of one log, by offset."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._contents: dict[Offset, bytes] = {}
        self._lock = Lock()
        self._writing = Lock()

    def __bool__(self) -> bool:
        return bool(self._contents)

    def add(self, offset: Offset, content: bytes) -> None:
        """Have a snapshot written with the next `write`."""
        self._contents[offset] = content

    def forget(self, *, below: Offset = 0, above: Offset) -> None:
        """Leave the snapshots of offsets below `below` and above `above` unwritten."""
        with self._lock:
            for offset in list(self._contents):
                if not below <= offset <= above:
                    del self._contents[offset]

    def write(self) -> None:
        """Write and fsync them. Blocks.

        Raises:
            OSError: one could not be written; it and those after it are written by the next call.
        """
        with self._writing:
            for offset, content in sorted(self._contents.copy().items()):
                path = offset_file(self._directory, offset, PRODUCER_SNAPSHOT_SUFFIX)
                temporary = path.with_name(path.name + ".tmp")
                write_file(temporary, content)
                with self._lock:
                    if self._contents.get(offset) is content:
                        temporary.replace(path)
                        del self._contents[offset]
                        continue
                temporary.unlink(missing_ok=True)
