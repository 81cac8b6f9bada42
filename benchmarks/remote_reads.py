"""Costs of reads of the object store: `python -m benchmarks.remote_reads [--scale N] [--seconds N]`.

A cluster with a directory as its store has two topics of the same records of 1 KB: one is on the brokers'
disks, of the other one only the end. A consumer (librdkafka) reads each in turn, from the first record on.
Meanwhile another client writes to a third topic, or fetches a few records from a disk, and notices what reads
cost it. The brokers' processor time has that of their decoder processes.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic

from benchmarks.acknowledgements import WARM_UP_S, acknowledged_ms, percentiles
from benchmarks.clients import Rate, consume
from benchmarks.clusters import BROKERS, ClusterUnderTest, sparklog_cluster
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from sparklog.user.client.offsets import local_log_start_offsets

ROUNDS: Final = 3
RECORDS: Final = 300_000
"""Of each topic, for a scale of 1."""
VALUE_BYTES: Final = 1_000
BAR: Final = 0.5
"""The bar of the rate of remote reads, as a share of that of local ones."""
LATENCY_BAR: Final = 1.5
_FETCH_PACE_S: Final = 0.005
SEGMENT_BYTES: Final = 16 * 1024 * 1024
SETTINGS: Final = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "1000",
    "sparklog.remote.max.lag.ms": "5000",
    "sparklog.remote.cache.bytes": str(64 * 1024 * 1024),  # less than a topic: each read is of the store
}
LOCAL, REMOTE, WRITTEN_TO = "local", "remote", "written-to"
CUT_WITHIN_S: Final = 120.0


class Figures(NamedTuple):
    local: Rate
    remote: Rate

    @property
    def ratio(self) -> float:
        return self.remote.records_per_s / self.local.records_per_s


def _fill(cluster: ClusterUnderTest, topic: str, records: int) -> None:
    """Write records of which half of the value can be compressed."""
    noise = np.random.default_rng(7).bytes(1 << 20)
    half = VALUE_BYTES // 2
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 262_144})
    for number in range(records):
        at = number * 7_919 % (len(noise) - half)
        value = noise[at : at + half] + b"%0*d" % (half, number)
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(120) == 0


def wait_until_cut(cluster: ClusterUnderTest, partition: TopicPartition, at_least: int) -> None:
    """Return when a partition's records below `at_least` are not on its leader's disk any more."""
    servers = parse_bootstrap_servers(cluster.bootstrap_servers)
    deadline_s = time.monotonic() + CUT_WITHIN_S
    with ClusterClient(ClientConfig(bootstrap_servers=servers)) as client:
        while True:
            leader = client.leader(partition).broker_id
            found = local_log_start_offsets(client, {partition: leader}).get(partition, 0)
            if found >= at_least:
                return
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the local log still begins at {found} after {CUT_WITHIN_S:.0f} s")
            client.forget_leader(partition)
            time.sleep(0.2)


def read(cluster: ClusterUnderTest, topic: str, records: int) -> Rate:
    return consume(cluster, topic, partitions=1, records=records, record_bytes=VALUE_BYTES, passes=1)


def fetched_ms(cluster: ClusterUnderTest, read_topic: str, seconds: float) -> list[float]:
    """Fetch a batch from a disk, again and again; return what each took, in milliseconds.

    From the broker of which `read_topic` is read.
    """
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10)
    leader = metadata.brokers[metadata.topics[read_topic].partitions[0].leader]
    led = [
        number
        for number, partition in metadata.topics[WRITTEN_TO].partitions.items()
        if partition.leader == leader.id
    ]
    asked = FetchPartition(partition=led[0], fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        topics=(FetchTopic(topic=WRITTEN_TO, partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    took_ms = []
    ends_s = time.monotonic() + seconds
    with BlockingChannel(leader.host, leader.port, "benchmark", timeout_s=10) as channel:
        while time.monotonic() < ends_s:
            began_s = time.monotonic()
            channel.request(request)
            took_ms.append(1000 * (time.monotonic() - began_s))
            time.sleep(_FETCH_PACE_S)
    return took_ms


@contextmanager
def _beside(work: Callable[[], object]) -> Iterator[None]:
    """Repeat `work` in a thread meanwhile."""
    ends = threading.Event()

    def repeat() -> None:
        while not ends.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def main() -> int:
    """Measure and print the tables; fail below the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help=f"how many times {RECORDS:,} records a topic")
    parser.add_argument("--seconds", type=float, default=8, help="of acknowledgements a line (default: 8)")
    options = parser.parse_args()
    records = int(RECORDS * options.scale)
    with (
        tempfile.TemporaryDirectory(prefix="benchmark-store-") as store,
        sparklog_cluster(settings={**SETTINGS, "sparklog.remote.uri": Path(store).as_uri()}) as cluster,
    ):
        cluster.create_topic(LOCAL, 1)
        cluster.create_topic(REMOTE, 1, {"local.retention.bytes": str(SEGMENT_BYTES)})
        cluster.create_topic(WRITTEN_TO, BROKERS)
        for topic in (LOCAL, REMOTE):
            _fill(cluster, topic, records)
        wait_until_cut(cluster, TopicPartition(REMOTE, 0), max(1, records - 2 * SEGMENT_BYTES // VALUE_BYTES))
        rounds = [
            Figures(read(cluster, LOCAL, records), read(cluster, REMOTE, records)) for _ in range(ROUNDS)
        ]
        print(
            "| local, records/s | remote, records/s | remote / local | brokers' CPU-s a GB, local | remote |"
        )
        print("|---:|---:|---:|---:|---:|")
        for local, remote in rounds:
            print(
                f"| {local.records_per_s:,.0f} | {remote.records_per_s:,.0f}"
                f" | {remote.records_per_s / local.records_per_s:.2f}"
                f" | {local.brokers_cpu_s_per_gb:.1f} | {remote.brokers_cpu_s_per_gb:.1f} |"
            )
        acknowledged_ms(cluster.bootstrap_servers, WRITTEN_TO, WARM_UP_S)
        print("| beside | what | p50, ms | p99, ms | maximum, ms |\n|---|---|---:|---:|---:|")
        p99s_ms: dict[tuple[str, str], list[float]] = defaultdict(list)
        for topic in (LOCAL, REMOTE, REMOTE, LOCAL):
            with _beside(lambda topic=topic: read(cluster, topic, records)):  # type: ignore[misc]
                of_what = {
                    "acknowledgements": acknowledged_ms(
                        cluster.bootstrap_servers, WRITTEN_TO, options.seconds
                    ),
                    "small local fetches": fetched_ms(cluster, topic, options.seconds),
                }
            for what, took_ms in of_what.items():
                p99s_ms[what, topic].append(statistics.quantiles(took_ms, n=100)[98])
                print(f"| reads of the {topic} topic | {what} | {percentiles(took_ms)} |", flush=True)
    ratio = statistics.median(figures.ratio for figures in rounds)
    print(f"remote / local: {ratio:.2f}, asked for is {BAR}")
    latencies = {
        what: statistics.mean(p99s_ms[what, REMOTE]) / statistics.mean(p99s_ms[what, LOCAL])
        for what in ("acknowledgements", "small local fetches")
    }
    for what, latency in latencies.items():
        print(f"p99 of {what} beside remote reads / beside local ones: {latency:.2f}, at most {LATENCY_BAR}")
    return 0 if ratio >= BAR and max(latencies.values()) <= LATENCY_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
