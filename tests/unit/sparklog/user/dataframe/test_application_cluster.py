"""Where a query that names no cluster goes: what a process finds in which Spark makes data sources."""

import stat
from pathlib import Path

import pytest
from pyspark import SparkFiles

from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.security.session_access import PLAIN_ACCESS, SessionAccess
from sparklog.user.dataframe.application_cluster import announced_address, write_address
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.options import ReadOptions, WriteOptions
from sparklog.user.dataframe.source import SparklogDataSource


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application's files, known to this process as to a worker of Spark's."""
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    return tmp_path


def test_address_is_unknown_where_no_cluster_was_started(files: Path) -> None:
    """The option is then required, and the message says so."""
    assert announced_address() is None
    with pytest.raises(ValueError, match=r"sparklog\.start\(spark\) starts one"):
        SparklogDataSource({"subscribe": "t"}).schema()


def test_address_is_that_of_the_cluster_started_last(files: Path) -> None:
    """A session outlives a cluster, and means the next one then."""
    write_address(files, "127.0.0.1:1001")
    write_address(files, "127.0.0.1:1002")
    assert announced_address() == "127.0.0.1:1002"
    assert [path.name for path in files.iterdir()] == ["sparklog-bootstrap-servers"]


def test_address_is_found_from_the_files_of_a_connect_session(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Spark Connect session has a directory of files of its own, in the application's."""
    write_address(files, "127.0.0.1:1001")
    monkeypatch.setattr(SparkFiles, "_root_directory", str(files / "0b7ac2f0"))
    assert announced_address() == "127.0.0.1:1001"


def test_session_with_an_address_of_its_own_does_not_ask_for_the_applications(files: Path) -> None:
    """`register` is for a session that wants another cluster than the application's."""
    write_address(files, "127.0.0.1:1001")

    class Registered(SparklogDataSource):
        default_bootstrap_servers = "127.0.0.1:2001"

    own = ReadOptions.parse({"subscribe": "t"}, Registered({})._default()).client
    assert own.bootstrap_servers == (("127.0.0.1", 2001),)
    assert not own.of_this_application
    applications = ReadOptions.parse({"subscribe": "t"}, SparklogDataSource({})._default()).client
    assert applications.bootstrap_servers == (("127.0.0.1", 1001),)
    assert applications.of_this_application, "so that its end is known from that of its controller"


def test_session_with_the_applications_own_address_gets_in_there_as_its_sessions_do(files: Path) -> None:
    """`register` without an address takes the application's, whose text is in a session's configuration."""
    access = SessionAccess(protocol="SASL_PLAINTEXT", secret="s3cret")
    write_address(files, "127.0.0.1:1001", access)

    class Registered(SparklogDataSource):
        default_bootstrap_servers = "127.0.0.1:1001"

    client = ReadOptions.parse({"subscribe": "t"}, Registered({})._default()).client
    assert client.of_this_application
    assert client.login is not None


@pytest.mark.parametrize(("named", "is_the_applications"), [("127.0.0.1:1001", True), ("127.0.0.1:1", False)])
def test_applications_own_address_is_its_clusters_when_it_is_named_too(
    files: Path, named: str, is_the_applications: bool
) -> None:
    """A job that has moved over names its servers still: its streams waited a minute for a stopped one."""
    write_address(files, "127.0.0.1:1001")
    given = {"subscribe": "t", "kafka.bootstrap.servers": named}
    client = ReadOptions.parse(given, SparklogDataSource({})._default()).client
    assert client.of_this_application is is_the_applications


def test_application_whose_cluster_was_stopped_is_told_so_unless_it_names_another(files: Path) -> None:
    """The address of the stopped one was asked for a minute, and then it was a timeout."""
    write_address(files, "")
    stopped = SparklogDataSource({})._default()
    with pytest.raises(DataSourceOptionError, match="cluster was stopped"):
        ReadOptions.parse({"subscribe": "t"}, stopped)
    with pytest.raises(DataSourceOptionError, match="cluster was stopped"):
        WriteOptions.parse({}, stopped)
    other = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:3001"}
    assert ReadOptions.parse(other, stopped).client.bootstrap_servers == (("127.0.0.1", 3001),)


def test_address_of_a_cluster_that_asks_who_comes_is_told_with_what_to_say(files: Path) -> None:
    """Nobody but who runs the application can read it: sessions log in by it."""
    access = SessionAccess(protocol="SASL_SSL", authority_pem="A\nB\n", secret="s3cret")
    write_address(files, "127.0.0.1:1001", access)
    told = announced_address()
    assert (told, told and told.access) == ("127.0.0.1:1001", access)
    assert "s3cret" not in repr(access)
    assert [stat.S_IMODE(each.stat().st_mode) for each in files.iterdir()] == [0o600]
    write_address(files, "127.0.0.1:1001")
    told = announced_address()
    assert (told, told and told.access) == ("127.0.0.1:1001", PLAIN_ACCESS)


def test_object_store_of_the_applications_cluster_is_announced_with_its_options(files: Path) -> None:
    """Queries read history from it; its secrets are as safe as the sessions' own, and in no message."""
    store = StoreLocation.of("s3://bucket/prefix", {"secret_access_key": "s3cret", "region": "here"})
    write_address(files, "127.0.0.1:1001", PLAIN_ACCESS, store)
    given = {"subscribe": "t"}
    assert ReadOptions.parse(given, SparklogDataSource({})._default()).store == store
    assert "s3cret" not in repr(store)
    for unused in ({"remoteRead": "false"}, {"kafka.bootstrap.servers": "127.0.0.1:1"}):
        assert ReadOptions.parse({**given, **unused}, SparklogDataSource({})._default()).store is None
    write_address(files, "127.0.0.1:1001")
    assert ReadOptions.parse(given, SparklogDataSource({})._default()).store is None
