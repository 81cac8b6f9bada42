"""Batch reads: the driver plans offset ranges, and each task reads one.

A plan is made once for a DataFrame, on its first use: its ends are then fixed, also for DataFrames derived
from it later. Call `load()` again to see later records. Spark 4.0 makes a plan for each use.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.dataframe.errors import errors_in_one_line
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.range_reader import RangeReader
from sparklog.user.dataframe.resolution import resolve_partitions, resolve_ranges
from sparklog.user.dataframe.task_planning import TaskPlanner


class SparklogReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._ranges = RangeReader(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read: one offset range for each task.

        Raises:
            DataSourceOptionError, DataLossError, KafkaError: as `resolve_ranges` raises them.
        """
        options = self._options
        with errors_in_one_line(), ClusterClient(options.client) as cluster:
            partitions = resolve_partitions(cluster, options.topics)
            ranges = resolve_ranges(cluster, options, partitions)
            return TaskPlanner(options).plan(cluster, ranges, partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, in order.

        Raises:
            DataLossError, KafkaError: as `RangeReader.read` raises them.
        """
        with errors_in_one_line():
            yield from self._ranges.read(partition)
