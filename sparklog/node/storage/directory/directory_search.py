"""Search for brokers' data directories on a host, and for the time of the last change in each.

A directory is recognised by its `meta.properties`: once formatted it belongs to a broker, even if that is not
running.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sparklog.node.storage.directory.meta_properties import META_PROPERTIES
from sparklog.protocol.types import BrokerId


def look_for_directories(
    directories: Mapping[BrokerId, Sequence[str]], partition: int, _: Iterable[object]
) -> Iterator[tuple[int, dict[BrokerId, float]]]:
    """Yield the task's number and the `search_directories` on its host, as its only row."""
    yield partition, search_directories(directories)


def search_directories(directories: Mapping[BrokerId, Sequence[str]]) -> dict[BrokerId, float]:
    """Return the brokers that have one of their `directories` here, each with the time of its last change.

    Times are in seconds since the epoch: if a broker once moved, the host it moved to has the later one.
    Unreadable directories are left out.
    """
    found: dict[BrokerId, float] = {}
    for node_id, paths in directories.items():
        changed = [changed_s for path in paths if (changed_s := _last_change_s(Path(path))) is not None]
        if changed:
            found[node_id] = max(changed)
    return found


def _last_change_s(directory: Path) -> float | None:
    try:
        if not (directory / META_PROPERTIES).is_file():
            return None
        with os.scandir(directory) as entries:
            return max(entry.stat().st_mtime for entry in entries)
    except OSError:
        return None
