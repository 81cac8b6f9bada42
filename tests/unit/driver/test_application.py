"""What an application asks for, and what its brokers are told and its user of that."""

import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sparklog.driver.application import start
from sparklog.driver.spark import preflight
from sparklog.hosting import BrokerRefusedError, StartError
from tests.unit.driver.applications import Application, refused


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where what is temporary lies; the application's working directory is beside it."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def told(**arguments: Any) -> tuple[str, ...]:
    """Return the directories of the one broker of a start."""
    application = Application(refused)
    with pytest.raises(BrokerRefusedError):
        start(application.context, racks=1, **arguments)
    return application.assignments[0].directories


@pytest.mark.parametrize(
    "arguments",
    [
        {"log_directories": "a"},
        {"config": {"log.dirs": "a"}},
        {"config": {"log.dir": " a "}},
    ],
)
def test_relative_directories_are_the_drivers_for_all(arguments: dict[str, Any], tmp_path: Path) -> None:
    """From an executor's working directory they would go with the executor, logs and all."""
    assert told(**arguments) == (f"{tmp_path}/a/broker-0",)


def test_relative_directory_of_the_metadata_log_is_the_drivers_too(tmp_path: Path) -> None:
    """It is a voter's memory: without a majority of those nothing of the cluster is there any more."""
    application = Application(refused)
    with pytest.raises(BrokerRefusedError):
        start(application.context, racks=1, config={"metadata.log.dir": "m,n"})
    assert application.assignments[0].configuration["metadata.log.dir"] == f"{tmp_path}/m,n"


@pytest.mark.parametrize(
    "arguments",
    [
        {"log_directories": ["/a", Path("/b")]},
        {"config": {"log.dirs": ["/a", Path("/b")]}},
        {"config": {"log.dirs": "/a,/b", "log.dir": None}},
    ],
)
def test_directories_are_named_as_python_or_kafka_names_them(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list became directories with brackets and quotation marks in their names."""
    monkeypatch.setattr(preflight, "check_directories", lambda *_, **__: None)
    assert told(**arguments) == ("/a/broker-0", "/b/broker-0")


def test_keys_of_none_are_not_set_and_lists_are_kafkas() -> None:
    """As if they were left out: they were set to the text None."""
    application = Application(refused)
    given = {"log.retention.ms": None, "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"]}
    with pytest.raises(BrokerRefusedError):
        start(application.context, racks=1, config=given)
    configuration = application.assignments[0].configuration
    assert "log.retention.ms" not in configuration
    assert configuration["ssl.enabled.protocols"] == "TLSv1.2,TLSv1.3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"log_directories": []}, "log_directories names no directory"),
        ({"log_directories": ""}, "log_directories names no directory"),
        ({"config": {"log.dirs": []}}, "log.dirs names no directory"),
        ({"config": {"log.dirs": "/a,,/b"}}, "log.dirs names no directory"),
        ({"log_directories": "/a,b"}, "log_directories: '/a,b' has a comma"),
        ({"config": {"log.dir": [Path("/a,b")]}}, "log.dir: '/a,b' has a comma"),
    ],
)
def test_directories_that_can_not_be_meant_are_refused(arguments: dict[str, Any], said: str) -> None:
    """Logs that were to be kept would be temporary, or lie elsewhere."""
    with pytest.raises(StartError, match=said):
        start(Application(refused).context, racks=1, **arguments)


def test_start_in_an_application_that_ends_meanwhile_says_so() -> None:
    """A stop signal before the executors had come was a traceback, and a failed job to who supervises it."""
    application = Application(refused)

    def end() -> int:
        application.context._jsc = None  # what PySpark leaves of a context that was stopped
        return 8

    running = application.context._jsc.sc().taskScheduler().runningTasksByExecutors().valuesIterator()
    running.hasNext.side_effect = [True, False]
    running.next.side_effect = end
    with pytest.raises(StartError, match="the Spark application has ended"):
        start(application.context, racks=1)


def test_start_at_a_port_that_is_taken_leaves_nothing_behind(temporary: Path) -> None:
    """Whoever tries again and again, as a supervisor does, left a directory each time."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(StartError, match="can't listen"):
            start(Application(refused).context, config={"controller.quorum.bootstrap.servers": address})
    assert list(temporary.iterdir()) == []


def test_brokers_have_the_names_of_racks_that_are_configured() -> None:
    """Kafka's consumers are sent to replicas by these names."""
    application = Application(refused)
    with pytest.raises(BrokerRefusedError, match="broker 0 of zone-a"):
        start(application.context, racks=1, config={"sparklog.rack.names": "zone-a,zone-b"})
    assert [each.rack for each in application.assignments] == ["zone-a"]


def test_controller_is_at_the_host_that_spark_has_for_the_driver() -> None:
    """In cluster mode YARN chooses the driver's host, after the properties file was written."""
    application = Application(refused)
    application.context.getConf.return_value.get = {"spark.driver.host": "127.0.0.1"}.get
    with pytest.raises(BrokerRefusedError):
        start(
            application.context,
            racks=1,
            config={"controller.quorum.bootstrap.servers": "spark.driver.host:0"},
        )
    (assignment,) = application.assignments
    assert assignment.controller_host == "127.0.0.1"
    assert assignment.controller_port > 0
    assert assignment.configuration["controller.quorum.bootstrap.servers"] == "127.0.0.1:0"
