"""Which brokers' directories lie on a host, and when somebody wrote there last.

Found by `meta.properties`: a directory that has been formatted belongs to a broker, whoever runs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sparklog.storage.meta_properties import META_PROPERTIES
from sparklog.types import BrokerId


def look_for_directories(
    directories: Mapping[BrokerId, Sequence[str]], partition: int, _: Iterable[object]
) -> Iterator[tuple[int, dict[BrokerId, float]]]:
    """Return the number of a job's task and the `directories_found` where it runs, as its only row."""
    yield partition, directories_found(directories)


def directories_found(directories: Mapping[BrokerId, Sequence[str]]) -> dict[BrokerId, float]:
    """Return those brokers of whose `directories` one is here, each with the time of its last change.

    That is in seconds since the epoch: of a broker that once moved, the host it moved to has the later one.
    What can't be looked at isn't here.
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
