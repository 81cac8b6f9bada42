"""A copy of the metadata log: on a broker's disk, where it votes, or in the driver, which copies the longest.

Batches are shared between copies and never change, so two copies agree where they hold the same objects. What
is above `flushed_offset` does not survive a crash of the machine. A copy may begin behind a snapshot.
"""

from bisect import bisect_right
from random import Random
from typing import NamedTuple

from sparklog.driver.controller.machine.voter_history import VoterHistory
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine import snapshot_records as snapshots
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.needed_snapshot import needed_snapshot
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.node.storage.machine.epoch_checks import fetch_divergence, truncation_offset
from sparklog.node.storage.machine.leader_epochs import EpochEndOffset, LeaderEpochs
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import LeaderEpoch, Offset, SnapshotId

MAX_BATCHES = 20


class MetadataBatch(NamedTuple):
    """One batch of the metadata log; a control batch has no records, and may name voters."""

    base_offset: Offset
    records: list[MetadataRecord]
    last_offset: Offset
    leader_epoch: LeaderEpoch
    voters: VoterSet | None


class Snapshot(NamedTuple):
    """All that is below an offset, as records."""

    snapshot_id: SnapshotId
    records: tuple[MetadataRecord, ...]
    voters: VoterSet | None

    @property
    def image(self) -> MetadataImage:
        """What the records make."""
        return snapshots.image_of_snapshot(self.snapshot_id, self.records)


class Reading(NamedTuple):
    """What a reader of a copy is told: an error, where it parts, a snapshot to begin with, or batches."""

    error_code: ErrorCode = ErrorCode.none
    diverging: EpochEndOffset | None = None
    snapshot: Snapshot | None = None
    batches: tuple[MetadataBatch, ...] = ()


class MetadataCopy:
    """One copy."""

    def __init__(self) -> None:
        self.batches: list[MetadataBatch] = []
        self.epochs = LeaderEpochs()
        self.voter_history = VoterHistory()
        self.snapshot: Snapshot | None = None
        self.start_offset: Offset = 0
        self.end_offset: Offset = 0
        self.flushed_offset: Offset = 0

    @property
    def position(self) -> LogPosition:
        """How far it reaches."""
        return LogPosition(self.epochs.latest or 0, self.end_offset)

    def append(self, batch: MetadataBatch) -> None:
        """Add the next batch."""
        assert batch.base_offset == self.end_offset, f"{batch.base_offset} after {self.end_offset}"
        self.epochs.assign(batch.leader_epoch, batch.base_offset)
        self.batches.append(batch)
        self.end_offset = batch.last_offset + 1
        if batch.voters is not None:
            self.voter_history.append(batch.last_offset, batch.voters)

    def truncate_to(self, offset: Offset) -> None:
        """Forget batches from the one with `offset` on."""
        while self.batches and self.batches[-1].last_offset >= offset:
            self.batches.pop()
        self.end_offset = self.batches[-1].last_offset + 1 if self.batches else self.start_offset
        self.flushed_offset = min(self.flushed_offset, self.end_offset)
        self.epochs.truncate_from_end(self.end_offset)
        self.voter_history.truncate_to(self.end_offset)

    def lose_unflushed(self, random: Random) -> None:
        """The machine crashes."""
        if self.end_offset > self.flushed_offset:
            self.truncate_to(random.randint(self.flushed_offset, self.end_offset))
            self.flushed_offset = self.end_offset

    def index_of(self, offset: Offset) -> int:
        """Return the number of the batch with `offset`."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.last_offset + 1)

    def read(self, offset: Offset, last_epoch: LeaderEpoch | None) -> Reading:
        """Answer who has everything below `offset`, the last of it from `last_epoch`."""
        snapshot_id = None if self.snapshot is None else self.snapshot.snapshot_id
        if needed_snapshot(
            offset, last_epoch, log_start_offset=self.start_offset, oldest=snapshot_id, newest=snapshot_id
        ):
            return Reading(snapshot=self.snapshot)
        try:
            diverging = fetch_divergence(self, last_epoch, offset, self.start_offset, self.end_offset)
        except KafkaError as error:
            return Reading(error.error_code)
        if diverging is not None:
            return Reading(diverging=EpochEndOffset(*diverging))
        first = self.index_of(offset)
        return Reading(batches=tuple(self.batches[first : first + MAX_BATCHES]))

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> EpochEndOffset | None:
        """Return where that leader epoch, or the one before it, ends here."""
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    def truncation_offset(self, diverging: EpochEndOffset) -> Offset:
        """Return where to truncate by what a leader says."""
        return truncation_offset(self, diverging, self.start_offset, self.end_offset)

    def begin_behind(self, snapshot: Snapshot) -> None:
        """Give up everything for a snapshot, which is on the disk."""
        self.batches.clear()
        self.epochs.clear()
        self.snapshot = snapshot
        end_offset, leader_epoch = snapshot.snapshot_id
        self.start_offset = self.end_offset = self.flushed_offset = end_offset
        self.epochs.assign(leader_epoch, end_offset - 1)
        self.voter_history.begin_at(end_offset, snapshot.voters)

    def take_snapshot(self, image: MetadataImage) -> None:
        """Write a snapshot of a committed image, and forget the batches that are in it."""
        snapshot_id = snapshots.snapshot_id_of(image)
        voters = self.voter_history.before(snapshot_id.end_offset)
        self.snapshot = Snapshot(snapshot_id, tuple(snapshots.snapshot_records(image)), voters)
        del self.batches[: self.index_of(snapshot_id.end_offset)]
        self.start_offset = snapshot_id.end_offset
        self.epochs.truncate_from_start(self.start_offset - 1)
