"""Replays the committed part of the metadata log and tells its subscribers, beside whoever fetches it.

`MetadataLoader` says what is replayed and published. Subscribers are told of an image one after the other, in
the order in which they subscribed, and of the next when all have acted on it; fetching goes on meanwhile.

A record that cannot be replayed ends `run` with the error: a broker that is not sure of its metadata must
not serve.

Source: Kafka's MetadataLoader and its MetadataPublishers.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from sparklog.executor.metadata.machine.metadata_loader import MetadataLoader
from sparklog.executor.metadata.machine.quorum_voter import MetadataDivergedError
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.framing import decode_record
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine.control_records import VotersRecord, read_control_record, voter_set_of
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.protocol.records.batch import BatchHeader, iterate_headers
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import BrokerEpoch, Offset

REPLAY_CHUNK_BYTES: Final = 1024 * 1024


class MetadataSubscriber(Protocol):
    """Whoever acts on the metadata of its broker."""

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Act on `image`; `delta` is what is different since the last call, or since there was nothing."""
        ...


class MetadataPublisher:
    """What one broker makes of its copy of the metadata log."""

    def __init__(
        self,
        replica: MetadataReplica,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_caught_up: Callable[[int], None],
    ) -> None:
        """Publish what lies in the log of `replica`.

        `on_caught_up` is told when a fetch was sent whose answer leaves nothing to apply.
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
        """Have these told of every image, after those that have subscribed before; before the first one."""
        self._subscribers += subscribers

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """A fetch that was sent at `sent_ms` was answered: the own log is committed below `committed`."""
        self._loader.fetched(committed, leader_high_watermark, sent_ms)
        self._wake.set()

    def replaced(self, snapshot: MetadataSnapshot) -> None:
        """The log begins behind `snapshot` now, which was downloaded because the leader's does."""
        if self._loader.begin_behind(snapshot.image):
            self._voters = snapshot.voters
            self._snapshot_taker.loaded()
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
            while await self._go_on():
                pass
            if (sent_ms := self._loader.caught_up_ms()) is not None:
                self._on_caught_up(sent_ms)

    async def _go_on(self) -> bool:
        """Publish an image, or replay some records; return whether there was anything to do."""
        if (publication := self._loader.next_publication(self._broker_epoch())) is not None:
            image, delta = publication
            self.image = image
            for subscriber in self._subscribers:
                await subscriber.apply(image, delta)
        elif (unread := self._loader.unread) is not None:
            self._replay(*unread)
        else:
            return False
        return True

    def _replay(self, offset: Offset, committed: Offset) -> None:
        """Replay whole batches from `offset` on."""
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
