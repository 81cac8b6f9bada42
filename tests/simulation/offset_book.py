"""What a group's members know of the offsets that they have committed, and what may be committed besides.

Who holds a partition reads its offset before he commits the next one, so that offsets never fall: a commit
that was accepted from somebody who held it before, and should not have been, is read by its successor.
"""

from typing import TYPE_CHECKING

from sparklog.protocol.types import Offset
from tests.simulation.member import Held, Stamp

if TYPE_CHECKING:
    from tests.simulation.member_group import MemberGroup


class OffsetBook:
    """What a group's members know to be committed, and what may be."""

    def __init__(self, group: "MemberGroup") -> None:
        self._group = group
        self._stamp: Stamp = None
        self._acknowledged: dict[Held, Offset] = {}
        self._possible: dict[Held, set[Offset]] = {}
        self._doubted: set[tuple[Held, Offset]] = set()
        self._readers: dict[Held, str] = {}

    def sending(self, held: Held, offset: Offset) -> None:
        """A commit is under way."""
        self._possible.setdefault(held, set()).add(offset)

    def doubt(self, held: Held, offset: Offset) -> None:
        """It was not answered: it may arrive later, even beside its repetition."""
        self._doubted.add((held, offset))

    def acknowledged(self, held: Held, offset: Offset, stamp: Stamp) -> None:
        """It was."""
        self.refused(held, offset)
        if stamp is not None and stamp == self._current():
            self._acknowledged[held] = max(offset, self._acknowledged.get(held, 0))

    def refused(self, held: Held, offset: Offset) -> None:
        """It is not under way any more."""
        if (held, offset) not in self._doubted:
            self._possible.get(held, set()).discard(offset)

    def read(self, held: Held, offset: Offset, reader: str, stamp: Stamp) -> None:
        """Who holds a partition has read what is committed of it."""
        assert stamp is not None, "what may be lost says nothing"
        world = self._group.world
        if held[0] not in world.metadata.image.topics.by_id or stamp != self._current():
            return
        acknowledged = self._acknowledged.get(held)
        possible = self._possible.get(held, set())
        if acknowledged is not None:
            world.offset_read(self._group.group_id, offset, {acknowledged, *possible}, stamp[0])
        if self._readers.get(held) != reader:
            # What others have sent before can only be refused from now on.
            self._readers[held] = reader
            self._possible[held] = set()
            self._acknowledged[held] = offset

    def _current(self) -> Stamp:
        """Return where the group is; begin anew if that is elsewhere, or has lost something."""
        stamp = self._group.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._acknowledged.clear()
            self._readers.clear()
        return stamp
