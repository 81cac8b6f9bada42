"""Snapshots whose commit a catalogue has refused."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from sparklog.driver.controller.tables.table_errors import StaleTableError
from tests.unit.driver.controller.tables.lake import PlainLake


class RepeatingCatalog(SqlCatalog):
    """Gets each update twice from a proxy in front of it, if `repeats`, and answers the second time."""

    repeats = False

    def commit_table(self, *args: Any) -> Any:
        response = super().commit_table(*args)
        if self.repeats:
            raise CommitFailedException("the table has another newest snapshot")
        return response


def test_snapshot_of_a_repeated_request_keeps_its_manifests(tmp_path: Path) -> None:
    """The refusal is that of the second request; the first one has made the newest snapshot."""
    catalog = RepeatingCatalog("test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    lake = PlainLake(tmp_path, catalog)
    lake.commit()
    catalog.repeats = True
    with pytest.raises(StaleTableError):
        lake.commit()
    assert lake.rows_at() == 2


def test_refused_snapshot_leaves_no_manifests(tmp_path: Path) -> None:
    """Another driver was faster, and nothing names what was written."""
    lake = PlainLake(tmp_path)
    lake.commit()
    late = PlainLake(tmp_path)
    late.end_offset = 2
    lake.commit()
    metadata = tmp_path / "tables/orders/metadata"
    before = set(metadata.glob("*.avro"))
    with pytest.raises(StaleTableError):
        late.commit()
    assert set(metadata.glob("*.avro")) == before
    assert lake.rows_at() == 2
