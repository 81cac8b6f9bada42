"""Make the archives of this directory: data directories of a cluster, as a version of sparklog left them.

    git worktree add /tmp/before <commit>
    cd /tmp/before && PYTHONPATH=/tmp/before python <this file> <this directory>

Run it with the version whose files are to be kept, not with the one that is to open them: `stopped.tar.xz`
and `killed.tar.xz` are of commit d590e83. In each are the directories of three brokers that were stopped in
order, or killed at once, and `manifest.json`: what was served before that. In the logs are several segments,
batches of every codec, snapshots of producers, leader epochs, a start that DeleteRecords moved; and beside
them snapshots of the metadata.
"""

import asyncio
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition

from sparklog.node.calling.channel import Channel
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic
from tests.compat.librdkafka import produce as produce_by_client
from tests.unit.executor.requests import fetch, produce, rows

CONFIG = {
    "min.insync.replicas": "2",
    "log.index.size.max.bytes": "65536",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.retention.ms": "-1",
    # The kept directories grow old: after a week their older snapshot would rightly go.
    "metadata.max.retention.ms": "-1",
}
PARTITIONS = {"rolled": 1, "compressed": 2, "deleted": 1}
PRODUCER_ID = 7_000_000
BATCH_BYTES = 100_000
DELETED_BEFORE = 12
CREATED_MS = 1_700_000_000_000
NOT_YET = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_id,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.leader_not_available,
}


def sent(sequence: int) -> bytes:
    """The batch of `rolled` with that sequence number, which is its offset too."""
    value = b"%06d" % sequence + bytes(BATCH_BYTES)
    return build_batch(
        [SimpleRecord(b"key", value, (("h", b"v"),), CREATED_MS + sequence)],
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )


def request(cluster: LocalCluster, topic: str, partition: int, message: Any) -> Any:
    """Ask the partition's leader until it leads; return the partition's row of the answer."""

    async def ask() -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                leader = cluster.leader(topic, partition)
                if leader is not None:
                    row = await _answer(*cluster.address(leader), message)
                    if row is not None and row.error_code not in NOT_YET:
                        return row
                await asyncio.sleep(0.05)

    return asyncio.run(ask())


async def _answer(host: str, port: int, message: Any) -> Any:
    """Return the row of the answer; None where a leader has not registered its new address yet."""
    try:
        channel = await Channel.connect(host, port, "test")
    except KafkaError as error:
        if error.error_code is not ErrorCode.network_exception:
            raise
        return None
    try:
        (row,) = rows(await channel.request(message))
    finally:
        channel.close()
    return row


def append(cluster: LocalCluster, sequence: int) -> tuple[ErrorCode, int]:
    """Send the batch to `rolled`; return the answer."""
    topic_id = cluster.image.topics.by_name["rolled"].topic_id
    row = request(cluster, "rolled", 0, produce(topic_id, sent(sequence)))
    return row.error_code, row.base_offset


def served(cluster: LocalCluster, topic: str, partition: int) -> dict[str, Any]:
    """Return what a consumer is given of a partition, from its start to its end."""
    topic_id = cluster.image.topics.by_name[topic].topic_id
    start = request(cluster, topic, partition, fetch(topic_id, {partition: 0}))
    offset = max(start.log_start_offset, 0)
    digest, size_bytes = hashlib.sha256(), 0
    while True:
        row = request(cluster, topic, partition, fetch(topic_id, {partition: offset}))
        assert row.error_code is ErrorCode.none, row
        data = bytes(row.records or b"")
        if not data:
            return {
                "log_start_offset": row.log_start_offset,
                "high_watermark": row.high_watermark,
                "size_bytes": size_bytes,
                "sha256": digest.hexdigest(),
            }
        position = 0
        while position + 61 <= len(data):
            batch_end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            if batch_end > len(data):
                break
            base_offset = int.from_bytes(data[position : position + 8], "big")
            offset = base_offset + int.from_bytes(data[position + 23 : position + 27], "big") + 1
            digest.update(data[position:batch_end])
            size_bytes += batch_end - position
            position = batch_end


