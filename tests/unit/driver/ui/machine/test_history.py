"""The charts' figures stay bounded, and gaps stay gaps."""

from sparklog.driver.ui.machine.history import MAX_SERIES, POINTS, History, Series


def test_history_keeps_the_newest_points_only() -> None:
    """A cluster runs for months."""
    history = History()
    for number in range(POINTS + 20):
        history.sample({"Bytes in": {"broker 0": number}})
    assert history.charts["Bytes in"] == (Series("broker 0", tuple(range(20, POINTS + 20))),)


def test_figure_that_was_not_measured_is_a_gap() -> None:
    """A broker that is down writes nothing: that is not the same as writing zero."""
    history = History()
    history.sample({"Bytes in": {"broker 0": 1, "broker 1": 5}})
    history.sample({"Bytes in": {"broker 1": 6}})
    history.sample({})
    history.sample({"Bytes in": {"broker 0": 3, "broker 1": None}})
    assert history.charts["Bytes in"] == (
        Series("broker 0", (1, None, None, 3)),
        Series("broker 1", (5, 6, None, None)),
    )


def test_line_that_begins_later_ends_at_the_same_time_as_the_others() -> None:
    """A broker that is new must not look as if it had been there from the beginning."""
    history = History()
    history.sample({"Lag": {"a": 1}})
    history.sample({"Lag": {"a": 1, "b": 2}})
    assert history.charts["Lag"] == (Series("a", (1, 1)), Series("b", (None, 2)))


def test_lines_are_bounded_and_those_of_the_past_make_room() -> None:
    """Each streaming query is a line, and an application may start one a minute."""
    history = History()
    for number in range(POINTS * 2):
        history.sample({"Lag": {f"query {number // 2}": 1.0}})
        assert len(history.charts["Lag"]) <= MAX_SERIES
    history.sample({"Lag": {f"new {number}": 1.0 for number in range(50)}})
    assert len(history.charts["Lag"]) == MAX_SERIES
