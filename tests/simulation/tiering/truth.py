"""What is committed and must stay, as an all-knowing observer sees it."""

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Final

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.protocol.types import Offset
from tests.simulation.tiering.local_log import Record, is_shown

if TYPE_CHECKING:
    from tests.simulation.tiering.application import Application
    from tests.simulation.tiering.broker import Broker
    from tests.simulation.tiering.world import World


class Truth:
    """Committed records, of the history that the current application's leaders have.

    Two losses are excused and counted: an election of a broker that lacks records, and disks that are lost.
    Then what is above the tier's end, and on no disk of the new leader, is struck.
    """

    def __init__(self, world: "World") -> None:
        self._world: Final = world
        self.records: dict[Offset, Record] = {}
        self.committed_ms: dict[Offset, int] = {}
        self._by_key: dict[int, list[Offset]] = {}
        """Offsets of shown records, in order."""
        self.end_offset = 0
        self.log_start_offset = 0
        """Records below are deleted, by requests or retention."""
        self.requested_start = 0
        """By requests alone, without those that were lost with disks."""
        self.highest_request = 0
        self.since = (1, 0)
        """Owner epoch and leader epoch from which on what leaders do counts."""
        self.losses = 0
        self.struck = 0
        self._missed: set[Offset] = set()
        """Last records of their keys of which cleaned logs, or the tier, may have only lost successors."""
        self._may_lose: set[int] = set()
        """Owner epochs of applications whose next leader may lack records."""

    def is_known_to(self, owner_epoch: int) -> bool:
        """Return whether an application's leader that decides what is left has begun."""
        return owner_epoch not in self._may_lose

    def counts(self, broker: "Broker") -> bool:
        return (broker.application.owner_epoch, broker.leader_epoch) >= self.since

    def visible(self, start_offset: Offset, end_offset: Offset) -> dict[Offset, Record]:
        """Return the records of a range that readers see, or will see when their transaction has ended."""
        first = max(start_offset, self.log_start_offset)
        found = {
            offset: self.records.get(offset) for offset in range(first, min(end_offset, self.end_offset))
        }
        return {offset: each for offset, each in found.items() if each is not None and is_shown(each)}

    def allow_loss(self, application: "Application") -> None:
        """Let the next leader of an application lack what its log and the tier lack."""
        self._may_lose.add(application.owner_epoch)

    def committed(self, broker: "Broker") -> None:
        """Note that a leader's high watermark has moved."""
        if not self.counts(broker):
            return
        log = broker.log
        for offset in range(max(self.end_offset, log.bases[0]), log.high_watermark):
            if offset in log.records:
                self._add(offset, log.records[offset])
        self.end_offset = max(self.end_offset, log.high_watermark)

    def _add(self, offset: Offset, record: Record) -> None:
        self.records[offset] = record
        self.committed_ms.setdefault(offset, self._world.now_ms)
        if is_shown(record):
            insort(self._by_key.setdefault(record.key, []), offset)

    def _strike(self, offset: Offset) -> None:
        record = self.records.pop(offset)
        self.committed_ms.pop(offset)
        if is_shown(record):
            offsets = self._by_key[record.key]
            offsets.remove(offset)
            if offsets and self._world.config.compacts:
                self._missed.add(offsets[-1])

    def has_later(self, key: int, offset: Offset, end_offset: Offset) -> bool:
        """Return whether a key has a record above `offset` and below `end_offset`, or has lost one."""
        if offset in self._missed:
            return True
        offsets = self._by_key.get(key, [])
        place = bisect_right(offsets, offset)
        return place < len(offsets) and offsets[place] < end_offset

    def serving(self, broker: "Broker") -> None:
        """Compare a leader that begins to serve, or has read its manifest, with what is committed."""
        world = self._world
        application = broker.application
        if broker is not application.leader or broker.leader_epoch != application.leader_epoch:
            return
        if not self.counts(broker):
            return
        may_lose = application.owner_epoch in self._may_lose
        assert broker.tier is not None
        manifest, log = broker.tier.manifest, broker.log
        tier = world.records_of(manifest.segments) if manifest is not None else {}
        tier_end = manifest.end_offset if manifest is not None else 0
        start = max(log.log_start_offset, manifest.log_start_offset if manifest is not None else 0)
        if tier is None and broker.tier.tiered_end_offset is None and not world.is_stored(manifest):
            return  # Replaced since it was read: the claim will fail, and it is read again.
        if tier is None:
            world.check.fail("NamedIsNeverDeleted", f"{broker} reads a manifest that names a missing object")
            return
        view = {**tier, **{offset: each for offset, each in log.records.items() if offset < log.end_offset}}
        lost: list[Offset] = []
        for offset, record in self.visible(start, self.end_offset).items():
            if view.get(offset) == record:
                continue
            if offset not in view and world.check.is_superseded(offset, record, self.end_offset):
                continue
            if offset < self.highest_request and offset not in view:
                lost.append(offset)  # Deleted by a request, of which a crash has lost the log start.
            elif may_lose and manifest is not None and record.leader_epoch > _last_epoch(manifest):
                lost.append(offset)  # Of a leader that served without the tier, lost with its disks.
            elif offset < tier_end:
                world.check.fail(
                    "RestoredIsWhole",
                    f"{broker} serves, and lacks the record at {offset} below the tier's end {tier_end}",
                )
            elif manifest is None and offset < log.bases[0]:
                continue  # It serves without the tier, which has the record.
            elif not may_lose:
                world.check.fail("CommittedStays", f"{broker} serves, and lacks the record at {offset}")
            else:
                lost.append(offset)
        if may_lose:
            # Markers and aborted records, which the tier lacks anyway.
            lost += [
                offset
                for offset, record in self.records.items()
                if offset >= start and not is_shown(record) and offset in view and view[offset] != record
            ]
        for offset in lost:
            self._strike(offset)
        self.struck += len(lost)
        if may_lose:
            self.losses += 1
            self.since = (broker.application.owner_epoch, broker.leader_epoch)
            self._may_lose.discard(application.owner_epoch)
            self._cut(max(log.high_watermark, tier_end))
            # A cleaned log may lack what only lost records have superseded.
            kept = self.visible(max(start, tier_end, log.bases[0]), self.end_offset)
            for offset, record in reversed(kept.items()):
                if offset not in view and not world.check.is_superseded(offset, record, self.end_offset):
                    self._strike(offset)
            # A request that had not reached the tier is lost with the disks.
            self.requested_start = min(self.requested_start, start)
        for offset, record in view.items():
            if start <= offset < max(log.high_watermark, tier_end) and offset not in self.records:
                self._add(offset, record)
        self.end_offset = max(self.end_offset, log.high_watermark, tier_end)

    def _cut(self, end_offset: Offset) -> None:
        for offset in [offset for offset in self.records if offset >= end_offset]:
            self._strike(offset)
        self.end_offset = end_offset


def _last_epoch(manifest: Manifest) -> int:
    return manifest.leader_epochs[-1].leader_epoch if manifest.leader_epochs else -1
