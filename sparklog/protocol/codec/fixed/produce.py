"""A Produce to one partition, without a transaction, and the response without an error.

    request, behind the client id                 response, behind length and correlation id
    flexible (9 to 13)      older (3 to 8)        flexible                 older
    tagged fields  int8 0                         tagged fields int8 0
    transactional  int8 0   transactional int16 -1
    acks           int16    acks          int16
    timeout_ms     int32    timeout_ms    int32
    topics         int8 2   topics        int32 1   topics        int8 2   topics         int32 1
    topic                   topic                   topic                  topic
    partitions     int8 2   partitions    int32 1   partitions    int8 2   partitions     int32 1
    index          int32    index         int32     index         int32    index          int32
    records        varint   records       int32     error_code    int16 0  error_code     int16 0
      length + 1, bytes       length, bytes         base_offset   int64    base_offset    int64
    tagged fields  int8 0                           append time   int64    append time    int64
      of the partition,                             log start     int64    log start      int64 (from 5 on)
      of the topic,                                 record errors int8 1   record errors  int32 0 (from 8 on)
      of the request                                error message int8 0   error message  int16 -1 (likewise)
                                                    tagged fields int8 0
                                                      of the partition,
                                                      of the topic
                                                    throttle time int32 0  throttle time  int32 0
                                                    tagged fields int8 0

The topic is a name with its length (int8, one more, or int16), and from 13 on a uuid.
"""

import datetime
from functools import partial
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import Any, ClassVar, Final, NamedTuple
from uuid import UUID

from sparklog.protocol.codec.apis import ApiKey, request_type, response_type
from sparklog.protocol.codec.encoder import Chunk
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
from sparklog.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT

_FIRST_VERSION: Final = 3
_LAST_VERSION: Final = 13
_FIRST_FLEXIBLE: Final = 9
_FIRST_BY_ID: Final = 13
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8

_NOT_FIXED: Final = (struct_error, IndexError, ValueError)
"""The errors of bytes in which something other than the usual stands, or which end early."""
_ATTRIBUTES_AT: Final = 22
"""Position of the lower byte of a batch's attributes."""
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_BEGINNING: Final = Struct(">BBhiB")
_ONE: Final = 2
"""A count of one in the flexible encoding."""
_PARTITION: Final = Struct(">Bi")
_END: Final = bytes(3)
_OLDER_BEGINNING: Final = Struct(">hhiih")
_OLDER_PARTITION: Final = Struct(">iii")
_NULL: Final = -1


class _ResponseLayout(NamedTuple):
    """The parts around the topic and the numbers of a response."""

    head: Struct
    topics: bytes
    partitions: bytes
    partition: Struct
    end: bytes

    @property
    def size_bytes(self) -> int:
        """The length that stands in the head, without the topic."""
        return (
            self.head.size - 4 + len(self.topics) + len(self.partitions) + self.partition.size + len(self.end)
        )


def _response_layout(api_version: int) -> _ResponseLayout:
    partition = Struct(">ihqqq" if api_version >= _FIRST_WITH_LOG_START else ">ihqq")
    if api_version >= _FIRST_FLEXIBLE:
        # No record errors, no message, tagged fields of partition and topic, throttle time, tagged fields.
        end = b"\1\0" + bytes(2) + bytes(4) + b"\0"
        return _ResponseLayout(Struct(">iix"), b"\2", b"\2", partition, end)
    one, throttle_time = (1).to_bytes(4, "big"), bytes(4)
    no_errors = bytes(4) + b"\xff\xff" if api_version >= _FIRST_WITH_RECORD_ERRORS else b""
    return _ResponseLayout(Struct(">ii"), one, one, partition, no_errors + throttle_time)


_RESPONSES: Final = {
    version: (layout, layout.size_bytes)
    for version in range(_FIRST_VERSION, _LAST_VERSION + 1)
    for layout in [_response_layout(version)]
}


class PartitionProduce(FixedRequest):
    """A Produce to one partition of one topic; it stands for this topic and partition, too."""

    __slots__ = ("acks", "api_version", "encoded_topic", "index", "records", "timeout", "topic")

    api_key: ClassVar[int] = ApiKey.PRODUCE
    transactional_id: Final = None

    def __init__(
        self,
        api_version: int,
        acks: int,
        timeout: datetime.timedelta,
        topic: str | UUID,
        encoded_topic: bytes,
        index: int,
        records: bytes | memoryview,
    ) -> None:
        self.api_version = api_version
        self.acks = acks
        self.timeout = timeout
        self.topic = topic
        """Name or id."""
        self.encoded_topic = encoded_topic
        self.index = index
        self.records = records

    @property
    def topic_data(self) -> tuple["PartitionProduce"]:
        return (self,)

    @property
    def partition_data(self) -> tuple["PartitionProduce"]:
        return (self,)

    @property
    def name(self) -> str | UUID:
        return self.topic

    @property
    def topic_id(self) -> str | UUID:
        return self.topic

    def entity(self) -> Any:
        body_type = request_type(ApiKey.PRODUCE, self.api_version)
        module = import_module(body_type.__module__)
        named = {"topic_id" if self.api_version >= _FIRST_BY_ID else "name": self.topic}
        data = module.PartitionProduceData(index=self.index, records=self.records)
        return body_type(
            transactional_id=None,
            acks=self.acks,
            timeout=self.timeout,
            topic_data=(module.TopicProduceData(**named, partition_data=(data,)),),
        )


