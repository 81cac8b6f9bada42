"""Spark itself, where a weakness of it is the reason for a decision here."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.spark_versions import PYSPARK
from tests.spark.sessions import spark_session


class Thirds(DataSource):
    """Three rows, p = 0 to 2; takes filters of equality on itself, as PySpark's documentation shows."""

    @classmethod
    def name(cls) -> str:
        return "thirds"

    def schema(self) -> str:
        return "p INT"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ThirdsReader()


class ThirdsReader(DataSourceReader):
    """Reads what the filters leave."""

    def __init__(self) -> None:
        self._wanted = [0, 1, 2]

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        for each in filters:
            if isinstance(each, datasource.EqualTo):
                self._wanted = [each.value]
            else:
                yield each

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((p,) for p in self._wanted)


@pytest.mark.long
@pytest.mark.skipif(PYSPARK < (4, 1), reason="Spark 4.0 pushes no filters to Python sources")
def test_filters_pushed_to_a_python_source_still_spoil_each_other() -> None:
    """Why filters are not pushed down here. When this fails Spark has mended it: push them, and say so."""
    with spark_session("local[2]", spark_sql_python_filterPushdown_enabled="true") as spark:
        spark.dataSource.register(Thirds)
        rows = spark.read.format("thirds").load()
        zero, one = rows.where("p = 0"), rows.where("p = 1")
        assert [row.p for row in zero.collect()] == [0]
        assert sorted(row.p for row in zero.union(one).collect()) != [0, 1]
