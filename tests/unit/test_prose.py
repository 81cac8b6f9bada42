"""Prose that hides the domain's words behind relative clauses is found, and nothing else is."""

import pytest

from tests.house.prose import Finding, findings


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Who leads a partition."""', [Finding(1, "Who")]),
        (
            'def f():\n    """Do it.\n\n    Whoever leads\n    is told.\n    """',
            [Finding(4, "Whoever"), Finding(5, "is told")],
        ),
        ("a = 1  # An epoch. What is older is refused\n", [Finding(1, "What")]),
        ("# The leader\n# is\n# to answer.\n", [Finding(2, "is to")]),
        ('raise ValueError(f"offset {offset} begins anew")', [Finding(1, "anew")]),
        ('"""Have it deleted."""', [Finding(1, "Have")]),
        ('"""Return of what a record is."""', [Finding(1, "Return of")]),
        ('limit = 1\n"""How often the process reads before he stops."""', [Finding(2, "he")]),
        (
            '"""Return the leader that the members know; this is told apart by what it has."""',
            [Finding(1, "is told")],
        ),
        ('"""Return the offset of what was read; the record says who wrote it. That is total."""', []),
        ('names = ("What", "nobody")', []),
    ],
)
def test_prose_of_a_module_is_searched_for_banned_phrases(source: str, expected: list[Finding]) -> None:
    """A check that overlooks a kind of text lets the habit come back there."""
    assert findings(source) == expected
