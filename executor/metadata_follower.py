"""Follows the metadata log: fetches it, keeps a copy on this broker's disk, replays it, publishes images.

Rules kept:
- Only committed records are replayed: those below the high watermark the controller has told.
- What is fetched is on disk before the next fetch says so, since the fetch offset is this replica's vote.
- The first image is published when it holds everything that was committed at the first fetch and, among
  it, the registration of this very incarnation. An older image may still name this broker as leader of
  partitions by virtue of a process that is dead.
- Images are published one at a time and in order.

A record that cannot be replayed, or a log that parts from what was replayed already, ends `run` with the
error: a broker that is not sure of its metadata must not serve.

Source: KIP-595 (Fetch as replication of the metadata log), Kafka's MetadataLoader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.fetch.v17.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from executor.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.framing import decode_record
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.schemas import MetadataRecord
from sparklog.records.batch import iterate_headers
from sparklog.records.builder import read_records
from sparklog.storage.log import Log
from sparklog.types import CLUSTER_METADATA_TOPIC_ID, BrokerEpoch, BrokerId, LeaderEpoch, Offset

__all__ = ["MetadataDivergedError", "MetadataFollower"]

MAX_WAIT_MS: Final = 500
"""How long the controller may hold a fetch open."""
FETCH_MAX_BYTES: Final = 8 * 1024 * 1024
RETRY_MS: Final = 100
REPLAY_CHUNK_BYTES: Final = 1024 * 1024

logger = logging.getLogger(__name__)


class MetadataDivergedError(KafkaError):
    """The controller's log is not a continuation of what this broker has replayed."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unknown_server_error, message)


