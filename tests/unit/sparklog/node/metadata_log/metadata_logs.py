"""A metadata log on disk for tests: committed batch by batch, replayed as it grows."""

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    ResourceType,
    TopicRecord,
)
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, LeaderEpoch

START_MS = 1_700_000_000_000


def open_log(parent: Path, *, segment_bytes: int = 1024 * 1024) -> Log:
    """Open or create the metadata log below `parent`."""
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=None, deletes=False)
    return Log.open(parent / f"{CLUSTER_METADATA_TOPIC}-0", config, now_ms=START_MS)


def open_with_snapshots(parent: Path) -> tuple[Log, SnapshotStore, MetadataSnapshot | None]:
    """Open the metadata log below `parent` and its snapshots, as at a start."""
    directory = parent / f"{CLUSTER_METADATA_TOPIC}-0"
    config = LogConfig(segment_bytes=1024 * 1024, retention_ms=None, deletes=False)
    store, newest = SnapshotStore.open(
        directory, lambda start: Log.open(directory, config, log_start_offset=start, now_ms=START_MS)
    )
    return store.log, store, newest


def topic_records(number: int) -> list[MetadataRecord]:
    """Return the records that create a topic of one partition and configure it."""
    topic_id = UUID(int=1000 + number)
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        leader=1 + number % 3,
        leader_epoch=0,
        partition_epoch=0,
        directories=(),
    )
    config = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name=f"topic-{number}", name="retention.ms", value="1"
    )
    return [TopicRecord(name=f"topic-{number}", topic_id=topic_id), partition, config]


def append(log: Log, records: Sequence[MetadataRecord], leader_epoch: LeaderEpoch = 1) -> None:
    """Append the records as one batch; the log's end is its time."""
    timestamp_ms = START_MS + log.log_end_offset
    values = [SimpleRecord(value=encode_record(record), timestamp_ms=timestamp_ms) for record in records]
    log.append_as_follower(build_batch(values, base_offset=log.log_end_offset, leader_epoch=leader_epoch), 0)


def append_topics(log: Log, numbers: Sequence[int], leader_epoch: LeaderEpoch = 1) -> None:
    """Append the creation of topics, a batch each."""
    for number in numbers:
        append(log, topic_records(number), leader_epoch)


def replayed(log: Log, start: MetadataSnapshot | None = None) -> MetadataSnapshot:
    """Return what the log adds up to, from its start or from a snapshot on."""
    image = EMPTY_IMAGE if start is None else start.image
    timestamp_ms = 0 if start is None else start.last_timestamp_ms
    while (
        region := log.read(image.end_offset, max_bytes=2**20, up_to_offset=log.log_end_offset).region
    ) is not None:
        data = region.read()
        for position, header in iterate_headers(data):
            values = [] if header.is_control else list(read_records(data, header, position))
            records = [decode_record(record.value or b"") for record in values]
            image, _ = replay_records(image, records, header.last_offset, header.partition_leader_epoch)
            timestamp_ms = header.max_timestamp
    return MetadataSnapshot(image, None, timestamp_ms)
