"""The follower's decisions, as whole effect lists."""

from typing import Any

import pytest

from sparklog.executor.partitions.machine.follower import (
    AdvanceLogStartOffset,
    AppendToLog,
    AskLeaderOffsets,
    AwaitMetadata,
    BackOff,
    BuildFromTier,
    FetchAnswered,
    LeaderOffsetsKnown,
    LogTruncated,
    MoveHighWatermark,
    PartitionFetch,
    PartitionFollower,
    RecordsAppended,
    TierBuilt,
    TierFailed,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from sparklog.protocol.errors import ErrorCode


class History:
    """The epochs of a log that ends at 30: 2 from 0, 4 from 20."""

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int] | None:
        if leader_epoch >= 4:
            return 4, 30
        return (2, 20) if leader_epoch >= 2 else (leader_epoch, 0)


def follower(**changes: Any) -> PartitionFollower:
    """Following broker 1 in epoch 5 from offset 30, whose last record is of epoch 4."""
    given: dict[str, Any] = {
        "leader_id": 1,
        "leader_epoch": 5,
        "history": History(),
        "log_start_offset": 0,
        "log_end_offset": 30,
        "last_epoch": 4,
        "high_watermark": 25,
    }
    return PartitionFollower(**{**given, **changes})


def answer(**changes: Any) -> FetchAnswered:
    given: dict[str, Any] = {
        "leader_epoch": 5,
        "fetch_offset": 30,
        "error_code": ErrorCode.none,
        "high_watermark": 30,
        "log_start_offset": 0,
        "diverging_epoch": None,
        "has_records": False,
    }
    return FetchAnswered(**{**given, **changes})


def test_follower_asks_for_its_end_and_names_its_last_epoch() -> None:
    """That is what lets the leader see whether the two logs have parted."""
    assert follower().next_fetch == PartitionFetch(5, 30, 4)


def test_follower_appends_then_takes_the_offsets_over() -> None:
    """The high watermark never passes its own end, however far the leader is."""
    machine = follower()
    given = answer(has_records=True, high_watermark=50, log_start_offset=3)
    assert machine.handle(given) == [AppendToLog(up_to_leader_epoch=5)]
    assert machine.handle(RecordsAppended(40, 5)) == [MoveHighWatermark(40), AdvanceLogStartOffset(3)]
    assert machine.next_fetch == PartitionFetch(5, 40, 5)


def test_follower_without_new_records_still_learns_the_high_watermark() -> None:
    """It is the next leader's starting point."""
    machine = follower()
    assert machine.handle(answer(high_watermark=28)) == [MoveHighWatermark(28)]
    assert machine.handle(answer(high_watermark=28)) == []


def test_follower_cuts_to_the_smaller_end_of_an_epoch_both_have() -> None:
    """KIP-101: what either has beyond the other in the same epoch is not common."""
    machine = follower()
    assert machine.handle(answer(diverging_epoch=(4, 27), high_watermark=27)) == [TruncateTo(27)]
    assert machine.handle(LogTruncated(0, 27, 4)) == []
    assert machine.next_fetch == PartitionFetch(5, 27, 4)


def test_follower_asks_again_below_an_epoch_it_does_not_have() -> None:
    """KIP-279: after fast failovers one answer is not enough; each round goes one epoch down."""
    machine = follower()
    assert machine.handle(answer(diverging_epoch=(3, 26))) == [TruncateTo(20)]
    assert machine.handle(LogTruncated(0, 20, 2)) == [MoveHighWatermark(20)]
    assert machine.next_fetch == PartitionFetch(5, 20, 2)


def test_follower_with_only_later_epochs_drops_everything_it_has() -> None:
    """Its oldest record is of a later epoch than the last one the leader shares."""
    machine = follower(log_start_offset=0)
    assert machine.handle(answer(diverging_epoch=(1, 12))) == [TruncateTo(0)]


def test_follower_never_truncates_by_a_high_watermark() -> None:
    """An answer without divergence leaves records above the leader's high watermark where they are."""
    machine = follower(high_watermark=10)
    assert machine.handle(answer(high_watermark=10)) == []


def test_follower_out_of_range_starts_again_at_the_leaders_start() -> None:
    """Nothing it has continues the leader's log; the leader has all that is committed."""
    machine = follower()
    given = answer(error_code=ErrorCode.offset_out_of_range, high_watermark=90, log_start_offset=80)
    assert machine.handle(given) == [TruncateFullyAndStartAt(80)]
    assert machine.handle(LogTruncated(80, 80, None)) == []
    assert machine.next_fetch == PartitionFetch(5, 80, None)


def test_follower_fenced_waits_for_metadata() -> None:
    """Its epoch is over: asking again cannot help, the metadata log will say who leads."""
    machine = follower()
    assert machine.handle(answer(error_code=ErrorCode.fenced_leader_epoch)) == [
        AwaitMetadata(ErrorCode.fenced_leader_epoch)
    ]
    assert machine.next_fetch is None
    assert machine.handle(answer(has_records=True)) == []


@pytest.mark.parametrize(
    "error_code",
    [ErrorCode.unknown_leader_epoch, ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error],
)
def test_follower_refused_otherwise_backs_off(error_code: ErrorCode) -> None:
    """The leader may be behind with its metadata."""
    machine = follower()
    assert machine.handle(answer(error_code=error_code)) == [BackOff(error_code)]
    assert machine.next_fetch == PartitionFetch(5, 30, 4)


