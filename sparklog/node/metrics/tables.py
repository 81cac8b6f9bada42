"""Metrics of topics that are Iceberg tables, on the controller. None is Kafka's."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric

_TOPIC: Final = ("topic",)


def _table(name: str, kind: Kind, meaning: str) -> Metric:
    return Metric("sparklog", "TopicTables", name, kind, meaning, _TOPIC)


COMMITS: Final = _table("CommitsPerSec", Kind.METER, "Snapshots that were committed to the table.")
FAILURES: Final = _table(
    "FailuresPerSec",
    Kind.METER,
    "Steps of keeping the table that failed, or were refused; they are tried again.",
)
LAG_RECORDS: Final = _table(
    "CommitLagRecords", Kind.GAUGE, "Offsets in the store that are not in the table yet."
)
LAG_TIME: Final = _table(
    "CommitLagMs", Kind.GAUGE, "How long ago the table was last known to have all that the store had."
)
FILES: Final = _table("Files", Kind.GAUGE, "Files of the table's newest snapshot.")
