"""One replica's current log and its copy: how the one follows the other, and takes its place.

The copy follows as a follower does its leader (`PartitionFollower`): it is cut where the epochs of the two
part, begins again where the other has begun anew, and lets go of what the other has let go of. Methods say
where they belong: on the loop, or beside it (they block, and change only the copy). One at a time.

Source: Kafka's ReplicaAlterLogDirsThread over LocalLeaderEndPoint,
Partition.maybeReplaceCurrentWithFutureReplica.
"""

from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executor.partitions.following import Following
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.machine.follower import FetchAnswered
from sparklog.executor.partitions.replica import Replica
from sparklog.storage.file_region import NotCachedError
from sparklog.storage.log import Log
from sparklog.storage.machine.epoch_checks import fetch_divergence
from sparklog.storage.results import ReadResult
from sparklog.types import Offset, TimestampMs

RANGE_BYTES: Final = 1 << 20
"""How much is copied in one go, as a follower asks of a partition (replica.fetch.max.bytes)."""
NEAR_BYTES: Final = 1 << 20
"""How much may be taken over on the loop."""
_ANY_EPOCH: Final = 2**31 - 1
_OWN: Final = 0
"""Whom a copy follows: nobody asks which broker that is."""


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """What was read of the current log behind what the copy has."""

    records: bytes
    """None, if there are none up to `end_offset`."""
    end_offset: Offset
    """Of the log, when it was read."""
    truncation_count: int
    """How often the log had been cut."""


@dataclass(slots=True)
class LogCopy:
    """The copy `future` of the log of `replica`."""

    replica: Replica
    future: FutureReplica
    _log: Log = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.future.log

    @property
    def is_settling(self) -> bool:
        """Whether the current log was cut and does not know its producers yet."""
        return self.replica.log.loading is not None

    @property
    def is_near(self) -> bool:
        """Whether what is missing is so little, and so near, that it can be taken over on the loop."""
        if self.future.lag == 0:
            return True
        end_offset = self.replica.log.log_end_offset
        try:
            found = self._read(end_offset, NEAR_BYTES, cached_only=True)
        except NotCachedError:
            return False
        return found.region is None or found.next_offset == end_offset

    def follow_cuts(self, wall_ms: TimestampMs) -> None:
        """Cut the copy where the current log has been cut. On the loop; `Log.loading` may be set by it.

        Raises:
            KafkaError: kafka_storage_error, of the copy.
        """
        current, following = self.replica.log, self._following()
        fetch = following.next_fetch
        if fetch is None:
            return
        start, end = current.log_start_offset, current.log_end_offset
        error_code, diverging_epoch = ErrorCode.none, None
        try:
            diverging_epoch = fetch_divergence(current, fetch.last_fetched_epoch, fetch.offset, start, end)
        except KafkaError as error:
            error_code = error.error_code
        if error_code is ErrorCode.none and diverging_epoch is None:
            return
        answered = FetchAnswered(_ANY_EPOCH, fetch.offset, error_code, None, start, diverging_epoch, False)
        following.take(answered, b"", wall_ms)

    def read(self, end_offset: Offset, truncation_count: int) -> CopiedRange:
        """Read the next range of the current log, up to `end_offset`. Beside the loop.

        Raises:
            KafkaError, OSError: the current log cannot be read.
        """
        records = _records(self._read(end_offset, RANGE_BYTES))
        return CopiedRange(records, end_offset, truncation_count)

    def append(self, copied: CopiedRange, wall_ms: TimestampMs) -> None:
        """Append what was read, and do the copy's upkeep. Beside the loop.

        Raises:
            KafkaError, OSError: the copy cannot be written, or what was read is damaged.
        """
        log = self._log
        self._take(copied.records, copied.end_offset, wall_ms)
        log.delete_old_segments(wall_ms, self.future.high_watermark, only_below_start=True)
        if log.has_rolled:
            log.flush_rolled()
        if log.segments.has_files_due(wall_ms):
            log.delete_files_due(wall_ms)

    def replace(self, wall_ms: TimestampMs) -> Log:
        """Take the rest over, and have the copy be the replica's log; return the one that was. On the loop.

        Raises:
            KafkaError, OSError: of the copy; the replica goes on with the log it has.
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
            # What was there has been compacted away.
            log.skip_to(end_offset, wall_ms)
            return
        answered = FetchAnswered(
            leader_epoch=_ANY_EPOCH,
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
        return Following(self._log, _OWN, _ANY_EPOCH, self.future.high_watermark)


def _records(found: ReadResult) -> bytes:
    return b"" if found.region is None else found.region.read()
