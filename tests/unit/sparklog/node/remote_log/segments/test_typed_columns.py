"""Typed columns of JSON values, and segments that have them."""

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.node.remote_log.machine.value_schema import Scalar, field_id
from sparklog.node.remote_log.segments.row_group_rows import row_group_rows
from sparklog.node.remote_log.segments.segment_format import COLUMNS
from sparklog.node.remote_log.segments.segment_writer import write_segment
from sparklog.node.remote_log.segments.typed_columns import TypedColumns
from tests.unit.sparklog.node.remote_log.segments.rows import (
    END,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    Record,
    batches_of,
    footer_of,
    group_bytes,
    records_of,
    rows_of,
)

ALL_TYPES = (
    "flag BOOLEAN, small INT, id BIGINT, part FLOAT, price DOUBLE, exact DECIMAL(10, 2), name STRING,"
    " day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>,"
    " home STRUCT<city: STRING, since: DATE, lines: ARRAY<INT>>"
)


def typed(schema: str) -> TypedColumns:
    columns = TypedColumns.of(schema)
    assert columns is not None
    return columns


def parsed(schema: str, *values: bytes | None) -> tuple[list[dict[str, Any]], int]:
    """Return rows of typed columns, and how many values did not parse."""
    columns = typed(schema)
    found = columns.parse(pa.array(values, pa.binary()))
    return pa.Table.from_arrays(
        found.columns, schema=pa.schema(columns.fields)
    ).to_pylist(), found.failed_count


def test_values_become_columns_of_every_type() -> None:
    """Each with the type that a table of Iceberg has."""
    value = {
        "flag": True,
        "small": -7,
        "id": 2**63 - 1,
        "part": 0.5,
        "price": 1e300,
        "exact": 12.5,
        "name": "Ünïcode \x00",
        "day": "2026-02-28",
        "at": "2026-02-28T23:30:00+01:00",
        "local": "2026-02-28 23:30:00.000001",
        "tags": ["a", None],
        "home": {"city": "c", "since": "1999-12-31", "lines": [1]},
        "unknown": {"x": [{}]},
    }
    rows, failed_count = parsed(ALL_TYPES, json.dumps(value).encode(), json.dumps(value, indent=2).encode())
    assert failed_count == 0
    assert rows == 2 * [
        {
            **{name: value[name] for name in ("flag", "small", "id", "part", "price", "name", "tags")},
            "exact": Decimal("12.50"),
            "day": date(2026, 2, 28),
            "at": datetime(2026, 2, 28, 22, 30, tzinfo=UTC),
            "local": datetime(2026, 2, 28, 23, 30, 0, 1),
            "home": {"city": "c", "since": date(1999, 12, 31), "lines": [1]},
        }
    ]


@pytest.mark.parametrize("beside", [b'{"id": 1}', b'{"id": "1"}'], ids=["together", "one by one"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, {"id": None, "at": None, "exact": None}),
        (b"{}", {"id": None, "at": None, "exact": None}),
        (b' {"id":2,"at":null}\r\n', {"id": 2, "at": None, "exact": None}),
        (b'{"exact":"1.5"}', {"id": None, "at": None, "exact": Decimal("1.50")}),
        (b"", None),
        (b"text", None),
        (b"[1]", None),
        (b'{"id":1', None),
        (b'{"id":1}{"id":2}', None),
        (b'{"id":1,}', None),
        (b'{"id":true}', None),
        (b'{"id":1.0}', None),
        (b'{"id":9223372036854775808}', None),
        (b'{"at":1767225600}', None),
        (b'{"at":"2026-01-01T00:00:00"}', None),
        (b'{"at":"2026-13-01T00:00:00Z"}', None),
        (b'{"exact":1.005}', None),
        (b'{"exact":123456789}', None),
        (b'{"exact":"one"}', None),
        (b'{"id":1,"x":"\xff"}', None),
        (b'{"x":"\\ud800","id":"\\ud800"}', None),
    ],
    ids=str,
)
def test_value_parses_as_a_whole_or_counts_as_failed(
    value: bytes | None, expected: dict[str, Any] | None, beside: bytes
) -> None:
    """Also where another value of the row group does not: by which parser must not matter."""
    rows, failed_count = parsed("id BIGINT, at TIMESTAMP, exact DECIMAL(10, 2)", value, beside)
    nothing = {"id": None, "at": None, "exact": None}
    assert rows[0] == (nothing if expected is None else expected)
    assert failed_count == (expected is None) + (beside == b'{"id": "1"}')


def test_rows_keep_their_places_among_others_that_do_not_parse() -> None:
    """A typed column must never show another record's value."""
    values: list[bytes | None] = [b'{"id":%d}' % number for number in range(1000)]
    for number in range(0, 1000, 7):
        values[number] = (None, b"x", b'{"id":"x"}', b'{"id":1}{"id":2}')[number % 4]
    rows, failed_count = parsed("id BIGINT", *values)
    assert [row["id"] for row in rows] == [None if n % 7 == 0 else n for n in range(1000)]
    assert failed_count == sum(value is not None for value in values[::7])
    columns = typed("id BIGINT").parse(pa.array(values, pa.binary()).slice(15, 3)).columns
    assert columns[0].to_pylist() == [15, 16, 17]


