"""Groups with their lag, for the overview: some of them, and not with every look.

Which groups there are, all brokers have to put together each time; so that is asked for every few seconds,
and no more once there were more than a terminal is for.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.groups import committed_offsets, list_groups
from sparklog.client.offsets import log_start_offsets
from sparklog.clocks import monotonic_ms
from sparklog.driver.ui.machine.groups import Extent, GroupSummary, by_trouble, summaries
from sparklog.types import BrokerId, Offset, TopicPartition
from sparklog.wire.blocking import ResponseTooLargeError

REFRESH_MS: Final = 5_000
MAX_GROUPS: Final = 50
"""How many are asked for what they have committed: those in between and those without members first."""


class GroupsSeen(NamedTuple):
    """How many groups there are, None for more than are listed; and some of them, by state and lag."""

    group_count: int | None
    groups: tuple[GroupSummary, ...]


class GroupWatch:
    """Looks at the groups of one cluster again and again; belongs to one thread."""

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
        """Return the groups; what a broker does not answer is missing."""
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
