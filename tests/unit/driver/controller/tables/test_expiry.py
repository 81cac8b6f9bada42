"""Snapshots that expire while others change the table."""

from pathlib import Path

from tests.unit.driver.controller.tables.lake import IDENTITY, PlainLake


def test_snapshot_that_others_went_back_to_does_not_expire(tmp_path: Path) -> None:
    """A rollback or a tag of a moment ago counts, though the table was read before."""
    lake = PlainLake(tmp_path)
    first, second, third = (lake.commit().snapshot_id for _ in range(3))
    others = lake.catalog.load_table(IDENTITY.name)
    others.manage_snapshots().create_tag(first, "audit").commit()
    others.manage_snapshots().rollback_to_snapshot(second).commit()
    assert lake.table.expire([first, second]) == ()
    assert lake.rows_at() == 2
    assert lake.rows_at(first) == 1
    assert lake.rows_at(third) == 3


def test_manifests_of_a_snapshot_made_meanwhile_stay(tmp_path: Path) -> None:
    """It shares them with those that expire."""
    lake = PlainLake(tmp_path)
    first, _ = (lake.commit().snapshot_id for _ in range(2))
    other = PlainLake(tmp_path)
    other.end_offset = 2
    other.commit()
    assert lake.table.expire([first]) == (first,)
    assert lake.rows_at() == 3


def test_manifest_list_that_is_gone_already_stops_no_expiry(tmp_path: Path) -> None:
    """A former driver was killed between its deletions."""
    lake = PlainLake(tmp_path)
    first, second, _ = (lake.commit().snapshot_id for _ in range(3))
    assert lake.table.expire([first]) == (first,)
    assert lake.table.expire([first, second]) == (first, second)
    assert lake.rows_at() == 3
