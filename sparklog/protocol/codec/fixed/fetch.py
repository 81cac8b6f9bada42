"""A follower's Fetch of few partitions in version 17, which brokers speak among themselves, and its response.

    request, behind the client id          response
    tagged fields      int8   0            length             int32
    max_wait_ms        int32               correlation_id     int32
    min_bytes          int32               tagged fields      int8   0
    max_bytes          int32               throttle_time_ms   int32  0
    isolation_level    int8   0            error_code         int16  0
    session_id         int32               session_id         int32
    session_epoch      int32               topics             int8   count + 1
    topics             int8   count + 1    each topic:
    each topic:                              topic_id             uuid
      topic_id             uuid              partitions           int8   count + 1
      partitions           int8 count + 1    each partition:
      each partition:                          partition_index      int32
        partition            int32             error_code           int16  0
        current_leader_epoch int32             high_watermark       int64
        fetch_offset         int64             last_stable_offset   int64
        last_fetched_epoch   int32             log_start_offset     int64
        log_start_offset     int64             aborted_transactions int8   0 (null)
        partition_max_bytes  int32             preferred_replica    int32  -1
        tagged fields        int8  0           records              varint length + 1, then the bytes
      tagged fields        int8  0             tagged fields        int8   0
    forgotten topics   int8   1 (none)       tagged fields        int8   0
    rack_id            int8   1 (empty)    tagged fields      int8   0
    tagged fields      int8   1 (one)
    tag, size          int8   1, 13
    replica_id         int32
    replica_epoch      int64
    tagged fields      int8   0

The length in front of a request, its key, version, correlation id and client id are not in the table.
"""

import datetime
from collections.abc import Sequence
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from sparklog.protocol.codec.apis import ApiKey, request_type, response_type
from sparklog.protocol.codec.encoded import Transferable
from sparklog.protocol.codec.encoder import Chunk, encode_varint
from sparklog.protocol.codec.fixed.message import (
    SHORT_VARINT,
    FixedReader,
    FixedRequest,
    FixedResponse,
    Frame,
    milliseconds,
    read_varint,
    uuid_of,
)
from sparklog.protocol.errors import ErrorCode

FETCH_VERSION: Final = 17
MOST_PARTITIONS: Final = 64
"""Messages of more are read and written as entities, in steps if there are very many."""

_NOT_FIXED: Final = (struct_error, IndexError, ValueError)
"""The errors of bytes in which something other than the usual stands, or which end early."""
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

_REQUEST: Final = Struct(">BiiibiiB")
_TOPIC: Final = Struct(">16sB")
_ASKED: Final = Struct(">iiqiqi")
_FOLLOWER: Final = Struct(">BBBBBiqB")
_NOTHING_FORGOTTEN: Final = (1, 1, 1, 1, 13)
"""No forgotten topics, an empty rack, one tagged field: 1, of 13 bytes."""

_RESPONSE_HEAD: Final = Struct(">iixihiB")
_RESPONSE: Final = Struct(">iBihiB")
_FETCHED: Final = Struct(">ihqqqBi")
_NO_ERROR: Final = 0
_NONE_ABORTED: Final = 0
_READ_HERE: Final = -1
"""No other replica is preferred."""


class ReplicaState(NamedTuple):
    replica_id: int
    replica_epoch: int


