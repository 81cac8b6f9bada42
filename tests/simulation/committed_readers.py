"""Readers of committed records: what a Fetch brings them, without what was aborted, as production has it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic

from sparklog.protocol.codec.fetch_metadata import FINAL_EPOCH
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.types import Offset, TopicIdPartition, TopicPartition
from sparklog.user.client.aborted import without_aborted
from tests.simulation.async_client import AsyncClient
from tests.simulation.clients import READ_PAUSE_MS
from tests.simulation.leading import FETCH_WAIT_MS
from tests.simulation.serving import ApiRequest

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_READ_COMMITTED: Final = 1
_ANY_BYTES: Final = 1 << 20
_READ_AGAIN: Final = 0.1


class Read(NamedTuple):
    """What a Fetch brought."""

    shown: list[BatchHeader]
    """Of the batches that the reader sees."""
    next_offset: Offset
    is_at_end: bool
    """Whether there is no more, and nothing that is open."""


async def read_committed(client: AsyncClient, where: TopicPartition, offset: Offset) -> Read:
    """Read from an offset on."""
    world = client.world

    def error_of(response: Any) -> ErrorCode:
        return ErrorCode(response.responses[0].partitions[0].error_code)

    while not world.has_topic(where.topic):
        await client.sleep(READ_PAUSE_MS)
    key = world.key_of(*where)
    partition = FetchPartition(
        partition=where.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        # When nothing more is written it is to come to the end.
        partition_max_bytes=world.fetch_max_bytes if world.accepts_writes else _ANY_BYTES,
    )
    request = FetchRequest(
        max_wait=timedelta(milliseconds=FETCH_WAIT_MS),
        min_bytes=1,
        max_bytes=_ANY_BYTES,
        isolation_level=_READ_COMMITTED,
        session_epoch=FINAL_EPOCH,
        topics=(FetchTopic(topic_id=key.topic_id, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    answered = await client.ask_until_answered(
        where.topic, lambda count: where.partition, ApiRequest.of(request), error_of
    )
    if answered.error_code is ErrorCode.offset_out_of_range:
        # Only what was lost is not there any more.
        return Read([], 0, False)
    assert answered.error_code is ErrorCode.none, answered.error_code
    row = answered.response.responses[0].partitions[0]
    records = row.records or b""
    headers = [header for _, header in iterate_headers(records)]
    next_offset = headers[-1].next_offset if headers else offset
    kept = without_aborted(records, row.aborted_transactions or ())
    shown = [header for _, header in iterate_headers(kept) if not header.is_control and header.record_count]
    world.read_committed(key, offset, next_offset, [header.base_offset for header in shown])
    is_at_end = next_offset == row.last_stable_offset == row.high_watermark
    return Read(shown, next_offset, is_at_end)


class CommittedReader:
    """Reads one partition from its beginning, and again now and then, and when nothing more is written."""

    def __init__(self, client: AsyncClient, where: TopicPartition) -> None:
        self.where: Final = where
        self._client = client
        self._world: World = client.world
        self._offset: Offset = 0
        client.loop.create_task(self._read())

    @property
    def key(self) -> TopicIdPartition:
        """What it reads."""
        return self._world.key_of(*self.where)

    @property
    def position(self) -> Offset:
        """Up to where it has read."""
        return self._offset

    async def _read(self) -> None:
        await self._client.sleep(1_500)
        while True:
            accepted_writes = self._world.accepts_writes
            read = await read_committed(self._client, self.where, self._offset)
            self._offset = read.next_offset
            if accepted_writes and self._begins_anew(read):
                self._offset = 0
            if self._world.accepts_writes:
                await self._client.sleep(READ_PAUSE_MS)

    def _begins_anew(self, read: Read) -> bool:
        if not self._world.accepts_writes:
            return True
        return read.is_at_end and self._client.scheduler.random.random() < _READ_AGAIN
