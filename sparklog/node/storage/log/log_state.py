"""The attributes of a log: files, offsets, leader epochs, producers.

`log` documents the threads that may change them. The parts of a log,
`log_appends`, `log_reads`, `log_truncation` and `log_flushing`, work on them; none of them knows another.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from sparklog.node.storage.checkpoints import write_leader_epochs
from sparklog.node.storage.files import LEADER_EPOCH_CHECKPOINT, partition_of, storage_error, storage_errors
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.producers.producer_loading import ProducerLoading
from sparklog.node.storage.producers.unwritten_snapshots import UnwrittenSnapshots
from sparklog.node.storage.recovery.recovery import LoadedLog
from sparklog.node.storage.segments.segment_list import SegmentList
from sparklog.protocol.types import LeaderEpoch, Offset, TimestampMs


class Truncations:
    """Truncations of a log while other threads read it.

    A look-up holds no lock: it may wait for a disk, and appends must not wait for it. It counts truncations
    instead: if there was one meanwhile, its result may stem from the middle of the change, and it is
    repeated. Results from before appends and dropped segments remain true.
    """

    def __init__(self) -> None:
        self.begun = 0
        """Number of truncations so far."""
        self._running = Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold up look-ups and flushes during a truncation."""
        with self._running:
            self.begun += 1
            yield

    @contextmanager
    def excluded(self) -> Iterator[int]:
        """Exclude truncations; yields their number so far."""
        with self._running:
            yield self.begun


class LogState:
    def __init__(self, directory: Path, config: LogConfig, loaded: LoadedLog) -> None:
        self.directory = directory
        self.topic_partition = partition_of(directory.name)
        self.config = config
        """Changed by `Log.reconfigure`."""
        self.segments = SegmentList(directory, loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.loading: ProducerLoading | None = None
        """Remaining work of the last truncation, None for none; see `LogTruncation.truncate_to`."""
        self.snapshots = UnwrittenSnapshots(directory)
        self.log_start_offset = loaded.log_start_offset
        """The first offset that may be read, here or in the tier."""
        self.log_start_is_guessed = loaded.log_start_is_guessed
        """Whether nothing has confirmed the start of a tiered log since a stop of the machine."""
        self.log_end_offset = loaded.log_end_offset
        """The offset of the next record."""
        self.recovery_point = loaded.recovery_point
        """All data below is fsynced."""
        self.checkpointed_recovery_point: Offset = 0
        """Highest recovery point that the checkpoint file may have for this log; set by the file's writer."""
        self.may_have_gaps = loaded.may_have_gaps
        self.gaps_are_noted = False
        """Whether the directory has the marker of offset gaps: recovery does not know the topic's
        configuration."""
        self.cleaned_offset: Offset | None = None
        """The offset below which a cleaning has read every record; None for a log that was never cleaned."""
        self.checkpointed_cleaned_offset: Offset = 0
        """Highest cleaned offset that the checkpoint file may have for this log."""
        self.truncations = Truncations()
        self.metadata_unsynced = True
        """Leader epochs or directory entries are not fsynced."""
        self.is_torn = False
        """Files and memory differ."""
        self.is_closed = False
        self.successor: LogState | None = None
        """The log that has replaced this one, in another directory: pending readers continue there."""

    @property
    def local_log_start_offset(self) -> Offset:
        """The first readable offset of the files; the log start offset may lie below, in the tier."""
        return max(self.log_start_offset, self.segments.all[0].base_offset)

    @property
    def is_checkpointed_too_high(self) -> bool:
        """Whether recovery would trust records written after a truncation, or the cleaner skip them."""
        return (
            self.recovery_point < self.checkpointed_recovery_point
            or (self.cleaned_offset or 0) < self.checkpointed_cleaned_offset
        )

    def move_to(self, directory: Path) -> None:
        """Set the directory after a rename. No other thread may use the log."""
        self.directory = directory
        self.segments.move_to(directory)
        self.snapshots.move_to(directory)
        self.metadata_unsynced = True

    def assign_leader_epoch(self, leader_epoch: LeaderEpoch) -> None:
        """Record that `leader_epoch` begins at the log end offset, when the broker becomes leader.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.epochs.assign(leader_epoch, self.log_end_offset):
            self.write_epochs()

    def write_epochs(self) -> None:
        """Write the leader epochs to their checkpoint file.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        # Not fsynced: after a crash of the machine recovery finds the epochs in the batches, and a flush
        # fsyncs before it lets recovery begin above them.
        write_leader_epochs(self.directory / LEADER_EPOCH_CHECKPOINT, self.epochs.entries, sync=False)
        self.metadata_unsynced = True

    def roll_at(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Begin a new segment at `base_offset`, the log end offset or above.

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
        """Turn an error during `action` into KAFKA_STORAGE_ERROR; mark files and memory as different."""
        try:
            yield
        except OSError as error:
            self.is_torn = True
            raise storage_error(action, error) from error
