"""The use of disks in brokers' metrics: read seldom, in turn, and left out if anything is missing."""

from sparklog.driver.controller.disk_reports import (
    INTERVAL_MS,
    MEASURED_BEFORE_MS,
    DiskReports,
    measured_disks,
)
from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.node.metrics import server, storage
from sparklog.node.metrics.names import MetricName
from sparklog.protocol.types import TopicPartition

SIZE = {storage.LOG_SIZE.of(topic="t", partition="3"): 70.0, server.BROKER_STATE.of(): 3.0}


def directory(path: str, log_bytes: int, free_bytes: int, volume: int) -> dict[MetricName, float]:
    return {
        storage.DIRECTORY_LOGS.of(logDirectory=path): float(log_bytes),
        storage.DIRECTORY_FREE.of(logDirectory=path): float(free_bytes),
        storage.DIRECTORY_FILE_SYSTEM.of(logDirectory=path): float(volume),
    }


def test_measured_disks_two_directories_of_one_file_system_have_its_free_bytes_once() -> None:
    """It would have room for twice as much."""
    values = SIZE | directory("/a", 70, 500, 1) | directory("/b", 30, 500, 1) | directory("/c", 5, 9, 2)
    volumes = {1: DiskVolume(100, 500), 2: DiskVolume(5, 9)}
    assert measured_disks(values, 8) == MeasuredDisks(volumes, {TopicPartition("t", 3): 70}, 8)


def test_measured_disks_directory_without_one_of_its_figures_are_none() -> None:
    """A broker that has just begun has not looked at its logs, and a broken disk does not answer."""
    for missing in directory("/b", 0, 0, 0):
        values = directory("/a", 70, 500, 1) | directory("/b", 30, 500, 2)
        del values[missing]
        assert measured_disks(values, 0) is None
    assert measured_disks(SIZE, 0) is None


def test_next_brokers_are_read_in_turn_and_each_once_an_interval() -> None:
    """A hundred brokers push every second, and each push has thousands of values."""
    latest = {each: ReceivedMetrics(1_000, directory("/a", each, 500, each)) for each in (1, 2)}
    reports = DiskReports(lambda: latest)

    def read(now_ms: int) -> tuple[int, int] | None:
        found = reports.next(now_ms, 1_500)
        return None if found is None else (found[0], found[1].measured_ms)

    assert read(70_000) == (1, 70_000 - 500 - MEASURED_BEFORE_MS)
    assert read(70_050) == (2, 70_050 - 500 - MEASURED_BEFORE_MS)
    assert read(70_100) is None
    assert read(70_000 + INTERVAL_MS) is None, "nothing has come since"
    latest[2] = ReceivedMetrics(1_400, latest[2].values)
    assert read(70_050 + INTERVAL_MS) == (2, 70_050 + INTERVAL_MS - 100 - MEASURED_BEFORE_MS)
    assert read(70_100 + INTERVAL_MS) is None
