"""Replays the committed part of the metadata log and publishes images, beside whoever fetches it.

Rules kept:
- The first image is published when it holds everything that was committed at the first fetch and, among
  it, the registration of this very incarnation. An older image may still name this broker as leader of
  partitions by virtue of a process that is dead.
- Images are published one at a time and in order. While one is being acted on, fetching goes on.
- It begins with the snapshot that the replica begins with, and goes over to one that was downloaded as if
  all that lies between had been replayed at once.

A record that cannot be replayed ends `run` with the error: a broker that is not sure of its metadata must
not serve.

Source: Kafka's MetadataLoader.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from executor.metadata.machine.quorum_voter import MetadataDivergedError
from executor.metadata.machine.snapshot_delta import difference
from executor.metadata.metadata_replica import MetadataReplica
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.framing import decode_record
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.replay import replay_records
from sparklog.metadata.schemas import MetadataRecord
from sparklog.metadata_log.machine.control_records import VotersRecord, read_control_record, voter_set_of
from sparklog.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.metadata_log.machine.voter_set import VoterSet
from sparklog.records.batch import BatchHeader, iterate_headers
from sparklog.records.builder import read_records
from sparklog.types import BrokerEpoch, BrokerId, Offset, TimestampMs

__all__ = ["MetadataPublisher"]

REPLAY_CHUNK_BYTES: Final = 1024 * 1024


class MetadataPublisher:
    """What one broker makes of its copy of the metadata log."""

    def __init__(
        self,
        replica: MetadataReplica,
        *,
        node_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        publish: Callable[[MetadataImage, MetadataDelta], Awaitable[None]],
        on_caught_up: Callable[[int], None],
    ) -> None:
        """Publish what lies in the log of `replica`.

        `on_caught_up` is told when a fetch was sent whose answer leaves nothing to apply.
        """
        self._log = replica.log
        self._snapshot_taker = replica.snapshot_taker
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._publish = publish
        self._on_caught_up = on_caught_up
        self._replayed = EMPTY_IMAGE
        self._voters: VoterSet | None = None
        self._last_timestamp_ms: TimestampMs = 0
        self._downloaded: MetadataSnapshot | None = None
        if replica.loaded is not None:
            self._replayed, self._voters, self._last_timestamp_ms = replica.loaded
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

    def replaced(self, snapshot: MetadataSnapshot) -> None:
        """The log begins behind `snapshot` now, which was downloaded because the leader's does."""
        self._downloaded = snapshot
        self._committed = max(self._committed, snapshot.image.end_offset)
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
                delta = self._replay()
                if self._published:
                    await self._publish(self._replayed, delta)
            if not self._published and self._may_publish():
                self._published = True
                await self._publish(self._replayed, difference(EMPTY_IMAGE, self._replayed))
            self._tell_what_is_caught_up()

    def _replay(self) -> MetadataDelta:
        """Go on by some records, or to the snapshot behind which the log begins; return what is different."""
        before = self._replayed
        snapshot, self._downloaded = self._downloaded, None
        if snapshot is not None and snapshot.image.end_offset > before.end_offset:
            self._replayed, self._voters, self._last_timestamp_ms = snapshot
            self._snapshot_taker.loaded()
            return difference(before, self._replayed)
        records, header, size_bytes = self._read(before.end_offset, self._committed)
        self._replayed, delta = replay_records(
            before, records, header.last_offset, header.partition_leader_epoch
        )
        self._last_timestamp_ms = header.max_timestamp
        metadata = MetadataSnapshot(self._replayed, self._voters, self._last_timestamp_ms)
        self._snapshot_taker.applied(metadata, size_bytes)
        return delta

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

    def _read(self, offset: Offset, committed: Offset) -> tuple[list[MetadataRecord], BatchHeader, int]:
        """Return the records of whole batches from `offset` on, the header of the last, and their size."""
        region = self._log.read(offset, max_bytes=REPLAY_CHUNK_BYTES, up_to_offset=committed).region
        data = b"" if region is None else region.read()
        records: list[MetadataRecord] = []
        last: BatchHeader | None = None
        for position, header in iterate_headers(data):
            last = header
            for record in read_records(data, header, position):
                if header.is_control:
                    entity = read_control_record(record)
                    if isinstance(entity, VotersRecord):
                        self._voters = voter_set_of(entity)
                    continue
                if record.value is None:
                    raise MetadataDivergedError(f"the metadata record at offset {record.offset} has no value")
                records.append(decode_record(record.value))
        if last is None:
            raise MetadataDivergedError(
                f"the copy of the metadata log in {self._log.directory} has no batch at offset {offset}"
            )
        return records, last, len(data)
