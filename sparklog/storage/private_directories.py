"""Directories for logs, which are for nobody's eyes but this user's.

What is missing of a path is made with mode 0700; what is there stays as its owner has it. In a place where
every local user may make directories, the temporary one, a name may have been taken by another: he could read
what lies there, and put something else in its place. Such a directory is not used.
"""

import os
from pathlib import Path
from typing import Final

_MODE: Final = 0o700


class OthersDirectoryError(PermissionError):
    """A directory that is to be this user's alone is another's."""


def make_private_directory(path: Path) -> None:
    """Make a directory, and what is missing above it, for this user alone, unless it is there.

    Raises:
        OSError: it can't be made, or is no directory.
    """
    try:
        path.mkdir(_MODE, exist_ok=True)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_private_directory(path.parent)
        path.mkdir(_MODE, exist_ok=True)


def make_own_directory(path: Path) -> None:
    """Make a directory in a place where others may make some, too, unless it is there and this user's own.

    Raises:
        OthersDirectoryError: another user has made it, or a link of that name.
        OSError: it can't be made, or is no directory.
    """
    make_private_directory(path)
    owner = path.lstat().st_uid
    if owner != os.geteuid():
        raise OthersDirectoryError(
            f"{path} belongs to the user with the id {owner}, who could read and change what lies there: "
            "name directories of this user's with log_directories or log.dirs"
        )
