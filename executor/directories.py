"""Opens a broker's data directories: locks them, makes sure they are its own, gives new ones an identity.

All or nothing: when one cannot be had, those already locked are given back. Blocking; off the loop.
"""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID, uuid4

from sparklog.storage import ForeignDirectoryError, LogDirectory, MetaProperties
from sparklog.types import BrokerEpoch, BrokerId

__all__ = ["close_directories", "directory_ids", "open_directories", "previous_broker_epoch"]


def open_directories(paths: Sequence[Path], cluster_id: str, node_id: BrokerId) -> list[LogDirectory]:
    """Return the directories, locked, of broker `node_id` of the cluster; new ones are formatted.

    Raises:
        DirectoryLockedError: a live process holds one of them.
        ForeignDirectoryError: one belongs to another cluster or another broker.
        KafkaError: KAFKA_STORAGE_ERROR: one cannot be used.
    """
    directories: list[LogDirectory] = []
    try:
        for path in paths:
            directory = LogDirectory.open(path)
            directories.append(directory)
            if directory.meta is None:
                directory.format(MetaProperties(cluster_id, node_id, _new_directory_id()))
            elif (directory.meta.cluster_id, directory.meta.node_id) != (cluster_id, node_id):
                raise ForeignDirectoryError(
                    f"{path} belongs to broker {directory.meta.node_id} of cluster "
                    f"{directory.meta.cluster_id}; broker {node_id} of cluster {cluster_id} cannot use it"
                )
    except BaseException:
        close_directories(directories)
        raise
    return directories


def close_directories(directories: Sequence[LogDirectory]) -> None:
    """Give up the locks."""
    for directory in directories:
        directory.close()


def directory_ids(directories: Sequence[LogDirectory]) -> list[UUID]:
    """Return the ids of formatted directories."""
    return [directory.meta.directory_id for directory in directories if directory.meta is not None]


def previous_broker_epoch(directories: Sequence[LogDirectory]) -> BrokerEpoch | None:
    """Return the broker epoch under which all directories were left cleanly; None if one of them was not."""
    first, *others = {directory.previous_broker_epoch for directory in directories}
    return None if others else first


def _new_directory_id() -> UUID:
    # Ids up to 99 are reserved (KIP-858).
    while (directory_id := uuid4()).int < 100:
        pass
    return directory_id
