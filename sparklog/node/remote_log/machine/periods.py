"""The days and hours by which a table's files are partitioned.

Numbers count from 1970 in UTC, and agree with Iceberg's transforms `day` and `hour` of the timestamp.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.node.remote_log.machine.manifest import RemoteSegment
from sparklog.protocol.types import TimestampMs

PERIODS_MS: Final[Mapping[str, int]] = {"day": 24 * 60 * 60 * 1000, "hour": 60 * 60 * 1000}
"""By the values of sparklog.table.partition.by that name a period."""


def period_at(timestamp_ms: TimestampMs, period_ms: int) -> int:
    """Return the number of the period.

    >>> period_at(-1, PERIODS_MS["day"])
    -1
    """
    return timestamp_ms // period_ms


def period_of(segment: RemoteSegment, period_ms: int) -> int | None:
    """Return the period of all records in a segment's object; `None` for a mixed one, of several periods."""
    first = period_at(segment.first_timestamp_ms, period_ms)
    return first if first == period_at(segment.max_timestamp_ms, period_ms) else None
