"""Offsets and sizes of the partitions on a page, from their leaders.

Rates come from two answers.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sparklog.driver.ui.pages.topic import PartitionMetrics
from sparklog.driver.ui.questions import LastAnswer
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.types import BrokerId, Offset, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.log_dirs import describe_log_dirs
from sparklog.user.client.offsets import SpecialOffset, list_offsets


class LeaderMetrics(NamedTuple):
    """The leaders' answers by partition; `listed_ms` is the time of their high watermarks."""

    listed_ms: int
    metrics: Mapping[int, PartitionMetrics]


def partition_metrics(
    topic: str, leaders: Mapping[int, BrokerId]
) -> Callable[[ClusterClient, LastAnswer[LeaderMetrics] | None], LeaderMetrics]:
    """Return a function that asks about partitions of a topic; `leaders` has each one's leader."""
    partitions = [TopicPartition(topic, number) for number in sorted(leaders)]

    def look(client: ClusterClient, before: LastAnswer[LeaderMetrics] | None) -> LeaderMetrics:
        high_watermarks = list_offsets(client, dict.fromkeys(partitions, SpecialOffset.LATEST))
        listed_ms = monotonic_ms()
        starts = list_offsets(client, dict.fromkeys(partitions, SpecialOffset.EARLIEST))
        directories = describe_log_dirs(client, sorted(set(leaders.values())), partitions)
        metrics = {}
        for each in partitions:
            directory = directories.get(leaders[each.partition])
            high_watermark = high_watermarks[each].offset
            metrics[each.partition] = PartitionMetrics(
                log_start_offset=starts[each].offset,
                high_watermark=high_watermark,
                size_bytes=None if directory is None else directory.sizes.get(each),
                records_in_per_s=_rate(before, each.partition, high_watermark, listed_ms),
            )
        return LeaderMetrics(listed_ms, metrics)

    return look


def _rate(
    before: LastAnswer[LeaderMetrics] | None, partition: int, high_watermark: Offset | None, listed_ms: int
) -> float | None:
    if before is None or high_watermark is None or listed_ms <= before.known.listed_ms:
        return None
    known = before.known.metrics.get(partition)
    if known is None or known.high_watermark is None:
        return None
    elapsed_ms = listed_ms - before.known.listed_ms
    return max(0, high_watermark - known.high_watermark) * 1_000 / elapsed_ms
