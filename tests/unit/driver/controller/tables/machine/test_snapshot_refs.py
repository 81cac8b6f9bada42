"""The snapshots that branches and tags keep; the cases are those of Iceberg's specification."""

from typing import Final

from sparklog.driver.controller.tables.machine.snapshot_refs import (
    MAIN,
    Ancestor,
    TableRef,
    expired_refs,
    kept_snapshots,
)

NOW_MS: Final = 100
ANCESTORS: Final = {number: Ancestor(number - 1 or None, 10 * number) for number in range(1, 6)}
"""Each is the child of the one before."""


def kept(*refs: TableRef) -> dict[int, str]:
    return kept_snapshots(refs, ANCESTORS, NOW_MS)


def test_tag_keeps_its_snapshot_alone() -> None:
    """It was made to read that one."""
    assert kept(TableRef("audit", 3)) == {3: "audit"}


def test_branch_keeps_so_many_snapshots_as_it_is_given() -> None:
    """Its head is one of them."""
    assert kept(TableRef("dev", 5, True)) == {5: "dev"}
    assert kept(TableRef("dev", 5, True, min_snapshots_to_keep=3)) == {5: "dev", 4: "dev", 3: "dev"}


def test_branch_keeps_snapshots_that_are_young_enough_for_it() -> None:
    """Up to the first that is too old, beyond the count."""
    assert kept(TableRef("dev", 5, True, max_snapshot_age_ms=70)) == {5: "dev", 4: "dev", 3: "dev"}


def test_snapshot_of_several_refs_is_the_first_ones() -> None:
    """The size of its files counts once."""
    assert kept(TableRef("audit", 4), TableRef("dev", 5, True, 2)) == {4: "audit", 5: "dev"}


def test_ref_without_a_snapshot_keeps_nothing() -> None:
    """A catalogue may have such ones."""
    assert kept(TableRef("audit", 9)) == {}


def test_refs_expire_by_the_age_of_their_snapshots_but_for_main() -> None:
    """The limit is the ref's; without one it stays."""
    old, young = TableRef("old", 3, max_ref_age_ms=69), TableRef("young", 3, max_ref_age_ms=70)
    main, endless = TableRef(MAIN, 3, True, max_ref_age_ms=1), TableRef("endless", 1)
    assert expired_refs([old, young, main, endless], ANCESTORS, NOW_MS) == (old,)
