"""The hour of `make bench` is an hour, and has every case that it names."""

import pytest

from benchmarks import cleaning, security
from benchmarks.budgets import (
    BESIDE_CASES_S,
    BUDGETS,
    BY_NAME_ONLY,
    HOUR_S,
    IN_THE_HOUR,
    Budget,
    within_the_hour,
)
from benchmarks.cases import cases
from benchmarks.java_libraries import maven_at_hand
from benchmarks.pages import FIRST_PAGE, TABLES


def test_bounds_of_the_hour_fit_into_it() -> None:
    """A benchmark that takes hours is not run, and its tables grow old."""
    assert sum(budget.bound_s for budget in IN_THE_HOUR.values()) + BESIDE_CASES_S <= HOUR_S


def test_case_that_begins_late_has_what_is_left_of_the_hour() -> None:
    """Clusters that do not answer must not make two hours of it."""
    budget = Budget(300, counted=4)
    assert within_the_hour(budget, HOUR_S - 301) == budget
    assert within_the_hour(budget, HOUR_S - 40) == Budget(40, counted=4)
    assert within_the_hour(budget, HOUR_S + 40) == Budget(1, counted=4)


@pytest.mark.skipif(not maven_at_hand(), reason="some cases need Kafka's own programs")
def test_every_case_has_a_budget_and_every_budget_a_case() -> None:
    """A case without one could not be named, and one that is gone would be missed only by its rows."""
    assert {*cases(), *cleaning.CASES, *security.CASES} == BUDGETS.keys()
    assert IN_THE_HOUR.keys().isdisjoint(BY_NAME_ONLY)


def test_every_case_of_the_hour_is_in_one_table() -> None:
    """It is measured for its rows."""
    in_tables = [case for names in TABLES.values() for case in names]
    assert sorted(in_tables) == sorted(IN_THE_HOUR)
    assert {case for _, case, _ in FIRST_PAGE} <= IN_THE_HOUR.keys()
