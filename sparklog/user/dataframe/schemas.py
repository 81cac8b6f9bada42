"""The columns of records in Spark's types, and the schemas of DataFrames that can become records.

Reading gives the columns of Spark's Kafka connector, or those that the user's schema names, in its order.
Writing takes the connector's columns and `timestamp`, the records' event time. Other columns of a written
DataFrame are ignored, as by the connector.
"""

import difflib
from typing import Final

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

from sparklog.user.dataframe.errors import DataSourceSchemaError
from sparklog.user.dataframe.warn_once import warn_once

HEADERS: Final = "headers"

_HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_READ_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: _HEADERS_TYPE,
}
_MAY_BE_NULL: Final = frozenset({"key", "value", HEADERS})
_WRITE_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    HEADERS: (_HEADERS_TYPE,),
    "partition": (IntegerType(),),
}
_EVENT_TIME_TYPES: Final = (TimestampType(), DoubleType())


def record_schema(*, include_headers: bool) -> StructType:
    """Return the columns of a read without a user's schema."""
    return StructType(
        [
            StructField(name, data_type)
            for name, data_type in _READ_TYPES.items()
            if include_headers or name != HEADERS
        ]
    )


def check_read_schema(schema: StructType) -> None:
    """Check that a user's schema has only columns of records, in any order.

    Raises:
        DataSourceSchemaError: another name, another type, a column twice, or a NOT NULL that cannot be kept.
    """
    seen = set()
    for field in schema.fields:
        expected = _READ_TYPES.get(field.name)
        if expected is None:
            nearest = difflib.get_close_matches(field.name.lower(), _READ_TYPES, n=1, cutoff=0.6)
            raise DataSourceSchemaError(
                f"Records have no column '{field.name}'"
                + (f"; did you mean '{nearest[0]}'?" if nearest else "")
                + f" Their columns are {_listed(_READ_TYPES)}."
            )
        if field.name in seen:
            raise DataSourceSchemaError(f"Column '{field.name}' is in the schema twice")
        seen.add(field.name)
        if not _same_type(field.dataType, expected):
            raise DataSourceSchemaError(
                f"Column '{field.name}' is {expected.simpleString()}, not {field.dataType.simpleString()}; "
                "read it as that and cast it"
            )
        if not field.nullable and field.name in _MAY_BE_NULL:
            raise DataSourceSchemaError(f"Column '{field.name}' may be null in a record; leave out NOT NULL")


def check_write_schema(schema: StructType, topic: str | None) -> None:
    """Check that rows of `schema` can become records.

    Raises:
        DataSourceSchemaError: no value, no topic, or a column of another type.
    """
    fields = {field.name: field for field in schema.fields}
    if "value" not in fields:
        raise DataSourceSchemaError(
            f"Required attribute 'value' not found in the columns {', '.join(fields) or '(none)'}; "
            "rename a string or binary column, or make one, such as with to_json(struct('*')).alias('value')"
        )
    if topic is None and "topic" not in fields:
        raise DataSourceSchemaError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a "
            "topic. In SQL it is given with the statement, since Spark drops a table's options: INSERT "
            "INTO t WITH (topic = '...') ..."
        )
    for name, allowed in _WRITE_TYPES.items():
        field = fields.get(name)
        if field is None or (name == "topic" and topic is not None):
            continue
        if not any(_same_type(field.dataType, data_type) for data_type in allowed):
            raise DataSourceSchemaError(
                f"{name} attribute unsupported type {field.dataType.simpleString()}. {name} must be a(n) "
                + " or ".join(data_type.simpleString() for data_type in allowed)
            )
    timestamp = fields.get("timestamp")
    if timestamp is not None and not any(_same_type(timestamp.dataType, each) for each in _EVENT_TIME_TYPES):
        warn_once(
            f"Column 'timestamp' is {timestamp.dataType.simpleString()} and left out, as by Spark's "
            "Kafka connector; to give records event times cast it to timestamp, or to double in seconds"
        )


def _same_type(one: DataType, other: DataType) -> bool:
    """Compare types, ignoring the nullability inside them."""
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return _same_type(one.elementType, other.elementType)
    if isinstance(one, StructType) and isinstance(other, StructType):
        return one.names == other.names and all(
            _same_type(first.dataType, second.dataType)
            for first, second in zip(one.fields, other.fields, strict=True)
        )
    return type(one) is type(other)


def _listed(types: dict[str, DataType]) -> str:
    return ", ".join(f"{name} {data_type.simpleString()}" for name, data_type in types.items())
