"""Bugs of the log cleaner that the simulator must find; see `planted`."""

from collections.abc import Sequence
from typing import Any, Final

from sparklog.executor.logs.machine import cleaner_schedule
from sparklog.executor.logs.machine.cleaner_schedule import Cleanable, LogFacts
from sparklog.node.storage.cleaning.cleaner import KeyMapping
from sparklog.node.storage.cleaning.record_filter import RecordFilter
from sparklog.protocol.types import TimestampMs
from tests.simulation.planted_bug import PlantedBug, Replacement


def _cleaned_before_committed() -> Sequence[Replacement]:
    part = cleaner_schedule.cleanable_part

    def part_of_all(log: LogFacts, wall_ms: TimestampMs) -> Cleanable:
        return part(log._replace(last_stable_offset=log.log_end_offset), wall_ms)

    return [Replacement(cleaner_schedule, "cleanable_part", part_of_all)]


def _tombstones_at_once() -> Sequence[Replacement]:
    kept = RecordFilter._kept

    def kept_values(self: RecordFilter, records: Any) -> Any:
        stays, is_tombstone = kept(self, records)
        return stays & ~(is_tombstone & (records.offsets < self._round.known_up_to)), is_tombstone

    return [Replacement(RecordFilter, "_kept", kept_values)]


def _record_goes() -> Sequence[Replacement]:
    kept = RecordFilter._kept

    def kept_replaced(self: RecordFilter, records: Any) -> Any:
        stays, is_tombstone = kept(self, records)
        return stays & (records.offsets != records.offsets.max()), is_tombstone

    return [Replacement(RecordFilter, "_kept", kept_replaced)]


def _full_map_taken_for_all() -> Sequence[Replacement]:
    take = KeyMapping.take

    def take_what_fits(self: KeyMapping, window: Any) -> None:
        take(self, window)

    return [Replacement(KeyMapping, "take", take_what_fits)]


def _dirty_part_skipped() -> Sequence[Replacement]:
    part = cleaner_schedule.cleanable_part

    def part_above(log: LogFacts, wall_ms: TimestampMs) -> Cleanable:
        found = part(log, wall_ms)
        first = min(found.first_dirty_offset + 6, found.end_offset)
        return found._replace(first_dirty_offset=first)

    return [Replacement(cleaner_schedule, "cleanable_part", part_above)]


CLEANING_BUGS: Final = {
    "cleaned-before-committed": PlantedBug(
        "records go for later ones that are not committed yet", _cleaned_before_committed
    ),
    "tombstones-at-once": PlantedBug(
        "the first cleaning that meets a tombstone takes it away", _tombstones_at_once
    ),
    "record-goes": PlantedBug("the last record that is looked at goes whatever its key", _record_goes),
    "full-map-taken-for-all": PlantedBug(
        "a round whose map was full counts as one that has met every key", _full_map_taken_for_all
    ),
    "dirty-part-skipped": PlantedBug(
        "a cleaning begins above what was written since the last one", _dirty_part_skipped
    ),
}
