"""JSON values one by one, where `typed_columns` cannot take many together: the same rules, more slowly."""

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal as DecimalNumber
from typing import Any, Final, TypeVar

import pyarrow as pa

from sparklog.node.remote_log.machine.value_schema import (
    Array,
    Column,
    ColumnType,
    Decimal,
    Scalar,
    Struct,
)

Item = TypeVar("Item")

_BITS: Final = {Scalar.INT: 32, Scalar.BIGINT: 64}
_TIMES: Final = {
    Scalar.DATE: pa.date32(),
    Scalar.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Scalar.TIMESTAMP_NTZ: pa.timestamp("us"),
}
_DECODER: Final = json.JSONDecoder(parse_float=DecimalNumber, parse_constant=lambda _: math.nan)
_DECIMAL_TEXT: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class _Unfit(Exception):  # noqa: N818  (of one value; never seen by others)
    """A value is no JSON object, or a field does not fit its column."""


def json_rows(values: pa.Array, columns: Sequence[Column]) -> tuple[list[list[Any]], int]:
    """Return each column's items, and how many values did not parse."""
    found: list[list[Any]] = [[] for _ in columns]
    failed_count = 0
    for value in values.to_pylist():
        try:
            row = _row(value, columns)
        except _Unfit:
            row = [None] * len(columns)
            failed_count += 1
        for items, item in zip(found, row, strict=True):
            items.append(item)
    return found, failed_count


def _row(value: bytes, columns: Sequence[Column]) -> list[Any]:
    try:
        fields = _DECODER.decode(value.decode())
    except (ValueError, RecursionError):
        raise _Unfit from None
    return _items(fields, columns)


def _items(fields: Any, columns: Sequence[Column]) -> list[Any]:
    if not isinstance(fields, dict):
        raise _Unfit
    return [_item(fields.get(column.name), column.type) for column in columns]


def _item(item: Any, column_type: ColumnType) -> Any:
    if item is None:
        return None
    match column_type:
        case Array():
            if not isinstance(item, list):
                raise _Unfit
            return [_item(each, column_type.element) for each in item]
        case Struct():
            items = _items(item, column_type.columns)
            return dict(zip((each.name for each in column_type.columns), items, strict=True))
        case Decimal():
            return _decimal(item, column_type)
        case Scalar.BOOLEAN:
            return _checked(item, isinstance(item, bool))
        case Scalar.STRING:
            return _checked(item, isinstance(item, str) and _is_unicode(item))
        case Scalar.INT | Scalar.BIGINT:
            limit = 1 << (_BITS[column_type] - 1)
            return _checked(item, type(item) is int and -limit <= item < limit)
        case Scalar.FLOAT | Scalar.DOUBLE:
            return _real(item)
    return _time(item, column_type)


def _checked(item: Item, fits: bool) -> Item:
    if not fits:
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


def _decimal(item: Any, column_type: Decimal) -> DecimalNumber:
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


def _time(item: Any, scalar: Scalar) -> Any:
    if not isinstance(item, str) or not _is_unicode(item):
        raise _Unfit
    try:
        return pa.scalar(item).cast(_TIMES[scalar])
    except pa.ArrowException:
        raise _Unfit from None
