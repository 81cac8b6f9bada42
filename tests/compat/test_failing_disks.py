"""Disks fail under a running cluster: leaders move, nothing acknowledged is lost, what and where is said.

The faults are the system's own: a limit on the size of files (EFBIG), a file system that is full (ENOSPC),
bits that flip between two lives of a broker.
"""

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest

from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic, produce

RECORDS = 2_000
RECORD_BYTES = 1_000
PARTITIONS = 4
TOPIC = "t"
CONFIG = {"min.insync.replicas": "2"}


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of its own for a test that loses a disk."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        create_topic(running.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        yield running


@pytest.fixture(scope="module")
def cluster_of_two() -> Iterator[LocalCluster]:
    """A cluster for the two tests that kill all its brokers: only the last one takes a directory away."""
    with LocalCluster(brokers=3, config=CONFIG) as running:
        yield running


class Load:
    """Numbered records with acks=all, idempotent, over all partitions."""

    def __init__(self, cluster: LocalCluster, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._topic = topic
        self.acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []

    def run(self, fault: Callable[[], None] | None = None, *, records: int = RECORDS) -> None:
        """Produce; after a third of the acknowledgements let `fault` happen, if there is one."""
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                # With more, librdkafka begins another epoch when what it sent ahead is refused, and then
                # sends again what other partitions may have already (its issue 4953), to Kafka's brokers too.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 1,
                "batch.num.messages": 10,
                "queue.buffering.max.messages": 200,
            }
        )
        for number in range(records):
            while True:
                try:
                    producer.produce(
                        self._topic,
                        b"%d" % number + b" " * RECORD_BYTES,
                        partition=number % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
            if fault is not None and sum(map(len, self.acknowledged)) > records // 3:
                fault()
                fault = None
        assert producer.flush(TIMEOUT_S) == 0
        assert not self.failed, self.failed[:3]
        assert fault is None, "everything was acknowledged before it could happen"

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition() or 0].append(int(message.value() or b""))
        else:
            self.failed.append(str(error))

    def check(self) -> None:
        """Read everything: each acknowledged record once, in order."""
        for partition, expected in enumerate(self.acknowledged):
            beginning = [TopicPartition(self._topic, partition, OFFSET_BEGINNING)]
            messages = consume(self._cluster.bootstrap_servers, beginning, len(expected))
            assert [int(message.value() or b"") for message in messages] == expected


def limit_file_size(cluster: LocalCluster, broker_id: BrokerId, size_bytes: int) -> None:
    """Let no file of a broker grow beyond a size: its logs are larger, what it writes to stderr is not."""
    resource.prlimit(
        cluster.process_id(broker_id), resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY)
    )


def log_of(cluster: LocalCluster, broker_id: BrokerId) -> str:
    """Return all that a broker logged."""
    return cluster.log_path(broker_id).read_text(errors="replace")


def test_broker_whose_only_disk_is_full_leaves_and_nothing_is_lost(cluster: LocalCluster) -> None:
    """Its leaders move as if it had died; it says which directory failed and why, and can come back."""
    victim = cluster.leader(TOPIC)
    assert victim is not None
    load = Load(cluster)
    load.run(lambda: limit_file_size(cluster, victim, 100_000))
    assert cluster.wait_for_exit(victim) != 0
    assert all(cluster.leader(TOPIC, number) not in (victim, None) for number in range(PARTITIONS))
    logged = log_of(cluster, victim)
    assert f"Log directory {cluster.broker_directory(victim)} is offline" in logged
    assert "File too large" in logged
    assert not (cluster.broker_directory(victim) / ".kafka_cleanshutdown").exists()
    load.check()
    cluster.restart(victim)
    wait_for(
        lambda: all(victim in cluster.in_sync(TOPIC, number) for number in range(PARTITIONS)),
        "the broker with room on its disk back in every ISR",
    )


