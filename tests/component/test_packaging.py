"""What is installed: Spark finds data sources by the names of modules, so where files end up matters."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.wheels import build_wheel, install

REPOSITORY = Path(__file__).parents[2]

LOOK_UP = """
import io, json, pickle, sys
from pyspark.serializers import SpecialLengths, write_int, write_with_length
from pyspark.sql.worker import lookup_data_sources

look_up = getattr(lookup_data_sources, "_main", lookup_data_sources.main)
request, answer = io.BytesIO(), io.BytesIO()
write_with_length(b"%d.%d" % sys.version_info[:2], request)  # these are read before 4.2, not by _main
write_with_length(b"", request)  # files
write_int(0, request)
request.write(bytes(1))  # broadcasts
write_int(0, request)
write_int(SpecialLengths.END_OF_STREAM, request)
request.seek(0)
before = set(sys.modules)
look_up(request, answer)
import pyspark_sparklog

print(json.dumps({
    "names": b"sparklog" in answer.getvalue(),
    "file": pyspark_sparklog.__file__,
    "imported": sorted({".".join(name.split(".")[:2]) for name in set(sys.modules) - before}),
}))
"""
"""What Spark does when an application first names a data source, in a process of its own as there."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(REPOSITORY, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel puts beside other packages."""
    directory = tmp_path_factory.mktemp("site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


def test_wheel_has_the_module_that_spark_looks_for(installed: Path) -> None:
    """Once installed, the format is known everywhere: `pyspark_sparklog` lies where Spark lists modules."""
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {
        "pyspark_sparklog.py",
        "sparklog",
    }
    assert not (installed / "sparklog" / "top-level").exists()


def test_lookup_of_data_sources_finds_ours_and_imports_next_to_nothing(
    installed: Path, tmp_path: Path
) -> None:
    """Every application whose Python has sparklog pays for this, also one that reads nothing but files."""
    found = json.loads(
        subprocess.run(
            [sys.executable, "-c", LOOK_UP],
            check=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
        ).stdout
    )
    assert found["names"]
    assert Path(found["file"]).parent == installed
    assert {"sparklog", "pyspark_sparklog"} <= set(found["imported"])
    assert not {"pyarrow", "numpy", "cramjam", "asyncio", "sparklog.driver", "sparklog.executor"} & set(
        found["imported"]
    )


def test_editable_installation_has_the_module_beside_the_packages(tmp_path: Path) -> None:
    """Spark lists what is on the path: that is the repository, which has the module deeper down."""
    (wheel,) = WheelBuilder(str(REPOSITORY)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(wheel) as archive:
        (path_file,) = [name for name in archive.namelist() if name.endswith(".pth")]
        assert set(archive.read(path_file).decode().split()) == {str(REPOSITORY)}
        assert "pyspark_sparklog.py" in archive.namelist()


@pytest.mark.parametrize(
    ("command", "description"),
    [
        ("sparklog-scale", "the brokers of each rack"),
        ("sparklog-serve", "A Kafka cluster inside this Spark application."),
        ("sparklog-sinks", "commit the decided transactions of a sink"),
        ("sparklog-top", "The overview of a cluster, in a terminal."),
    ],
)
def test_command_of_an_installed_wheel_runs_in_an_environment_that_is_not_activated(
    environment: Path, command: str, description: str
) -> None:
    """Error texts name these commands: `python -m jobs...` works beside the repository, or by luck."""
    told = subprocess.run(
        [environment / "bin" / command, "--help"],
        check=True,
        cwd=environment,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    ).stdout
    assert told.startswith(f"usage: {command}")
    assert description in told


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel alone; what it depends on comes from the one of the tests."""
    directory = tmp_path_factory.mktemp("environment")
    install(directory, wheel)
    return directory
