"""A table over a directory whose files are segments without typed columns."""

from pathlib import Path
from typing import Final
from uuid import UUID

from pyiceberg.catalog import Catalog, load_catalog

from sparklog.driver.controller.tables.iceberg_table import IcebergTable
from sparklog.driver.controller.tables.machine.events import (
    Commit,
    PartitionedBy,
    TableIdentity,
    TableSnapshot,
)
from sparklog.driver.controller.tables.pieces import table_file
from sparklog.node.remote_log.segments.segment_footer import SegmentFooter
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.segments.segment_writer import write_segment
from tests.unit.sparklog.node.remote_log.segments.rows import Record, rows_of

IDENTITY: Final = TableIdentity("orders", UUID(int=7), "topics.orders")
CATALOG: Final = "test"
"""The catalogue's own name, which Spark's configuration has, too."""
CATALOGUE_FILE: Final = "catalogue.db"


def catalog_in(directory: Path) -> Catalog:
    uri = f"sqlite:///{directory}/{CATALOGUE_FILE}"
    return load_catalog(CATALOG, uri=uri, warehouse=directory.as_uri())


class PlainLake:
    def __init__(self, directory: Path, catalog: Catalog | None = None) -> None:
        self._directory = directory
        self.catalog = catalog or catalog_in(directory)
        self.table = IcebergTable(
            self.catalog, IDENTITY, directory.as_uri(), "tables/orders", SCHEMA, PartitionedBy.NONE
        )
        self.table.load()
        self.end_offset = 0

    def commit(self) -> TableSnapshot:
        """Commit a file of one record."""
        name = f"{self.end_offset}.parquet"
        path = self._directory / name
        topic, topic_id, _ = IDENTITY
        rows = rows_of([Record(self.end_offset, value=b"x")])
        write_segment([rows], path, topic=topic, topic_id=topic_id, partition=0)
        data = path.read_bytes()
        added = table_file(SegmentFooter.parse(data, name), 0, len(data))
        newest = self.table.newest()
        parent_id = None if newest is None else newest.snapshot_id
        self.end_offset += 1
        effect = Commit(parent_id, (added,), (), False, ((0, self.end_offset),), 1, "committer")
        snapshot = self.table.commit(effect, None)
        self.table.load()
        return snapshot

    def rows_at(self, snapshot_id: int | None = None) -> int:
        """Return the count of rows that a reader finds in the files."""
        table = self.catalog.load_table(IDENTITY.name)
        return table.scan(snapshot_id=snapshot_id).to_arrow().num_rows
