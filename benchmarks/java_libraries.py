"""Apache Kafka with Streams and Connect, and Spark's Kafka connector, from Maven; none comes with us.

They are kept in build/java.

Benchmarks compare with them and tests run them against a cluster of ours. Ask `maven_at_hand` first, or take
`LibrariesUnavailableError` for an answer.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark

from sparklog.spark_versions import PYSPARK

KAFKA_VERSION: Final = "4.3.1"
KAFKA: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-nop:1.7.36",
)
# What else it depends on comes with Kafka, or is RocksDB, which is for states that do not fit into memory.
STREAMS: Final = (f"org.apache.kafka:kafka-streams:{KAFKA_VERSION}",)
# Workers with their REST interface, MirrorMaker 2, the connectors of files, and a log on standard error.
CONNECT: Final = (
    *(
        f"org.apache.kafka:{artifact}:{KAFKA_VERSION}"
        for artifact in ("connect-runtime", "connect-mirror", "connect-file", "connect-json")
    ),
    "org.slf4j:slf4j-simple:1.7.36",
)
# Of the installed Spark's feature release; the newest that is published runs on the newest Spark.
CONNECTOR_VERSION: Final = {(4, 0): "4.0.1", (4, 1): "4.1.1"}.get(PYSPARK, "4.2.0")
CONNECTOR: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
ICEBERG_VERSION: Final = "1.10.1"
ICEBERG: Final = (f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{ICEBERG_VERSION}",)
SQLITE_VERSION: Final = "3.46.1.3"
SQLITE: Final = (f"org.xerial:sqlite-jdbc:{SQLITE_VERSION}",)
SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
# The servers of the Hadoop whose client comes with Spark; what else they depend on comes with Spark, too.
HADOOP_VERSION: Final = next(
    jar.stem.rpartition("-")[2] for jar in SPARK_JARS.glob("hadoop-client-api-*.jar")
)
YARN: Final = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}",
    *(f"org.bouncycastle:{artifact}-jdk18on:1.82" for artifact in ("bcprov", "bcpkix", "bcutil")),
)
COMPILER: Final = "org.codehaus.janino.SimpleCompiler"
COMPILER_JARS: Final = ("janino-*.jar", "commons-compiler-*.jar")
DIRECTORY: Final = Path(__file__).absolute().parent.parent / "build" / "java"
FETCH_TIMEOUT_S: Final = 300.0
PROGRAM_TIMEOUT_S: Final = 300.0
JAVA_OPTIONS: Final = ("-Xmx512m",)


class LibrariesUnavailableError(RuntimeError):
    """Maven is not there, or could not fetch what was asked for; says what it said."""


def maven_at_hand() -> bool:
    """Return whether libraries can be fetched and run."""
    return shutil.which("mvn") is not None and shutil.which(_java()) is not None


def fetch_kafka() -> Path:
    """Fetch Kafka's server and tools once; return the directory of their jars.

    Raises:
        LibrariesUnavailableError: they can't be fetched.
    """
    return _fetch(f"kafka-{KAFKA_VERSION}", KAFKA, with_dependencies=True)


def fetch_streams() -> Path:
    """Fetch Kafka Streams once; return the directory of its jar, which needs Kafka's.

    Raises:
        LibrariesUnavailableError: it can't be fetched.
    """
    return _fetch(f"streams-{KAFKA_VERSION}", STREAMS, with_dependencies=False)


def fetch_connector() -> str:
    """Fetch Spark's Kafka connector once; return its jars as `spark.jars` takes them.

    Raises:
        LibrariesUnavailableError: they can't be fetched.
    """
    # What else it depends on is Spark's own.
    directory = _fetch(f"connector-{CONNECTOR_VERSION}", CONNECTOR, with_dependencies=False)
    return ",".join(str(jar) for jar in sorted(directory.glob("*.jar")))


def fetch_iceberg() -> tuple[str, ...]:
    """Fetch Iceberg's runtime for Spark 4.0, and a driver for catalogues in SQLite, once; return their jars.

    Raises:
        LibrariesUnavailableError: they can't be fetched.
    """
    runtime = _fetch(f"iceberg-{ICEBERG_VERSION}", ICEBERG, with_dependencies=False)
    driver = _fetch(f"sqlite-{SQLITE_VERSION}", SQLITE, with_dependencies=False)
    return tuple(str(jar) for directory in (runtime, driver) for jar in directory.glob("*.jar"))


def kafka_command(
    main_class: str,
    *arguments: str,
    java_options: Sequence[str] = JAVA_OPTIONS,
    class_path: Sequence[Path] = (),
) -> list[str]:
    """Return the command that runs a program of Kafka's; fetches Kafka if that was not done before.

    It sees Kafka's jars, and those of `class_path`.

    Raises:
        LibrariesUnavailableError: Kafka can't be fetched.
    """
    classes = ":".join([f"{fetch_kafka()}/*", *map(str, class_path)])
    return [_java(), *java_options, "-cp", classes, main_class, *arguments]


def connect_command(main_class: str, *arguments: str) -> list[str]:
    """Return the command that runs a program of Kafka Connect's; fetches Connect if that was not done before.

    Raises:
        LibrariesUnavailableError: Connect can't be fetched.
    """
    jars = _fetch(f"connect-{KAFKA_VERSION}", CONNECT, with_dependencies=True)
    log = (
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    )
    return [_java(), *JAVA_OPTIONS, *log, "-cp", f"{jars}/*", main_class, *arguments]


def source_command(source: Path, *arguments: str, class_path: Sequence[Path] = ()) -> list[str]:
    """Return the command that compiles a Java file, which may use Kafka, and runs the class of its name.

    Its compiler is Janino, Spark's own: a runtime of Java is enough, and it takes some 100 ms.

    Raises:
        LibrariesUnavailableError: Kafka can't be fetched.
    """
    compiler_jars = [jar for name in COMPILER_JARS for jar in SPARK_JARS.glob(name)]
    return kafka_command(
        COMPILER, str(source), source.stem, *arguments, class_path=[*compiler_jars, *class_path]
    )


def yarn_source_command(source: Path, *arguments: str, configuration: Path) -> list[str]:
    """Return the command that compiles a Java file, which may use YARN's servers, and runs its class.

    Hadoop reads the files of the directory `configuration`.

    Raises:
        LibrariesUnavailableError: YARN can't be fetched.
    """
    servers = _fetch(f"yarn-{HADOOP_VERSION}", YARN, with_dependencies=False)
    classes = f"{configuration}:{servers}/*:{SPARK_JARS}/*"
    log = "-Dorg.apache.logging.log4j.level=INFO"
    options = (*JAVA_OPTIONS, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", log)
    return [_java(), *options, "-cp", classes, COMPILER, str(source), source.stem, *arguments]


def run_kafka_program(
    main_class: str, *arguments: str, check: bool = True, timeout_s: float = PROGRAM_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run a program of Kafka's to its end; return its status and what it printed.

    Raises:
        LibrariesUnavailableError: Kafka can't be fetched.
        RuntimeError: the program failed and `check` is set; shows the end of what it printed.
        subprocess.TimeoutExpired: it ran for longer than `timeout_s`, and was killed.
    """
    finished = subprocess.run(
        kafka_command(main_class, *arguments), check=False, capture_output=True, text=True, timeout=timeout_s
    )
    if check and finished.returncode != 0:
        said = (finished.stdout + finished.stderr)[-4000:]
        raise RuntimeError(f"{main_class} ended with status {finished.returncode}:\n{said}")
    return finished


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _fetch(name: str, artifacts: Sequence[str], *, with_dependencies: bool) -> Path:
    directory = DIRECTORY / name
    # Written last, so an interrupted fetch is taken up again.
    complete = directory / ".complete"
    if not complete.exists():
        if not maven_at_hand():
            raise LibrariesUnavailableError("Maven and Java are needed, and are not both on the path")
        directory.mkdir(parents=True, exist_ok=True)
        # One Maven at a time: another process may still fetch the jars that this one copies.
        with (DIRECTORY / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                (directory / "pom.xml").write_text(_pom(name, artifacts, with_dependencies=with_dependencies))
                _maven(
                    "dependency:copy-dependencies",
                    f"-DoutputDirectory={directory}",
                    "-DincludeScope=runtime",
                    directory=directory,
                )
                complete.touch()
    return directory


def _pom(name: str, artifacts: Sequence[str], *, with_dependencies: bool) -> str:
    nothing_else = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    )
    dependencies = []
    for artifact in artifacts:
        group_id, artifact_id, version = artifact.split(":")
        dependencies.append(
            f"    <dependency><groupId>{group_id}</groupId><artifactId>{artifact_id}</artifactId>"
            f"<version>{version}</version>{'' if with_dependencies else nothing_else}</dependency>\n"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "  <modelVersion>4.0.0</modelVersion>\n"
        f"  <groupId>sparklog.java</groupId><artifactId>{name}</artifactId><version>1</version>\n"
        f"  <dependencies>\n{''.join(dependencies)}  </dependencies>\n"
        "</project>\n"
    )


def _maven(*arguments: str, directory: Path) -> None:
    try:
        fetched = subprocess.run(
            ["mvn", "-q", "-B", *arguments],
            cwd=directory,
            check=False,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise LibrariesUnavailableError(
            f"Maven did not fetch {directory.name} within {FETCH_TIMEOUT_S:.0f} s"
        ) from error
    if fetched.returncode != 0:
        said = (fetched.stdout + fetched.stderr).strip()[:2000]
        raise LibrariesUnavailableError(f"Maven can't fetch {directory.name}: {said}")
