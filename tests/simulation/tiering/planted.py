"""Bugs of the tier that its simulation must find; see docs/simulation.md."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from sparklog.executor.tiering.machine import next_manifest, partition_tier, plans, segment_writes
from sparklog.executor.tiering.machine.deletions import Deletions
from sparklog.executor.tiering.machine.events import (
    AdvanceLogStart,
    LogFacts,
    StopRequested,
    SwapStale,
    TierEffect,
)
from sparklog.executor.tiering.machine.first_role import FirstRole
from sparklog.executor.tiering.machine.next_manifest import LogStart
from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.executor.tiering.machine.piece_cut import PieceCut
from sparklog.node.remote_log.machine.lineage import Comparison, Lineage
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import named_objects
from sparklog.protocol.types import Offset
from tests.simulation.planted_bug import PlantedBug, Replacement
from tests.simulation.tiering.broker import Broker

SEEDS: Final = range(400)


def _unknown_swap_counted() -> Sequence[Replacement]:
    def end_of_swaps(self: PartitionTier) -> Offset | None:
        if self.manifest is None or not self._is_claimed or self.ended is not None:
            return None
        return max(self.manifest.end_offset, (self._swapping or self.manifest).end_offset)

    return [Replacement(PartitionTier, "tiered_end_offset", property(end_of_swaps))]


def _epochs_ignored() -> Sequence[Replacement]:
    return [Replacement(partition_tier, "reason_to_end", lambda *_: None)]


def _owner_epoch_ignored() -> Sequence[Replacement]:
    decide = partition_tier.reason_to_end

    def by_leader_epoch(manifest: Manifest, owner_epoch: int, leader_epoch: int) -> Any:
        return decide(replace(manifest, owner_epoch=owner_epoch), owner_epoch, leader_epoch % 1_000 + 5_000)

    return [Replacement(partition_tier, "reason_to_end", by_leader_epoch)]


def _uncommitted_copied() -> Sequence[Replacement]:
    return [Replacement(LogFacts, "copyable_end_offset", property(lambda self: self.log_end_offset))]


def _open_transactions_copied() -> Sequence[Replacement]:
    return [Replacement(LogFacts, "copyable_end_offset", property(lambda self: self.high_watermark))]


def _deleted_before_the_swap() -> Sequence[Replacement]:
    attempted = Deletions.attempted

    def attempted_and_deleted(self: Deletions, manifest: Manifest) -> None:
        attempted(self, manifest)
        self._unnamed.update(dict.fromkeys(manifest.unreferenced))

    return [Replacement(Deletions, "attempted", attempted_and_deleted)]


def _given_up_at_once() -> Sequence[Replacement]:
    fail = PartitionTier._store_failed

    def failed(self: PartitionTier, event: Any) -> None:
        fail(self, event)
        if isinstance(event.effect, partition_tier.SwapManifest):
            for name in self._writes.give_up():
                self._deletions._unnamed[name] = None

    return [Replacement(PartitionTier, "_store_failed", failed)]


def _later_leaders_collected() -> Sequence[Replacement]:
    def listed(self: Deletions, names: Iterable[str], manifest: Manifest, in_use: Collection[str]) -> None:
        kept = named_objects(manifest) | self._attempted | set(in_use)
        self._unnamed.update(dict.fromkeys(name for name in names if name not in kept))

    return [Replacement(Deletions, "listed", listed)]


def _orphans_left() -> Sequence[Replacement]:
    return [Replacement(Deletions, "listed", lambda *_: None)]


def _shorter_log_wins() -> Sequence[Replacement]:
    compare = partition_tier.compare

    def log_wins(*arguments: Any) -> Comparison:
        found = compare(*arguments)
        return found._replace(lineage=Lineage.DIVERGED) if found.lineage is Lineage.ADOPTED else found

    return [Replacement(partition_tier, "compare", log_wins), Replacement(next_manifest, "compare", log_wins)]


def _serves_before_adoption() -> Sequence[Replacement]:
    decide = PartitionTier._decide_serving

    def decide_soon(self: PartitionTier) -> None:
        decide(self)
        self.may_serve = self.may_serve or self._lineage is not None

    return [Replacement(PartitionTier, "_decide_serving", decide_soon)]


def _every_log_whole() -> Sequence[Replacement]:
    return [
        Replacement(FirstRole, "is_outgrown", lambda _, __, log_end_offset, ___, ____: log_end_offset > 0)
    ]


def _followers_vouched_for() -> Sequence[Replacement]:
    fetch = Broker.fetch

    def fetch_all(self: Broker) -> None:
        fetch(self)
        leader = self.leader
        if leader is None or leader.tier is None or leader.leader_epoch != self.leader_epoch:
            return
        if leader.tier.may_serve and self.log.end_offset >= leader.log.high_watermark:
            self.complete_epoch = self.leader_epoch

    return [Replacement(Broker, "fetch", fetch_all)]


def _epochs_not_copied() -> Sequence[Replacement]:
    append = segment_writes.appended

    def appended(manifest: Manifest, *arguments: Any) -> Manifest:
        after = append(manifest, *arguments)
        return replace(after, leader_epochs=manifest.leader_epochs or after.leader_epochs)

    return [Replacement(segment_writes, "appended", appended)]


def _window_kept_when_cut() -> Sequence[Replacement]:
    cut = next_manifest.cut

    def cut_between_segments(manifest: Manifest, end_offset: Offset) -> Manifest:
        after = cut(manifest, end_offset)
        return replace(after, segments=manifest.segments[: len(after.segments)])

    return [Replacement(next_manifest, "cut", cut_between_segments)]


def _divergence_ignored() -> Sequence[Replacement]:
    compare = partition_tier.compare

    def continued(manifest: Manifest, *arguments: Any) -> Comparison:
        found = compare(manifest, *arguments)
        if found.lineage is not Lineage.DIVERGED:
            return found
        return Comparison(Lineage.CONTINUED, manifest.end_offset)

    return [Replacement(partition_tier, "compare", continued)]


def _retention_down_to_half() -> Sequence[Replacement]:
    retained = next_manifest.retained_start

    def halved(manifest: Manifest, log: Any, config: Any, wall_ms: int) -> Offset:
        limit = config.retention_bytes
        return retained(
            manifest, log, replace(config, retention_bytes=None if limit is None else limit // 2), wall_ms
        )

    return [Replacement(next_manifest, "retained_start", halved)]


def _deleted_records_stay() -> Sequence[Replacement]:
    following = next_manifest.next_log_start

    def by_retention_alone(manifest: Manifest, log: LogFacts, retained: Offset) -> LogStart:
        return following(manifest, replace(log, log_start_offset=manifest.log_start_offset), retained)

    return [Replacement(next_manifest, "next_log_start", by_retention_alone)]


def _log_start_not_advanced() -> Sequence[Replacement]:
    following = PartitionTier._next_manifest_effects

    def without_log_start(self: PartitionTier) -> list[TierEffect]:
        return [each for each in following(self) if not isinstance(each, AdvanceLogStart)]

    return [Replacement(PartitionTier, "_next_manifest_effects", without_log_start)]


def _idle_never_copied() -> Sequence[Replacement]:
    return [Replacement(partition_tier.UncopiedRecords, "is_due", lambda *_: False)]


def _stop_ignored() -> Sequence[Replacement]:
    handle = PartitionTier._handle

    def unless_stopped(self: PartitionTier, event: Any) -> list[TierEffect]:
        return [] if isinstance(event, StopRequested) else handle(self, event)

    return [Replacement(PartitionTier, "_handle", unless_stopped)]


def _stale_swap_repeated() -> Sequence[Replacement]:
    handle = PartitionTier._handle

    def without_reading(self: PartitionTier, event: Any) -> list[TierEffect]:
        effects = handle(self, event)
        if isinstance(event, SwapStale):
            self._must_read = False
        return effects

    return [Replacement(PartitionTier, "_handle", without_reading)]


def _never_merged() -> Sequence[Replacement]:
    return [Replacement(segment_writes, "next_merge", lambda *_: None)]


def _periods_merged() -> Sequence[Replacement]:
    return [Replacement(plans, "_are_mergeable", lambda *_: True)]


def _periods_copied_together() -> Sequence[Replacement]:
    return [Replacement(PieceCut, "add", lambda *_: None)]


def _never_rewritten() -> Sequence[Replacement]:
    return [Replacement(segment_writes, "next_rewrite", lambda *_: None)]


PLANTED: Final = {
    "unknown-swap-counted": PlantedBug(
        "the local log drops what a swap names whose outcome is unknown", _unknown_swap_counted, SEEDS
    ),
    "epochs-ignored": PlantedBug(
        "a leader writes over a manifest of higher epochs once it has read it", _epochs_ignored, SEEDS
    ),
    "owner-epoch-ignored": PlantedBug(
        "an application that has lost the store looks at leader epochs alone", _owner_epoch_ignored, SEEDS
    ),
    "uncommitted-copied": PlantedBug(
        "records above the high watermark are copied", _uncommitted_copied, SEEDS
    ),
    "open-transactions-copied": PlantedBug(
        "records above the last stable offset are copied", _open_transactions_copied, SEEDS
    ),
    "deleted-before-the-swap": PlantedBug(
        "objects are deleted when the swap that leaves them out is sent", _deleted_before_the_swap, SEEDS
    ),
    "given-up-at-once": PlantedBug(
        "the object of a swap without an answer is deleted", _given_up_at_once, SEEDS
    ),
    "later-leaders-collected": PlantedBug(
        "a deposed leader takes its successor's objects for orphans", _later_leaders_collected, SEEDS
    ),
    "orphans-left": PlantedBug("objects that no manifest names are not looked for", _orphans_left, SEEDS),
    "shorter-log-wins": PlantedBug(
        "a manifest is cut to a log that is a part of it", _shorter_log_wins, SEEDS
    ),
    "serves-before-adoption": PlantedBug(
        "a leader serves as soon as it has read a manifest that has more", _serves_before_adoption, SEEDS
    ),
    "every-log-whole": PlantedBug(
        "each log with records serves before its manifest is read", _every_log_whole, SEEDS
    ),
    "followers-vouched-for": PlantedBug(
        "a follower that has all of its leader's log serves before its manifest is read",
        _followers_vouched_for,
        range(5, 400, 12),
    ),
    "epochs-not-copied": PlantedBug(
        "later leader epochs do not get into the manifest", _epochs_not_copied, SEEDS
    ),
    "window-kept-when-cut": PlantedBug(
        "a segment that a cut goes through keeps its end", _window_kept_when_cut, SEEDS
    ),
    "divergence-ignored": PlantedBug(
        "a manifest with another history is taken for the log's", _divergence_ignored, SEEDS
    ),
    "retention-down-to-half": PlantedBug("retention.bytes leaves half of it", _retention_down_to_half, SEEDS),
    "deleted-records-stay": PlantedBug(
        "the tier does not hear of deleted records", _deleted_records_stay, SEEDS
    ),
    "log-start-not-advanced": PlantedBug(
        "the log begins where it began before retention in the tier", _log_start_not_advanced, SEEDS
    ),
    "idle-never-copied": PlantedBug("a segment is copied when it is rolled alone", _idle_never_copied, SEEDS),
    "stop-ignored": PlantedBug("a stop does not copy the rest", _stop_ignored, SEEDS),
    "stale-swap-repeated": PlantedBug(
        "a stale swap is tried again without reading", _stale_swap_repeated, SEEDS
    ),
    "never-merged": PlantedBug("small segments stay", _never_merged, SEEDS),
    "periods-merged": PlantedBug(
        "segments of different days of a table become one", _periods_merged, range(2, 400)
    ),
    "periods-copied-together": PlantedBug(
        "a copy goes on where the day of a table changes", _periods_copied_together, range(2, 400)
    ),
    "never-rewritten": PlantedBug("the tier of a compacted log keeps everything", _never_rewritten, SEEDS),
}
