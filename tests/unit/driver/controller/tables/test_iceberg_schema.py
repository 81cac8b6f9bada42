"""The columns of a table, while the schema of its topic's values changes."""

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from pyiceberg.catalog import load_catalog

from sparklog.driver.controller.tables.iceberg_table import IcebergTable
from sparklog.driver.controller.tables.machine.events import Commit, PartitionedBy, TableIdentity
from sparklog.driver.controller.tables.pieces import table_file
from sparklog.driver.controller.tables.table_errors import TableRefusedError
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import write_segment
from sparklog.node.remote_log.segments.typed_columns import TypedColumns
from tests.unit.sparklog.node.remote_log.segments.rows import Record, rows_of

IDENTITY: Final = TableIdentity("orders", UUID(int=7), "topics.orders")


class Lake:
    """A table whose files lie in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        uri = directory.as_uri()
        self._catalog = load_catalog("test", type="sql", uri="sqlite:///:memory:", warehouse=uri)
        self.table = IcebergTable(self._catalog, IDENTITY, uri, "tables/orders", SCHEMA, PartitionedBy.NONE)
        self.table.load()
        self._end_offset = 0

    def table_at(self, uri: str) -> IcebergTable:
        """Return the same table for a store that is called so."""
        return IcebergTable(self._catalog, IDENTITY, uri, "tables/orders", SCHEMA, PartitionedBy.NONE)

    def commit(self, value_schema: str | None, *values: object, written_with: str | None = None) -> None:
        """Commit a file of values; it has the columns of the same schema, if no other one is given."""
        schema = value_schema if written_with is None else written_with
        name = f"{self._end_offset}.parquet"
        records = [
            Record(self._end_offset + place, value=json.dumps(value).encode())
            for place, value in enumerate(values)
        ]
        typed = TypedColumns.of(schema or "")
        topic, topic_id, _ = IDENTITY
        path = self._directory / name
        write_segment([rows_of(records)], path, topic=topic, topic_id=topic_id, partition=0, typed=typed)
        data = path.read_bytes()
        added = table_file(SegmentFooter.parse(data, name), 0, len(data))
        newest = self.table.newest()
        parent_id = None if newest is None else newest.snapshot_id
        self._end_offset += len(values)
        effect = Commit(parent_id, (added,), (), False, ((0, self._end_offset),), 1, "committer")
        self.table.commit(effect, value_schema)
        self.table.load()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows' typed columns, as a reader gets them."""
        table = self._catalog.load_table(IDENTITY.name)
        rows = table.scan().to_arrow().sort_by("offset")
        assert rows.column("offset").to_pylist() == list(range(self._end_offset))
        return rows.drop_columns(SCHEMA.names).to_pylist()

    def files_of(self, query: str) -> list[str]:
        """Return the files that a reader opens for a query."""
        table = self._catalog.load_table(IDENTITY.name)
        return sorted(Path(task.file.file_path).name for task in table.scan(query).plan_files())

    @property
    def types(self) -> dict[str, str]:
        table = self._catalog.load_table(IDENTITY.name)
        return {each.name: str(each.field_type) for each in table.schema().fields[len(SCHEMA) :]}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_table_gets_the_columns_of_its_topics_schema(lake: Lake) -> None:
    """A wider type and a further column show old rows, too; a dropped one is gone."""
    lake.commit("id INT, part FLOAT", {"id": 1, "part": 0.5})
    assert lake.types == {"id": "int", "part": "float"}
    lake.commit("id BIGINT, name STRING, part DOUBLE", {"id": 2**40, "name": "b", "part": 0.1})
    assert lake.types == {"id": "long", "name": "string", "part": "double"}
    assert lake.rows == [
        {"id": 1, "name": None, "part": 0.5},
        {"id": 2**40, "name": "b", "part": 0.1},
    ]
    lake.commit("name STRING", {"name": "c"})
    assert lake.rows == [{"name": None}, {"name": "b"}, {"name": "c"}]


