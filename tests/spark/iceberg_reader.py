"""A process that reads a table by Spark with Iceberg's runtime, and prints what it has found.

python -m tests.spark.iceberg_reader <class path> <metadata file> <snapshot id> <SQLite file of the catalogue>
"""

import json
import sys

from pyspark.sql import DataFrame, SparkSession

from tests.unit.driver.controller.tables.lake import CATALOG, IDENTITY


def main(class_path: str, metadata: str, snapshot_id: str, catalogue: str) -> None:
    settings = {
        "spark.driver.extraClassPath": class_path,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{catalogue}",
        f"spark.sql.catalog.{CATALOG}.warehouse": "/nothing-is-written",
    }
    name = f"{CATALOG}.{IDENTITY.name}"
    with SparkSession.builder.master("local[1]").config(map=settings).getOrCreate() as spark:
        found = {
            "by metadata": found_in(
                spark.read.format("iceberg").load(metadata),
                spark.read.format("iceberg").option("snapshot-id", snapshot_id).load(metadata),
            ),
            "by catalogue": found_in(
                spark.table(name), spark.sql(f"SELECT * FROM {name} VERSION AS OF {snapshot_id}")
            ),
        }
    print(json.dumps(found))


def found_in(table: DataFrame, older: DataFrame) -> dict[str, object]:
    rows = [
        [row["offset"], bytes(row["value"]).decode(), row["timestamp"].isoformat()]
        for row in table.orderBy("offset").collect()
    ]
    return {
        "rows": rows,
        "count": table.count(),
        "later": table.where("offset >= 2 AND timestamp >= TIMESTAMP '2023-11-14 00:00:00'").count(),
        "snapshot": older.count(),
    }


main(*sys.argv[1:])
