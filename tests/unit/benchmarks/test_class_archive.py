"""The archive of Spark's classes: when it is made, and that all goes on without it."""

from pathlib import Path

import pytest

from benchmarks.class_archive.archive import prepare

TRAINS = """#!/bin/sh
echo trained >> "{trainings}"
made=$(sed -n 's/.*ArchiveClassesAtExit=//p' "$2")
echo classes > "$made"
"""
FAILS = """#!/bin/sh
echo trained >> "{trainings}"
echo no such option
exit 1
"""


class Machine:
    """A Java and a Spark whose spark-submit is a script, and a directory for the archive."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, spark_submit: str) -> None:
        self.directory = root / "a directory"
        self.jar = root / "spark" / "jars" / "core.jar"
        self._trainings = root / "trainings"
        for file in (root / "java/lib/server/libjvm.so", self.jar, root / "spark/bin/spark-submit"):
            file.parent.mkdir(parents=True)
            file.write_text("")
        script = root / "spark/bin/spark-submit"
        script.write_text(spark_submit.format(trainings=self._trainings))
        script.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(root / "java"))
        monkeypatch.setenv("SPARK_HOME", str(root / "spark"))
        self.defaults = root / "defaults.conf"
        self.defaults.write_text("spark.master local[6]\n")

    @property
    def trainings(self) -> int:
        """How often spark-submit was run."""
        return len(self._trainings.read_text().splitlines()) if self._trainings.exists() else 0

    @property
    def archives(self) -> list[Path]:
        """The archives that are there."""
        return sorted(self.directory.glob("*.jsa"))

    def prepare(self) -> str:
        """Prepare, and return the properties."""
        return prepare(self.directory, self.defaults).read_text()


def test_archive_is_made_once_and_named_in_the_properties(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making it takes longer than it saves at one start; a path with spaces must stay one option."""
    machine = Machine(tmp_path, monkeypatch, TRAINS)
    properties = machine.prepare()
    assert machine.prepare() == properties
    assert machine.trainings == 1
    (archive,) = machine.archives
    options = f'"-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:cds*=off'
    assert properties == (
        "spark.master local[6]\n\n"
        f"spark.driver.defaultJavaOptions {options}\n"
        f"spark.executor.defaultJavaOptions {options}\n"
    )


def test_archive_when_a_jar_changes_is_made_anew_and_the_old_one_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A JVM ignores an archive that does not fit: without this each start would be slow for ever."""
    machine = Machine(tmp_path, monkeypatch, TRAINS)
    machine.prepare()
    before = machine.archives
    machine.jar.write_text("another version")
    assert str(before[0]) not in machine.prepare()
    assert machine.trainings == 2
    assert len(machine.archives) == 1
    assert machine.archives != before


def test_archive_that_cannot_be_made_is_left_out_of_the_properties_and_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some Javas cannot make one; `make demo` must work there, and not try for a minute each time."""
    machine = Machine(tmp_path, monkeypatch, FAILS)
    assert machine.prepare() == "spark.master local[6]\n"
    assert machine.prepare() == "spark.master local[6]\n"
    assert machine.trainings == 1
    (log,) = machine.directory.glob("*.log")
    assert log.read_text() == "no such option\n"


def test_properties_without_java_home_are_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive is never a reason to fail."""
    machine = Machine(tmp_path, monkeypatch, TRAINS)
    monkeypatch.delenv("JAVA_HOME")
    assert machine.prepare() == "spark.master local[6]\n"
    assert machine.trainings == 0


def test_properties_in_a_directory_that_can_not_be_written_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may be read-only after the installation; what is there still serves."""
    machine = Machine(tmp_path, monkeypatch, TRAINS)
    properties = machine.prepare()
    machine.jar.write_text("another version")
    lock = machine.directory / "spark.lock"
    lock.unlink()
    lock.mkdir()  # so that root, too, can't write it
    assert machine.prepare() == properties
    assert machine.trainings == 1
