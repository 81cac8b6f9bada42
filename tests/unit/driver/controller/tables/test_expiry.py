"""Snapshots that expire while others change the table."""

from pathlib import Path

import pytest

from sparklog.driver.controller.tables.machine.events import ExpireSnapshots
from sparklog.driver.controller.tables.machine.snapshot_refs import without_main
from sparklog.driver.controller.tables.table_errors import CallGivenUpError, StaleTableError
from tests.unit.driver.controller.tables.lake import IDENTITY, PlainLake


def test_snapshot_that_others_went_back_to_does_not_expire(tmp_path: Path) -> None:
    """A rollback or a tag of a moment ago counts, though the table was read before."""
    lake = PlainLake(tmp_path)
    first, second, third = (lake.commit().snapshot_id for _ in range(3))
    others = lake.catalog.load_table(IDENTITY.name)
    others.manage_snapshots().create_tag(first, "audit").commit()
    others.manage_snapshots().rollback_to_snapshot(second).commit()
    with pytest.raises(StaleTableError):
        lake.table.expire(ExpireSnapshots((first, second)))
    assert lake.table.expire(ExpireSnapshots((first, second), (), without_main(lake.table.refs()))) == ()
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
    assert lake.table.expire(ExpireSnapshots((first,))) == (first,)
    assert lake.rows_at() == 3


def test_manifest_list_that_is_gone_already_stops_no_expiry(tmp_path: Path) -> None:
    """A former driver was killed between its deletions."""
    lake = PlainLake(tmp_path)
    first, second, _ = (lake.commit().snapshot_id for _ in range(3))
    assert lake.table.expire(ExpireSnapshots((first,))) == (first,)
    assert lake.table.expire(ExpireSnapshots((first, second))) == (first, second)
    assert lake.rows_at() == 3


def test_tag_that_is_too_old_goes_with_its_snapshot(tmp_path: Path) -> None:
    """Nobody else may expire anything of the table, since it has gc.enabled=false."""
    lake = PlainLake(tmp_path)
    first, _ = (lake.commit().snapshot_id for _ in range(2))
    others = lake.catalog.load_table(IDENTITY.name)
    others.manage_snapshots().create_tag(first, "audit", max_ref_age_ms=1).commit()
    lake.table.load()
    known = without_main(lake.table.refs())
    assert [(ref.name, ref.max_ref_age_ms) for ref in known] == [("audit", 1)]
    assert lake.table.expire(ExpireSnapshots((first,), ("audit",), known)) == (first,)
    assert list(others.refresh().refs()) == ["main"]
    assert lake.rows_at() == 2


def test_expiry_makes_progress_with_each_manifest_list(tmp_path: Path) -> None:
    """The snapshots of a month take longer than any single answer."""
    lake = PlainLake(tmp_path)
    first, _, _ = (lake.commit().snapshot_id for _ in range(3))
    steps: list[None] = []
    lake.table.expire(ExpireSnapshots((first,)), lambda: steps.append(None))
    assert len(steps) >= 3


def test_expiry_that_was_given_up_commits_nothing(tmp_path: Path) -> None:
    """It wakes up when another driver may have the table, or when a reader has been promised a snapshot."""
    lake = PlainLake(tmp_path)
    first, second, _ = (lake.commit().snapshot_id for _ in range(3))
    lake.table.expire(ExpireSnapshots((first,)))

    def given_up() -> None:
        raise CallGivenUpError

    # All manifest lists are known by now: nothing but the commit is left.
    with pytest.raises(CallGivenUpError):
        lake.table.expire(ExpireSnapshots((second,)), given_up)
    assert lake.rows_at(second) == 2
