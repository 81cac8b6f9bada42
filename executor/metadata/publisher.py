"""The publisher of metadata images, which replays the committed part of the metadata log.

`MetadataLoader` decides on replays and images. Subscribers apply an image one after the other, in the order
of their subscriptions, and the next one when all have; fetching goes on meanwhile.

A record that cannot be replayed ends `run` with the error: a broker that is not sure of its metadata must
not serve.

Source: Kafka's MetadataLoader and its MetadataPublishers.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from kio.schema.voters_record.v0.data import VotersRecord

from sparklog.executor.metadata.machine.metadata_loader import MetadataLoader
from sparklog.executor.metadata.machine.quorum_voter import MetadataDivergedError
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.loop.garbage import without_collections
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.framing import decode_record
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine.control_records import read_control_record, voter_set_of
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import BrokerEpoch, Offset

REPLAY_CHUNK_BYTES: Final = 64 * 1024
"""Some thousand records, which are replayed in a row: a mebibyte of them held the loop for 0.3 s."""


class MetadataSubscriber(Protocol):
    """A part of the broker that acts on metadata."""

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Act on `image`; `delta` has the changes since the last call, or since the empty image."""
        ...


class MetadataPublisher:
    """The publications of one broker's copy of the metadata log."""

    def __init__(
        self,
        replica: MetadataReplica,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_caught_up: Callable[[int], None],
    ) -> None:
        """Publish what lies in the log of `replica`.

        `on_caught_up` is called with the time at which a fetch was sent whose answer leaves nothing to apply.
        """
        self.image: MetadataImage = EMPTY_IMAGE
        """The cluster as the subscribers know it, or are about to."""
        self._log = replica.log
        self._snapshot_taker = replica.snapshot_taker
        self._broker_epoch = broker_epoch
        self._on_caught_up = on_caught_up
        loaded = replica.loaded
        self._loader = MetadataLoader(
            replica.voter.key.node_id, EMPTY_IMAGE if loaded is None else loaded.image
        )
        self._voters: VoterSet | None = None if loaded is None else loaded.voters
        self._subscribers: list[MetadataSubscriber] = []
        self._wake = asyncio.Event()

    def subscribe(self, *subscribers: MetadataSubscriber) -> None:
        """Add subscribers, after the existing ones; before the first image."""
        self._subscribers += subscribers

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """Note the answer to a fetch sent at `sent_ms`: the own log is committed below `committed`."""
        self._loader.fetched(committed, leader_high_watermark, sent_ms)
        self._wake.set()

    def replaced(self, snapshot: MetadataSnapshot) -> None:
        """Note that the log begins behind `snapshot`, downloaded because the leader's log does."""
        if self._loader.begin_behind(snapshot.image):
            self._voters = snapshot.voters
            self._snapshot_taker.loaded()
        self._wake.set()

    def registered(self) -> None:
        """Publish the first image if it waited only for the broker epoch, which is known now."""
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
            while await self._go_on():  # noqa: ASYNC110  (others have their turn)
                await asyncio.sleep(0)
            if (sent_ms := self._loader.caught_up_ms()) is not None:
                self._on_caught_up(sent_ms)

    async def _go_on(self) -> bool:
        """Publish an image, or replay records; return whether there was work."""
        if (publication := self._loader.next_publication(self._broker_epoch())) is not None:
            image, delta = publication
            self.image = image
            for subscriber in self._subscribers:
                await subscriber.apply(image, delta)
        elif (unread := self._loader.unread) is not None:
            with without_collections() as step:
                step.lasting_count = self._replay(*unread)
        else:
            return False
        return True

    def _replay(self, offset: Offset, committed: Offset) -> int:
        """Replay the next records of the log up to `committed`; return their number."""
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
        self._loader.replay(records, last.last_offset, last.partition_leader_epoch)
        metadata = MetadataSnapshot(self._loader.image, self._voters, last.max_timestamp)
        self._snapshot_taker.applied(metadata, len(data))
        return len(records)
