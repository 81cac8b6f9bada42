"""A process that reads a table by Spark with Iceberg's runtime, and prints what it has found.

python -m tests.spark.iceberg_reader <jar> <metadata file> <snapshot id>
"""

import json
import sys

from pyspark.sql import SparkSession


def main(jar: str, metadata: str, snapshot_id: str) -> None:
    settings = {"spark.jars": jar, "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    with SparkSession.builder.master("local[1]").config(map=settings).getOrCreate() as spark:
        table = spark.read.format("iceberg").load(metadata)
        older = spark.read.format("iceberg").option("snapshot-id", snapshot_id).load(metadata)
        rows = [
            [row["offset"], bytes(row["value"]).decode(), row["timestamp"].isoformat()]
            for row in table.orderBy("offset").collect()
        ]
        found = {
            "rows": rows,
            "count": table.count(),
            "later": table.where("offset >= 2 AND timestamp >= TIMESTAMP '2023-11-14 00:00:00'").count(),
            "snapshot": older.count(),
        }
    print(json.dumps(found))


main(*sys.argv[1:])
