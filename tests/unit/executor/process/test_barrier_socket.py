"""A barrier task's socket file is looked at as the kernel does when somebody connects."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.executor.process.barrier_socket import strangers_of_socket


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may pass, as /tmp; that of a test is its user's own."""
    path = Path(f"/tmp/barrier-socket-{os.getpid()}")
    path.mkdir(mode=0o755)
    path.chmod(0o755)
    yield path
    path.rmdir()


@pytest.mark.parametrize(
    ("umask", "strangers"),
    [
        (0o077, ""),
        (0o022, ""),
        (0o002, "every user of its host in the group "),
        (0, "every user of its host"),
    ],
)
def test_socket_file_is_open_to_whom_the_umask_leaves_the_permission_to_write(
    open_directory: Path, umask: int, strangers: str
) -> None:
    """One connection of theirs ends the executor, and the broker in it."""
    path = open_directory / "socket"
    before = os.umask(umask)
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            found = strangers_of_socket(path)
    finally:
        os.umask(before)
        path.unlink()
    assert (found or "").startswith(strangers)
    assert (found is None) == (not strangers)


def test_socket_file_below_a_directory_of_its_user_is_open_to_none(open_directory: Path) -> None:
    """Spark's own temporary directories are such; the file's permissions do not matter then."""
    path = open_directory / "socket"
    open_directory.chmod(0o700)
    path.touch()
    path.chmod(0o777)
    try:
        assert strangers_of_socket(path) is None
    finally:
        path.unlink()