def test_column_that_comes_back_is_the_same_one_and_as_wide_as_before(lake: Lake) -> None:
    """Old files have its values, which a narrower type could not show."""
    lake.commit("id BIGINT, paid DECIMAL(10, 2)", {"id": 2**40, "paid": 12345678.5})
    lake.commit("", {})
    assert lake.types == {}
    lake.commit("paid DECIMAL(4, 2), id INT", {"id": 7, "paid": 1.5})
    assert lake.types == {"paid": "decimal(10, 2)", "id": "long"}
    assert [(row["id"], str(row["paid"])) for row in lake.rows] == [
        (2**40, "12345678.50"),
        (None, "None"),
        (7, "1.50"),
    ]


def test_column_that_comes_back_with_another_type_is_another_one(lake: Lake) -> None:
    """Old files keep theirs under its own id."""
    lake.commit("id INT", {"id": 1})
    lake.commit("", {})
    lake.commit("id STRING", {"id": "x"})
    assert lake.rows == [{"id": None}, {"id": None}, {"id": "x"}]


def test_types_within_others_become_wider(lake: Lake) -> None:
    """Iceberg gives them ids, too."""
    lake.commit(
        "home STRUCT<lines: ARRAY<INT>, since: DATE>", {"home": {"lines": [1], "since": "2026-01-01"}}
    )
    lake.commit("home STRUCT<lines: ARRAY<BIGINT>, city: STRING>", {"home": {"lines": [2**40], "city": "c"}})
    assert lake.rows == [
        {"home": {"lines": [1], "city": None}},
        {"home": {"lines": [2**40], "city": "c"}},
    ]


def test_columns_stay_without_a_schema_that_this_version_knows(lake: Lake) -> None:
    """Those of a deleted topic's table, and of a schema that a later version has accepted."""
    lake.commit("id INT", {"id": 1})
    lake.commit(None, {"id": 2}, written_with="id INT")
    lake.commit("id VARIANT", {"id": 3}, written_with="id INT")
    assert lake.rows == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_readers_skip_files_by_typed_columns(lake: Lake) -> None:
    """A query by id must not open the files of a year."""
    schema = "id INT, name STRING, part DOUBLE, day DATE, exact DECIMAL(4, 1), flag BOOLEAN, tags ARRAY<INT>"
    lake.commit(
        schema, {"id": 1, "name": "a" * 40, "day": "2026-01-01", "exact": 1.5}, {"id": 5, "part": -0.5}
    )
    lake.commit(schema, {"id": 7, "name": "b", "day": "2026-01-02", "flag": True, "tags": [1]})
    lake.commit(schema, {})
    assert [
        lake.files_of(query)
        for query in (
            "id = 5",
            "id > 5",
            "name = 'b'",
            f"name = '{'a' * 40}'",
            "part < 0",
            "day >= '2026-01-02'",
            "exact = 1.5",
            "id IS NULL",
        )
    ] == [
        ["0.parquet"],
        ["2.parquet"],
        # The upper bound of a long text is not known.
        ["0.parquet", "2.parquet"],
        ["0.parquet"],
        ["0.parquet"],
        ["2.parquet"],
        ["0.parquet", "2.parquet", "3.parquet"],
        ["3.parquet"],
    ]
    wider = schema.replace("INT,", "BIGINT,", 1)
    lake.commit(wider, {"id": 2**40})
    assert [lake.files_of("id = 5"), lake.files_of("id > 5000000000")] == [["0.parquet"], ["4.parquet"]]


def test_file_outside_of_the_store_is_refused(lake: Lake) -> None:
    """Under another spelling of the store's address all files would look as if the topic had left them."""
    lake.commit("", {})
    other = lake.table_at("s3a://bucket")
    other.load()
    with pytest.raises(TableRefusedError, match=r"file:.*0\.parquet.*s3a://bucket/"):
        other.files()
