"""Costs of copies to the object store: `python -m benchmarks.tiering [--scale N] [--seconds N]`.

A cluster with a directory as its store has topics of the same records of 1 KB; one is tiered, one is on
brokers' disks alone. Measured are the brokers' processor time for a gigabyte that is written, until it is
copied, too; how long acknowledgements of another topic take meanwhile (`acknowledgements`); and how long a
broker whose disk is replaced by an empty one is missing in ISRs. `benchmarks.remote_reads` measures reads.
"""

import argparse
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from benchmarks.acknowledgements import WARM_UP_S, acknowledged_ms, percentiles
from benchmarks.clusters import ClusterUnderTest, sparklog_cluster
from benchmarks.listed_offsets import LATEST, LATEST_TIERED, listed_offsets

ROUNDS: Final = 3
RECORDS: Final = 100_000
"""Of each topic in each round, for a scale of 1."""
VALUE_BYTES: Final = 1_000
PARTITIONS: Final = 3
SEGMENT_BYTES: Final = 16 * 1024 * 1024
LOCAL, TIERED, WRITTEN_TO = "local", "tiered", "written-to"
NOT_TIERED: Final = {"remote.storage.enable": "false"}
LOCAL_FEW: Final = {"local.retention.bytes": str(SEGMENT_BYTES)}
SETTINGS: Final = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "sparklog.remote.max.lag.ms": "5000",
}
BESIDE_PER_S: Final = 5_000
"""The records a second that are written, and copied or not, while acknowledgements are measured."""
CPU_BAR: Final = 1.5
LATENCY_BAR: Final = 1.5
BACK_BAR_S: Final = 10.0
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.1
LOOK_S: Final = 1.0
"""Between two questions for what is copied, which cost the brokers, too: of both topics there are as many."""


