"""Names that branches, tags and snapshots of a pyiceberg table have."""

from pathlib import Path

import pytest

from sparklog.driver.controller.tables.machine.events import FindHeld, HeldFile
from sparklog.driver.controller.tables.machine.snapshot_refs import TableRef
from tests.unit.driver.controller.tables.lake import IDENTITY, PlainLake


def test_refs_have_the_limits_of_the_table_where_they_have_none(tmp_path: Path) -> None:
    """Other engines read the properties in the same way."""
    lake = PlainLake(tmp_path)
    snapshot_id = lake.commit().snapshot_id
    others = lake.catalog.load_table(IDENTITY.name)
    with others.transaction() as changes:
        changes.set_properties(
            {"history.expire.max-ref-age-ms": "9", "history.expire.min-snapshots-to-keep": "2"}
        )
    others.manage_snapshots().create_tag(snapshot_id, "audit").create_branch(
        snapshot_id, "dev", max_ref_age_ms=5, min_snapshots_to_keep=3
    ).commit()
    lake.table.load()
    assert set(lake.table.refs()) == {
        TableRef("main", snapshot_id, True, 2, None, 9),
        TableRef("audit", snapshot_id, False, 2, None, 9),
        TableRef("dev", snapshot_id, True, 3, None, 5),
    }


def test_file_is_held_by_a_snapshot_that_has_it(tmp_path: Path) -> None:
    """Of two snapshots one is enough; what none has may go."""
    lake = PlainLake(tmp_path)
    first, second = (lake.commit().snapshot_id for _ in range(2))
    names = ("0.parquet", "1.parquet", "2.parquet")
    size = (tmp_path / "0.parquet").stat().st_size
    assert lake.table.held(FindHeld(names, (first,))) == (HeldFile("0.parquet", first, size),)
    steps: list[None] = []
    found = lake.table.held(FindHeld(names, (first, second)), lambda: steps.append(None))
    assert [each.name for each in found] == ["0.parquet", "1.parquet"]
    assert len(steps) >= 2, "it makes progress with each snapshot"


@pytest.mark.parametrize("scheme", ["file://", "file:"])
def test_file_of_another_writers_branch_is_held(tmp_path: Path, scheme: str) -> None:
    """Its writer has put it below the location of the table, which it may spell as s3a:// for s3://."""
    lake = PlainLake(tmp_path)
    first = lake.commit().snapshot_id
    others = lake.catalog.load_table(IDENTITY.name)
    others.manage_snapshots().create_branch(first, "dev").commit()
    with others.transaction() as changes:
        changes.set_properties({"write.data.path": f"{scheme}{tmp_path}/tables/orders/data"})
    others.append(others.scan().to_arrow(), branch="dev")
    (path,) = (tmp_path / "tables/orders/data").rglob("*.parquet")
    name = str(path.relative_to(tmp_path))
    lake.table.load()
    head = next(ref.snapshot_id for ref in lake.table.refs() if ref.name == "dev")
    found = lake.table.held(FindHeld((name,), (first, head)))
    assert found == (HeldFile(name, head, path.stat().st_size),)


def test_metadata_in_use_is_that_of_all_versions_and_snapshots(tmp_path: Path) -> None:
    """An expired snapshot's is not, and neither is what a crash has left."""
    lake = PlainLake(tmp_path)
    for _ in range(3):
        lake.commit()
    metadata = tmp_path / "tables/orders/metadata"
    left = metadata / "left-by-a-crash.avro"
    left.touch()
    steps: list[None] = []
    found = lake.table.metadata_in_use(lambda: steps.append(None))
    assert found == {each.name for each in metadata.iterdir()} - {left.name}
    assert len(steps) == 3, "it makes progress with each snapshot"
