"""Tables read by Spark itself: Iceberg's runtime is there for Spark 4.0, from Maven."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.java_libraries import fetch_iceberg, maven_at_hand
from sparklog.spark_versions import PYSPARK
from tests.unit.driver.controller.tables.lake import CATALOGUE_FILE, IDENTITY, PlainLake

TIMEOUT_S = 100.0


@pytest.mark.skipif(PYSPARK != (4, 0), reason="Iceberg 1.10 has a runtime for Spark 4.0")
@pytest.mark.skipif(not maven_at_hand(), reason="needs Maven")
def test_spark_reads_each_row_of_a_table_once(tmp_path: Path) -> None:
    """A table that pyiceberg commits is one to the reference implementation, too, by file and by name."""
    lake = PlainLake(tmp_path)
    first, *_ = (lake.commit().snapshot_id for _ in range(4))
    table = lake.catalog.load_table(IDENTITY.name)
    expected = [
        [row["offset"], row["value"].decode(), row["timestamp"].replace(tzinfo=None).isoformat()]
        for row in table.scan().to_arrow().sort_by("offset").to_pylist()
    ]
    metadata = table.metadata_location.removeprefix("file://")
    command = [sys.executable, "-m", "tests.spark.iceberg_reader", ":".join(fetch_iceberg())]
    command += [metadata, str(first), str(tmp_path / CATALOGUE_FILE)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    found = json.loads(finished.stdout.splitlines()[-1])
    wanted = {"rows": expected, "count": 4, "later": 2, "snapshot": 1}
    assert found == {"by metadata": wanted, "by catalogue": wanted}
