"""Disks and traffic in brokers' metrics: read seldom, in turn, and left out if anything is missing."""

from sparklog.driver.controller.load_reports import (
    INTERVAL_MS,
    MEASURED_BEFORE_MS,
    LoadReports,
    measured_loads,
)
from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.driver.controller.machine.balancing.leader_traffic import MeasuredTraffic, Rates
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
    disks, traffic = measured_loads(values, 50_000)
    assert disks == MeasuredDisks(volumes, {TopicPartition("t", 3): 70}, 50_000 - MEASURED_BEFORE_MS)
    assert traffic is None


def test_measured_disks_directory_without_one_of_its_figures_are_none() -> None:
    """A broker that has just begun has not looked at its logs, and a broken disk does not answer."""
    for missing in directory("/b", 0, 0, 0):
        values = directory("/a", 70, 500, 1) | directory("/b", 30, 500, 2)
        del values[missing]
        assert measured_loads(values, 0)[0] is None
    assert measured_loads(SIZE, 0)[0] is None


def test_measured_traffic_is_that_of_all_leaders_and_of_the_busiest_ones() -> None:
    """The rest stays with the broker, whatever leaderships it gives away."""
    values = SIZE | {
        server.LEADER_BYTES_IN.of(): 90.0,
        server.LEADER_BYTES_OUT.of(): 20.0,
        server.LEADER_BYTES_IN.of(topic="t", partition="3"): 80.6,
        server.LEADER_BYTES_OUT.of(topic="t", partition="3"): 0.0,
    }
    partitions = {TopicPartition("t", 3): Rates(80, 0)}
    assert measured_loads(values, 50_000)[1] == MeasuredTraffic(Rates(90, 20), partitions, 50_000)


def test_measured_traffic_of_a_broker_that_has_just_begun_is_none() -> None:
    """It would pass for idle, and get leaderships."""
    assert measured_loads(SIZE, 0)[1] is None


def test_next_brokers_are_read_in_turn_and_each_once_an_interval() -> None:
    """A hundred brokers push every second, and each push has thousands of values."""
    latest = {each: ReceivedMetrics(1_000, directory("/a", each, 500, each)) for each in (1, 2)}
    reports = LoadReports(lambda: latest)

    def read(now_ms: int) -> tuple[int, int] | None:
        found = reports.next(now_ms, 1_500)
        if found is None:
            return None
        assert found.disks is not None
        return found.broker_id, found.disks.measured_ms

    assert read(70_000) == (1, 70_000 - 500 - MEASURED_BEFORE_MS)
    assert read(70_050) == (2, 70_050 - 500 - MEASURED_BEFORE_MS)
    assert read(70_100) is None
    assert read(70_000 + INTERVAL_MS) is None, "nothing has come since"
    latest[2] = ReceivedMetrics(1_400, latest[2].values)
    assert read(70_050 + INTERVAL_MS) == (2, 70_050 + INTERVAL_MS - 100 - MEASURED_BEFORE_MS)
    assert read(70_100 + INTERVAL_MS) is None
