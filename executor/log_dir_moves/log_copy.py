"""The current log of a replica and its copy: how the copy follows the log, and takes its place.

The copy follows as a follower does its leader (`PartitionFollower`): it is truncated where the epochs
diverge, restarts where the log has restarted, and drops what the log has dropped. It lacks what only the tier
has. Methods state where they run: on the loop, or off it (they block, and change only the copy). One at a
time.

Source: Kafka's ReplicaAlterLogDirsThread over LocalLeaderEndPoint,
Partition.maybeReplaceCurrentWithFutureReplica.
"""

from dataclasses import dataclass, field
from typing import Final

from sparklog.executor.partitions.following import Following
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.machine.follower import FetchAnswered
from sparklog.executor.partitions.replica import Replica
from sparklog.node.storage.file_region import NotCachedError
from sparklog.node.storage.log.log import LAST_LEADER_EPOCH, Log
from sparklog.node.storage.machine.epoch_checks import fetch_divergence
from sparklog.node.storage.results import ReadResult
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TimestampMs

RANGE_BYTES: Final = 1 << 20
"""The bytes of one copied range, as many as a follower fetches of a partition (replica.fetch.max.bytes)."""
NEAR_BYTES: Final = 1 << 20
"""The bytes that may be copied on the loop."""
_OWN: Final = 0
"""The leader id of a copy, which has no meaning."""


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """A range read from the current log after the end of the copy."""

    records: bytes
    """Empty, if there are none up to `end_offset`."""
    end_offset: Offset
    """The log's end when it was read."""
    truncation_count: int
    """The number of the log's truncations when it was read."""


@dataclass(slots=True)
class LogCopy:
    replica: Replica
    future: FutureReplica
    _log: Log = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.future.log

    @property
    def is_settling(self) -> bool:
        """Whether the current log was truncated and has not loaded its producers yet."""
        return self.replica.log.loading is not None

    @property
    def is_near(self) -> bool:
        """Whether the rest of the log is small and cached, so that it can be copied on the loop."""
        if self.future.lag == 0:
            return True
        end_offset = self.replica.log.log_end_offset
        try:
            found = self._read(end_offset, NEAR_BYTES, cached_only=True)
        except NotCachedError:
            return False
        return found.region is None or found.next_offset == end_offset

    def follow_cuts(self, wall_ms: TimestampMs) -> None:
        """Truncate the copy where the current log was truncated. On the loop; may set `Log.loading`.

        Raises:
            KafkaError: kafka_storage_error, of the copy.
        """
        current, following = self.replica.log, self._following()
        fetch = following.next_fetch
        if fetch is None:
            return
        start, end = current.log_start_offset, current.log_end_offset
        if start <= fetch.offset < current.local_log_start_offset:
            # Local retention has run ahead of the copy, or the records were never here.
            self._log.adopt(
                leader_epochs=current.epochs.entries,
                producers=None,
                log_start_offset=start,
                end_offset=current.local_log_start_offset,
                now_ms=wall_ms,
            )
            return
        error_code, diverging_epoch = ErrorCode.none, None
        try:
            diverging_epoch = fetch_divergence(current, fetch.last_fetched_epoch, fetch.offset, start, end)
        except KafkaError as error:
            error_code = error.error_code
        if error_code is ErrorCode.none and diverging_epoch is None:
            return
        answered = FetchAnswered(
            LAST_LEADER_EPOCH, fetch.offset, error_code, None, start, diverging_epoch, False
        )
        following.take(answered, b"", wall_ms)

    def read(self, end_offset: Offset, truncation_count: int) -> CopiedRange:
        """Read the next range of the current log, up to `end_offset`. Off the loop.

        Raises:
            KafkaError, OSError: the current log cannot be read.
        """
        records = _records(self._read(end_offset, RANGE_BYTES))
        return CopiedRange(records, end_offset, truncation_count)

    def append(self, copied: CopiedRange, wall_ms: TimestampMs) -> None:
        """Append a range, and maintain the copy. Off the loop.

        Raises:
            KafkaError, OSError: the copy cannot be written, or the range is damaged.
        """
        log = self._log
        self._take(copied.records, copied.end_offset, wall_ms)
        log.delete_old_segments(wall_ms, self.future.high_watermark, only_below_start=True)
        if log.has_rolled:
            log.flush_rolled()
        if log.segments.has_files_due(wall_ms):
            log.delete_files_due(wall_ms)

    def replace(self, wall_ms: TimestampMs) -> Log:
        """Copy the rest, and make the copy the replica's log; return the old one. On the loop.

        Raises:
            KafkaError, OSError: of the copy; the replica keeps its log.
        """
        replica, log = self.replica, self._log
        current = replica.log
        end_offset = current.log_end_offset
        if self.future.lag:
            self._take(_records(self._read(end_offset, NEAR_BYTES)), end_offset, wall_ms)
        log.advance_log_start_offset(current.log_start_offset)
        log.take_place_of(current)
        replica.take_log(log)
        return current

    def _read(self, end_offset: Offset, max_bytes: int, *, cached_only: bool = False) -> ReadResult:
        return self.replica.log.read(
            self._log.log_end_offset, max_bytes=max_bytes, up_to_offset=end_offset, cached_only=cached_only
        )

    def _take(self, records: bytes, end_offset: Offset, wall_ms: TimestampMs) -> None:
        log, current = self._log, self.replica.log
        if not records:
            # The records in between were compacted away.
            log.skip_to(end_offset, wall_ms)
            return
        answered = FetchAnswered(
            leader_epoch=LAST_LEADER_EPOCH,
            fetch_offset=log.log_end_offset,
            error_code=ErrorCode.none,
            high_watermark=self.replica.high_watermark,
            log_start_offset=current.log_start_offset,
            diverging_epoch=None,
            has_records=True,
        )
        self._following().take(answered, records, wall_ms)

    def _following(self) -> Following:
        # Its leader is this broker's own log, which has no epochs but those of its records.
        return Following(self._log, _OWN, LAST_LEADER_EPOCH, self.future.high_watermark)


def _records(found: ReadResult) -> bytes:
    return b"" if found.region is None else found.region.read()
