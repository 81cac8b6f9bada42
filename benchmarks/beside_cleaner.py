"""What a producer notices of a log being cleaned: `python -m benchmarks.beside_cleaner [--seconds N]`.

One broker of three leads a topic with three replicas and, alone, a compacted one of a few gigabytes. A
producer (`acknowledgements`) writes to the first, while the second is left alone and while the broker's
cleaner works on it. The cleaner's processor time says whether it was at work for all of the time measured.
"""

import argparse
import sys
import time
from typing import Final

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.acknowledgements import WARM_UP_S, acknowledged_ms, percentiles
from benchmarks.clusters import ClusterUnderTest, sparklog_cluster

WRITTEN_TO: Final = "written-to"
COMPACTED: Final = "compacted"
RATIO: Final = "min.cleanable.dirty.ratio"
KEYS: Final = 1_000_000
VALUE: Final = bytes(range(90))
SEGMENT_BYTES: Final = 64 * 1024 * 1024
CLEANER_BEGINS_WITHIN_S: Final = 60.0


def _prepare(cluster: ClusterUnderTest, records: int) -> psutil.Process:
    """Make both topics and fill the compacted one; return the broker that leads them."""
    cluster.create_topic(WRITTEN_TO, partitions=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    leader = admin.list_topics(WRITTEN_TO, timeout=10).topics[WRITTEN_TO].partitions[0].leader
    config = {"cleanup.policy": "compact", RATIO: "1.0", "segment.bytes": str(SEGMENT_BYTES)}
    alone = NewTopic(COMPACTED, 1, replica_assignment=[[leader]], config=config)
    admin.create_topics([alone])[COMPACTED].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 65_536})
    for number in range(records):
        while True:
            try:
                # A prime step: keys come again only after all others.
                producer.produce(COMPACTED, VALUE, b"%010d" % (number * 7_919 % KEYS))
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(60) == 0
    return cluster.brokers()[leader]


def _begin_cleaning(cluster: ClusterUnderTest, broker: psutil.Process) -> psutil.Process:
    """Let the compacted topic be cleaned; return the cleaner's process once it works."""
    resource = ConfigResource(ResourceType.TOPIC, COMPACTED)
    resource.add_incremental_config(ConfigEntry(RATIO, "0.01", incremental_operation=AlterConfigOpType.SET))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    deadline_s = time.monotonic() + CLEANER_BEGINS_WITHIN_S
    while time.monotonic() < deadline_s:
        for child in broker.children():
            if "sparklog.node.storage.cleaning.process" in child.cmdline() and _cpu_s(child) > 1.0:
                return child
        time.sleep(0.05)
    raise RuntimeError(f"no cleaner began within {CLEANER_BEGINS_WITHIN_S:.0f} s")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="for each line of the table (default: 8)")
    parser.add_argument("--records", type=int, default=15_000_000, help="to be cleaned (default: 15 million)")
    options = parser.parse_args()
    with sparklog_cluster() as cluster:
        broker = _prepare(cluster, options.records)
        address = cluster.bootstrap_servers
        acknowledged_ms(address, WRITTEN_TO, WARM_UP_S)
        before_ms = acknowledged_ms(address, WRITTEN_TO, options.seconds)
        cleaner = _begin_cleaning(cluster, broker)
        used_s, began_s = _cpu_s(cleaner), time.monotonic()
        beside_ms = acknowledged_ms(address, WRITTEN_TO, options.seconds)
        used_s, took_s = _cpu_s(cleaner) - used_s, time.monotonic() - began_s
    print("| cleaner | p50, ms | p99, ms | maximum, ms |")
    print("|---|---:|---:|---:|")
    print(f"| idle | {percentiles(before_ms)} |")
    print(f"| at work, {used_s:.1f} s of processor time in {took_s:.1f} s | {percentiles(beside_ms)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
