"""The size of a streaming query's micro-batches: the connector's three options, as a pure rule.

`maxOffsetsPerTrigger` is divided among partitions in proportion to their available offsets; a partition with
any gets at least one, so none starves. `minOffsetsPerTrigger` lets a batch wait for more, but never longer
than `maxTriggerDelay`, and not at all under `Trigger.AvailableNow`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sparklog.protocol.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The options; None is no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0

    @property
    def are_set(self) -> bool:
        """Whether a batch may read less than all available offsets."""
        return self.max_offsets is not None or self.min_offsets is not None

    def at_once(self) -> "TriggerLimits":
        """Return the limits without waiting for more records."""
        return replace(self, min_offsets=None)


NO_LIMITS: Final = TriggerLimits()


class Admission:
    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._last_batch_ms: int | None = None

    def ends(
        self, starts: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset], now_ms: int
    ) -> Mapping[TopicPartition, Offset] | None:
        """Return the end of each partition; None while the batch should wait for more.

        `starts` has every partition of `latest`.
        """
        sizes = {each: latest[each] - starts[each] for each in latest if latest[each] > starts[each]}
        total = sum(sizes.values())
        if self._is_to_wait(total, now_ms):
            return None
        self._last_batch_ms = now_ms
        limit = self._limits.max_offsets
        if limit is None or total <= limit:
            return latest
        return {
            each: starts[each] + max(limit * sizes[each] // total, 1) if each in sizes else end
            for each, end in latest.items()
        }

    def _is_to_wait(self, total: int, now_ms: int) -> bool:
        limits = self._limits
        return (
            limits.min_offsets is not None
            and total < limits.min_offsets
            and self._last_batch_ms is not None
            and now_ms - self._last_batch_ms < limits.max_delay_ms
        )
