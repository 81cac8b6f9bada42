"""Bugs of coordinators that the simulator must find; see `planted`."""

from collections.abc import Sequence
from typing import Any, Final

from sparklog.executor.coordinators.coordinator import Coordinator
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetStore
from sparklog.executor.coordinators.machine.coordinator_machine import Now
from sparklog.executor.coordinators.machine.coordinator_partition import (
    CoordinatorPartition,
    CoordinatorState,
)
from sparklog.protocol.types import Offset
from tests.simulation import coordinating
from tests.simulation.planted_bug import PlantedBug, Replacement


def _answered_before_loaded() -> Sequence[Replacement]:
    make = CoordinatorPartition.__init__

    def active(self: CoordinatorPartition, *arguments: Any) -> None:
        make(self, *arguments)
        self.state = CoordinatorState.ACTIVE

    return [Replacement(CoordinatorPartition, "__init__", active)]


def _batch_short_on_load() -> Sequence[Replacement]:
    read = coordinating.read_batches

    def read_short(loading: Any, offset: Offset, end_offset: Offset) -> bytes:
        last = loading.log.headers[-1].base_offset
        return read(loading, offset, last) if offset < last else b""

    return [Replacement(coordinating, "read_batches", read_short)]


def _tombstone_skipped() -> Sequence[Replacement]:
    return [Replacement(OffsetStore, "remove", lambda self, *of: None)]


def _answered_before_committed() -> Sequence[Replacement]:
    def wait_for_nothing(self: CoordinatorPartition, replies: Any, effects: Any, now: Now) -> None:
        self._outgoing.extend((*replies, *effects))

    return [Replacement(CoordinatorPartition, "_await_commit", wait_for_nothing)]


def _read_without_waiting() -> Sequence[Replacement]:
    wait = CoordinatorPartition._await_commit

    def wait_for_own(self: CoordinatorPartition, replies: Any, effects: Any, now: Now) -> None:
        if all(reply.token.wrote for reply in replies):
            wait(self, replies, effects, now)
        else:
            self._outgoing.extend((*replies, *effects))

    return [Replacement(CoordinatorPartition, "_await_commit", wait_for_own)]


def _answers_in_a_later_epoch() -> Sequence[Replacement]:
    def committed_whoever_leads(self: Coordinator) -> None:
        self.partition.committed(self.replica.high_watermark)

    return [Replacement(Coordinator, "wake", committed_whoever_leads)]


def _applied_before_appended() -> Sequence[Replacement]:
    take = CoordinatorPartition._take

    def apply_first(self: CoordinatorPartition, decision: Any, now: Now) -> None:
        if decision.records and self.state is CoordinatorState.ACTIVE:
            self._replay_all(decision)
        take(self, decision, now)

    return [Replacement(CoordinatorPartition, "_take", apply_first)]


COORDINATOR_BUGS: Final = {
    "answered-before-loaded": PlantedBug(
        "a coordinator answers before its load is over", _answered_before_loaded
    ),
    "batch-short-on-load": PlantedBug("a load leaves the last batch out", _batch_short_on_load),
    "tombstone-skipped": PlantedBug("a deleted offset is there again", _tombstone_skipped),
    "answered-before-committed": PlantedBug(
        "a coordinator acknowledges what it has appended", _answered_before_committed
    ),
    "read-before-committed": PlantedBug(
        "a coordinator tells what it has replayed, committed or not", _read_without_waiting
    ),
    "answers-in-a-later-epoch": PlantedBug(
        "a coordinator answers when its broker leads in another epoch", _answers_in_a_later_epoch
    ),
    "applied-before-appended": PlantedBug(
        "a coordinator applies what it then cannot append", _applied_before_appended
    ),
}