def test_two_values_in_one_and_none_in_another_do_not_shift_rows() -> None:
    """As many objects as values are no proof by themselves."""
    rows, failed_count = parsed("id BIGINT", b'{"id":1}{"id":2}', b'{"x":"}', b'{"}', b'{"id":3}')
    assert [row["id"] for row in rows] == [None, None, None, 3]
    assert failed_count == 3


NUMBERS = st.integers() | st.floats() | st.decimals(allow_nan=False, allow_infinity=False).map(float)
TEXTS = st.text(max_size=5) | st.sampled_from(
    ["2026-01-01", "2026-01-01T00:00Z", "2026-01-01 00:00", "1.5", "1e3"]
)
ITEMS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
SCHEMA = (
    "a INT, b DOUBLE, c STRING, d DECIMAL(6, 2), e DATE, f TIMESTAMP, g ARRAY<BIGINT>,"
    " h STRUCT<a: INT, b: DECIMAL(3, 1)>"
)


@given(st.lists(st.dictionaries(st.sampled_from("abcdefghx"), ITEMS, max_size=3), max_size=5))
def test_values_that_parse_together_are_the_same_one_by_one(values: list[dict[str, Any]]) -> None:
    """Whether a column is null must not depend on the neighbours of its record."""
    encoded = [json.dumps(value).encode() for value in values]
    columns = typed(SCHEMA)
    alone = [columns.parse(pa.array([value], pa.binary())) for value in encoded]
    together = columns.parse(pa.array([*encoded, b'{"a":"x"}'], pa.binary()))
    assert together.failed_count == 1 + sum(each.failed_count for each in alone)
    for place, each in enumerate(alone):
        assert [_shown(column[0]) for column in each.columns] == [
            _shown(column[place]) for column in together.columns
        ]


def _shown(scalar: pa.Scalar) -> object:
    item = scalar.as_py()
    return repr(item) if isinstance(item, float) and not math.isnan(item) else item


def written(path: Path, values: list[bytes | None], schema: str) -> pq.ParquetFile:
    rows = rows_of([Record(place, value=value) for place, value in enumerate(values)])
    figures = write_segment(
        [rows], path, topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION, typed=typed(schema)
    )
    assert (figures.record_count, figures.unparsed_count) == (len(values), 1)
    return pq.ParquetFile(path)


def test_segment_has_typed_columns_with_ids_and_statistics(tmp_path: Path) -> None:
    """Iceberg refers to columns by ids, and its readers skip files by statistics."""
    values = [b'{"id":5,"name":"b","price":1.5}', b'{"id":3,"name":"a"}', b"x", None]
    file = written(tmp_path / "s", values, "id BIGINT, name STRING, price DECIMAL(10, 2)")
    assert file.schema_arrow.names == [*COLUMNS, "id", "name", "price"]
    assert file.schema_arrow.field("id").metadata[b"PARQUET:field_id"] == b"%d" % field_id(
        ("id",), Scalar.BIGINT
    )
    assert file.metadata.metadata[b"sparklog.value.schema"] == b"id BIGINT, name STRING, price DECIMAL(10, 2)"
    group = file.metadata.row_group(0)
    statistics = {
        group.column(number).path_in_schema: group.column(number).statistics
        for number in range(group.num_columns)
    }
    assert (statistics["id"].min, statistics["id"].max, statistics["id"].null_count) == (3, 5, 2)
    assert (statistics["name"].min, statistics["name"].max) == ("a", "b")
    assert file.read(columns=["value", "id", "price"]).to_pydict() == {
        "value": values,
        "id": [5, 3, None, None],
        "price": [Decimal("1.50"), None, None, None],
    }


def test_readers_of_records_read_nothing_of_typed_columns(tmp_path: Path) -> None:
    """A broker's ranged read is of the records alone, and gives the same batches as without."""
    values: list[bytes | None] = [b'{"id":%d,"tags":["%d"]}' % (n, n) for n in range(2000)]
    path = tmp_path / "s"
    written(path, [*values, b"x"], "id BIGINT, tags ARRAY<STRING>")
    footer = footer_of(path)
    (group,) = footer.row_groups
    typed_column = footer.metadata.row_group(0).column(footer.metadata.num_columns - 2)
    assert group.end <= typed_column.dictionary_page_offset
    rows = row_group_rows(group_bytes(path, footer, 0), footer, 0, start_offset=0, end_offset=END)
    assert {tuple(some.schema.names) for some in rows} == {COLUMNS}
    found = records_of(batches_of(path).data)
    assert [record.value for _, record in found] == [*values, b"x"]