class Writer:
    """Writes records of which half of the value can be compressed, to all partitions in turn."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self._noise = np.random.default_rng(7).bytes(1 << 20)
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 262_144})
        self._written = 0

    def write(self, topic: str, records: int) -> None:
        """Return when all are acknowledged."""
        half = VALUE_BYTES // 2
        for _ in range(records):
            at = self._written * 7_919 % (len(self._noise) - half)
            value = self._noise[at : at + half] + b"%0*d" % (half, self._written)
            while True:
                try:
                    self._producer.produce(topic, value, partition=self._written % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.05)
            self._written += 1
        if self._producer.flush(TIMEOUT_S):
            raise RuntimeError(f"{topic}: records were not acknowledged in {TIMEOUT_S:.0f} s")


def _wait_until_copied(cluster: ClusterUnderTest) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    ends = listed_offsets(cluster, TIERED, LATEST)
    while any(
        tiered + 1 < end
        for tiered, end in zip(listed_offsets(cluster, TIERED, LATEST_TIERED), ends, strict=True)
    ):
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not copied up to {ends} in {TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)


def _cpu_s_per_gb(cluster: ClusterUnderTest, writer: Writer, records: int) -> tuple[float, float]:
    """Return what the local topic and the tiered one cost, over the same time."""
    before_s, began_s = cluster.brokers_cpu_s(), time.monotonic()
    writer.write(TIERED, records)
    _wait_until_copied(cluster)
    tiered_s, took_s = cluster.brokers_cpu_s() - before_s, time.monotonic() - began_s
    before_s, began_s = cluster.brokers_cpu_s(), time.monotonic()
    writer.write(LOCAL, records)
    while time.monotonic() < began_s + took_s:
        listed_offsets(cluster, TIERED, LATEST_TIERED)
        time.sleep(LOOK_S)
    local_s = cluster.brokers_cpu_s() - before_s
    gigabytes = records * VALUE_BYTES / 1e9
    return local_s / gigabytes, tiered_s / gigabytes


@contextmanager
def _partial_file(cluster: ClusterUnderTest, topic: str) -> Iterator[None]:
    """Write to a topic all the while, at the same rate whichever it is."""
    ends = threading.Event()

    def write() -> None:
        writer, part, next_s = Writer(cluster), BESIDE_PER_S // 10, time.monotonic()
        while not ends.is_set():
            writer.write(topic, part)
            next_s = max(next_s + 0.1, time.monotonic())
            ends.wait(next_s - time.monotonic())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def _disk(process: psutil.Process) -> Path:
    """Return the directory in which a broker has its logs, by what it has open."""
    opened = [Path(each.path) for each in process.open_files()]
    (disk,) = {path.parents[1] for path in opened if re.fullmatch(f"{TIERED}-\\d+", path.parent.name)}
    return disk


def _back_s(cluster: ClusterUnderTest, broker: int) -> float:
    """Take a broker's disk away, kill it, and return after how many seconds it is in every ISR again."""
    process = cluster.brokers()[broker]
    disk = _disk(process)
    taken = disk.rename(disk.with_name("taken"))
    process.kill()
    began_s = time.monotonic()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    was_missing = False
    while True:
        topics = admin.list_topics(timeout=10).topics.values()
        missing = any(
            broker in partition.replicas and broker not in partition.isrs
            for topic in topics
            for partition in topic.partitions.values()
        )
        was_missing = was_missing or missing
        took_s = time.monotonic() - began_s
        if was_missing and not missing:
            shutil.rmtree(taken)
            return took_s
        if took_s > TIMEOUT_S:
            raise RuntimeError(f"broker {broker} is not in every ISR after {TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def _p99_ms(took_ms: list[float]) -> float:
    return statistics.quantiles(took_ms, n=100)[98]


def main() -> int:
    """Measure and print the tables; fail below a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help=f"how many times {RECORDS:,} records a round")
    parser.add_argument("--seconds", type=float, default=8, help="of acknowledgements a line (default: 8)")
    options = parser.parse_args()
    records = int(RECORDS * options.scale)
    with tempfile.TemporaryDirectory(prefix="benchmark-tiering-") as directory:
        settings = {**SETTINGS, "sparklog.remote.uri": Path(directory).as_uri()}
        with sparklog_cluster(settings=settings) as cluster:
            return _measure(cluster, records, options.seconds)


def _measure(cluster: ClusterUnderTest, records: int, seconds: float) -> int:
    cluster.create_topic(LOCAL, PARTITIONS, NOT_TIERED)
    cluster.create_topic(TIERED, PARTITIONS, LOCAL_FEW)
    cluster.create_topic(WRITTEN_TO, 1, NOT_TIERED)
    writer = Writer(cluster)
    for topic in (LOCAL, TIERED):
        writer.write(topic, records // 10)
    _wait_until_copied(cluster)  # the first copy loads what copies need
    print("| brokers' CPU-s a GB written, not copied | copied | ratio |\n|---:|---:|---:|")
    ratios = []
    for _ in range(ROUNDS):
        local_s, tiered_s = _cpu_s_per_gb(cluster, writer, records)
        ratios.append(tiered_s / local_s)
        print(f"| {local_s:.1f} | {tiered_s:.1f} | {ratios[-1]:.2f} |", flush=True)
    cpu = statistics.median(ratios)
    acknowledged_ms(cluster.bootstrap_servers, WRITTEN_TO, WARM_UP_S)
    print("| acknowledgements beside | p50, ms | p99, ms | maximum, ms |\n|---|---:|---:|---:|")
    p99s_ms: dict[str, list[float]] = {LOCAL: [], TIERED: []}
    for topic in (LOCAL, TIERED, TIERED, LOCAL):
        with _partial_file(cluster, topic):
            took_ms = acknowledged_ms(cluster.bootstrap_servers, WRITTEN_TO, seconds)
        p99s_ms[topic].append(_p99_ms(took_ms))
        print(f"| writes to the {topic} topic | {percentiles(took_ms)} |", flush=True)
    latency = statistics.mean(p99s_ms[TIERED]) / statistics.mean(p99s_ms[LOCAL])
    cluster.delete_topic(LOCAL)
    _wait_until_copied(cluster)
    back_s = _back_s(cluster, broker=0)
    print(f"CPU with copies / without: {cpu:.2f}, asked for is at most {CPU_BAR}")
    print(f"p99 beside copies / beside none: {latency:.2f}, asked for is at most {LATENCY_BAR}")
    print(f"a broker with an empty disk in every ISR: {back_s:.1f} s, asked for is at most {BACK_BAR_S:.0f}")
    return 0 if cpu <= CPU_BAR and latency <= LATENCY_BAR and back_s <= BACK_BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
