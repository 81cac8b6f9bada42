"""Where a copy ends so that its records are of one day."""

import pytest

from sparklog.executor.tiering.machine.piece_cut import PieceCut


def pieces(*runs: tuple[int | None, int]) -> list[tuple[int | None, ...]]:
    """Cut runs of (period, size), each a batch of one record, into pieces; return the periods of each.

    Piece after piece, as copies follow each other, with 100 bytes for a long run.
    """
    found, base_offset = [], 0
    while base_offset < len(runs):
        cut = PieceCut(long_run_bytes=100)
        for offset in range(base_offset, len(runs)):
            cut.add(offset, *runs[offset])
            if cut.end_offset is not None:
                break
            settled_to = cut.settled_to
            assert settled_to is None or settled_to > base_offset
        end_offset = cut.finish(len(runs))
        assert end_offset > base_offset
        found.append(tuple(period for period, _ in runs[base_offset:end_offset]))
        base_offset = end_offset
    return found


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([(1, 500), (1, 1)], [(1, 1)]),
        ([(1, 500), (2, 1)], [(1,), (2,)]),
        ([(1, 1), (2, 500)], [(1,), (2,)]),
        ([(1, 1), (2, 1), (1, 1)], [(1,), (2,), (1,)]),
        ([(day, 1) for day in range(12)], [(day,) for day in range(12)]),
        ([(None, 1), (1, 500)], [(None,), (1,)]),
    ],
    ids=["one day", "long before", "long behind", "a few short runs", "quiet days", "midnight in a batch"],
)
def test_piece_ends_where_the_day_changes(
    runs: list[tuple[int | None, int]], expected: list[tuple[int | None, ...]]
) -> None:
    """A file of a table by day has one day."""
    assert pieces(*runs) == expected


def test_short_runs_that_go_back_and_forth_become_one_mixed_piece() -> None:
    """A producer with two clocks would make an object of each batch."""
    forth_and_back = [(1, 1), (2, 1)] * 20
    assert pieces(*forth_and_back) == [(1, 2) * 20]
    assert pieces(*forth_and_back, (2, 500)) == [(1, 2) * 19 + (1,), (2, 2)]
    assert pieces(*forth_and_back, (3, 60), (3, 60)) == [(1, 2) * 20, (3, 3)]
    assert pieces((0, 500), *forth_and_back) == [(0,), (1, 2) * 20]


def test_batches_of_several_days_each_become_one_mixed_piece() -> None:
    """They can never be cut, however many there are."""
    assert pieces(*[(None, 60)] * 20) == [(None,) * 20]
