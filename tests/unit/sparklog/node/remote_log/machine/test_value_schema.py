"""The schema of a table's typed columns."""

import pytest
import sqlglot
from sqlglot import expressions

from sparklog.node.remote_log.machine.value_schema import (
    RECORD_COLUMNS,
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    ValueSchemaError,
    check_change,
    field_id,
    parse_value_schema,
)
from sparklog.protocol.records.columns import COLUMN_TYPES

NESTED = Struct((Column("city", Scalar.STRING), Column("lines", Array(Scalar.STRING))))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("", ()),
        ("id BIGINT", (Column("id", Scalar.BIGINT),)),
        ("a: long, `b ``c` int", (Column("a", Scalar.BIGINT), Column("b `c", Scalar.INT))),
        ("p decimal, q DEC(38, 38)", (Column("p", Decimal(10, 0)), Column("q", Decimal(38, 38)))),
        (
            "t timestamp_ltz COMMENT 'when, where', d DATE",
            (Column("t", Scalar.TIMESTAMP), Column("d", Scalar.DATE)),
        ),
        ("home STRUCT<city: STRING, lines ARRAY<STRING>>", (Column("home", NESTED),)),
    ],
)
def test_schema_in_sparks_notation_is_read(text: str, columns: tuple[Column, ...]) -> None:
    """Users copy it from `df.schema` and from SQL."""
    assert parse_value_schema(text) == columns


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id", "the end where a type was expected"),
        ("id BIGINT name STRING", "'name' where a comma or the end was expected"),
        ("id BIGINT,", "the end where the name of a column was expected"),
        ("id BIGINT; drop", "';' has no meaning here"),
        ("id UUID", "UUID is no type of typed columns; these are BOOLEAN, INT"),
        ("id SMALLINT", "SMALLINT: Iceberg has no such type: take INT"),
        ("m MAP<STRING, INT>", "MAP: JSON objects are read as STRUCT"),
        ("b BINARY", "BINARY: JSON has no bytes"),
        ("id INT NOT NULL", "NOT NULL: typed columns are null where a value does not parse"),
        ("Offset BIGINT", "Offset is a column of every record"),
        ("Timestamp_Day DATE", "Timestamp_Day is a name of Iceberg's own"),
        ("_pos BIGINT", "_pos is a name of Iceberg's own"),
        ("a INT, A STRING", "two columns have the name A"),
        ("s STRUCT<a: INT, a: INT>", "two columns have the name a"),
        ("`a.b` INT", "has no dot"),
        ("d DECIMAL(39, 2)", "1 to 38 digits"),
        ("d DECIMAL(2, 3)", "no more of them behind the point"),
        ("d DECIMAL(x)", "'x' where a number was expected"),
        ("a " + "ARRAY<" * 30 + "INT" + ">" * 30, "nested more than 16 times"),
        ("a ARRAY<INT", "the end where > was expected"),
    ],
)
def test_schema_that_a_table_cannot_have_is_refused_by_name(text: str, said: str) -> None:
    """The user sees what to change before the topic's first record."""
    with pytest.raises(ValueSchemaError) as raised:
        parse_value_schema(text)
    assert said in str(raised.value)


def test_schema_means_what_another_parser_of_sparks_says() -> None:
    """The notation is not ours."""
    text = "a INT, b BIGINT, c DOUBLE, d DECIMAL(12, 3), e TIMESTAMP, f ARRAY<STRUCT<x: INT, y: DATE>>"
    table = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect="spark")
    theirs = [
        (column.name, column.args["kind"].sql("spark").replace(", ", ","))
        for column in table.find_all(expressions.ColumnDef)
        if isinstance(column.parent, expressions.Schema)
    ]
    assert [(each.name, str(each.type).replace(", ", ",")) for each in parse_value_schema(text)] == theirs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a INT, b STRING", "b STRING, c DATE"),
        ("a INT, b FLOAT, c DECIMAL(9, 2)", "a BIGINT, b DOUBLE, c DECIMAL(18, 2)"),
        ("a STRUCT<x: INT, y: INT>", "a STRUCT<x: BIGINT, z: STRING>"),
        ("a ARRAY<INT>", "a ARRAY<BIGINT>"),
        ("", "a INT"),
        ("a INT", ""),
    ],
)
def test_changes_that_iceberg_allows_are_accepted_and_keep_ids(old: str, new: str) -> None:
    """Files are read by ids: those of before must show the same column."""
    before, after = parse_value_schema(old), parse_value_schema(new)
    check_change(before, after)
    types = {each.name: each.type for each in before}
    for each in after:
        if each.name in types:
            assert field_id((each.name,), each.type) == field_id((each.name,), types[each.name])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("a BIGINT", "a INT", "a is BIGINT and cannot become INT"),
        ("a INT", "a STRING", "a is INT and cannot become STRING"),
        ("a INT", "a DOUBLE", "a is INT and cannot become DOUBLE"),
        ("a DECIMAL(9, 2)", "a DECIMAL(9, 3)", "a is DECIMAL(9,2) and cannot become DECIMAL(9,3)"),
        ("a DECIMAL(9, 2)", "a DECIMAL(8, 2)", "cannot become DECIMAL(8,2)"),
        ("a STRUCT<x: INT>", "a STRUCT<x: STRING>", "a.x is INT"),
        ("a ARRAY<INT>", "a ARRAY<DATE>", "a.element is INT"),
        ("a ARRAY<INT>", "a INT", "a is ARRAY<INT>"),
    ],
)
def test_other_changes_of_a_type_are_refused_by_name(old: str, new: str, said: str) -> None:
    """Files of before could not be read."""
    with pytest.raises(ValueSchemaError) as raised:
        check_change(parse_value_schema(old), parse_value_schema(new))
    assert said in str(raised.value)


def test_ids_are_those_of_files_that_were_written_before() -> None:
    """They are in every file: this must not change with a release."""
    assert field_id(("id",), Scalar.BIGINT) == field_id(("id",), Scalar.INT) == 1743361383
    assert field_id(("id",), Scalar.STRING) != field_id(("id",), Scalar.INT)
    assert field_id(("home", "city"), Scalar.STRING) != field_id(("city",), Scalar.STRING)


def test_record_columns_are_those_of_the_data_source() -> None:
    """A typed column of one of these names would hide the record's."""
    assert set(COLUMN_TYPES) == RECORD_COLUMNS
