"""A streaming query's last progress, parsed for the tab.

The text is the JSON of Spark's StreamingQueryProgress. A source's lag is the difference between its latest
offset and the end of the batch, partition by partition. Offsets have the form of Spark's Kafka connector,
{"topic": {"0": 12}}, as ours do; a source with another form has no lag.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from sparklog.driver.ui.machine.status import QueryStatus, SourceStatus

_BETWEEN, _END, _RUNS = "\x01", "\x02", "\x03"

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def query_status(progress: str, failure: str | None = None) -> QueryStatus | None:
    """Return the query of a progress; None if the text is not one."""
    try:
        report = json.loads(progress)
        return QueryStatus(
            name=report.get("name"),
            run_id=str(report["runId"]),
            batch_id=int(report["batchId"]),
            timestamp=str(report["timestamp"]),
            batch_duration_ms=report.get("durationMs", {}).get("triggerExecution"),
            sources=tuple(_source(source) for source in report.get("sources", ())),
            sink=str(report.get("sink", {}).get("description", "")),
            failure=failure,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def query_statuses(text: str) -> tuple[QueryStatus, ...]:
    """Return the queries of a text of the Java listener: the end and the last progress of each.

    >>> query_statuses("\\x03\\x01no progress\\x02")
    ()
    """
    entries = (entry.split(_BETWEEN, 1) for entry in text.split(_END)[:-1])
    found = (query_status(progress, None if state == _RUNS else state) for state, progress in entries)
    return tuple(query for query in found if query is not None)


def _source(source: Mapping[str, Any]) -> SourceStatus:
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return SourceStatus(
        # Spark describes every Python source by the same Java class; offsets by topic identify ours.
        description=", ".join(end) if end else str(source.get("description", "")),
        lag=None if end is None or latest is None else _lag(end, latest),
        input_rows_per_s=_number(source.get("inputRowsPerSecond")),
        processed_rows_per_s=_number(source.get("processedRowsPerSecond")),
    )


def _offsets(value: Any) -> Mapping[str, Mapping[str, int]] | None:
    """Return offsets by topic and partition; None for offsets of another form."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return None
    if not all(isinstance(offset, int) for each in value.values() for offset in each.values()):
        return None
    # Our streams note other values in the offsets, under a key that cannot be a topic's name.
    return {topic: offsets for topic, offsets in value.items() if _TOPIC_NAME.fullmatch(topic)}


def _lag(end: Mapping[str, Mapping[str, int]], latest: Mapping[str, Mapping[str, int]]) -> int:
    """Return the number of records that were available and not read by the batch.

    >>> _lag({"flights": {"0": 5, "1": 7}}, {"flights": {"0": 9, "1": 7}})
    4
    """
    return sum(
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