@pytest.mark.parametrize("changes", [{"leader_epoch": 4}, {"fetch_offset": 29}])
def test_follower_ignores_an_answer_to_another_question(changes: dict[str, int]) -> None:
    """It was asked before a truncation or in an older epoch, and would be appended at the wrong place."""
    assert follower().handle(answer(has_records=True, **changes)) == []


def test_follower_of_nobody_fetches_nothing() -> None:
    """A partition without a leader waits for one."""
    assert follower(leader_id=None).next_fetch is None


def test_follower_below_the_leaders_local_start_begins_again_at_the_tiers_end() -> None:
    """Records that are in the bucket are not copied from there to every new replica."""
    machine = follower(log_end_offset=0, last_epoch=None, high_watermark=0)
    moved = ErrorCode.offset_moved_to_tiered_storage
    assert machine.handle(answer(fetch_offset=0, error_code=moved, log_start_offset=3)) == [
        AskLeaderOffsets()
    ]
    assert machine.next_fetch is None
    assert machine.handle(answer(fetch_offset=0, has_records=True)) == []
    assert machine.handle(LeaderOffsetsKnown(20, 70)) == [BuildFromTier(3, 20)]
    assert machine.next_fetch is None
    assert machine.handle(TierBuilt(3, 70, 4)) == [MoveHighWatermark(70)]
    assert machine.next_fetch == PartitionFetch(5, 70, 4)
    assert (machine.log_start_offset, machine.high_watermark) == (3, 70)


def test_follower_builds_though_the_leader_does_not_know_its_tier_yet() -> None:
    """The manifest in the store decides; it must reach what the leader has deleted."""
    machine = follower(log_end_offset=0, last_epoch=None, high_watermark=0)
    moved = ErrorCode.offset_moved_to_tiered_storage
    machine.handle(answer(fetch_offset=0, error_code=moved, log_start_offset=3))
    assert machine.handle(LeaderOffsetsKnown(20, None)) == [BuildFromTier(3, 20)]


def test_follower_whose_log_cannot_be_built_fetches_again_after_a_pause() -> None:
    """The store, or the leader, may answer the next time."""
    machine = follower(log_end_offset=0, last_epoch=None, high_watermark=0)
    moved = ErrorCode.offset_moved_to_tiered_storage
    for _ in range(2):
        effects = machine.handle(answer(fetch_offset=0, error_code=moved, log_start_offset=3))
        assert effects == [AskLeaderOffsets()]
        assert machine.handle(TierFailed(moved)) == [BackOff(moved)]
        assert machine.next_fetch == PartitionFetch(5, 0, None)
    assert machine.handle(answer(fetch_offset=0, error_code=moved, log_start_offset=None)) == [BackOff(moved)]


def empty(**changes: Any) -> PartitionFollower:
    """A follower without a record, which may begin at the tier's end."""
    given = {"log_end_offset": 0, "last_epoch": None, "high_watermark": 0, "begins_at_tiered_end": True}
    return follower(**{**given, **changes})


def test_follower_without_records_begins_at_the_tiers_end_though_older_ones_are_local() -> None:
    """A replaced broker is in the ISR as soon as it has what the tier lacks (KIP-1023)."""
    machine = empty()
    assert machine.handle(answer(fetch_offset=0, has_records=True)) == [AskLeaderOffsets()]
    assert machine.handle(LeaderOffsetsKnown(0, 25)) == [BuildFromTier(0, 25)]
    assert machine.handle(TierBuilt(0, 25, 4)) == [MoveHighWatermark(25)]
    assert machine.handle(answer(fetch_offset=25, has_records=True)) == [AppendToLog(5)]


@pytest.mark.parametrize("tiered_end_offset", [None, 0])
def test_follower_without_records_fetches_all_while_nothing_is_tiered(tiered_end_offset: int | None) -> None:
    """And asks once only."""
    machine = empty()
    assert machine.handle(answer(fetch_offset=0, has_records=True)) == [AskLeaderOffsets()]
    assert machine.handle(LeaderOffsetsKnown(0, tiered_end_offset)) == []
    assert machine.next_fetch == PartitionFetch(5, 0, None)
    assert machine.handle(answer(fetch_offset=0, has_records=True)) == [AppendToLog(5)]


@pytest.mark.parametrize(
    ("changes", "high_watermark"),
    [
        ({"begins_at_tiered_end": False}, 30),
        ({}, 0),
        ({"log_end_offset": 4, "last_epoch": 4}, 30),
        ({"log_start_offset": 0, "log_end_offset": 4, "local_log_start_offset": 4, "last_epoch": 4}, 30),
    ],
    ids=["not enabled", "nothing is committed", "has records", "is built from the tier"],
)
def test_follower_goes_on_where_it_is_otherwise(changes: dict[str, Any], high_watermark: int) -> None:
    """A new topic's followers, and those that lag, have nothing to ask."""
    machine = empty(**changes)
    given = answer(fetch_offset=machine.log_end_offset, has_records=True, high_watermark=high_watermark)
    assert machine.handle(given) == [AppendToLog(5)]


def test_follower_that_diverges_below_its_local_start_is_built_again() -> None:
    """Its files would be empty, and the producers of the records that stay unknown."""
    machine = follower(local_log_start_offset=25)
    assert machine.handle(answer(diverging_epoch=(2, 20))) == [AskLeaderOffsets()]
    assert machine.handle(LeaderOffsetsKnown(0, 18)) == [BuildFromTier(0, 0)]
    assert machine.handle(TierBuilt(0, 18, 2)) == [MoveHighWatermark(18)]
    assert follower(local_log_start_offset=20).handle(answer(diverging_epoch=(2, 20))) == [TruncateTo(20)]
