"""Replays the committed part of the metadata log and publishes images, beside whoever fetches it.

Rules kept:
- The first image is published when it holds everything that was committed at the first fetch and, among
  it, the registration of this very incarnation. An older image may still name this broker as leader of
  partitions by virtue of a process that is dead.
- Images are published one at a time and in order. While one is being acted on, fetching goes on.

A record that cannot be replayed ends `run` with the error: a broker that is not sure of its metadata must
not serve.

Source: Kafka's MetadataLoader.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from executor.quorum.quorum_voter import MetadataDivergedError
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.framing import decode_record
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.schemas import MetadataRecord
from sparklog.records.batch import iterate_headers
from sparklog.records.builder import read_records
from sparklog.storage.log import Log
from sparklog.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

__all__ = ["MetadataPublisher"]

REPLAY_CHUNK_BYTES: Final = 1024 * 1024


class MetadataPublisher:
    """What one broker makes of its copy of the metadata log."""

    def __init__(
        self,
        log: Log,
        *,
        node_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        publish: Callable[[MetadataImage, MetadataDelta], Awaitable[None]],
        on_caught_up: Callable[[int], None],
    ) -> None:
        """Publish what lies in `log`.

        `on_caught_up` is told when a fetch was sent whose answer leaves nothing to apply.
        """
        self._log = log
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._publish = publish
        self._on_caught_up = on_caught_up
        self._replayed = EMPTY_IMAGE
        self._published = False
        self._committed: Offset = 0
        self._target: Offset | None = None
        self._answers: deque[tuple[Offset, int]] = deque()
        """Up to where each answered fetch said that the log is committed, and when it was sent."""
        self._wake = asyncio.Event()

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """A fetch that was sent at `sent_ms` was answered: the own log is committed below `committed`."""
        self._committed = max(self._committed, committed)
        if self._target is None:
            self._target = leader_high_watermark
        self._answers.append((leader_high_watermark, sent_ms))
        self._wake.set()

    def registered(self) -> None:
        """The broker epoch is known now; the first image may have waited for nothing else."""
        self._wake.set()

    async def run(self) -> None:
        """Publish what is committed until cancelled.

        Raises:
            MetadataDivergedError: the log is not what was fetched.
            KafkaError: a record cannot be replayed.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._replayed.end_offset < self._committed:
                records, last_offset, leader_epoch = self._read(self._replayed.end_offset, self._committed)
                self._replayed, delta = self._replayed.apply(records, last_offset, leader_epoch)
                if self._published:
                    await self._publish(self._replayed, delta)
            if not self._published and self._may_publish():
                self._published = True
                await self._publish(self._replayed, _everything(self._replayed))
            self._tell_what_is_caught_up()

    def _tell_what_is_caught_up(self) -> None:
        """Tell when the last of the fetches was sent of whose answer nothing is left."""
        newest_ms = None
        while self._answers and self._answers[0][0] <= self._replayed.end_offset:
            newest_ms = self._answers.popleft()[1]
        if newest_ms is not None and self._published:
            self._on_caught_up(newest_ms)

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
