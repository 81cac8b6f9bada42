"""What an application asks for, and what its brokers are told and its user of that."""

import tempfile
from pathlib import Path
from typing import Any

import pytest

from driver.application import start
from sparklog.hosting import BrokerRefusedError
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
        start(application.context, racks=1, config={"metadata.log.dir": "m"})
    assert application.assignments[0].configuration["metadata.log.dir"] == f"{tmp_path}/m"
