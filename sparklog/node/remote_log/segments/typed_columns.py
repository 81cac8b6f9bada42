"""The typed columns of remote segments: JSON values as columns of Arrow, beside the raw values.

A value parses as a whole or not at all: a JSON object whose fields fit the columns' types. Fields that are
missing are null, others are left out. All else, such as `"7"` for a number, gives nulls in all columns, and
is counted; no value at all is null and no failure. Times are text of ISO 8601, of a TIMESTAMP with a zone and
of a TIMESTAMP_NTZ without.

pyarrow's parser takes a row group at a time and leaves Python's lock to others. Where it refuses a value the
row group is parsed again in parts, these in parts of their own, and `_ALONE` values one after the other.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sparklog.node.remote_log.machine.value_schema import (
    ELEMENT,
    Array,
    Column,
    ColumnType,
    Decimal,
    Path,
    Scalar,
    Struct,
    ValueSchemaError,
    field_id,
    parse_value_schema,
)
from sparklog.node.remote_log.segments.json_values import JsonValues

logger = logging.getLogger(__name__)

_PARTS: Final = 16
_ALONE: Final = 128
_SCALARS: Final[Mapping[Scalar, pa.DataType]] = {
    Scalar.BOOLEAN: pa.bool_(),
    Scalar.INT: pa.int32(),
    Scalar.BIGINT: pa.int64(),
    Scalar.FLOAT: pa.float32(),
    Scalar.DOUBLE: pa.float64(),
    Scalar.STRING: pa.string(),
    Scalar.DATE: pa.date32(),
    Scalar.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Scalar.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_FIELD_ID: Final = "PARQUET:field_id"


class ParsedValues(NamedTuple):
    columns: list[pa.Array]
    failed_count: int


class TypedColumns:
    def __init__(self, text: str, columns: Sequence[Column]) -> None:
        self.text: Final = text
        """The schema as its topic has it."""
        self._alone: Final = JsonValues(columns)
        self.fields: Final = [_field(column, ()) for column in columns]
        """With field ids."""
        self._read_as: Final = pa.schema(
            [(column.name, _arrow_type(column.type, _as_text)) for column in columns]
        )
        self.paths: Final = [path for column in columns for path in _leaves(column.name, column.type)]
        """The paths of the columns in a Parquet file."""
        self.scalar_names: Final = [
            column.name for column in columns if isinstance(column.type, Scalar | Decimal)
        ]

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the columns of a schema in Spark's notation; `None` of an empty one.

        Raises:
            ValueSchemaError.
        """
        columns = parse_value_schema(text)
        return cls(text, columns) if columns else None

    def parse(self, values: pa.Array) -> ParsedValues:
        """Return the columns of raw values, a binary array. Blocks."""
        is_object = _are_objects(values)
        if not is_object.all():
            values = pc.ascii_trim(values.view(pa.string()), " \t\r\n").view(pa.binary())
            is_object = _are_objects(values)
        objects = values.filter(pa.array(is_object)) if not is_object.all() else values
        parts = list(self._parse_objects(objects))
        columns = [pa.concat_arrays(pieces) for pieces in zip(*(part.columns for part in parts), strict=True)]
        failed_count = sum(part.failed_count for part in parts)
        failed_count += len(values) - values.null_count - len(objects)
        if len(objects) < len(values):
            places = pa.array(np.cumsum(is_object) - 1, mask=~is_object)
            columns = [column.take(places) for column in columns]
        return ParsedValues(columns, failed_count)

    def _parse_objects(self, values: pa.Array) -> Iterator[ParsedValues]:
        """Yield the columns of parts of values that begin and end as objects do."""
        columns = self._parse_together(values)
        if columns is not None:
            yield ParsedValues(columns, 0)
        elif len(values) <= _ALONE:
            items, failed_count = self._alone.rows(values)
            columns = [pa.array(column, field.type) for column, field in zip(items, self.fields, strict=True)]
            yield ParsedValues(columns, failed_count)
        else:
            step = max(_ALONE, len(values) // _PARTS)
            for start in range(0, len(values), step):
                yield from self._parse_objects(values.slice(start, step))

    def _parse_together(self, values: pa.Array) -> list[pa.Array] | None:
        """Return the columns of values that begin and end as objects do; `None` if one does not parse.

        A line has a value. None reaches into the next line: between objects there is a comma, and text has no
        bare newline. So as many rows as values mean one row for each.
        """
        if not len(values):
            return [pa.nulls(0, field.type) for field in self.fields]
        try:
            text = values.cast(pa.string())
            lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text), "\n")
            data = lines[0].as_buffer()
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._read_as, unexpected_field_behavior="ignore"
                ),
            )
            if table.num_rows != len(values):
                return None
            table = table.combine_chunks()
            columns = [table.column(field.name).chunk(0).cast(field.type) for field in self.fields]
            for column in columns:
                column.validate(full=True)  # pyarrow's parser makes decimals of too many digits
        except pa.ArrowException:
            return None
        return columns if all(map(_is_finite, columns)) else None


