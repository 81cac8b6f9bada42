"""A cluster that begins again from its object store: `python -m benchmarks.restored [--gigabytes N]`.

One Spark application runs two clusters, one after the other, over a directory as the store. The first one
takes 10 GB of records of 1 KB into 100 topics with 1,000 partitions, of which brokers keep little, is written
to for a minute more, and is stopped in order. The second one has empty disks. Measured are the stop, the time
from `sparklog.start` until a consumer has the first record of a topic, and of all topics, and what the
brokers' disks then hold. Values are of text and compress to a quarter; producers compress them, or three
copies and the store's would not have room on small machines.
"""

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import sparklog

TOPICS: Final = 100
PARTITIONS_EACH: Final = 10
VALUE_BYTES: Final = 1_000
RUN: Final = 250
"""Records that go to one partition before the next one's turn."""
LATE_S: Final = 60.0
LATE_RECORDS_PER_S: Final = 2_000
STOP_BAR_S: Final = 30.0
"""Seconds, by the store's rate: half of the time in which the records were written."""
FIRST_RECORD_BAR_S: Final = 10.0
TIMEOUT_S: Final = 300.0
CONFIG: Final = {
    "log.segment.bytes": str(1024 * 1024),
    "log.local.retention.bytes": str(1024 * 1024),
    "log.retention.check.interval.ms": "5000",
    "log.segment.delete.delay.ms": "1000",
}


def _values() -> list[bytes]:
    """Return values of which a quarter is random."""
    noise = np.random.default_rng(7).bytes(1 << 20)
    part = VALUE_BYTES // 4
    return [noise[at : at + part] + b"status=delivered " * 44 + b"." * 2 for at in range(0, 1 << 19, 257)]


class _Writer:
    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "batch.size": 262_144,
                "linger.ms": 20,
                "compression.type": "zstd",
                "queue.buffering.max.kbytes": 262_144,
            }
        )
        self._values = _values()
        self._places = itertools.cycle(
            (_topic(topic), partition) for topic in range(TOPICS) for partition in range(PARTITIONS_EACH)
        )

    def write(self, records: int) -> None:
        """Return when all are acknowledged."""
        for written in range(0, records, RUN):
            topic, partition = next(self._places)
            for value in itertools.islice(itertools.cycle(self._values), written % 997, written % 997 + RUN):
                while True:
                    try:
                        self._producer.produce(topic, value, partition=partition)
                        break
                    except BufferError:
                        self._producer.poll(0.05)
            self._producer.poll(0)
        if self._producer.flush(TIMEOUT_S):
            raise RuntimeError(f"records were not acknowledged in {TIMEOUT_S:.0f} s")


def _topic(number: int) -> str:
    return f"topic-{number:03}"


def _create_topics(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    new = [NewTopic(_topic(number), PARTITIONS_EACH, 3) for number in range(TOPICS)]
    for created in admin.create_topics(new).values():
        created.result(TIMEOUT_S)


def _first_records_s(bootstrap_servers: str, began_s: float) -> tuple[float, float]:
    """Return when the first topic's first record was there, and that of all partitions of all topics."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "benchmark"})
    first = [TopicPartition(_topic(0), 0, OFFSET_BEGINNING)]
    consumer.assign(first)
    missing = {(each.topic, each.partition) for each in first}
    _await_records(consumer, missing)
    first_s = time.monotonic() - began_s
    places = [
        TopicPartition(_topic(topic), partition, OFFSET_BEGINNING)
        for topic in range(TOPICS)
        for partition in range(PARTITIONS_EACH)
    ]
    consumer.assign(places)
    _await_records(consumer, {(each.topic, each.partition) for each in places})
    consumer.close()
    return first_s, time.monotonic() - began_s


def _await_records(consumer: Consumer, missing: set[tuple[str, int]]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while missing:
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                missing.discard((str(message.topic()), int(message.partition() or 0)))
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"no record of {sorted(missing)[:3]} in {TIMEOUT_S:.0f} s")


def _bytes_below(directory: Path) -> int:
    """Return the bytes that files take: of preallocated indexes most are holes."""
    return sum(each.stat().st_blocks * 512 for each in directory.rglob("*") if each.is_file())


def _measure(spark: SparkSession, directory: Path, gigabytes: float) -> int:
    bucket, disks = directory / "bucket", directory / "disks"
    bucket.mkdir()
    config = {**CONFIG, "sparklog.remote.uri": bucket.as_uri()}
    cluster = sparklog.start(spark, log_directories=disks, config=config)
    _create_topics(cluster.bootstrap_servers)
    writer = _Writer(cluster.bootstrap_servers)
    began_s = time.monotonic()
    for tenth in range(10):
        writer.write(int(gigabytes * 1e9 / VALUE_BYTES / 10))
        print(
            f"{(tenth + 1) * gigabytes / 10:.1f} GB written, {time.monotonic() - began_s:.0f} s", flush=True
        )
    late = 0
    until_s = time.monotonic() + LATE_S
    while time.monotonic() < until_s:
        next_s = time.monotonic() + 1.0
        writer.write(LATE_RECORDS_PER_S)
        late += LATE_RECORDS_PER_S
        time.sleep(max(next_s - time.monotonic(), 0.0))
    began_s = time.monotonic()
    cluster.stop()
    stop_s = time.monotonic() - began_s
    print(f"orderly stop behind {late:,} records of {LATE_S:.0f} s: {stop_s:.1f} s", flush=True)
    shutil.rmtree(disks)
    began_s = time.monotonic()
    with sparklog.start(spark, log_directories=disks, config=config) as cluster:
        started_s = time.monotonic() - began_s
        first_s, all_s = _first_records_s(cluster.bootstrap_servers, began_s)
        copied_back = _bytes_below(disks)
    print(f"cluster up: {started_s:.1f} s after Spark, in which it served the first record: {first_s:.1f} s")
    print(f"a record of each of {TOPICS * PARTITIONS_EACH:,} partitions: {all_s:.1f} s")
    in_bucket = _bytes_below(bucket)
    print(f"on brokers' disks then: {copied_back / 1e6:.0f} MB; in the bucket: {in_bucket / 1e6:,.0f} MB")
    print(f"asked for: stop {STOP_BAR_S:.0f} s, first record {FIRST_RECORD_BAR_S:.0f} s")
    return 0 if stop_s <= STOP_BAR_S and first_s <= FIRST_RECORD_BAR_S else 1


def main() -> int:
    """Measure and print the figures; fail below a bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10, help="of records (default: 10)")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[3,1,1024]").appName("benchmarks.restored")
    for key in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(key, "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-restored-") as directory:
            return _measure(spark, Path(directory), options.gigabytes)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
