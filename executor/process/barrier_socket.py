"""Whether strangers of this host can open the socket file of a barrier task.

The executor's JVM makes the file under its umask, and authenticates no connection. A connection that a
stranger closes ends the JVM (`open_network.check_barrier_tasks` of the driver). On Linux and macOS a
connection needs the permission to write to the file, and to pass the directories above it.
"""

import stat
from pathlib import Path


def strangers_of_socket(path: Path) -> str | None:
    """Return the other users that can connect to a socket file, as words for a message; None for none."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:  # no connection is possible without a file
        return None
    above = [each.stat().st_mode for each in path.parents]
    if mode & stat.S_IWOTH and all(each & stat.S_IXOTH for each in above):
        return "every user of its host"
    if mode & stat.S_IWGRP and all(each & (stat.S_IXGRP | stat.S_IXOTH) for each in above):
        return f"every user of its host in the group {path.group()}"
    return None
