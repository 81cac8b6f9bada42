"""The schema of a table's typed columns: Spark's notation, Iceberg's types, and ids that never change.

`id BIGINT, name STRING, tags ARRAY<STRING>` is parsed without Spark. Types are those that JSON values can
give and Iceberg has.

A file refers to its columns by ids. Here an id is made of the column's path and the family of its type: the
writers of files need no register of ids, a column that is dropped and added again is the same column, and one
that comes back with a type of another family is another column. Types between which Iceberg allows a change
have one family.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final, TypeAlias

RECORD_COLUMNS: Final = frozenset(
    {"topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"}
)
FIRST_TYPED_ID: Final = 10_000
_PAST_TYPED_IDS: Final = 2_000_000_000
"""Iceberg's own begin above."""
MOST_NESTED: Final = 16
MOST_DIGITS: Final = 38


class ValueSchemaError(Exception):
    """A schema that cannot be read, or a change of one that Iceberg does not allow."""


class Scalar(Enum):
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Decimal:
    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    element: "ColumnType"

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    columns: "tuple[Column, ...]"

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(f'{each.name}: {each.type}' for each in self.columns)}>"


ColumnType: TypeAlias = Scalar | Decimal | Array | Struct
Path: TypeAlias = tuple[str, ...]
ELEMENT: Final = ""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType


def parse_value_schema(text: str) -> tuple[Column, ...]:
    """Return the columns of a schema; none of a blank one.

    >>> [str(each.type) for each in parse_value_schema("id long, price decimal(10, 2)")]
    ['BIGINT', 'DECIMAL(10,2)']

    Raises:
        ValueSchemaError: it is not in Spark's notation, or has a name or a type that a table cannot have.
    """
    if not text.strip():
        return ()
    columns = _Parser(text).columns()
    for column in columns:
        if column.name.lower() in _RECORD_COLUMNS_LOWER:
            raise ValueSchemaError(f"{column.name} is a column of every record: give this one another name")
        if column.name.lower() in _ICEBERGS_OWN:
            raise ValueSchemaError(f"{column.name} is a name of Iceberg's own: give this column another one")
    ids: dict[int, Path] = {}
    for path, column_id in _ids((), columns):
        other = ids.setdefault(column_id, path)
        if other is not path:
            raise ValueSchemaError(
                f"{'.'.join(other)} and {'.'.join(path)} would have the same id: rename one of them"
            )
    return columns


def field_id(path: Path, column_type: ColumnType) -> int:
    """Return the id of a column by the names that lead to it; `ELEMENT` is that of an array's elements."""
    digest = sha256("\0".join([*path, _family(column_type)]).encode()).digest()
    return FIRST_TYPED_ID + int.from_bytes(digest[:8], "big") % (_PAST_TYPED_IDS - FIRST_TYPED_ID)


def check_change(old: Sequence[Column], new: Sequence[Column]) -> None:
    """Check that Iceberg allows the change: columns come and go, and types become wider.

    Raises:
        ValueSchemaError: a column would have another type.
    """
    _check_columns("", old, new)


_RECORD_COLUMNS_LOWER: Final = frozenset(name.lower() for name in RECORD_COLUMNS)
_ICEBERGS_OWN: Final = frozenset(
    {
        *("timestamp_day", "timestamp_hour"),
        *("_file", "_pos", "_deleted", "_spec_id", "_partition"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
        *("_row_id", "_last_updated_sequence_number"),
    }
)
"""In lower case: of partitions by time, and of the columns that Iceberg's specification reserves."""
_ALIASES: Final = {
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_REFUSED: Final = {
    "TINYINT": "Iceberg has no such type: take INT",
    "BYTE": "Iceberg has no such type: take INT",
    "SMALLINT": "Iceberg has no such type: take INT",
    "SHORT": "Iceberg has no such type: take INT",
    "BINARY": "JSON has no bytes: take STRING",
    "CHAR": "Iceberg has no such type: take STRING",
    "VARCHAR": "Iceberg has no such type: take STRING",
    "MAP": "JSON objects are read as STRUCT: name the fields",
}
_FAMILIES: Final = {Scalar.BIGINT: "INT", Scalar.DOUBLE: "FLOAT"}
_WIDER: Final = {(Scalar.INT, Scalar.BIGINT), (Scalar.FLOAT, Scalar.DOUBLE)}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>\w+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>[<>(),:]))"
)


def _family(column_type: ColumnType) -> str:
    match column_type:
        case Scalar():
            return _FAMILIES.get(column_type, column_type.value)
        case Decimal():
            return f"DECIMAL({column_type.scale})"
        case Array():
            return "ARRAY"
        case Struct():
            return "STRUCT"


def _ids(prefix: Path, columns: Sequence[Column]) -> Iterator[tuple[Path, int]]:
    for column in columns:
        yield from _ids_of((*prefix, column.name), column.type)


def _ids_of(path: Path, column_type: ColumnType) -> Iterator[tuple[Path, int]]:
    yield path, field_id(path, column_type)
    match column_type:
        case Array():
            yield from _ids_of((*path, ELEMENT), column_type.element)
        case Struct():
            yield from _ids(path, column_type.columns)


