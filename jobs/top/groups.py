"""Groups with their lag, for the overview: some of them, and not with every look.

A list of all groups takes an answer of every broker; so it is requested every few seconds, and not again once
it was too long for a terminal.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparklog.driver.ui.machine.groups import Extent, GroupSummary, by_trouble, summaries
from sparklog.node.calling.blocking import ResponseTooLargeError
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.types import BrokerId, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.groups import committed_offsets, list_groups
from sparklog.user.client.offsets import log_start_offsets

REFRESH_MS: Final = 5_000
MAX_GROUPS: Final = 50
"""The groups whose committed offsets are requested: those that rebalance and those without members first."""


class GroupsSeen(NamedTuple):
    """The number of groups, None for more than are listed; and some of them, by state and lag."""

    group_count: int | None
    groups: tuple[GroupSummary, ...]


class GroupWatch:
    """Watches the groups of one cluster; belongs to one thread."""

    def __init__(self) -> None:
        self._seen = GroupsSeen(0, ())
        self._due_ms = 0

    def look(
        self,
        client: ClusterClient,
        brokers: Iterable[BrokerId],
        leaders: Mapping[TopicPartition, BrokerId],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> GroupsSeen:
        """Return the groups; answers that do not come are missing."""
        if self._seen.group_count is None or monotonic_ms() < self._due_ms:
            return self._seen
        listing = list_groups(client, brokers)
        if any(isinstance(each, ResponseTooLargeError) for each in listing.failures.values()):
            self._seen = GroupsSeen(None, ())
            return self._seen
        groups = by_trouble(listing.groups)[:MAX_GROUPS]
        committed = committed_offsets(client, {group.group_id: group.coordinator for group in groups})
        starts = log_start_offsets(
            client,
            {each: leaders[each] for offsets in committed.values() for each in offsets if each in leaders},
        )
        extents = {each: Extent(end, starts.get(each, 0)) for each, end in high_watermarks.items()}
        self._seen = GroupsSeen(len(listing.groups), summaries(groups, {}, committed, extents))
        self._due_ms = monotonic_ms() + REFRESH_MS
        return self._seen