@lru_cache(maxsize=64)
def typed_columns(value_schema: str) -> TypedColumns | None:
    """Return the typed columns of a table; `None` without any, or if only another version knows them."""
    try:
        return TypedColumns.of(value_schema)
    except ValueSchemaError as error:
        logger.error("sparklog.table.value.schema: %s: files are written without typed columns", error)
        return None


def _are_objects(values: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which values begin with a brace and end with one."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + len(values) + 1]
    is_object = offsets[1:] - offsets[:-1] >= 2
    if data_buffer is None or not is_object.any():
        return np.zeros(len(values), np.bool_)
    data = np.frombuffer(data_buffer, np.uint8)
    is_object &= data[np.minimum(offsets[:-1], len(data) - 1)] == ord("{")
    is_object &= data[offsets[1:] - 1] == ord("}")
    if values.null_count:
        is_object &= values.is_valid().to_numpy(zero_copy_only=False)
    return is_object


def _is_finite(column: pa.Array) -> bool:
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    if pa.types.is_list(column.type) or pa.types.is_struct(column.type):
        return all(
            map(_is_finite, column.flatten() if pa.types.is_struct(column.type) else [column.flatten()])
        )
    return True


def _arrow_type(column_type: ColumnType, scalar: Callable[[Scalar], pa.DataType]) -> pa.DataType:
    match column_type:
        case Scalar():
            return scalar(column_type)
        case Decimal():
            return pa.decimal128(column_type.precision, column_type.scale)
        case Array():
            return pa.list_(pa.field("element", _arrow_type(column_type.element, scalar)))
        case Struct():
            return pa.struct([(each.name, _arrow_type(each.type, scalar)) for each in column_type.columns])


def _as_text(scalar: Scalar) -> pa.DataType:
    """Return the type in which pyarrow's parser reads a type: it would take numbers for times."""
    is_time = scalar in (Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ)
    return pa.string() if is_time else _SCALARS[scalar]


def _field(column: Column, around: Path) -> pa.Field:
    path = (*around, column.name)
    return _with_id(column.name, _numbered_type(column.type, path), path, column.type)


def _numbered_type(column_type: ColumnType, path: Path) -> pa.DataType:
    match column_type:
        case Array():
            inner = (*path, ELEMENT)
            element = _numbered_type(column_type.element, inner)
            return pa.list_(_with_id("element", element, inner, column_type.element))
        case Struct():
            return pa.struct([_field(each, path) for each in column_type.columns])
        case _:
            return _arrow_type(column_type, _SCALARS.__getitem__)


def _with_id(name: str, arrow_type: pa.DataType, path: Path, column_type: ColumnType) -> pa.Field:
    return pa.field(name, arrow_type, metadata={_FIELD_ID: str(field_id(path, column_type))})


def _leaves(path: str, column_type: ColumnType) -> Iterator[str]:
    match column_type:
        case Array():
            yield from _leaves(f"{path}.list.element", column_type.element)
        case Struct():
            for each in column_type.columns:
                yield from _leaves(f"{path}.{each.name}", each.type)
        case _:
            yield path
