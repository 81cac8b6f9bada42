"""A time leads to the first record that is not earlier, in offset order, whatever the order of times."""

from pathlib import Path

from sparklog.node.remote_log.segments.time_lookup import first_at_or_after
from tests.unit.sparklog.node.remote_log.segments.rows import END, Record, footer_of, group_bytes, write


def test_first_record_that_is_not_earlier_is_found_in_the_range(tmp_path: Path) -> None:
    """Consumers begin there; records with later times may lie before earlier ones."""
    path = tmp_path / "segment"
    write(path, [Record(3, -10), Record(5, 30), Record(8, 20), Record(9, 40)])
    footer = footer_of(path)
    data = group_bytes(path, footer, 0)

    def look_up(timestamp_ms: int, start: int = 0, end: int = END) -> tuple[int, int] | None:
        return first_at_or_after(data, footer, 0, timestamp_ms, start_offset=start, end_offset=end)

    assert look_up(-20) == (3, -10)
    assert look_up(15) == (5, 30)
    assert look_up(15, start=6) == (8, 20)
    assert look_up(31, end=9) is None
    assert look_up(41) is None
