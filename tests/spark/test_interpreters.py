"""Workers' Python: that of the driver, where nothing else is chosen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.applications import TIMEOUT_S

UNACTIVATED = """
import sys
from pyspark.sql import SparkSession
import sparklog

spark = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").getOrCreate()
with sparklog.start(spark, racks=1):
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sparklog").option("topic", "events").mode("append").save()
    print(spark.read.format("sparklog").option("subscribe", "events").load().count())
    stream = spark.readStream.format("sparklog").option("subscribe", "events")
    counted = stream.option("startingOffsets", "earliest").load().writeStream.format("noop")
    query = counted.option("checkpointLocation", sys.argv[1]).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    print(query.lastProgress["numInputRows"])
spark.stop()
"""


@pytest.mark.long
def test_virtual_environment_that_is_not_activated_runs_its_own_workers(tmp_path: Path) -> None:
    """A notebook's kernel is one: workers were the PATH's python3, and the start a ModuleNotFoundError."""
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").symlink_to(Path(sys.executable).resolve())  # without the packages of the environment
    script = tmp_path / "application.py"
    script.write_text(UNACTIVATED)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}
    inherited.pop("PYTHONPATH", None)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "checkpoint")],
        check=False,
        cwd=tmp_path,
        env=inherited | {"PATH": f"{bare}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10", "10"]
