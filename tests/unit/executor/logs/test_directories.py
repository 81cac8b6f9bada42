"""A broker's data directories: locked together, and never another's."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executor.logs.directories import DataDirectories
from sparklog.node.storage import DirectoryLockedError, ForeignDirectoryError, LogDirectory, MetaProperties
from sparklog.node.storage.directory.meta_properties import read_meta_properties
from sparklog.protocol.errors import KafkaError
from tests.unit.executor.logs.test_disk_failures import failing


def formatted(path: Path, cluster_id: str = "c", node_id: int = 1, directory_id: int = 500) -> Path:
    directory = LogDirectory.open(path)
    directory.format(MetaProperties(cluster_id, node_id, UUID(int=directory_id)))
    directory.close()
    return path


def test_blank_directories_keep_the_ids_that_were_told_before_they_were_formatted(tmp_path: Path) -> None:
    """The driver counts votes by directory id; a vote given while blank must still be this one's."""
    directories = DataDirectories.open([tmp_path / "a", tmp_path / "b"], None, 1)
    assert directories.cluster_id is None
    told = directories.log_ids
    assert directories.metadata_id == told[0]
    directories.format("c")
    directories.close()
    again = DataDirectories.open([tmp_path / "a", tmp_path / "b"], None, 1)
    assert (again.cluster_id, again.log_ids) == ("c", told)
    again.close()


def test_new_directory_beside_known_ones_is_formatted_at_once(tmp_path: Path) -> None:
    """A disk that was replaced belongs to the broker whose others say so."""
    paths = [tmp_path / "new", formatted(tmp_path / "old")]
    directories = DataDirectories.open(paths, None, 1)
    assert directories.cluster_id == "c"
    assert directories.metadata_id != UUID(int=500), "it has forgotten what it voted, so it is another voter"
    directories.close()


def test_directory_with_logs_but_without_an_identity_is_refused(tmp_path: Path) -> None:
    """It would be taken for blank, and a new cluster formed over somebody's records."""
    (tmp_path / "topic-0").mkdir()
    with pytest.raises(ForeignDirectoryError, match=r"topic-0 is a log.*no meta\.properties"):
        DataDirectories.open([tmp_path], None, 1)
    LogDirectory.open(tmp_path).close()


@pytest.mark.parametrize(("cluster_id", "node_id"), [("other", 1), ("c", 7)])
def test_directory_of_another_cluster_or_broker_is_refused(
    tmp_path: Path, cluster_id: str, node_id: int
) -> None:
    """Records of two owners must not be mixed; those locked before are given back."""
    paths = [formatted(tmp_path / "a"), formatted(tmp_path / "b", cluster_id, node_id)]
    with pytest.raises(ForeignDirectoryError, match=f"broker {node_id} of cluster {cluster_id}"):
        DataDirectories.open(paths, None, 1)
    LogDirectory.open(paths[0]).close()


def test_metadata_log_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    """It is locked and named like the others, for its vote depends on it; or it is one of them."""
    own, log = tmp_path / "metadata", tmp_path / "a"
    directories = DataDirectories.open([log], own, 1)
    directories.format("c")
    assert directories.metadata_id not in directories.log_ids
    with pytest.raises(DirectoryLockedError):
        LogDirectory.open(own)
    directories.close()
    shared = DataDirectories.open([log, tmp_path / "b"], log, 1)
    assert shared.metadata_id == shared.log_ids[0]
    shared.close()


def test_directory_whose_disk_fails_is_done_without_unless_it_is_that_of_the_metadata(tmp_path: Path) -> None:
    """Three good disks serve on without the fourth; a broker without its vote does not."""
    paths = [tmp_path / "one", tmp_path / "two"]
    (tmp_path / "two").write_text("a file is no directory")
    directories = DataDirectories.open(paths, None, 1)
    assert [directory.path for directory in directories.logs] == paths[:1]
    directories.close()
    with pytest.raises(KafkaError, match="two"):
        DataDirectories.open(paths, paths[1], 1)
    with pytest.raises(KafkaError, match="two"):
        DataDirectories.open(paths[1:], tmp_path / "metadata", 1)


def test_directory_that_cannot_be_opened_for_lack_of_descriptors_is_not_done_without(tmp_path: Path) -> None:
    """Nothing is wrong with its disk; without it the broker would make its replicas anew elsewhere."""
    paths = [tmp_path / "one", tmp_path / "two"]
    with failing("open", errno.EMFILE, of="/two/"), pytest.raises(KafkaError, match="Too many open files"):
        DataDirectories.open(paths, None, 1)
    DataDirectories.open(paths, None, 1).close()


def test_clean_shutdown_of_a_broker_that_never_registered_keeps_the_epoch_before(tmp_path: Path) -> None:
    """It has changed nothing: what the process before it had acknowledged, the directory still has."""
    formatted(tmp_path)
    directories = DataDirectories.open([tmp_path], None, 1)
    directories.write_clean_shutdown(41)
    directories.close()
    again = DataDirectories.open([tmp_path], None, 1)
    again.write_clean_shutdown(None)
    again.close()
    last = DataDirectories.open([tmp_path], None, 1)
    assert last.previous_broker_epoch == 41
    last.close()


def test_directories_whose_logs_take_most_of_the_descriptors_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the first to hear of RLIMIT_NOFILE is a client whose partition cannot begin a segment."""
    path = formatted(tmp_path / "one")
    for number in range(10):
        log = path / f"topic-{number}"
        log.mkdir()
        for offset in (0, 100):
            (log / f"{offset:020d}.log").touch()
            (log / f"{offset:020d}.index").touch()
    directories = DataDirectories.open([path], None, 1)
    try:
        directories.check_descriptors(80)
        assert caplog.records == []
        directories.check_descriptors(79)
        (warning,) = (record.getMessage() for record in caplog.records)
    finally:
        directories.close()
    assert "The 10 partitions here need up to 40 file descriptors" in warning
    assert "RLIMIT_NOFILE is 79" in warning


def test_new_directories_note_how_the_ids_of_their_cluster_were_counted(tmp_path: Path) -> None:
    """The driver keeps nothing, and must give each broker its id before any of them has a log to show."""
    directories = DataDirectories.open([tmp_path], None, 1, ids_per_rack=2)
    directories.format("c")
    directories.close()
    meta = read_meta_properties(tmp_path)
    assert meta is not None
    assert meta.ids_per_rack == 2
