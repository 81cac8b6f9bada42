"""The archive of Spark's classes, as `make` has made it, in JVMs."""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chaos.application import spark_properties_file
from tests.cluster import wait_for
from tests.spark.sessions import SPARK_HOME

pytestmark = pytest.mark.long

FROM_ARCHIVE = "shared objects file (top)"


@pytest.fixture(scope="module")
def properties() -> str:
    """The properties file of whatever make starts."""
    path = spark_properties_file()
    if "-XX:SharedArchiveFile=" not in Path(path).read_text():
        pytest.skip("there is no archive here: `make quick-start` makes one where Java can")
    return path


class Submitted(NamedTuple):
    """What became of an application."""

    printed: str
    archived: int
    """How many of the JVM's classes were."""


def submit(properties: str, directory: Path, **environment: str) -> Submitted:
    """Run an application that prints where its PySpark is compiled."""
    script, log = directory / "application.py", directory / "classes"
    script.write_text("import pyspark\nprint(pyspark.__cached__)\n")
    done = subprocess.run(
        [
            *(str(SPARK_HOME / "bin" / "spark-submit"), "--properties-file", properties),
            *("--driver-java-options", f"-Xlog:class+load:file={log}", str(script)),
        ],
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return Submitted(done.stdout, log.read_text().count(FROM_ARCHIVE))


@pytest.fixture(scope="module")
def submitted(properties: str, tmp_path_factory: pytest.TempPathFactory) -> Submitted:
    """An application as whoever uses make submits it."""
    return submit(properties, tmp_path_factory.mktemp("submitted"))


def test_driver_takes_its_classes_from_the_archive(submitted: Submitted) -> None:
    """An archive that fits no JVM would be 180 MB for nothing, and nobody would be told."""
    assert submitted.archived > 1000


def test_driver_that_the_archive_does_not_fit_goes_on_without_it_and_says_nothing(
    properties: str, submitted: Submitted, tmp_path: Path
) -> None:
    """Whoever has settings in SPARK_CONF_DIR, or another jar, must neither fail nor be warned by Java."""
    configuration = tmp_path / "conf"
    configuration.mkdir()
    (configuration / "core-site.xml").write_text("<configuration/>")
    without = submit(properties, tmp_path, SPARK_CONF_DIR=str(configuration))
    assert without == Submitted(submitted.printed, archived=0)


def test_standalone_master_takes_its_classes_from_the_archive(properties: str, tmp_path: Path) -> None:
    """Applications tell a cluster's own JVMs nothing; docs/deploy.md says how they are told."""
    options = re.search(
        r"^spark\.driver\.defaultJavaOptions (.*)$", Path(properties).read_text(), re.MULTILINE
    )
    assert options is not None
    log = tmp_path / "classes"
    master = subprocess.Popen(
        [
            *(str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master"),
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        ],
        env={**os.environ, "SPARK_DAEMON_JAVA_OPTS": f"{options[1]} -Xlog:class+load:file={log}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(
            lambda: log.exists() and log.read_text().count(FROM_ARCHIVE) > 1000,
            "the Master takes a thousand classes from the archive",
            timeout_s=60,
        )
    finally:
        master.terminate()
        master.wait(30)


def test_application_under_make_has_pyspark_as_it_was_installed(submitted: Submitted) -> None:
    """Spark's own zip of it holds sources only, which each Python process would spend a second to compile."""
    assert Path(submitted.printed.splitlines()[-1]).is_file()