class MetadataFollower:
    """One broker's replica of `__cluster_metadata`."""

    def __init__(
        self,
        log: Log,
        link: ControllerLink,
        *,
        node_id: BrokerId,
        directory_id: UUID,
        broker_epoch: Callable[[], BrokerEpoch | None],
        publish: Callable[[MetadataImage, MetadataDelta], Awaitable[None]],
        now_ms: Callable[[], int],
        on_caught_up: Callable[[int], None],
        request_timeout_ms: int,
    ) -> None:
        """Follow in `log`.

        `on_caught_up` is told when (by `now_ms`) the fetch was sent whose answer left nothing to apply.
        """
        self._log = log
        self._link = link
        self._node_id = node_id
        self._directory_id = directory_id
        self._broker_epoch = broker_epoch
        self._publish = publish
        self._now_ms = now_ms
        self._on_caught_up = on_caught_up
        self._request_timeout_ms = request_timeout_ms
        self._replayed = EMPTY_IMAGE
        self._published = False
        self._leader_epoch: LeaderEpoch | None = log.epochs.latest
        self._committed: Offset = 0
        self._target: Offset | None = None
        self._replaying = asyncio.Lock()

    async def registered(self) -> None:
        """Publish the first image if only the broker epoch was missing; call it when the epoch is known."""
        await self._replay()

    async def run(self) -> None:
        """Follow the log until cancelled.

        Raises:
            MetadataDivergedError: see the class.
            KafkaError: a record cannot be replayed, or the disk does not take the log.
        """
        while True:
            sent_ms = self._now_ms()
            try:
                response = await self._link.request(self._fetch(), MAX_WAIT_MS + self._request_timeout_ms)
            except ControllerUnreachableError as error:
                logger.info("the metadata log could not be fetched: %s", error)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            high_watermark = await self._answered(response)
            if self._published and high_watermark is not None and self._replayed.end_offset >= high_watermark:
                self._on_caught_up(sent_ms)

    def _fetch(self) -> Any:
        broker_epoch = self._broker_epoch()
        latest = self._log.epochs.latest
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._node_id, replica_epoch=-1 if broker_epoch is None else broker_epoch
            ),
            max_wait=timedelta(milliseconds=MAX_WAIT_MS),
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            topics=(
                FetchTopic(
                    topic_id=CLUSTER_METADATA_TOPIC_ID,
                    partitions=(
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=-1 if self._leader_epoch is None else self._leader_epoch,
                            fetch_offset=self._log.log_end_offset,
                            last_fetched_epoch=-1 if latest is None else latest,
                            log_start_offset=self._log.log_start_offset,
                            partition_max_bytes=FETCH_MAX_BYTES,
                            replica_directory_id=self._directory_id,
                        ),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        )

    async def _answered(self, response: Any) -> Offset | None:
        """Take an answer in; return the controller's high watermark, None if the fetch was refused."""
        partitions = [partition for topic in response.responses for partition in topic.partitions]
        error_code = response.error_code
        if error_code is ErrorCode.none and len(partitions) == 1:
            error_code = partitions[0].error_code
        if error_code is not ErrorCode.none or len(partitions) != 1:
            await self._refused(error_code, partitions)
            return None
        partition = partitions[0]
        if partition.diverging_epoch.end_offset >= 0:
            self._truncate(partition.diverging_epoch)
            return None
        if partition.records:
            self._log.append_as_follower(partition.records)
        self._committed = min(partition.high_watermark, self._log.log_end_offset)
        if self._target is None:
            self._target = partition.high_watermark
        await asyncio.gather(asyncio.to_thread(self._log.flush), self._replay())
        high_watermark: Offset = partition.high_watermark
        return high_watermark

    async def _refused(self, error_code: ErrorCode, partitions: list[Any]) -> None:
        if error_code in (ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch):
            leader_epoch = partitions[0].current_leader.leader_epoch
            self._leader_epoch = leader_epoch if leader_epoch >= 0 else None
        elif error_code is ErrorCode.offset_out_of_range:
            raise MetadataDivergedError(
                f"the controller's metadata log does not reach offset {self._log.log_end_offset}, where this "
                f"broker's copy in {self._log.directory} ends"
            )
        else:
            logger.warning("the metadata log could not be fetched: %s", error_code.name)
        await asyncio.sleep(RETRY_MS / 1000)

    def _truncate(self, diverging_epoch: Any) -> None:
        found = self._log.epochs.end_offset_for(diverging_epoch.epoch, self._log.log_end_offset)
        end_offset = min(
            self._log.log_end_offset if found is None else found.end_offset, diverging_epoch.end_offset
        )
        if end_offset < self._replayed.end_offset:
            raise MetadataDivergedError(
                f"the controller's metadata log parts from this broker's at offset {end_offset}, but records "
                f"up to {self._replayed.end_offset} were committed and acted on"
            )
        logger.warning("truncating the metadata log from %d to %d", self._log.log_end_offset, end_offset)
        if end_offset >= self._log.log_end_offset:
            raise MetadataDivergedError(f"the controller reports a divergence at {end_offset}, the log's end")
        self._log.truncate_to(end_offset)

    async def _replay(self) -> None:
        """Take in what is committed and not replayed yet, and publish where that is allowed."""
        async with self._replaying:
            while self._replayed.end_offset < self._committed:
                records, last_offset, leader_epoch = self._read(self._replayed.end_offset, self._committed)
                self._replayed, delta = self._replayed.apply(records, last_offset, leader_epoch)
                if self._published:
                    await self._publish(self._replayed, delta)
            if not self._published and self._may_publish():
                self._published = True
                await self._publish(self._replayed, _everything(self._replayed))

    def _may_publish(self) -> bool:
        registration = self._replayed.brokers.get(self._node_id)
        return (
            self._target is not None
            and self._replayed.end_offset >= self._target
            and registration is not None
            and registration.broker_epoch == self._broker_epoch()
        )

    def _read(self, offset: Offset, committed: Offset) -> tuple[list[MetadataRecord], Offset, LeaderEpoch]:
        """Return the records of whole batches from `offset` on, the last offset, and its leader epoch."""
        region = self._log.read(offset, max_bytes=REPLAY_CHUNK_BYTES, up_to_offset=committed).region
        data = b"" if region is None else region.read()
        records: list[MetadataRecord] = []
        last_offset, leader_epoch = offset - 1, 0
        for position, header in iterate_headers(data):
            last_offset, leader_epoch = header.last_offset, header.partition_leader_epoch
            if header.is_control:
                continue
            for record in read_records(data, header, position):
                if record.value is None:
                    raise MetadataDivergedError(f"the metadata record at offset {record.offset} has no value")
                records.append(decode_record(record.value))
        if last_offset < offset:
            raise MetadataDivergedError(
                f"the copy of the metadata log in {self._log.directory} has no batch at offset {offset}"
            )
        return records, last_offset, leader_epoch


def _everything(image: MetadataImage) -> MetadataDelta:
    """Return the difference between nothing and `image`."""
    return MetadataDelta(
        changed_topics={
            topic_id: frozenset(topic.partitions) for topic_id, topic in image.topics.by_id.items()
        },
        created_topics=frozenset(image.topics.by_id),
        changed_configs=frozenset(image.configs),
        changed_brokers=frozenset(image.brokers),
        changed_features=frozenset(image.features),
    )
