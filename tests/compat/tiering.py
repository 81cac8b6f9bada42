"""Tiered clusters for tests: a directory as the object store, small segments, a short lag."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_encoding import decode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S

SEGMENT_BYTES: Final = 1 << 20
CONFIG: Final[Mapping[str, str]] = {
    "min.insync.replicas": "2",
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "sparklog.remote.max.lag.ms": "500",
    "sparklog.remote.cache.bytes": str(8 << 20),
}
LOCAL_FEW: Final = {"local.retention.bytes": str(SEGMENT_BYTES)}
"""Of a topic of which only the end stays on brokers' disks."""


def tiered_config(store: Path, **more: str) -> dict[str, str]:
    return {**CONFIG, "sparklog.remote.uri": store.as_uri(), **more}


def manifest_of(cluster: LocalCluster, store: Path, topic: str, partition: int = 0) -> Manifest | None:
    name = manifest_name(cluster.image.topics.by_name[topic].topic_id, partition)
    path = store / name
    return decode_manifest(name, path.read_bytes()) if path.exists() else None


def wait_for_copy(
    cluster: LocalCluster, store: Path, topic: str, end_offset: int, partition: int = 0
) -> Manifest:
    """Return the manifest once everything below `end_offset` is in the tier."""

    def copied() -> Manifest | None:
        manifest = manifest_of(cluster, store, topic, partition)
        return manifest if manifest is not None and manifest.end_offset >= end_offset else None

    return wait_for(copied, f"{topic}-{partition} is copied up to {end_offset}", TIMEOUT_S)


def local_start(cluster: LocalCluster, broker_id: int, topic: str, partition: int = 0) -> int:
    """Return where the log of one replica begins on its broker's disk."""
    logs = (cluster.broker_directory(broker_id) / f"{topic}-{partition}").glob("*.log")
    return min(int(each.stem) for each in logs)


def wait_for_local_start(cluster: LocalCluster, topic: str, at_least: int, partition: int = 0) -> None:
    """Return when no replica has a segment on its disk any more that begins below `at_least`."""

    def is_cut() -> bool:
        return all(local_start(cluster, each, topic, partition) >= at_least for each in cluster.broker_ids)

    wait_for(is_cut, f"{topic}-{partition} begins at {at_least} or above on all disks", TIMEOUT_S)


def leader_local_start(cluster: LocalCluster, topic: str, partition: int = 0) -> int:
    leader = cluster.leader(topic, partition)
    return -1 if leader is None else local_start(cluster, leader, topic, partition)


def segment_objects(store: Path, topic: str) -> set[str]:
    """Return the names of the segments of a topic that are in the store."""
    return {str(path.relative_to(store)) for path in store.glob(f"segments/{topic}-*/*/*.parquet")}


def topic_objects(store: Path, topic_id: UUID) -> list[Path]:
    """Return the objects of a topic, of whichever kind."""
    return [path for path in store.rglob("*") if path.is_file() and str(topic_id) in str(path)]
