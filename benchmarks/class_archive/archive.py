"""Make the archive and the Spark properties that use it: `python -m benchmarks.class_archive DIRECTORY`.

Half of a Spark JVM's start is the loading of classes, the same ones each time. A dynamic class-data archive
(JEP 350) keeps them in the form of the JVM's memory, and every JVM of the machine maps the same file. It fits
one Java and one class path only. So the archive's name is a hash of the Java, the jars and the training
(`training.py`); a change makes a new one, and a JVM that finds a mismatch ignores the archive. Class paths
may have no directory with files in it: SPARK_CONF_DIR has to name a missing one, and --properties-file and
-Dlog4j2.configurationFile take its place.

A failure is never fatal: its log is kept in DIRECTORY/spark-....log, there is no retry with the same Java and
jars, and the properties are written without an archive.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import sparklog

TRAINING = Path(__file__).with_name("training.py")
TRAINING_TIMEOUT_S = 300.0
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dio.netty.jfr.enabled=false"
"""The costs of the second compiler and of registering netty's events are never recovered."""
PROPERTIES = "spark-defaults.conf"
IDENTITY_DIGITS = 16


def prepare(directory: Path, defaults: Path | None = None, log4j: Path | None = None) -> Path:
    """Make an archive in `directory` if possible, and return the path of properties that name it.

    The properties begin with those of `defaults`; `log4j` is the JVMs' log configuration. The Java is that of
    JAVA_HOME, Spark that of SPARK_HOME.

    Raises:
        OSError: The directory can't be written, and has no properties yet.
    """
    properties = directory / PROPERTIES
    options = [] if log4j is None else [f"-Dlog4j2.configurationFile={log4j.absolute().as_uri()}"]
    try:
        with _alone(directory):
            archive = _archive(directory, options)
            if archive is not None:
                options += archive_options(archive)
            _write(
                properties, (defaults.read_text() if defaults is not None else "") + _java_options(options)
            )
    except OSError:
        if not properties.exists():
            raise
    return properties


def archive_options(archive: Path) -> list[str]:
    """Return the options with which a JVM uses `archive` if it fits, and silently ignores it otherwise."""
    return [f"-XX:SharedArchiveFile={archive.absolute()}", "-Xshare:auto", "-Xlog:cds*=off"]


def identity(java_home: Path, spark_home: Path) -> str:
    """Return a hash of this Java and these jars, which changes when the archive is outdated."""
    # Java takes jars/* in the order of the directory, and recognises a changed jar by time and size.
    files = [java_home.resolve() / "lib" / "server" / "libjvm.so"]
    with os.scandir(spark_home / "jars") as jars:
        files += [Path(jar.path) for jar in jars]
    described = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(described).encode() + TRAINING.read_bytes()).hexdigest()[:IDENTITY_DIGITS]


def _archive(directory: Path, options: list[str]) -> Path | None:
    try:
        java_home, spark_home = Path(os.environ["JAVA_HOME"]), Path(os.environ["SPARK_HOME"])
        archive = directory / f"spark-{identity(java_home, spark_home)}.jsa"
    except (KeyError, OSError):
        return None
    failure = archive.with_suffix(".log")
    if not archive.exists() and not failure.exists():
        for stale in directory.glob(f"spark-{'?' * IDENTITY_DIGITS}.*"):
            stale.unlink()
        _train(archive, failure, spark_home, options)
    return archive if archive.exists() else None


def _train(archive: Path, failure: Path, spark_home: Path, options: list[str]) -> None:
    print("Archiving Spark's classes (once; a minute)", file=sys.stderr, flush=True)
    # Not beside the archive: the JVM's option for logs takes no spaces, and Spark leaves scratch files.
    with tempfile.TemporaryDirectory(prefix="sparklog-training-") as scratch:
        made, log, properties = (Path(scratch) / name for name in ("made.jsa", "training.log", PROPERTIES))
        java_options = " ".join([SHORT_LIVED, *map(_quoted, options)])
        properties.write_text(
            "spark.driver.host 127.0.0.1\n"
            "spark.driver.bindAddress 127.0.0.1\n"
            "spark.driver.memory 1g\n"
            "spark.executor.memory 512m\n"
            f"spark.driver.extraJavaOptions {java_options} {_class_log(scratch, 'driver')} "
            f"-XX:ArchiveClassesAtExit={made}\n"
            f"spark.executor.extraJavaOptions {java_options} {_class_log(scratch, 'executor')}\n"
        )
        command = [str(spark_home / "bin" / "spark-submit"), "--properties-file", str(properties)]
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    [*command, str(TRAINING), scratch],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=scratch,
                    env=_environment(scratch),
                    timeout=TRAINING_TIMEOUT_S,
                )
                succeeded = done.returncode == 0 and made.exists()
            except (OSError, subprocess.TimeoutExpired):
                succeeded = False
        if not succeeded:
            shutil.copyfile(log, failure)
            return
        temporary = archive.with_suffix(".making")
        shutil.copyfile(made, temporary)
        temporary.replace(archive)


def _environment(scratch: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    # Executors, too, import the packages from here if they are not installed.
    path = [str(Path(sparklog.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "SPARK_CONF_DIR": f"{scratch}/none",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path),
    }


def _class_log(directory: str, who: str) -> str:
    # The option that logs, undecorated, each class that is loaded, to a file for each process.
    return f"-Xlog:class+load:file={directory}/{who}-%p:none:filecount=0"


def _java_options(options: list[str]) -> str:
    if not options:
        return ""
    # Prepended by Spark to extraJavaOptions, which stay the application's. A backslash is Java's escape.
    value = " ".join(map(_quoted, options)).replace("\\", "\\\\")
    return "\n" + "".join(f"spark.{who}.defaultJavaOptions {value}\n" for who in ("driver", "executor"))


def _quoted(option: str) -> str:
    """Quote as Spark splits options: at spaces outside quotes."""
    return f'"{option}"' if " " in option else option


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold the lock of `directory` against other processes."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.read_text() == text:
            return
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)
