"""Differences between the supported versions of PySpark, 4.0 to 4.3: the only module that knows them.

From 4.2 on nothing is missing. In older versions a streaming source learns neither its position nor a limit
when Spark asks it for the latest offset (`HAS_READ_LIMITS`). 4.0 takes Arrow batches from a sink only if it
is also the writer of a batch query, and plans a DataFrame's read for each use. docs/deploy.md lists the
consequences. Lines of Java that need a newer version are marked in their text (`java_for`).
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyspark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_SINCE: Final = re.compile(r" // since Spark (\d+\.\d+)$")


class SparkVersion(NamedTuple):
    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> "SparkVersion":
        """Parse a version of Spark or PySpark.

        >>> SparkVersion.parse("4.1.0.dev0")
        SparkVersion(major=4, minor=1)
        """
        major, minor = text.split(".")[:2]
        return cls(int(major), int(minor))


OLDEST: Final = SparkVersion(4, 0)
PYSPARK: Final = SparkVersion.parse(pyspark.__version__)
HAS_READ_LIMITS: Final = PYSPARK >= (4, 2)
"""Whether Spark asks a streaming source for the latest offset with its position and a limit."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import ReadMinRows as ReadMinRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:

    class ReadLimit:
        """The limit of a micro-batch."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    class ReadMaxRows(ReadLimit):
        """At most so many rows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class ReadMinRows(ReadLimit):
        """At least so many rows, if they come in time."""

        def __init__(self, min_rows: int) -> None:
            self.min_rows = min_rows

    class SupportsTriggerAvailableNow:
        """Spark itself holds the latest offset for the trigger."""


if TYPE_CHECKING or PYSPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
elif PYSPARK >= OLDEST:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """Spark 4.0 gives Arrow batches to every DataSourceArrowWriter, the sink of a stream included."""


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """Return the Arrow schema of record batches for Spark, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    options: dict[str, Any] = {"timezone": "UTC"} if PYSPARK >= (4, 2) else {"timestamp_utc": True}
    converted: pa.Schema = to_arrow_schema(schema, **options)
    return converted


def why_too_old(version: str = pyspark.__version__) -> str | None:
    """Return the reason why this version of PySpark is not supported; None if it is.

    >>> why_too_old("4.0.1")
    """
    if SparkVersion.parse(version) >= OLDEST:
        return None
    return (
        f"PySpark {version} in {Path(pyspark.__file__).parent} is too old: sparklog needs 4.0 or newer "
        "(pip install 'pyspark>=4.0,<5'), here and on the executors"
    )


def java_for(version: SparkVersion, source: str) -> str:
    """Return a Java text without the lines that need a Spark newer than `version`.

    >>> java_for(SparkVersion(4, 1), "a(\\nfalse, // since Spark 4.2\\nb);")
    'a(\\nb);'
    """
    kept = []
    for line in source.split("\n"):
        since = _SINCE.search(line)
        if since is None or version >= SparkVersion.parse(since[1]):
            kept.append(line)
    return "\n".join(kept)
