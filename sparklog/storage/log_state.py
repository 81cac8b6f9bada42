"""What the parts of one log share: its files, its offsets, and what it knows of epochs and producers.

`log` says which thread may change what. The parts are `log_appends`, `log_reads`, `log_truncation` and
`log_flushing`; none of them knows another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparklog.storage.checkpoints import write_leader_epochs
from sparklog.storage.files import LEADER_EPOCH_CHECKPOINT, partition_of, storage_error, storage_errors
from sparklog.storage.log_config import LogConfig
from sparklog.storage.producer_loading import ProducerLoading
from sparklog.storage.recovery import LoadedLog
from sparklog.storage.segment_list import SegmentList
from sparklog.storage.truncations import Truncations
from sparklog.storage.unwritten_snapshots import UnwrittenSnapshots
from sparklog.types import LeaderEpoch, Offset, TimestampMs


class LogState:
    """The state of one log."""

    def __init__(self, directory: Path, config: LogConfig, loaded: LoadedLog) -> None:
        self.directory = directory
        self.topic_partition = partition_of(directory.name)
        self.config = config
        self.segments = SegmentList(directory, loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.loading: ProducerLoading | None = None
        """What remains to be done of the last truncation."""
        self.snapshots = UnwrittenSnapshots(directory)
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read."""
        self.log_end_offset = loaded.log_end_offset
        """The offset the next record gets."""
        self.recovery_point = loaded.recovery_point
        """Everything below is on the disk."""
        self.checkpointed_recovery_point: Offset = 0
        """The highest recovery point that a file may have of this log; who writes the file says so here."""
        self.may_have_gaps = loaded.may_have_gaps
        self.gaps_are_noted = False
        """Whether the directory is known to say so: that the topic is compacted recovery is not told."""
        self.cleaned_offset: Offset | None = None
        """Below it a cleaning has met every record; None for a log that was never cleaned."""
        self.checkpointed_cleaned_offset: Offset = 0
        """The highest such offset that a file may have of this log; kept as `checkpointed_recovery_point`."""
        self.truncations = Truncations()
        self.metadata_unsynced = True
        """Epochs, or names in the directory, are not on the disk as they are."""
        self.is_torn = False
        """Files and memory are apart."""
        self.is_closed = False
        self.successor: LogState | None = None
        """The log that has taken this one's place, in another directory: who still reads here reads there."""

    @property
    def is_checkpointed_too_high(self) -> bool:
        """Whether recovery would trust what was written over what was cut, or a cleaner pass it by."""
        return (
            self.recovery_point < self.checkpointed_recovery_point
            or (self.cleaned_offset or 0) < self.checkpointed_cleaned_offset
        )

    def move_to(self, directory: Path) -> None:
        """Find every file in `directory`, which is this log's under another name. Nothing else runs."""
        self.directory = directory
        self.segments.move_to(directory)
        self.snapshots.move_to(directory)
        self.metadata_unsynced = True

    def assign_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Note that `leader_epoch` begins at the log end offset: for a broker that becomes leader.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self.write_epochs()

    def write_epochs(self) -> None:
        """Have the epochs' file say what `epochs` does.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        # Not fsynced: after a crash of the machine recovery finds the epochs in the batches, and a flush
        # fsyncs before it lets recovery begin above them.
        write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, self.epochs.entries, sync=False)
        self.metadata_unsynced = True

    def roll(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Begin a new segment at `base_offset`, which is the log end offset or above.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        with storage_errors(f"roll {self.segments.active.file.path}"):
            has_records = self.segments.active.size_bytes > 0
            self.segments.roll(base_offset, self.config, now_ms)
            if has_records:
                self.snapshots.add(base_offset, self.producers.capture())
            self.metadata_unsynced = True

    @contextmanager
    def all_or_torn(self, action: str) -> Iterator[None]:
        """Turn an error during `action` into KAFKA_STORAGE_ERROR; files and memory are apart then."""
        try:
            yield
        except OSError as error:
            self.is_torn = True
            raise storage_error(action, error) from error