class AskedPartition(NamedTuple):
    """The fetch of one partition; -1 as on the wire."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class AskedTopic(NamedTuple):
    topic_id: UUID
    partitions: Sequence[AskedPartition]


class ForgottenTopic(NamedTuple):
    topic_id: UUID
    partitions: Sequence[int]


class FollowerFetchRequest(FixedRequest):
    __slots__ = (
        "api_version",
        "forgotten_topics_data",
        "max_bytes",
        "max_wait",
        "min_bytes",
        "replica_state",
        "session_epoch",
        "session_id",
        "topics",
    )

    api_key: ClassVar[int] = ApiKey.FETCH
    isolation_level: Final = 0
    rack_id: Final = ""

    def __init__(
        self,
        replica_state: ReplicaState,
        max_wait: datetime.timedelta,
        min_bytes: int,
        max_bytes: int,
        session_id: int,
        session_epoch: int,
        topics: Sequence[AskedTopic],
        forgotten_topics_data: Sequence[ForgottenTopic] = (),
    ) -> None:
        self.api_version = FETCH_VERSION
        self.replica_state = replica_state
        self.max_wait = max_wait
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics = topics
        self.forgotten_topics_data = forgotten_topics_data

    def entity(self) -> Any:
        entities = import_module(request_type(ApiKey.FETCH, FETCH_VERSION).__module__)
        return entities.FetchRequest(
            replica_state=entities.ReplicaState(**self.replica_state._asdict()),
            max_wait=self.max_wait,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=tuple(
                entities.FetchTopic(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        entities.FetchPartition(**asked._asdict()) for asked in topic.partitions
                    ),
                )
                for topic in self.topics
            ),
            forgotten_topics_data=tuple(
                entities.ForgottenTopic(topic_id=topic.topic_id, partitions=tuple(topic.partitions))
                for topic in self.forgotten_topics_data
            ),
        )

    def encoded(self) -> bytes | None:
        topics, (replica_id, replica_epoch) = self.topics, self.replica_state
        if self.forgotten_topics_data or replica_id < 0:
            return None
        left = MOST_PARTITIONS
        written = b""
        for topic_id, partitions in topics:
            left -= len(partitions) + 1
            if left < 0:
                return None
            written += _TOPIC.pack(topic_id.bytes, len(partitions) + 1)
            for asked in partitions:
                written += _ASKED.pack(*asked) + b"\0"
            written += b"\0"
        return (
            _REQUEST.pack(
                0,
                self.max_wait // _MILLISECOND,
                self.min_bytes,
                self.max_bytes,
                self.isolation_level,
                self.session_id,
                self.session_epoch,
                len(topics) + 1,
            )
            + written
            + _FOLLOWER.pack(*_NOTHING_FORGOTTEN, replica_id, replica_epoch, 0)
        )

    def read_response(self, frame: Frame) -> "FollowerFetchResponse | None":
        return read_response(frame)


def request_reader(api_version: int) -> FixedReader | None:
    """Return the reader of a version's requests; None if there is none."""
    return read_request if api_version == FETCH_VERSION else None


def read_request(frame: Frame, position: int) -> FollowerFetchRequest | None:
    """Return the request whose client id ends at `position`; None if it is none in this layout."""
    try:
        tags, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, count = (
            _REQUEST.unpack_from(frame, position)
        )
        if tags or isolation_level or not 0 < count < SHORT_VARINT:
            return None
        position += _REQUEST.size
        left = MOST_PARTITIONS
        topics: list[AskedTopic] = []
        for _ in range(count - 1):
            topic_id, partition_count = _TOPIC.unpack_from(frame, position)
            position += _TOPIC.size
            left -= partition_count
            if not 0 < partition_count < SHORT_VARINT or left < 0:
                return None
            partitions: list[AskedPartition] = []
            for _ in range(partition_count - 1):
                partitions.append(AskedPartition._make(_ASKED.unpack_from(frame, position)))
                position += _ASKED.size + 1
                if frame[position - 1]:
                    return None
            if frame[position]:
                return None
            position += 1
            topics.append(AskedTopic(uuid_of(topic_id), partitions))
        *nothing_forgotten, replica_id, replica_epoch, tags = _FOLLOWER.unpack_from(frame, position)
    except _NOT_FIXED:
        return None
    if tags or position + _FOLLOWER.size != len(frame) or tuple(nothing_forgotten) != _NOTHING_FORGOTTEN:
        return None
    return FollowerFetchRequest(
        ReplicaState(replica_id, replica_epoch),
        milliseconds(max_wait_ms),
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        topics,
    )


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


_NO_DIVERGENCE: Final = EpochEndOffset()


