"""Streaming queries by their last progress."""

import json
from typing import Any

from sparklog.driver.ui.machine.queries import query_status
from sparklog.driver.ui.machine.status import QueryStatus, SourceStatus


def progress(**source: Any) -> str:
    return json.dumps(
        {
            "id": "1",
            "runId": "2",
            "name": "flights",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 7,
            "durationMs": {"triggerExecution": 164},
            "sources": [{"description": "sparklog[a]", "inputRowsPerSecond": 5.5, **source}],
            "sink": {"description": "MemorySink"},
        }
    )


def test_query_has_the_lag_of_all_partitions_of_its_source() -> None:
    """Lag is what tells a query that keeps up from one that does not."""
    report = progress(endOffset={"a": {"0": 10, "1": 5}}, latestOffset={"a": {"0": 12, "1": 5, "2": 3}})
    assert query_status(report) == QueryStatus(
        name="flights",
        run_id="2",
        batch_id=7,
        timestamp="2026-01-01T00:00:00.000Z",
        batch_duration_ms=164,
        sources=(SourceStatus(description="a", lag=5, input_rows_per_s=5.5, processed_rows_per_s=None),),
        sink="MemorySink",
    )


def test_source_of_another_kind_has_no_lag() -> None:
    """A rate source counts seconds; a number made of it would be believed."""
    for end, latest in ((3, 9), ("3", "9"), (None, None), ({"a": 3}, {"a": 9}), ({"logOffset": 1}, None)):
        status = query_status(progress(endOffset=end, latestOffset=latest))
        assert status is not None
        assert status.sources[0].lag is None
        assert status.sources[0].description == "sparklog[a]"


def test_what_a_stream_notes_beside_its_topics_is_neither_read_nor_lag() -> None:
    """Our own streams keep in their offsets where the first batch began."""
    end = {"a": {"0": 1}, "start of the first batch/a": {"0": 0}}
    status = query_status(progress(endOffset=end, latestOffset={**end, "a": {"0": 3}}))
    assert status is not None
    assert (status.sources[0].description, status.sources[0].lag) == ("a", 2)


def test_offsets_that_are_text_are_read_as_what_they_say() -> None:
    """Spark gives a source's offsets as JSON where it can, else as the text of it."""
    status = query_status(progress(endOffset='{"a":{"0":1}}', latestOffset='{"a":{"0":4}}'))
    assert status is not None
    assert status.sources[0].lag == 3


def test_progress_of_another_shape_is_no_query() -> None:
    """Another Spark writes something else; the tab goes on without it."""
    assert query_status("{}") is None
    assert query_status("no JSON") is None
    assert query_status("[1]") is None
