"""Rebuilding a log's producer state off the loop, after a truncation has removed some of it.

The log is truncated at once, which is cheap; the producers' earlier batches are then read from the nearest
snapshot on: at most a segment's headers. Rule kept: while that is under way nothing is appended. A retry
would be appended twice, and the next snapshot would make that permanent.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Final

from sparklog.node.storage.files import storage_errors
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.producers.producer_replay import load_producers
from sparklog.node.storage.producers.unwritten_snapshots import UnwrittenSnapshots
from sparklog.node.storage.segments.segment import Segment
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import Offset, TimestampMs

_PAUSE_S: Final = 0.001
"""Pause between portions of headers, so that the event loop gets the interpreter."""


class LoadingCancelledError(Exception):
    """The producers are no longer needed: the log was truncated again, emptied or closed."""


class ProducerLoading:
    """The producers of a log that ends at `log_end_offset`, to be loaded."""

    def __init__(
        self,
        directory: Path,
        segments: Sequence[Segment],
        snapshots: UnwrittenSnapshots,
        log_end_offset: Offset,
    ) -> None:
        self.log_end_offset = log_end_offset
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self._cancelled = Event()

    def cancel(self) -> None:
        """Make `run` end soon; safe from any thread."""
        self._cancelled.set()

    def run(self, now_ms: TimestampMs) -> ProducerStates:
        """Return the producers, as `load_producers` does. Blocks; for one thread off the loop.

        Raises:
            LoadingCancelledError: by `cancel`.
            KafkaError: KAFKA_STORAGE_ERROR: the files cannot be read, or are damaged.
        """
        try:
            self._pause()
            with storage_errors(f"load the producers of {self._directory}"):
                self._snapshots.write()
                producers = load_producers(
                    self._directory,
                    self._segments,
                    log_end_offset=self.log_end_offset,
                    replay_from=self.log_end_offset,
                    now_ms=now_ms,
                    pause=self._pause,
                )
            self._pause()
            return producers
        except Exception as error:
            # A log that is truncated, closed or renamed while it is read is cancelled first: its errors are
            # no disk failure.
            self._pause()
            if not isinstance(error, CorruptBatchError | ValueError):
                raise
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"cannot load the producers of {self._directory}: {error}"
            ) from error

    def _pause(self) -> None:
        if self._cancelled.wait(_PAUSE_S):
            raise LoadingCancelledError(f"the producers of {self._directory} are no longer needed")
