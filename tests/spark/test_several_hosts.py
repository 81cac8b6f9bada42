"""Brokers whose executors are on several hosts, each with a disk of its own, go where their directories are.

The hosts are addresses of loopback, the disks one path that is another directory in each Worker's mounts.
"""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

import sparklog
from tests.cluster import wait_for
from tests.spark.applications import run_application
from tests.spark.sessions import spark_session
from tests.spark.standalone import spark_properties, standalone_cluster
from tests.spark.test_application import consume, listening_processes, produce

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
RECORDS = 100


APPLICATION = """
import sys
from pathlib import Path
from tests.spark.test_several_hosts import start_over_moved_directories
start_over_moved_directories(sys.argv[1], Path(sys.argv[2]))
"""


SCALED_APPLICATION = """
import sys
from pathlib import Path
from tests.spark.test_several_hosts import scale_over_directories
scale_over_directories(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster of three hosts; skips where mounts of one's own are not allowed."""
    with cluster_of(tmp_path, HOSTS) as address:
        yield address


@contextlib.contextmanager
def cluster_of(tmp_path: Path, hosts: Sequence[str]) -> Iterator[str]:
    unshare = shutil.which("unshare") or "false"
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "--bind", str(disk), str(disk)]
    if subprocess.run([unshare, "--mount", *mount], check=False, capture_output=True).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    with standalone_cluster(tmp_path, hosts, disk) as address:
        yield address


def brokers_by_disk(directory: Path) -> list[list[str]]:
    """Return the names of the brokers' directories that lie on each disk."""
    return [
        sorted(path.name for path in (directory / f"disk-{number}").glob("broker-*"))
        for number in range(len(list(directory.glob("disk-*"))))
    ]


def executors(application_id: str) -> list[psutil.Process]:
    """Return the processes of an application's executors, in the order of their hosts."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        for host in HOSTS:
            if application_id in command and host in command:
                found[host] = process
    return [found[host] for host in HOSTS]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_brokers_on_several_hosts_go_where_their_directories_are(master: str, tmp_path: Path) -> None:
    """At a start over directories, and when two hosts lose their executors at once: no disk begins empty."""
    # Properties of a process's first session are those of its JVM, and so of all after it.
    run_application(APPLICATION, tmp_path, master, str(tmp_path))


def start_over_moved_directories(master: str, directory: Path) -> None:
    """Start a cluster, move what is on the disks, start it over that, and have two executors killed."""
    properties = spark_properties() | {"spark.executor.cores": "1"}
    names = {key.replace(".", "_"): value for key, value in properties.items()}
    with spark_session(master, **names) as session:
        with sparklog.start(session, log_directories=directory / "disk") as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            admin.create_topics([NewTopic("kept", 1, 3)])["kept"].result(10)
            produce(cluster.bootstrap_servers, "kept", RECORDS)
        assert sorted(brokers_by_disk(directory)) == [["broker-0"], ["broker-1"], ["broker-2"]]
        # Where racks go when there is nothing yet may be the same every time.
        moved = move_disks(directory)
        expected = [str(number).encode() for number in range(RECORDS)]
        with sparklog.start(session, log_directories=directory / "disk") as cluster:
            assert consume(cluster.bootstrap_servers, "kept", RECORDS) == expected
            assert brokers_by_disk(directory) == moved
            lose_two_executors(cluster.bootstrap_servers, session.sparkContext.applicationId)
            assert consume(cluster.bootstrap_servers, "kept", RECORDS) == expected
        assert brokers_by_disk(directory) == moved


def move_disks(directory: Path) -> list[list[str]]:
    """Move what lies on each disk to the next one; return `brokers_by_disk` from now on."""
    before = brokers_by_disk(directory)
    for number, names in enumerate(before):
        for name in names:
            path = directory / f"disk-{number}" / name
            path.rename(directory / f"disk-{(number + 1) % len(HOSTS)}" / f"moved-{name}")
    for path in directory.glob("disk-*/moved-*"):
        path.rename(path.with_name(path.name.removeprefix("moved-")))
    return [before[number - 1] for number in range(len(HOSTS))]


def lose_two_executors(bootstrap_servers: str, application_id: str) -> None:
    """Kill two executors at once, and wait for their brokers to be back and in sync."""

    def described() -> ClusterMetadata:
        # By a client of its own: librdkafka has a request wait for the broker that was to answer it.
        return AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics("kept", timeout=10)

    def processes(metadata: ClusterMetadata) -> set[int]:
        return listening_processes({broker.port for broker in metadata.brokers.values()})

    def are_back() -> bool:
        now = described()
        return len(processes(now) - before) == 2 and len(now.topics["kept"].partitions[0].isrs) == 3

    before = processes(described())
    for executor in executors(application_id)[1:]:
        executor.kill()
    wait_for(are_back, "the brokers of the killed executors are in sync again", timeout_s=60)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_kept_cluster_on_several_hosts_grows_and_shrinks(tmp_path: Path) -> None:
    """Directories were looked for in the slots of running brokers: no rack came, and shrinking lost some."""
    with cluster_of(tmp_path, (*HOSTS, "127.0.0.5")) as master:
        run_application(SCALED_APPLICATION, tmp_path, master, str(tmp_path))


def scale_over_directories(master: str, directory: Path) -> None:
    """Add a rack, start with two brokers a rack, and go back to one; brokers that stay keep their disks."""
    properties = spark_properties() | {"spark.executor.cores": "1"}
    names = {key.replace(".", "_"): value for key, value in properties.items()}

    def disks() -> dict[str, int]:
        return {name: number for number, brokers in enumerate(brokers_by_disk(directory)) for name in brokers}

    with spark_session(master, **names) as session:
        with sparklog.start(session, racks=1, log_directories=directory / "disk") as cluster:
            cluster.scale(racks=2, timeout_s=60)
            before = disks()
            assert sorted(before) == ["broker-0", "broker-1"]
        with sparklog.start(
            session, racks=2, brokers_per_rack=2, log_directories=directory / "disk"
        ) as cluster:
            assert disks().items() >= before.items()
            cluster.scale(brokers_per_rack=1, timeout_s=90)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
            wait_for(lambda: sorted(admin.list_topics(timeout=10).brokers) == [0, 1], "two brokers are left")
            assert disks().items() >= before.items()
        assert len(disks()) == 4
