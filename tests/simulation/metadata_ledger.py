"""What is committed of the metadata, as an all-knowing observer sees it.

A batch is committed when a leader's high watermark passes it. Whatever becomes of drivers and voters, nobody
may ever commit anything else there.
"""

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.protocol.types import Offset
from tests.simulation.metadata_copy import MetadataBatch


class MetadataLedger:
    """The committed metadata log."""

    def __init__(self) -> None:
        self.batches: dict[Offset, MetadataBatch] = {}
        """By base offset."""
        self.images: dict[Offset, MetadataImage] = {}
        """What the log adds up to, by the last offset."""
        self.image: MetadataImage = EMPTY_IMAGE
        self.end_offset: Offset = 0

    def extend(self, batch: MetadataBatch) -> None:
        """Take in the next batch."""
        self.batches[batch.base_offset] = batch
        self.image, _ = replay_records(self.image, batch.records, batch.last_offset, batch.leader_epoch)
        self.images[batch.last_offset] = self.image
        self.end_offset = batch.last_offset + 1
