"""Apache Kafka and Spark's Kafka connector from Maven, kept in build/java; nothing is shipped with us."""

import shutil
import subprocess
from pathlib import Path

KAFKA_VERSION = "4.3.1"
# The newest connector that is published; it runs on the newest Spark.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
DIRECTORY = Path("build/java")

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmarks</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


def maven_at_hand() -> bool:
    """Return whether libraries can be fetched."""
    return shutil.which("mvn") is not None


def kafka_class_path() -> str:
    """Fetch Kafka's server and tools once; return a class path.

    Raises:
        subprocess.CalledProcessError: Maven can't fetch them.
    """
    directory = (DIRECTORY / f"kafka-{KAFKA_VERSION}").absolute()
    if not (directory / ".complete").exists():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "pom.xml").write_text(_POM)
        _maven(
            "dependency:copy-dependencies",
            f"-DoutputDirectory={directory}",
            "-DincludeScope=runtime",
            directory=directory,
        )
        (directory / ".complete").touch()
    return f"{directory}/*"


def connector_jars() -> str:
    """Fetch Spark's Kafka connector once; return its jars as `spark.jars` takes them.

    Raises:
        subprocess.CalledProcessError: Maven can't fetch them.
    """
    directory = (DIRECTORY / "connector").absolute()
    if not (directory / ".complete").exists():
        directory.mkdir(parents=True, exist_ok=True)
        for artifact in CONNECTOR:
            _maven(
                "dependency:copy",
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={directory}",
                directory=directory,
            )
        (directory / ".complete").touch()
    return ",".join(str(jar) for jar in sorted(directory.glob("*.jar")))


def _maven(*arguments: str, directory: Path) -> None:
    subprocess.run(["mvn", "-q", "-B", *arguments], cwd=directory, check=True, stdout=subprocess.DEVNULL)
