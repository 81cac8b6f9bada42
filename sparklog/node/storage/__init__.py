"""Logs on disk, byte for byte as Kafka keeps them: segments, indexes, checkpoints, recovery.

`Log` is one partition's log, `LogDirectory` one `log.dirs` entry with the logs under it. All of it does file
I/O and may block; each method says whether it may run on an event loop.
"""

from sparklog.node.storage.directory.log_directory import (
    DirectoryLockedError,
    ForeignDirectoryError,
    LogDirectory,
)
from sparklog.node.storage.directory.meta_properties import MetaProperties
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig

__all__ = [
    "DirectoryLockedError",
    "ForeignDirectoryError",
    "Log",
    "LogConfig",
    "LogDirectory",
    "MetaProperties",
]
