"""Directories of one disk are recognized, so that a full disk does not count once for each broker on it."""

import os
from pathlib import Path

from sparklog.node.storage.directory.file_system import file_system_id


def of(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return file_system_id(descriptor)
    finally:
        os.close(descriptor)


def test_file_system_id_two_directories_of_a_disk_is_the_same(tmp_path: Path) -> None:
    """A float carries it to the driver."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert of(tmp_path / "a") == of(tmp_path / "b") == int(float(of(tmp_path / "a")))


def test_file_system_id_another_file_system_differs(tmp_path: Path) -> None:
    """Brokers on different disks have different room."""
    assert of(tmp_path) != of(Path("/proc"))
