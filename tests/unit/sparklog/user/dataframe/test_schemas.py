"""Schemas are the connector's; others are refused before anything is read or written."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.protocol.records.columns import COLUMN_TYPES
from sparklog.spark_versions import arrow_schema
from sparklog.user.dataframe.errors import DataSourceSchemaError
from sparklog.user.dataframe.schemas import check_read_schema, check_write_schema, record_schema

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**types: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in types.items()])


def test_record_schema_is_the_connectors() -> None:
    """Moving a job over must not change a column."""
    assert record_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in record_schema(include_headers=False).names


def test_record_schema_has_the_arrow_types_that_records_decode_to() -> None:
    """Spark compares the schemas for equality: a difference fails every read."""
    assert arrow_schema(record_schema(include_headers=True)) == pa.schema(COLUMN_TYPES)


def test_read_schema_of_some_columns_in_any_order_is_accepted() -> None:
    """A narrower schema is how to read less."""
    check_read_schema(schema(timestampType=IntegerType(), value=BinaryType(), headers=HEADERS))
    check_read_schema(StructType([StructField("offset", LongType(), nullable=False)]))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (schema(valeu=BinaryType()), "no column 'valeu'; did you mean 'value'?"),
        (schema(Value=BinaryType()), "no column 'Value'; did you mean 'value'?"),
        (schema(value=StringType()), "Column 'value' is binary, not string"),
        (schema(offset=IntegerType()), "Column 'offset' is bigint, not int"),
        (
            schema(headers=ArrayType(StringType())),
            "Column 'headers' is array<struct<key:string,value:binary>>",
        ),
        (StructType([StructField("key", BinaryType(), nullable=False)]), "leave out NOT NULL"),
        (StructType([StructField("key", BinaryType()), StructField("key", BinaryType())]), "twice"),
    ],
)
def test_read_schema_of_other_columns_is_refused(wrong: StructType, message: str) -> None:
    """A mistake is found when the read is planned, and the right name or type is given."""
    with pytest.raises(DataSourceSchemaError) as raised:
        check_read_schema(wrong)
    assert message in str(raised.value)


@pytest.mark.parametrize("timestamp", [TimestampType(), DoubleType()])
def test_write_schema_with_every_column_is_accepted(timestamp: DataType) -> None:
    """The columns that a read gives can be written, event time included; others are ignored."""
    check_write_schema(
        schema(
            topic=StringType(),
            key=StringType(),
            value=BinaryType(),
            headers=HEADERS,
            partition=IntegerType(),
            timestamp=timestamp,
            other=LongType(),
        ),
        topic=None,
    )


def test_write_schema_timestamp_of_another_type_is_left_out_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connector takes no notice of such a column: a job that moves over must not fail for having one."""
    for allowed in (TimestampType(), DoubleType()):
        check_write_schema(schema(value=StringType(), timestamp=allowed), topic="t")
    assert caplog.messages == []
    for _ in range(2):  # a stream's is checked with every batch
        check_write_schema(schema(value=StringType(), timestamp=LongType()), topic="t")
    (message,) = caplog.messages
    assert message.startswith("Column 'timestamp' is bigint and left out")


def test_write_schema_topic_column_is_not_looked_at_when_the_option_decides() -> None:
    """The option overrides the column, as in the connector."""
    check_write_schema(schema(value=StringType(), topic=LongType()), topic="t")


@pytest.mark.parametrize(
    ("wrong", "topic", "message"),
    [
        (schema(key=StringType()), "t", "Required attribute 'value' not found"),
        (schema(value=StringType()), None, "topic option required when no 'topic' attribute is present"),
        (schema(value=StringType()), None, "INSERT INTO t WITH (topic = '...')"),
        (
            schema(value=LongType()),
            "t",
            "value attribute unsupported type bigint. value must be a(n) string or",
        ),
        (schema(value=StringType(), key=LongType()), "t", "key attribute unsupported type bigint"),
        (schema(value=StringType(), topic=LongType()), None, "topic attribute unsupported type bigint"),
        (schema(value=StringType(), partition=LongType()), "t", "partition must be a(n) int"),
        (
            schema(value=StringType(), headers=StringType()),
            "t",
            "headers must be a(n) array<struct<key:string",
        ),
    ],
)
def test_write_schema_of_other_types_is_refused(wrong: StructType, topic: str | None, message: str) -> None:
    """The connector's messages, before a row is written."""
    with pytest.raises(DataSourceSchemaError) as raised:
        check_write_schema(wrong, topic)
    assert message in str(raised.value)
