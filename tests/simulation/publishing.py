"""What a broker's process makes of its copy of the metadata log, as the production `MetadataLoader` decides.

It mirrors the shell `sparklog.executor.metadata.publisher`, and takes snapshots of what was replayed.
"""

from typing import TYPE_CHECKING

from sparklog.executor.metadata.machine.metadata_loader import MetadataLoader
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata_log.machine.snapshot_schedule import SnapshotSchedule
from sparklog.protocol.types import Offset

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess


class Publishing:
    """The metadata as one broker knows it."""

    def __init__(self, broker: "BrokerProcess") -> None:
        self._broker = broker
        self._snapshots = SnapshotSchedule(broker.world.snapshot_limits, now_ms=broker.now_ms)
        snapshot = broker.disk.metadata.snapshot
        self._loader = MetadataLoader(broker.broker_id, EMPTY_IMAGE if snapshot is None else snapshot.image)
        if snapshot is not None:
            broker.world.snapshot_loaded(broker, snapshot.image)

    @property
    def has_begun(self) -> bool:
        """Whether the broker acts on metadata by now."""
        return self._loader.has_published

    def fetched(self, committed: Offset, leader_high_watermark: Offset, sent_ms: int) -> None:
        """A fetch sent at `sent_ms` was answered; the own copy is committed below `committed`."""
        self._loader.fetched(committed, leader_high_watermark, sent_ms)
        self.go_on()

    def replaced(self, image: MetadataImage) -> None:
        """The own copy begins behind a snapshot, that of `image`."""
        if self._loader.begin_behind(image):
            self._broker.world.snapshot_loaded(self._broker, image)
        self.go_on()

    def go_on(self) -> None:
        """Take in what is committed of the copy, and have the broker act on it if it may."""
        broker, loader = self._broker, self._loader
        while True:
            if (publication := loader.next_publication(broker.broker_epoch)) is not None:
                broker.publish(*publication)
            elif (unread := loader.unread) is not None:
                self._replay(*unread)
            else:
                break
        if (sent_ms := loader.caught_up_ms()) is not None:
            broker.known_lifecycle.metadata_fetched(sent_ms)

    def _replay(self, offset: Offset, committed: Offset) -> None:
        broker, copy = self._broker, self._broker.voting.copy
        batches = copy.batches[copy.index_of(offset) : copy.index_of(committed)]
        records = [record for batch in batches for record in batch.records]
        self._loader.replay(records, batches[-1].last_offset, batches[-1].leader_epoch)
        image = self._loader.image
        broker.world.image_replayed(broker, image)
        self._snapshots.replayed(len(records))
        if self._snapshots.is_due(broker.now_ms):
            self._snapshots.taken(broker.now_ms)
            copy.take_snapshot(image)