def request_reader(api_version: int) -> FixedReader | None:
    """Return the reader of a version's requests; None if there is none."""
    if not _FIRST_VERSION <= api_version <= _LAST_VERSION:
        return None
    if api_version >= _FIRST_BY_ID:
        return partial(_read_by_id, api_version)
    return partial(_read_by_name if api_version >= _FIRST_FLEXIBLE else _read_older, api_version)


def _read_by_name(api_version: int, frame: Frame, position: int) -> PartitionProduce | None:
    try:
        tags, transactional, acks, timeout_ms, topic_count = _BEGINNING.unpack_from(frame, position)
        start = position + _BEGINNING.size
        length = frame[start]
        if tags or transactional or topic_count != _ONE or not 0 < length < SHORT_VARINT:
            return None
        end = start + length
        encoded_topic = bytes(frame[start:end])
        records = _flexible_records(frame, end)
        if records is None:
            return None
        topic = str(encoded_topic[1:], "utf-8")
        return PartitionProduce(api_version, acks, milliseconds(timeout_ms), topic, encoded_topic, *records)
    except _NOT_FIXED:
        return None


def _read_by_id(api_version: int, frame: Frame, position: int) -> PartitionProduce | None:
    try:
        tags, transactional, acks, timeout_ms, topic_count = _BEGINNING.unpack_from(frame, position)
        start = position + _BEGINNING.size
        if tags or transactional or topic_count != _ONE:
            return None
        encoded_topic = bytes(frame[start : start + 16])
        records = _flexible_records(frame, start + 16)
        if records is None:
            return None
        topic = uuid_of(encoded_topic)
        return PartitionProduce(api_version, acks, milliseconds(timeout_ms), topic, encoded_topic, *records)
    except _NOT_FIXED:
        return None


def _flexible_records(frame: Frame, position: int) -> tuple[int, Frame] | None:
    """Return the number and the records of the only partition, after which the request must end."""
    partition_count, index = _PARTITION.unpack_from(frame, position)
    length, start = read_varint(frame, position + _PARTITION.size)
    end = start + length - 1
    if partition_count != _ONE or frame[end:] != _END:
        return None
    return _index_and_records(index, frame, start, end)


def _read_older(api_version: int, frame: Frame, position: int) -> PartitionProduce | None:
    try:
        transactional, acks, timeout_ms, topic_count, length = _OLDER_BEGINNING.unpack_from(frame, position)
        position += _OLDER_BEGINNING.size
        end = position + length
        if transactional != _NULL or topic_count != 1 or length < 0:
            return None
        partition_count, index, records_bytes = _OLDER_PARTITION.unpack_from(frame, end)
        start = end + _OLDER_PARTITION.size
        if partition_count != 1 or start + records_bytes != len(frame):
            return None
        records = _index_and_records(index, frame, start, len(frame))
        if records is None:
            return None
        topic = str(frame[position:end], "utf-8")
        encoded_topic = bytes(frame[position - 2 : end])
        return PartitionProduce(api_version, acks, milliseconds(timeout_ms), topic, encoded_topic, *records)
    except _NOT_FIXED:
        return None


def _index_and_records(index: int, frame: Frame, start: int, end: int) -> tuple[int, Frame] | None:
    """Return the records in place; None if they are no batch, or of a transaction."""
    if end - start < HEADER_BYTES or frame[start + _ATTRIBUTES_AT] & TRANSACTIONAL_BIT:
        return None
    return index, frame[start:end]


class PartitionProduced(FixedResponse):
    """The response to a Produce whose records are in the log."""

    __slots__ = ("base_offset", "log_append_time_ms", "log_start_offset", "request")

    def __init__(
        self,
        request: PartitionProduce,
        base_offset: int,
        log_append_time_ms: int | None,
        log_start_offset: int,
    ) -> None:
        self.request = request
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset

    @property
    def success_count(self) -> int:
        return 1

    def entity(self) -> Any:
        request, append_time_ms = self.request, self.log_append_time_ms
        version = request.api_version
        response = response_type(ApiKey.PRODUCE, version)
        module = import_module(response.__module__)
        fields: dict[str, Any] = {}
        if version >= _FIRST_WITH_LOG_START:
            fields["log_start_offset"] = self.log_start_offset
        if version >= _FIRST_WITH_RECORD_ERRORS:
            fields["record_errors"] = ()
        row = module.PartitionProduceResponse(
            index=request.index,
            error_code=ErrorCode.none,
            base_offset=self.base_offset,
            log_append_time=None if append_time_ms is None else _EPOCH + append_time_ms * _MILLISECOND,
            **fields,
        )
        named = {"topic_id" if version >= _FIRST_BY_ID else "name": request.topic}
        topic = module.TopicProduceResponse(**named, partition_responses=(row,))
        return response(responses=(topic,), throttle_time=datetime.timedelta())

    def frame(self, correlation_id: int) -> list[Chunk]:
        request = self.request
        layout, size_bytes = _RESPONSES[request.api_version]
        append_time_ms = self.log_append_time_ms
        numbers = [request.index, 0, self.base_offset, -1 if append_time_ms is None else append_time_ms]
        if request.api_version >= _FIRST_WITH_LOG_START:
            numbers.append(self.log_start_offset)
        return [
            layout.head.pack(size_bytes + len(request.encoded_topic), correlation_id)
            + layout.topics
            + request.encoded_topic
            + layout.partitions
            + layout.partition.pack(*numbers)
            + layout.end
        ]
