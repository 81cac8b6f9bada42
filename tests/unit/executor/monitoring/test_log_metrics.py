"""The sizes of logs as a broker reports them: the sums of directories, and the largest."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sparklog.driver.controller.load_reports import measured_loads
from sparklog.executor.monitoring.log_metrics import REPORTED_PARTITIONS, LogMetrics
from sparklog.node.metrics import storage
from sparklog.node.metrics.names import MetricName
from sparklog.node.metrics.registry import values_of_samples
from sparklog.protocol.types import TopicPartition


@dataclass(eq=False)
class FakeLog:
    size_bytes: int
    segments: Any = field(default_factory=lambda: SimpleNamespace(all=()))
    log_start_offset: int = 0
    log_end_offset: int = 0


@dataclass(eq=False)
class FakeReplica:
    topic_partition: TopicPartition
    log: FakeLog
    offline: bool = False


@dataclass(frozen=True)
class FakeDirectory:
    path: Path = Path("/logs")
    failure: None = None
    file_system_id: int = 1


@dataclass(eq=False)
class FakeStore:
    """One directory with all logs."""

    directory: FakeDirectory = FakeDirectory()

    @property
    def directories(self) -> tuple[FakeDirectory, ...]:
        return (self.directory,)

    def directory_of(self, log: FakeLog) -> FakeDirectory:
        return self.directory


def test_directory_is_without_the_log_of_a_replica_that_has_left_since() -> None:
    """The controller divides what is not listed among the other replicas, and a large one outweighs them."""
    replicas = [
        FakeReplica(TopicPartition("t", number), FakeLog(10 + number))
        for number in range(REPORTED_PARTITIONS + 2)
    ]
    replicas[50].log.size_bytes = 1_000_000
    metrics = LogMetrics(cast(Any, replicas), cast(Any, FakeStore()))
    asyncio.run(metrics._look())
    assert log_bytes(metrics) == sum(each.log.size_bytes for each in replicas)
    del replicas[50]
    assert log_bytes(metrics) == sum(each.log.size_bytes for each in replicas)


def log_bytes(metrics: LogMetrics) -> int:
    """Return the bytes of all logs, as the controller reads them."""
    values: Mapping[MetricName, float] = values_of_samples(metrics.samples(0)) | {
        storage.DIRECTORY_FREE.of(logDirectory="/logs"): 1_000.0
    }
    disks, _ = measured_loads(values, 0)
    assert disks is not None
    ((volume, use),) = disks.volumes.items()
    assert volume == 1
    return use.log_bytes
