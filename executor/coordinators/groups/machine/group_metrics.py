"""Counters of groups and their offsets, for metrics only.

Source: Kafka's GroupCoordinatorMetricsShard.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class GroupMetrics:
    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    consumer_rebalances: int = 0
