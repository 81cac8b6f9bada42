"""Search for brokers' data directories on a host, and for the time of the last change in each.

A directory is recognised by its `meta.properties`: once formatted it belongs to a broker, even if that is not
running.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sparklog.node.storage.directory.meta_properties import META_PROPERTIES, read_meta_properties
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId


class FoundDirectories(NamedTuple):
    changed_s: float
    """The time of their last change, in seconds since the epoch."""
    ids_per_rack: int | None
    """The brokers of each rack whose ids are counted rack by rack, as far as the directories have it."""
    cluster_id: str | None = None


def look_for_directories(
    directories: Mapping[BrokerId, Sequence[str]], partition: int, _: Iterable[object]
) -> Iterator[tuple[int, dict[BrokerId, FoundDirectories]]]:
    """Yield the task's number and the `search_directories` on its host, as its only row."""
    yield partition, search_directories(directories)


def search_directories(directories: Mapping[BrokerId, Sequence[str]]) -> dict[BrokerId, FoundDirectories]:
    """Return the brokers that have one of their `directories` here.

    If a broker once moved, the host it moved to has the later change. Unreadable directories are left out.
    """
    found: dict[BrokerId, FoundDirectories] = {}
    for node_id, paths in directories.items():
        there = [directory for path in paths if (directory := _found(Path(path))) is not None]
        if there:
            identity = max(
                there, key=lambda each: (each.ids_per_rack is not None, each.cluster_id is not None)
            )
            found[node_id] = identity._replace(changed_s=max(each.changed_s for each in there))
    return found


def _found(directory: Path) -> FoundDirectories | None:
    try:
        if not (directory / META_PROPERTIES).is_file():
            return None
        with os.scandir(directory) as entries:
            changed_s = max(entry.stat().st_mtime for entry in entries)
    except OSError:
        return None
    try:
        meta = read_meta_properties(directory)
    except KafkaError:  # its broker will say so
        meta = None
    if meta is None:
        return FoundDirectories(changed_s, None)
    return FoundDirectories(changed_s, meta.ids_per_rack, meta.cluster_id)
