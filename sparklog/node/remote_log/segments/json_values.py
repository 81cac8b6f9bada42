"""JSON values one by one, where `typed_columns` cannot take many together: the same rules, more slowly."""

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal as DecimalNumber
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa

from sparklog.node.remote_log.machine.value_schema import Array, Column, ColumnType, Decimal, Scalar, Struct

_Convert: TypeAlias = Callable[[Any], Any]

_BITS: Final = {Scalar.INT: 32, Scalar.BIGINT: 64}
_TIMES: Final = {
    Scalar.DATE: pa.date32(),
    Scalar.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Scalar.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_DECIMAL_TEXT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class _Unfit(Exception):  # noqa: N818  (of one value; never seen by others)
    """A value is no JSON object, or a field does not fit its column."""


class JsonValues:
    """The parser for one schema."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._items: Final = _items_of(columns)
        self._columns: Final = len(columns)
        # Numbers of decimals must not be rounded on their way.
        real = DecimalNumber if any(_has_decimal(each.type) for each in columns) else float
        self._decode: Final = json.JSONDecoder(parse_float=real, parse_constant=lambda _: math.nan).decode

    def rows(self, values: pa.Array) -> tuple[list[list[Any]], int]:
        """Return each column's items, and how many values did not parse."""
        rows: list[Sequence[Any]] = []
        failed_count = 0
        nothing = (None,) * self._columns
        for value in values.to_pylist():
            try:
                rows.append(self._items(self._decode(value.decode())))
            except (_Unfit, ValueError, RecursionError):
                rows.append(nothing)
                failed_count += 1
        return [list(items) for items in zip(*rows, strict=True)], failed_count


def _has_decimal(column_type: ColumnType) -> bool:
    match column_type:
        case Array():
            return _has_decimal(column_type.element)
        case Struct():
            return any(_has_decimal(each.type) for each in column_type.columns)
    return isinstance(column_type, Decimal)


def _items_of(columns: Sequence[Column]) -> _Convert:
    """Return the function that makes the items of columns of an object's fields."""
    converters = [(column.name, _converter(column.type)) for column in columns]

    def items(fields: Any) -> list[Any]:
        if type(fields) is not dict:
            raise _Unfit
        found = []
        for name, convert in converters:
            item = fields.get(name)
            found.append(None if item is None else convert(item))
        return found

    return items


def _converter(column_type: ColumnType) -> _Convert:
    """Return the function that makes an item of a field that is not null."""
    match column_type:
        case Array():
            return partial(_array, _converter(column_type.element))
        case Struct():
            return partial(
                _struct, _items_of(column_type.columns), [each.name for each in column_type.columns]
            )
        case Decimal():
            return partial(_decimal, column_type)
        case Scalar.BOOLEAN:
            return _boolean
        case Scalar.STRING:
            return _string
        case Scalar.INT | Scalar.BIGINT:
            return partial(_integer, 1 << (_BITS[column_type] - 1))
        case Scalar.FLOAT | Scalar.DOUBLE:
            return _real
    return partial(_time, _TIMES[column_type])


def _array(convert: _Convert, item: Any) -> list[Any]:
    if type(item) is not list:
        raise _Unfit
    return [None if each is None else convert(each) for each in item]


def _struct(items: _Convert, names: Sequence[str], item: Any) -> dict[str, Any]:
    return dict(zip(names, items(item), strict=True))


def _boolean(item: Any) -> Any:
    if type(item) is not bool:
        raise _Unfit
    return item


def _string(item: Any) -> Any:
    if type(item) is not str or not (item.isascii() or _is_unicode(item)):
        raise _Unfit
    return item


def _integer(limit: int, item: Any) -> Any:
    if type(item) is not int or not -limit <= item < limit:
        raise _Unfit
    return item


def _is_unicode(text: str) -> bool:
    """Return whether text has no half of a surrogate pair, which JSON can write and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _real(item: Any) -> float:
    if type(item) not in (int, float, DecimalNumber):
        raise _Unfit
    try:
        number = float(item)
    except OverflowError:
        raise _Unfit from None
    if not math.isfinite(number):
        raise _Unfit
    return number


def _decimal(column_type: Decimal, item: Any) -> DecimalNumber:
    is_text = isinstance(item, str) and _DECIMAL_TEXT.fullmatch(item)
    if not is_text and type(item) not in (int, DecimalNumber):
        raise _Unfit
    number = DecimalNumber(item)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole_digits = 0 if number == 0 else len(digits) + exponent
    fits = -exponent <= column_type.scale and whole_digits <= column_type.precision - column_type.scale
    if not fits:
        raise _Unfit
    return number


def _time(arrow_type: pa.DataType, item: Any) -> Any:
    if not isinstance(item, str) or not _is_unicode(item):
        raise _Unfit
    try:
        return pa.scalar(item).cast(arrow_type)
    except pa.ArrowException:
        raise _Unfit from None
