"""Making out anew what a log remembers of its producers, beside the loop, after a truncation took some of it.

The log is cut at once, which is cheap; what its producers had written before the cut is then read from the
nearest snapshot on: a segment's headers at most. Rule kept: while that is under way the log takes nothing in.
A retry would be appended twice, and the next snapshot would make that last.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import CorruptBatchError
from sparklog.storage.files import storage_errors
from sparklog.storage.machine.producer_states import ProducerStates
from sparklog.storage.producer_replay import load_producers
from sparklog.storage.segment import Segment
from sparklog.storage.unwritten_snapshots import UnwrittenSnapshots
from sparklog.types import Offset, TimestampMs

_PAUSE_S: Final = 0.001
"""Now and then whoever walks through headers lets the loop go first: they share an interpreter."""


class LoadingCancelledError(Exception):
    """Nobody wants the producers any more: the log was cut again, emptied or closed."""


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
        """Have `run` end soon; safe from any thread."""
        self._cancelled.set()

    def run(self, now_ms: TimestampMs) -> ProducerStates:
        """Return the producers, as `load_producers` does. Blocks; for one thread beside the loop.

        Raises:
            LoadingCancelledError: by `cancel`.
            KafkaError: KAFKA_STORAGE_ERROR: the files cannot be read, or not as they were written.
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
            # Whoever cuts, closes or renames a log that is being read cancels first: that is no failed disk.
            self._pause()
            if not isinstance(error, CorruptBatchError | ValueError):
                raise
            raise KafkaError(
                ErrorCode.kafka_storage_error, f"cannot load the producers of {self._directory}: {error}"
            ) from error

    def _pause(self) -> None:
        if self._cancelled.wait(_PAUSE_S):
            raise LoadingCancelledError(f"the producers of {self._directory} are not wanted any more")
