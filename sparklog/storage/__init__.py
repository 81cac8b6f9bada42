"""Logs on disk, byte for byte as Kafka keeps them: segments, indexes, checkpoints, recovery.

`Log` is one partition's log, `LogDirectory` one `log.dirs` entry with the logs under it. All of it does file
I/O and may block; each method says whether it may run on an event loop.
"""

from sparklog.storage.log import Log
from sparklog.storage.log_config import LogConfig
from sparklog.storage.log_directory import DirectoryLockedError, ForeignDirectoryError, LogDirectory
from sparklog.storage.meta_properties import MetaProperties

__all__ = [
    "DirectoryLockedError",
    "ForeignDirectoryError",
    "Log",
    "LogConfig",
    "LogDirectory",
    "MetaProperties",
]
