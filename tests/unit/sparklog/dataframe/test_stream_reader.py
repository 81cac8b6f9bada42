"""What a stream's reader does without a cluster."""

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.dataframe.errors import DataSourceSchemaError
from sparklog.dataframe.stream_reader import SparklogStreamReader


def test_schema_that_is_not_one_of_records_is_refused_before_a_task_starts() -> None:
    """Each attempt of each task failed of it, a batch later, with the driver's own checks all passed."""
    options = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}
    reader = SparklogStreamReader(options, None, StructType([StructField("vlaue", StringType())]))
    with pytest.raises(DataSourceSchemaError, match="did you mean 'value'"):
        reader.getDefaultReadLimit()