@pytest.fixture
def small_disk() -> Iterator[Callable[[Path], None]]:
    """Mount file systems of 2 MiB; skips where that is not allowed."""
    mounted: list[Path] = []

    def make(path: Path) -> None:
        path.mkdir(parents=True)
        mount = shutil.which("mount") or "false"
        command = [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0:
            pytest.skip("file systems cannot be mounted here")
        mounted.append(path)

    yield make
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.long
def test_broker_with_another_disk_goes_on_when_one_is_full(small_disk: Callable[[Path], None]) -> None:
    """Only what lies on the full disk gets other leaders; DescribeLogDirs names the directory."""
    cluster = LocalCluster(brokers=3, config=CONFIG, directories_each=2)
    small_disk(cluster.broker_directories(1)[1])
    with cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=PARTITIONS)
        load = Load(cluster)
        # 4 partitions over 2 directories: more than a megabyte into each log.
        load.run(records=6_000)
        wait_for(lambda: "is offline" in log_of(cluster, 1), "the full disk noticed")
        assert "No space left on device" in log_of(cluster, 1)
        assert cluster.is_running(1)
        assert not cluster.image.brokers[1].fenced
        wait_for(lambda: len(cluster.image.brokers[1].log_directories) == 1, "the directory taken off")
        in_sync = [number for number in range(PARTITIONS) if 1 in cluster.in_sync(TOPIC, number)]
        assert len(in_sync) == PARTITIONS // 2
        assert all(cluster.leader(TOPIC, number) is not None for number in range(PARTITIONS))
        # Three replicas said where they lie, one left the ISR and was then said to be lost. Nobody took it in
        # again for what it had, to have it taken out again.
        partitions = cluster.image.topics.by_name[TOPIC].partitions.values()
        assert max(partition.partition_epoch for partition in partitions) <= 5
        with BlockingChannel(*cluster.address(1), "test") as channel:
            results = channel.request(DescribeLogDirsRequest(topics=None)).results
        assert {result.log_dir: result.error_code for result in results} == {
            str(cluster.broker_directories(1)[0]): ErrorCode.none,
            str(cluster.broker_directories(1)[1]): ErrorCode.kafka_storage_error,
        }
        load.check()


def kill_all(cluster: LocalCluster, topic: str) -> list[BrokerId]:
    """Kill a broker, and when the ISRs are without it both others at once; return the order."""
    leader = cluster.leader(topic)
    assert leader is not None
    first, second = (broker_id for broker_id in cluster.broker_ids if broker_id != leader)
    cluster.kill(first)
    wait_for(
        lambda: all(first not in cluster.in_sync(topic, number) for number in range(PARTITIONS)),
        f"the ISRs without broker {first}",
    )
    # Nobody is left to note it: a majority of the voters is gone.
    cluster.kill(second)
    cluster.kill(leader)
    return [first, second, leader]


@pytest.mark.long
def test_replica_that_comes_back_damaged_leads_nothing_and_is_mended_by_the_others(
    cluster_of_two: LocalCluster,
) -> None:
    """One bit of the last batch: the log ends before it, and the controller hears of that in time."""
    cluster, topic = cluster_of_two, "damaged"
    create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    load = Load(cluster, topic)
    load.run(records=200)
    first, second, last = kill_all(cluster, topic)
    path = next((cluster.broker_directory(second) / f"{topic}-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[-10] ^= 4
    path.write_bytes(content)
    for broker_id in (first, second):
        cluster.launch(broker_id)
    wait_for(
        lambda: all(cluster.leader(topic, number) == second for number in range(1, PARTITIONS)),
        "the sound replicas that lead",
    )
    assert cluster.leader(topic, 0) is None
    assert "has lost records of this replica" in log_of(cluster, second)
    assert list(path.parent.glob("*.cut-1"))
    cluster.launch(last)
    wait_for(lambda: cluster.leader(topic, 0) == last, "the replica that has everything")
    wait_for(lambda: second in cluster.in_sync(topic, 0), "the mended replica back in the ISR")
    load.check()
    cluster.wait_until_unfenced(*cluster.broker_ids)
    produce(cluster.bootstrap_servers, topic, [{"value": b"after", "partition": 0}])


def test_killed_eligible_replica_leads_without_the_disk_of_the_last_leader(
    cluster_of_two: LocalCluster,
) -> None:
    """A killed process loses nothing that it wrote: the machine went on. So it still counts (KIP-966)."""
    cluster, topic = cluster_of_two, "last-disk-gone"
    create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    load = Load(cluster, topic)
    load.run(records=200)
    first, second, last = kill_all(cluster, topic)
    shutil.rmtree(cluster.broker_directory(last))
    for broker_id in (first, second):
        cluster.launch(broker_id)
    wait_for(
        lambda: all(cluster.leader(topic, number) == second for number in range(PARTITIONS)),
        "the eligible replica that leads",
    )
    load.check()
