"""Requests as clients and followers send them, for tests."""

import datetime
import time
from typing import Any
from uuid import UUID

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.fetch.v17.request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kio.schema.produce.v13.request import PartitionProduceData, ProduceRequest, TopicProduceData

from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.records.codecs import Codec

MILLISECOND = datetime.timedelta(milliseconds=1)


def batch(count: int = 1, value: bytes = b"value", codec: Codec = Codec.NONE, **producer: Any) -> bytes:
    """A batch of equal records of now."""
    now_ms = int(time.time() * 1000)
    records = [SimpleRecord(None, value, (), now_ms)] * count
    return build_batch(records, codec=codec, **producer)


def produce(
    topic_id: UUID,
    *records: bytes | None,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """Produce the n-th batch to partition n; None leaves that partition out."""
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timeout_ms * MILLISECOND,
        topic_data=(
            TopicProduceData(
                topic_id=topic_id,
                partition_data=tuple(
                    PartitionProduceData(index=index, records=data)
                    for index, data in enumerate(records)
                    if data is not None
                ),
            ),
        ),
    )


def fetch(
    topic_id: UUID,
    offsets: dict[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    replica: tuple[int, int] | None = None,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
    forgotten: tuple[int, ...] = (),
    partition_max_bytes: int = 1 << 20,
    rack_id: str = "",
) -> FetchRequest:
    """Fetch partitions of one topic at the offsets given; `replica` is a follower's id and broker epoch."""
    broker_id, broker_epoch = replica or (-1, -1)
    partitions = tuple(
        FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=0 if replica else -1,
            partition_max_bytes=partition_max_bytes,
        )
        for partition, offset in offsets.items()
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch),
        max_wait=max_wait_ms * MILLISECOND,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(FetchTopic(topic_id=topic_id, partitions=partitions),) if partitions else (),
        forgotten_topics_data=(ForgottenTopic(topic_id=topic_id, partitions=forgotten),) if forgotten else (),
        rack_id=rack_id,
    )


def delete_records(
    topic: str, offset: int, timeout_ms: int = 10_000, *, partitions: int = 1
) -> DeleteRecordsRequest:
    """Delete the records of so many partitions, from 0 on, below an offset."""
    wanted = tuple(
        DeleteRecordsPartition(partition_index=number, offset=offset) for number in range(partitions)
    )
    return DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=topic, partitions=wanted),), timeout=timeout_ms * MILLISECOND
    )


def rows(response: Any) -> list[Any]:
    """The partitions of a Produce, Fetch, ListOffsets or DeleteRecords response, in order."""
    topics = response.topics if hasattr(response, "topics") else response.responses
    return [
        row
        for topic in topics
        for row in (topic.partition_responses if hasattr(topic, "partition_responses") else topic.partitions)
    ]
