"""Messages of the usual shape, as clients and followers send them, and what becomes of them when they lie."""

import random
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID

from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.fixed.fetch import (
    AskedPartition,
    AskedTopic,
    FetchedData,
    FetchedTopic,
    FollowerFetchRequest,
    FollowerFetchResponse,
    ReplicaState,
)
from sparklog.protocol.codec.frames import LENGTH, request_encoder
from sparklog.protocol.records.builder import SimpleRecord, build_batch

VERSIONS = range(3, 14)
"""Of Produce."""
TOPIC_ID = UUID(int=7)
BATCH = build_batch([SimpleRecord(None, b"value", (), 1)])
_HEAD_BYTES = 160


def produce(version: int, records: bytes | None = BATCH, topic: str = "t", **fields: Any) -> Any:
    body_type = request_type(ApiKey.PRODUCE, version)
    module = import_module(body_type.__module__)
    named: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"name": topic}
    data = module.PartitionProduceData(index=fields.pop("index", 0), records=records)
    usual = {"transactional_id": None, "acks": -1, "timeout": timedelta(milliseconds=30_000)}
    topics = (module.TopicProduceData(**named, partition_data=(data,)),)
    return body_type(**{**usual, "topic_data": topics, **fields})


def frame_of(request: Any) -> bytes:
    return b"".join(request_encoder("c")(request, 1))[LENGTH.size :]


def usual_request() -> FollowerFetchRequest:
    asked = [AskedPartition(number, 5, 1_000, 5, 0, 1 << 20) for number in range(2)]
    wait = timedelta(milliseconds=500)
    return FollowerFetchRequest(ReplicaState(1, 9), wait, 1, 1 << 20, 77, 3, [AskedTopic(UUID(int=7), asked)])


def usual_response() -> FollowerFetchResponse:
    fetched = [FetchedData(number, 900, 900, 0, b"records" * number) for number in range(2)]
    return FollowerFetchResponse(77, [FetchedTopic(UUID(int=7), fetched)])


def damaged(frame: bytes, source: random.Random) -> Iterator[bytes]:
    """Yield the frame cut off, and with another byte somewhere in its head."""
    for _ in range(40):
        position = source.randrange(min(len(frame), _HEAD_BYTES))
        yield frame[:position] + bytes([source.randrange(256)]) + frame[position + 1 :]
        yield frame[:position]
    position = source.randrange(len(frame))
    yield frame[:position] + frame[position + 1 :]
    yield frame + b"\0"
