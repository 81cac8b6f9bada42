"""ListOffsets requests to one broker, by topic as the protocol has them, of whichever version."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.schema.list_offsets.v11 import request as list_offsets_v11

from sparklog.protocol.types import LeaderEpoch, or_minus_one

CONSUMER: Final = -1
DEBUG_CONSUMER: Final = -2
"""The replica id of Kafka's debugging consumer, whose latest offset is the log's end."""


class AskedOffset(NamedTuple):
    topic: str
    partition: int
    timestamp: int
    """A time, or one of Kafka's special ones."""
    leader_epoch: LeaderEpoch | None = None
    """The epoch in which the broker is asked; in another one it refuses."""


def list_offsets_request(
    asked: Iterable[AskedOffset],
    *,
    schema: Any = list_offsets_v11,
    replica_id: int = CONSUMER,
    read_committed: bool = False,
    timeout_ms: int = 0,
) -> Any:
    """Return the request of kio's module `schema`; `timeout_ms` counts from version 10 on (KIP-1075)."""
    topics: dict[str, list[Any]] = {}
    for topic, partition, timestamp, leader_epoch in asked:
        topics.setdefault(topic, []).append(
            schema.ListOffsetsPartition(
                partition_index=partition,
                current_leader_epoch=or_minus_one(leader_epoch),
                timestamp=timestamp,
            )
        )
    has_timeout = schema.ListOffsetsRequest.__version__ >= 10
    return schema.ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=int(read_committed),
        topics=tuple(
            schema.ListOffsetsTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
        **({"timeout": timedelta(milliseconds=timeout_ms)} if has_timeout else {}),
    )
