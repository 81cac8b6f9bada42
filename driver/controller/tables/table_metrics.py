"""The states of tables as samples of metrics."""

from collections.abc import Iterable, Iterator

from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.node.metrics import tables
from sparklog.node.metrics.names import Kind
from sparklog.node.metrics.registry import Sample


def table_samples(statuses: Iterable[TableStatus], now_ms: int) -> Iterator[Sample]:
    for status in statuses:
        topic = status.topic
        yield Sample(tables.COMMITS.of(topic=topic), Kind.METER, status.commits)
        yield Sample(tables.FAILURES.of(topic=topic), Kind.METER, status.failures)
        yield Sample(tables.LAG_RECORDS.of(topic=topic), Kind.GAUGE, status.lag)
        yield Sample(tables.FILES.of(topic=topic), Kind.GAUGE, status.files)
        if status.level_ms is not None:
            yield Sample(tables.LAG_TIME.of(topic=topic), Kind.GAUGE, now_ms - status.level_ms)
