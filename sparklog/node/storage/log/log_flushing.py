"""Flushes of a log to the disk, and the recovery point, up to which it is flushed.

Safe in one thread beside the thread that changes the log. The owner of a log calls `flush_rolled` when it
`has_rolled`, so that a start after a crash reads only the active segment. Rule kept: the recovery point
passes only fsynced data, and a truncation moves it back even if a flush is running.
"""

from pathlib import Path
from threading import Lock

from sparklog.node.storage.files import (
    LEADER_EPOCH_CHECKPOINT,
    is_disk_error,
    storage_errors,
    sync_directory,
    sync_file,
)
from sparklog.node.storage.log.log_state import LogState
from sparklog.node.storage.log_config import LogConfig
from sparklog.node.storage.recovery.recovery import LoadedLog
from sparklog.protocol.errors import KafkaError


class LogFlushing(LogState):
    def __init__(self, directory: Path, config: LogConfig, loaded: LoadedLog, *, is_new: bool) -> None:
        """`is_new`: the directory's entry in its parent may not be fsynced yet."""
        super().__init__(directory, config, loaded)
        self._is_new = is_new
        self._failure: KafkaError | None = None
        self._given_up = False
        self._running = Lock()

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages or more records lie above the recovery point: call `flush`."""
        limit = self.config.flush_messages
        return limit is not None and self.log_end_offset - self.recovery_point >= limit

    @property
    def has_rolled(self) -> bool:
        """Whether a sealed segment or a snapshot is not fsynced yet: call `flush_rolled`."""
        return bool(self.snapshots) or self.recovery_point < min(
            self.segments.active.base_offset, self.log_end_offset
        )

    def flush(self) -> None:
        """fsync the data above the recovery point; move the point to the log end offset at the call.

        A disk failure is final: the system may have dropped the data and report success for the next fsync. A
        log that was closed without a flush is not flushed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, always after the first disk failure.
        """
        self._flush(with_active=True)

    def flush_rolled(self) -> None:
        """`flush` all but the active segment, and move the recovery point to its base offset.

        Raises:
            KafkaError: as `flush`.
        """
        self._flush(with_active=False)

    def _flush(self, *, with_active: bool) -> None:
        # One at a time: the recovery point must not pass data that another thread is about to fsync.
        with self._running:
            if self._given_up:
                return
            if self._failure is not None:
                raise self._failure
            try:
                self._sync(with_active=with_active)
            except KafkaError as error:
                if self._given_up:
                    # The directory was renamed meanwhile, or the disk has failed: the log is abandoned.
                    return
                if is_disk_error(error):
                    self._failure = error
                raise

    def _sync(self, *, with_active: bool) -> None:
        with self.truncations.excluded() as truncations:
            end_offset = self.log_end_offset
            segments = self.segments.all
        if not with_active:
            end_offset = min(end_offset, segments[-1].base_offset)
        is_behind = end_offset > self.recovery_point or bool(self.snapshots)
        if not is_behind and not (with_active and self.metadata_unsynced):
            return
        unsynced = [segment for segment in segments if not segment.synced]
        if not with_active:
            unsynced = [segment for segment in unsynced if segment is not segments[-1]]
        with storage_errors(f"flush {self.directory}"):
            self.snapshots.write()
            for segment in unsynced:
                segment.flush(sealed=segment is not segments[-1])
            if self.metadata_unsynced:
                self.metadata_unsynced = False
                try:
                    sync_file(self.directory / LEADER_EPOCH_CHECKPOINT)
                    sync_directory(self.directory)
                except OSError:
                    self.metadata_unsynced = True
                    raise
            if self._is_new:
                sync_directory(self.directory.parent)
                self._is_new = False
        with self.truncations.excluded() as truncations_now:
            if truncations == truncations_now:
                for segment in unsynced:
                    segment.flushed(sealed=segment is not segments[-1])
                self.recovery_point = max(self.recovery_point, end_offset)

    def _give_up(self) -> None:
        """Stop flushing: the log is closed without a flush, and another log may get its directory."""
        self._given_up = True
        self.snapshots.close()
