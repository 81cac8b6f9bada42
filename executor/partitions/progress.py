"""How far a partition has got on this broker, and who waits for it to go on.

Appends wait for the high watermark, consumers' fetches for what it uncovers, followers' fetches for records.
A reader that is touched has something to tell when it is next asked; one that is woken has it now.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import Offset


class WaitingAppend(Protocol):
    """Something that waits until what it appended is committed."""

    settled: bool
    """False while it waits for `settle`; its deadline may answer it before."""

    def settle(self, error: KafkaError | None) -> None:
        """It is committed, or never will be as far as this leader can tell."""


class PartitionReader(Protocol):
    """A part of a fetch that is to hear of its partition."""

    @property
    def is_follower(self) -> bool: ...

    def touch(self) -> None:
        """There is something to tell, when it next asks."""

    def wake(self) -> None:
        """There is something to tell now: records, or an error."""

    def unwatch(self) -> None:
        """The replica is no more: look for the partition again."""


class PartitionProgress:
    """The high watermark of one replica, the appends that wait for it, and the fetches that read there."""

    __slots__ = ("_appends", "consumer_readers", "follower_readers", "high_watermark")

    def __init__(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark
        self.follower_readers: dict[PartitionReader, None] = {}
        self.consumer_readers: dict[PartitionReader, None] = {}
        self._appends: deque[tuple[Offset, WaitingAppend]] = deque()

    # --- who waits ------------------------------------------------------------------------------

    def add_reader(self, reader: PartitionReader) -> None:
        """Tell `reader` of changes from now on."""
        (self.follower_readers if reader.is_follower else self.consumer_readers)[reader] = None

    def remove_reader(self, reader: PartitionReader) -> None:
        """Tell it nothing more."""
        (self.follower_readers if reader.is_follower else self.consumer_readers).pop(reader, None)

    def await_commit(self, end_offset: Offset, waiting: WaitingAppend) -> None:
        """Settle `waiting` when all below `end_offset` is committed, if it is not already."""
        if self.high_watermark < end_offset:
            waiting.settled = False
            self._appends.append((end_offset, waiting))

    def drop_settled_appends(self) -> None:
        """Let go of those at the front that their deadline has answered."""
        appends = self._appends
        while appends and appends[0][1].settled:
            appends.popleft()

    # --- what happens ---------------------------------------------------------------------------

    def appended(self) -> None:
        """The leader's log has grown."""
        for reader in self.follower_readers:
            reader.wake()

    def committed(self, high_watermark: Offset) -> None:
        """The leader's high watermark has moved."""
        self.high_watermark = high_watermark
        appends = self._appends
        while appends and appends[0][0] <= high_watermark:
            appends.popleft()[1].settle(None)
        # A coordinator that is woken acts at once, and may find that the lease is out: then it reads no more.
        for reader in (*self.consumer_readers,):
            reader.wake()
        for reader in self.follower_readers:
            reader.touch()

    def follower_fell_back(self) -> None:
        """A follower has asked for less than it had: it has cut its log, or the request is an old one.

        Who goes on in a session says again what it has. An idle partition is not asked for otherwise, and the
        follower would be taken to lag for as long as nobody appends.
        """
        for reader in self.follower_readers:
            reader.touch()

    def log_start_offset_moved(self) -> None:
        """The log start offset is another one than before (retention may have moved it)."""
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.touch()

    def fail_appends(self, error: KafkaError) -> None:
        """What waits for the high watermark is to be told that it need not come."""
        appends, self._appends = self._appends, deque()
        for _, waiting in appends:
            waiting.settle(error)

    def turn_away(self, why: Callable[[], KafkaError]) -> None:
        """This broker does not serve the partition any more, or not for now."""
        if self._appends:
            self.fail_appends(why())
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.wake()

    def forget_readers(self) -> None:
        """The replica is no more: who reads here looks for the partition again."""
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.unwatch()
