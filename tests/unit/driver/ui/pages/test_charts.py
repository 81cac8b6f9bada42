"""Charts: points where they belong, gaps left open."""

import re

from sparklog.driver.ui.machine.history import POINTS, Series
from sparklog.driver.ui.pages.charts import chart
from sparklog.driver.ui.pages.number_formats import count


def lines(drawn: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in points.split())]
        for points in re.findall(r'<polyline class="[^"]*" points="([^"]*)"', drawn)
    ]


def test_newest_point_is_at_the_right_and_the_highest_at_the_top() -> None:
    """Time goes to the right, with the scale's end above."""
    earlier = (None,) * (POINTS - 3)
    (line,) = lines(chart("Records", [Series("a", (*earlier, 0.0, 5.0, 10.0))], count))
    assert [x for x, _ in line] == [
        round((POINTS - 3 + number) * 360 / (POINTS - 1), 1) for number in range(3)
    ]
    assert [y for _, y in line] == [92.0, 49.0, 6.0]


def test_chart_that_begins_shows_two_minutes() -> None:
    """A minute of fifteen is a stroke at the edge, and says nothing."""
    drawn = chart("Records", [Series("a", (1.0,) * 13)], count)
    assert next(x for x, _ in lines(drawn)[0]) == round(11 * 360 / 23, 1)
    assert "1.9 min ago" in drawn
    assert "15 min ago" in chart("Records", [Series("a", (1.0,) * POINTS)], count)


def test_gap_parts_a_line_and_a_point_alone_is_seen() -> None:
    """A broker's outage shows as nothing, not as a straight line across it."""
    drawn = lines(chart("Records", [Series("a", (1.0, 1.0, None, 1.0, None))], count))
    assert [len(stretch) for stretch in drawn] == [2, 2]
    assert drawn[1][0] == drawn[1][1]


def test_chart_of_nothing_is_drawn() -> None:
    """All brokers may be down when somebody looks first."""
    assert lines(chart("Records", [Series("a", (None,)), Series("b", ())], count)) == []


def test_name_of_a_line_is_escaped() -> None:
    """Streaming queries have whatever name somebody gave them."""
    assert "<b>x" not in chart("Lag", [Series("<b>x</b>", (1.0,))], count)
