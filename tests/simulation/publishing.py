"""What a broker's process makes of its copy of the metadata log: images that it acts on, and snapshots.

It mirrors the shell `executor.metadata.publisher`: what is committed is replayed at once, and acted on once
the broker knows its own registration and as much as its leader did when it came.
"""

from typing import TYPE_CHECKING

from executor.metadata.machine.snapshot_delta import difference
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.replay import replay_records
from sparklog.metadata_log.machine.snapshot_schedule import SnapshotSchedule
from sparklog.types import Offset

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess


class Publishing:
    """The metadata as one broker knows it."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        self.has_begun = False
        """Whether the broker acts on metadata by now."""
        self._replayed: MetadataImage = EMPTY_IMAGE
        self._committed: Offset = 0
        self._target: Offset | None = None
        self._snapshots = SnapshotSchedule(broker.world.snapshot_limits, now_ms=broker.now_ms)
        snapshot = broker.disk.metadata.snapshot
        if snapshot is not None:
            self._replayed = snapshot.image
            broker.world.snapshot_loaded(broker, self._replayed)

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """A fetch sent at `sent_ms` was answered; the own copy is committed below `committed`."""
        self._committed = max(self._committed, committed)
        if self._target is None:
            self._target = leader_high_watermark
        self.replay()
        if self.has_begun and self._replayed.end_offset >= leader_high_watermark:
            self._broker.known_lifecycle.metadata_fetched(sent_ms)

    def replay(self) -> None:
        """Take in what is committed of the copy, and have the broker act on it if it may."""
        broker = self._broker
        world, copy, before = broker.world, broker.voting.copy, self._replayed
        delta: MetadataDelta | None = None
        if copy.snapshot is not None and before.end_offset < copy.start_offset:
            self._replayed = copy.snapshot.image
            delta = difference(before, self._replayed)
            world.snapshot_loaded(broker, self._replayed)
        elif before.end_offset < self._committed:
            first, end = copy.index_of(before.end_offset), copy.index_of(self._committed)
            batches = copy.batches[first:end]
            if batches:
                records = [record for batch in batches for record in batch.records]
                last = batches[-1]
                self._replayed, delta = replay_records(before, records, last.last_offset, last.leader_epoch)
                world.image_replayed(broker, self._replayed)
                self._snapshots.replayed(len(records))
        if delta is not None and self.has_begun:
            broker.publish(self._replayed, delta)
        if not self.has_begun and self._may_begin():
            self.has_begun = True
            broker.publish(self._replayed, difference(EMPTY_IMAGE, self._replayed))
        if delta is not None and self._snapshots.is_due(self._replayed, broker.now_ms):
            self._snapshots.taken(broker.now_ms)
            copy.take_snapshot(self._replayed)
        if delta is not None and self._replayed.end_offset < self._committed:
            self.replay()

    def _may_begin(self) -> bool:
        registration = self._replayed.brokers.get(self._broker.broker_id)
        return (
            self._target is not None
            and self._replayed.end_offset >= self._target
            and registration is not None
            and registration.broker_epoch == self._broker.broker_epoch
        )
