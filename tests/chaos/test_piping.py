"""The comparison of what a pipeline has written tells exactly once from every way to miss it."""

from collections import Counter
from typing import Final

import pytest

from tests.chaos.piping import complaint_of, wanted_rows

VALUES: Final = (b"0:word-1", b"1:word-2", b"2:word-1")


def test_rows_of_both_queries_are_wanted_once_each() -> None:
    """Each record is copied, and told of by the how manieth of its word it is."""
    assert wanted_rows(VALUES) == Counter(
        [
            *((b"copied", value) for value in VALUES),
            (b"counted", b"word-1:1"),
            (b"counted", b"word-1:2"),
            (b"counted", b"word-2:1"),
        ]
    )
    assert complaint_of(wanted_rows(VALUES), wanted_rows(VALUES)) is None


@pytest.mark.parametrize("query", [b"copied", b"counted"])
def test_row_that_is_missing_or_there_twice_is_complained_of(query: bytes) -> None:
    """Also when as many rows are there as should be."""
    wanted = wanted_rows(VALUES)
    first, second = [row for row in sorted(wanted) if row[0] == query][:2]
    for missing, surplus in ((0, 1), (1, 0), (1, 1)):
        found = Counter(wanted)
        found[first] -= missing
        found[second] += surplus
        complaint = complaint_of(+found, wanted)
        assert complaint is not None
        assert f"{missing} are missing" in complaint
        assert f"{surplus} too many" in complaint


def test_row_of_state_that_went_back_is_complained_of() -> None:
    """A batch that was counted twice tells of counts that nothing was read for."""
    wanted = wanted_rows(VALUES)
    found = wanted - Counter([(b"counted", b"word-1:2")]) + Counter([(b"counted", b"word-1:3")])
    complaint = complaint_of(found, wanted)
    assert complaint is not None
    assert "word-1:2" in complaint
    assert "word-1:3" in complaint
