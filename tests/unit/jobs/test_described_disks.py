"""Disks by DescribeLogDirs, which does not say which directories lie in one file system."""

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.jobs.balance import described_disks
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.log_dirs import BrokerDirectories, OnlineDirectory

TOTAL = 100_000
SIZES = {TopicPartition("t", 0): 70}


def broker(*directories: tuple[int | None, int | None, int]) -> BrokerDirectories:
    """Return a broker's directories, each with the size and free bytes of its file system and its logs."""
    online = [OnlineDirectory(*each) for each in directories]
    return BrokerDirectories(None, None, 0, SIZES, online)


def test_described_disks_of_one_host_with_the_same_size_and_free_space_are_one_file_system() -> None:
    """Brokers of one host would seem to gain by passing replicas to each other."""
    hosts = {0: "a", 1: "a", 2: "b"}
    described = dict.fromkeys(hosts, broker((TOTAL, 40_000, 9_000)))
    described[1] = broker((TOTAL, 40_050, 8_000))
    assert described_disks(described, hosts) == {
        0: MeasuredDisks({0: DiskVolume(9_000, 40_000)}, SIZES, 0),
        1: MeasuredDisks({0: DiskVolume(8_000, 40_000)}, SIZES, 0),
        2: MeasuredDisks({1: DiskVolume(9_000, 40_000)}, SIZES, 0),
    }


def test_described_disks_whose_logs_do_not_fit_into_one_are_two() -> None:
    """Disks of one model in one host are as large, and equally full when they are balanced."""
    found = described_disks({0: broker((TOTAL, 40_000, 50_000), (TOTAL, 40_000, 50_000))}, {0: "a"})
    assert found[0].volumes == {0: DiskVolume(50_000, 40_000), 1: DiskVolume(50_000, 40_000)}


def test_described_disks_two_directories_of_one_file_system_have_its_free_bytes_once() -> None:
    """It would have room for twice as much."""
    found = described_disks({0: broker((TOTAL, 40_000, 20_000), (TOTAL, 40_000, 5_000))}, {0: "a"})
    assert found[0].volumes == {0: DiskVolume(25_000, 40_000)}


def test_described_disks_of_a_broker_that_does_not_name_sizes_are_none() -> None:
    """It is of an older version, or may not be asked, or has no directory left."""
    described = {0: broker((TOTAL, 40_000, 1), (None, None, 1)), 1: broker()}
    assert described_disks(described, {0: "a", 1: "a"}) == {}
