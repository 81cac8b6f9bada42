"""Which brokers' directories a host has."""

import os
from pathlib import Path
from uuid import UUID

from sparklog.node.storage import LogDirectory, MetaProperties
from sparklog.node.storage.directory.directory_search import FoundDirectories, search_directories


def formatted(path: Path, changed_s: float, ids_per_rack: int | None = None) -> str:
    """Make a broker's directory, in which something was written last at that time."""
    directory = LogDirectory.open(path)
    directory.format(MetaProperties("c" * 22, 1, UUID(int=1), ids_per_rack))
    directory.close()
    for entry in path.iterdir():
        os.utime(entry, (changed_s, changed_s))
    return str(path)


def test_directories_are_found_with_the_time_of_their_last_change(tmp_path: Path) -> None:
    """Of a broker with several the latest counts; a directory that was never formatted is nobody's."""
    (tmp_path / "blank").mkdir()
    first, second = formatted(tmp_path / "first", 100.0), formatted(tmp_path / "second", 200.0)
    assert search_directories(
        {
            1: [first, second],
            2: [str(tmp_path / "missing"), first],
            3: [str(tmp_path / "blank")],
            4: [str(tmp_path / "missing")],
            5: [],
        }
    ) == {1: FoundDirectories(200.0, None, "c" * 22), 2: FoundDirectories(100.0, None, "c" * 22)}


def test_directories_have_the_number_of_ids_of_each_rack_of_their_cluster(tmp_path: Path) -> None:
    """The driver counts all ids by it; a directory that was added since may be the only one."""
    first, second = formatted(tmp_path / "first", 1.0), formatted(tmp_path / "second", 2.0, 3)
    assert search_directories({1: [first, second]}) == {1: FoundDirectories(2.0, 3, "c" * 22)}


def test_file_in_the_place_of_a_directory_is_not_found(tmp_path: Path) -> None:
    """Whatever lies there: the broker itself will say what is wrong with it."""
    (tmp_path / "file").touch()
    assert search_directories({1: [str(tmp_path / "file")]}) == {}