class FetchedData(NamedTuple):
    partition_index: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | memoryview | Transferable
    error_code: ErrorCode = ErrorCode.none
    diverging_epoch: EpochEndOffset = _NO_DIVERGENCE


class FetchedTopic(NamedTuple):
    topic_id: UUID
    partitions: Sequence[FetchedData]


class FollowerFetchResponse(FixedResponse):
    __slots__ = ("responses", "session_id")

    error_code: Final = ErrorCode.none

    def __init__(self, session_id: int, responses: Sequence[FetchedTopic]) -> None:
        self.session_id = session_id
        self.responses = responses

    @property
    def success_count(self) -> int:
        count = 1
        for topic in self.responses:
            count += len(topic.partitions)
        return count

    def entity(self) -> Any:
        entities = import_module(response_type(ApiKey.FETCH, FETCH_VERSION).__module__)
        return entities.FetchResponse(
            throttle_time=datetime.timedelta(),
            error_code=ErrorCode.none,
            session_id=self.session_id,
            responses=tuple(
                entities.FetchableTopicResponse(
                    topic_id=topic_id,
                    partitions=tuple(
                        entities.PartitionData(
                            partition_index=fetched.partition_index,
                            error_code=ErrorCode.none,
                            high_watermark=fetched.high_watermark,
                            last_stable_offset=fetched.last_stable_offset,
                            log_start_offset=fetched.log_start_offset,
                            aborted_transactions=None,
                            records=fetched.records,
                        )
                        for fetched in partitions
                    ),
                )
                for topic_id, partitions in self.responses
            ),
        )

    def frame(self, correlation_id: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        size_bytes = _RESPONSE.size
        written = b""
        for topic_id, partitions in self.responses:
            written += _TOPIC.pack(topic_id.bytes, len(partitions) + 1)
            for index, high_watermark, stable, start, records, _, _ in partitions:
                count = len(records)
                written += _FETCHED.pack(
                    index, _NO_ERROR, high_watermark, stable, start, _NONE_ABORTED, _READ_HERE
                ) + encode_varint(count + 1)
                if count:
                    chunks.append(written)
                    chunks.append(records)
                    size_bytes += len(written) + count
                    written = b""
                written += b"\0"
            written += b"\0"
        chunks.append(written + b"\0")
        size_bytes += len(written) + 1
        head = _RESPONSE_HEAD.pack(size_bytes, correlation_id, 0, 0, self.session_id, len(self.responses) + 1)
        chunks[0] = head + chunks[0]  # type: ignore[operator]
        return chunks


def read_response(frame: Frame) -> FollowerFetchResponse | None:
    """Return the response in `frame`, without its length; None if it is none in this layout."""
    try:
        _, tags, throttle_time_ms, error_code, session_id, count = _RESPONSE.unpack_from(frame, 0)
        if tags or throttle_time_ms or error_code or not 0 < count < SHORT_VARINT:
            return None
        position = _RESPONSE.size
        responses: list[FetchedTopic] = []
        for _ in range(count - 1):
            topic_id, partition_count = _TOPIC.unpack_from(frame, position)
            position += _TOPIC.size
            if not 0 < partition_count < SHORT_VARINT:
                return None
            partitions: list[FetchedData] = []
            for _ in range(partition_count - 1):
                index, error_code, high_watermark, stable, start, aborted, preferred = _FETCHED.unpack_from(
                    frame, position
                )
                length, position = read_varint(frame, position + _FETCHED.size)
                end = position + length - 1
                if error_code or aborted or preferred != _READ_HERE or not length or frame[end]:
                    return None
                partitions.append(FetchedData(index, high_watermark, stable, start, frame[position:end]))
                position = end + 1
            if frame[position]:
                return None
            position += 1
            responses.append(FetchedTopic(uuid_of(topic_id), partitions))
        if frame[position] or position + 1 != len(frame):
            return None
    except _NOT_FIXED:
        return None
    return FollowerFetchResponse(session_id, responses)
