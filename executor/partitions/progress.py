"""The high watermark of a partition on this broker, and the requests that wait for it.

Appends wait for the high watermark, consumers' fetches for what it uncovers, followers' fetches for records.
A reader that is touched has something to tell when it is next asked; one that is woken has it now.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import Offset


class WaitingAppend(Protocol):
    """An append that waits until it is committed."""

    settled: bool
    """False while it waits for `settle`; its deadline may answer it before."""

    def settle(self, error: KafkaError | None) -> None:
        """Note that the append is committed (None), or never will be as far as this leader knows."""


class PartitionReader(Protocol):
    """The part of a fetch that reads a partition."""

    @property
    def is_follower(self) -> bool: ...

    def touch(self) -> None:
        """Mark the partition changed, for the reader's next request."""

    def wake(self) -> None:
        """Wake the reader: records or an error are there."""

    def unwatch(self) -> None:
        """Look the partition up again: the replica is gone."""


class PartitionProgress:
    """The high watermark of a replica, the appends that wait for it, and the fetches that read from it."""

    __slots__ = ("_appends", "consumer_readers", "follower_readers", "high_watermark")

    def __init__(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark
        self.follower_readers: dict[PartitionReader, None] = {}
        self.consumer_readers: dict[PartitionReader, None] = {}
        self._appends: deque[tuple[Offset, WaitingAppend]] = deque()

    # --- who waits ------------------------------------------------------------------------------

    def add_reader(self, reader: PartitionReader) -> None:
        (self.follower_readers if reader.is_follower else self.consumer_readers)[reader] = None

    def remove_reader(self, reader: PartitionReader) -> None:
        (self.follower_readers if reader.is_follower else self.consumer_readers).pop(reader, None)

    def drop_settled_appends(self) -> None:
        """Remove the appends at the front that their deadline has settled."""
        appends = self._appends
        while appends and appends[0][1].settled:
            appends.popleft()

    # --- what happens ---------------------------------------------------------------------------

    def appended(self, end_offset: Offset, waiting: WaitingAppend | None) -> None:
        """Wake readers of a leader's log that has grown; settle `waiting` as `await_commit` does."""
        if waiting is not None and self.high_watermark < end_offset:
            waiting.settled = False
            self._appends.append((end_offset, waiting))
        for reader in self.follower_readers:
            reader.wake()

    def await_commit(self, end_offset: Offset, waiting: WaitingAppend) -> None:
        """Settle `waiting` once everything below `end_offset` is committed: the log has its batch."""
        if self.high_watermark < end_offset:
            waiting.settled = False
            self._appends.append((end_offset, waiting))

    def committed(self, high_watermark: Offset) -> None:
        """Move the leader's high watermark; settle the appends below it and wake readers."""
        self.high_watermark = high_watermark
        appends = self._appends
        while appends and appends[0][0] <= high_watermark:
            appends.popleft()[1].settle(None)
        # A coordinator that is woken acts at once, and may find that the lease is out: then it reads no more.
        for reader in (*self.consumer_readers,):
            reader.wake()
        for reader in (*self.follower_readers,):
            reader.touch()

    def follow(self, high_watermark: Offset) -> None:
        """Take over the high watermark of a follower, and wake the consumers that read from it (KIP-392)."""
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            for reader in (*self.consumer_readers,):
                reader.wake()

    def follower_fell_back(self) -> None:
        """Touch followers' readers: one has fetched below its former offset (truncated, or an old request).

        A follower states its position again in its session's next request. An idle partition would not be
        named otherwise, and the follower would count as lagging until the next append.
        """
        for reader in self.follower_readers:
            reader.touch()

    def log_start_offset_moved(self) -> None:
        """Touch readers: the log start offset has changed (retention may have moved it)."""
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.touch()

    def fail_appends(self, error: KafkaError) -> None:
        appends, self._appends = self._appends, deque()
        for _, waiting in appends:
            waiting.settle(error)

    def turn_away(self, why: Callable[[], KafkaError]) -> None:
        """Fail appends and wake readers: this broker does not serve the partition, or not for now."""
        if self._appends:
            self.fail_appends(why())
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.wake()

    def forget_readers(self) -> None:
        """Make readers look the partition up again: the replica is gone."""
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.unwatch()