def manifest(cluster: LocalCluster) -> dict[str, Any]:
    """Return what must be there when these directories are opened again."""
    topics = cluster.image.topics.by_name
    return {
        "cluster_id": cluster.cluster_id,
        "topic_ids": {topic: str(topics[topic].topic_id) for topic in PARTITIONS},
        "next_sequence": served(cluster, "rolled", 0)["high_watermark"],
        "served": {
            f"{topic}-{partition}": served(cluster, topic, partition)
            for topic, count in PARTITIONS.items()
            for partition in range(count)
        },
    }


def in_sync(cluster: LocalCluster) -> bool:
    """Whether every replica is in sync."""
    return all(
        len(cluster.in_sync(topic, partition)) == len(cluster.broker_ids)
        for topic, count in PARTITIONS.items()
        for partition in range(count)
    )


def fill(cluster: LocalCluster) -> None:
    """Have everything written that the module's text names."""
    for topic, count in PARTITIONS.items():
        create_topic(
            cluster.bootstrap_servers, topic, count, config={"segment.bytes": "1048576", "retention.ms": "-1"}
        )
    sequence = 0
    for broker_id in (None, *cluster.broker_ids):
        if broker_id is not None:
            # Its leaders move: each partition gets leader epochs.
            cluster.stop_broker(broker_id)
        for _ in range(7):
            assert append(cluster, sequence) == (ErrorCode.none, sequence)
            sequence += 1
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            records = [
                {
                    "key": b"%d" % number,
                    "value": b"value %d " % number * 20,
                    "partition": number % 2,
                    "timestamp": CREATED_MS + number,
                }
                for number in range(40)
            ]
            produce_by_client(
                cluster.bootstrap_servers, "compressed", records, acks="all", **{"compression.type": codec}
            )
        deleted = [{"value": b"record %d" % number, "timestamp": CREATED_MS} for number in range(8)]
        produce_by_client(cluster.bootstrap_servers, "deleted", deleted, acks="all")
        if broker_id is not None:
            cluster.restart(broker_id)
            wait_for(lambda: in_sync(cluster), "all in sync")
    admin = admin_client(cluster.bootstrap_servers)
    for future in admin.delete_records([TopicPartition("deleted", 0, DELETED_BEFORE)]).values():
        future.result(TIMEOUT_S)
    for broker_id in cluster.broker_ids:
        logs = cluster.broker_directory(broker_id)
        wait_for(
            lambda logs=logs: (
                len(list((logs / "rolled-0").glob("*.snapshot"))) > 1
                and list((logs / f"{CLUSTER_METADATA_TOPIC}-0").glob("*.checkpoint"))
                and "deleted 0 12" in (logs / "log-start-offset-checkpoint").read_text()
                and "rolled 0 0" not in (logs / "recovery-point-offset-checkpoint").read_text()
            ),
            f"broker {broker_id} has written what is to be kept",
        )


def make(target: Path, *, kill: bool) -> None:
    """Make one archive."""
    root = Path(tempfile.mkdtemp(prefix="sparklog-kept-"))
    try:
        with LocalCluster(brokers=3, config=CONFIG, directory=root) as cluster:
            fill(cluster)
            (root / "manifest.json").write_text(json.dumps(manifest(cluster), indent=1) + "\n")
            if kill:
                for broker_id in cluster.broker_ids:
                    cluster.kill(broker_id)
        kept = ["manifest.json", *(f"broker-{broker_id}" for broker_id in range(3))]
        # Indexes that were not cut to size are holes, and stay so.
        command = ["tar", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
        command += ["--xz", "-cf", str(target), "-C", str(root), *kept]
        subprocess.run(command, check=True)
        print(target, target.stat().st_size, "bytes")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    make(Path(sys.argv[1]) / "stopped.tar.xz", kill=False)
    make(Path(sys.argv[1]) / "killed.tar.xz", kill=True)