def _check_columns(prefix: str, old: Sequence[Column], new: Sequence[Column]) -> None:
    types = {column.name: column.type for column in old}
    for column in new:
        if column.name in types:
            _check_type(f"{prefix}{column.name}", types[column.name], column.type)


def _check_type(path: str, old: ColumnType, new: ColumnType) -> None:
    match old, new:
        case Array(), Array():
            _check_type(f"{path}.element", old.element, new.element)
        case Struct(), Struct():
            _check_columns(f"{path}.", old.columns, new.columns)
        case Decimal(), Decimal() if old.scale == new.scale and old.precision <= new.precision:
            pass
        case _:
            if old != new and (old, new) not in _WIDER:
                raise ValueSchemaError(
                    f"{path} is {old} and cannot become {new}: Iceberg lets INT become BIGINT, FLOAT become "
                    "DOUBLE, and a DECIMAL get more digits before its point; add a column of another name"
                )


class _Parser:
    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._tokens: Final = list(_tokens(text))
        self._place = 0

    def columns(self) -> tuple[Column, ...]:
        columns = self._columns(nested=0)
        if self._place < len(self._tokens):
            raise self._unexpected("a comma or the end")
        return columns

    def _columns(self, nested: int) -> tuple[Column, ...]:
        columns: list[Column] = []
        while True:
            name = self._name()
            self._skip(":")
            columns.append(Column(name, self._type(nested)))
            self._comment()
            if not self._skip(","):
                break
        seen: set[str] = set()
        for column in columns:
            if column.name.lower() in seen:
                raise ValueSchemaError(f"two columns have the name {column.name}, regardless of case")
            seen.add(column.name.lower())
        return tuple(columns)

    def _name(self) -> str:
        kind, token = self._next("the name of a column")
        if kind not in ("word", "quoted"):
            raise self._unexpected("the name of a column", back=True)
        name = token.replace("``", "`") if kind == "quoted" else token
        if "." in name or not name.isprintable():
            raise ValueSchemaError(f"{name!r}: the name of a column has no dot and no control character")
        return name

    def _type(self, nested: int) -> ColumnType:
        if nested > MOST_NESTED:
            raise ValueSchemaError(f"a type is nested more than {MOST_NESTED} times")
        kind, token = self._next("a type")
        if kind != "word":
            raise self._unexpected("a type", back=True)
        name = _ALIASES.get(token.upper(), token.upper())
        if name in _DECIMALS:
            return self._decimal()
        if name == "ARRAY":
            self._require("<")
            element = self._type(nested + 1)
            self._require(">")
            return Array(element)
        if name == "STRUCT":
            self._require("<")
            columns = self._columns(nested + 1)
            self._require(">")
            return Struct(columns)
        if name in _REFUSED:
            raise ValueSchemaError(f"{token}: {_REFUSED[name]}")
        try:
            return Scalar(name)
        except ValueError:
            known = ", ".join([*(each.value for each in Scalar), "DECIMAL(p, s), ARRAY<> and STRUCT<>"])
            raise ValueSchemaError(f"{token} is no type of typed columns; these are {known}") from None

    def _decimal(self) -> Decimal:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            if self._skip(","):
                scale = self._number()
            self._require(")")
        if not 1 <= precision <= MOST_DIGITS or scale > precision:
            raise ValueSchemaError(
                f"DECIMAL({precision},{scale}): it has 1 to {MOST_DIGITS} digits, and no more of them behind "
                "the point than there are"
            )
        return Decimal(precision, scale)

    def _number(self) -> int:
        kind, token = self._next("a number")
        if kind != "word" or not (token.isascii() and token.isdigit() and len(token) < 4):
            raise self._unexpected("a number", back=True)
        return int(token)

    def _comment(self) -> None:
        if self._peek("NOT"):
            raise ValueSchemaError("NOT NULL: typed columns are null where a value does not parse")
        if self._peek("COMMENT"):
            self._place += 1
            kind, _ = self._next("a comment in quotes")
            if kind != "text":
                raise self._unexpected("a comment in quotes", back=True)

    def _peek(self, word: str) -> bool:
        return self._place < len(self._tokens) and self._tokens[self._place][1].upper() == word

    def _skip(self, sign: str) -> bool:
        found = self._place < len(self._tokens) and self._tokens[self._place] == ("sign", sign)
        self._place += found
        return found

    def _require(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._unexpected(sign)

    def _next(self, expected: str) -> tuple[str, str]:
        if self._place == len(self._tokens):
            raise self._unexpected(expected)
        self._place += 1
        return self._tokens[self._place - 1]

    def _unexpected(self, expected: str, *, back: bool = False) -> ValueSchemaError:
        place = self._place - back
        found = repr(self._tokens[place][1]) if place < len(self._tokens) else "the end"
        return ValueSchemaError(f"{found} where {expected} was expected, in {self._text!r}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueSchemaError(f"{text[position:].lstrip()[0]!r} has no meaning here, in {text!r}")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        position = found.end()
