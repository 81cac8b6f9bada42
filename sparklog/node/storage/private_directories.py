"""Directories for logs that only this user may read.

Missing parts of a path are created with mode 0700; existing ones stay as their owner set them. In a place
where every local user may create directories, such as the temporary one, another user may have taken a name,
and could read or replace the logs there. Such a directory is refused.
"""

import os
from pathlib import Path
from typing import Final

_MODE: Final = 0o700


class OthersDirectoryError(PermissionError):
    """A directory that must belong to this user belongs to another one."""


def make_private_directory(path: Path, *, with_parents: bool = True) -> None:
    """Create a directory, `with_parents` also its missing parents, for this user alone.

    Raises:
        OSError: it can't be created, or is not a directory.
    """
    try:
        path.mkdir(_MODE, exist_ok=True)
    except FileNotFoundError:
        if not with_parents or path.parent == path:
            raise
        make_private_directory(path.parent)
        path.mkdir(_MODE, exist_ok=True)


def make_own_directory(path: Path) -> None:
    """Create this user's directory in a place where other users may create some, too.

    Raises:
        OthersDirectoryError: another user has created it, or a link of that name.
        OSError: it can't be created, or is not a directory.
    """
    make_private_directory(path)
    owner = path.lstat().st_uid
    if owner != os.geteuid():
        raise OthersDirectoryError(
            f"{path} belongs to the user with the id {owner}, who could read and change the logs there: "
            "name this user's own directories with log_directories or log.dirs"
        )
