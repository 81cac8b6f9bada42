"""Java's patterns without Java; tests/spark/sources/test_dataframe_source.py asks a JVM about the same."""

import pytest

from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.topic_pattern import compile_java_pattern
from tests.unit.sparklog.user.dataframe.java_patterns import NAMES, PATTERNS


def found(pattern: str) -> list[str]:
    matches = compile_java_pattern("subscribePattern", pattern).search
    return [name for name in NAMES if matches(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"\Qa.b\E", ["a.b"]),
        (r"^\Qorders.\E\d+$", ["orders.12"]),
        (r"^a*+a", []),
        (r"x|(?i)oRDERS$", ["orders", "Orders", "x"]),
        (r"^[a-z&&[^ox]]+$", ["aab", "events", "latin", "abcabc", "tab"]),
        (r"^\p{Alpha}+$", ["orders", "Orders", "aXb", "aab", "events", "x", "latin", "abcabc", "tab"]),
        (r"events\z", ["events"]),
        (r"(?<first>abc)\k<first>", ["abcabc"]),
    ],
)
def test_pattern_means_what_it_means_in_java(pattern: str, names: list[str]) -> None:
    """A job that moves over reads the topics it read before: Python's own `re` refuses these, or differs."""
    assert found(pattern) == names


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_of_java_is_accepted(pattern: str) -> None:
    """What these find is compared with a JVM's answers elsewhere."""
    found(pattern)


@pytest.mark.parametrize("pattern", [r"(", r"\p{javaLowerCase}", r"(?U)a", r"[a", r"a\x{61}"])
def test_pattern_that_is_not_understood_is_refused_with_the_alternative(pattern: str) -> None:
    """Before a query runs, and by name."""
    with pytest.raises(DataSourceOptionError, match=r"not a regular expression here.*'subscribe'"):
        compile_java_pattern("subscribePattern", pattern)
