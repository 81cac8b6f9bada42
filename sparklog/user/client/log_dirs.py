"""Contents of brokers' data directories (DescribeLogDirs, KIP-113 and KIP-827)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse, DescribeLogDirsResult

from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, TopicPartition, unless_minus_one
from sparklog.user.client.broker_requests import ask_brokers
from sparklog.user.client.cluster_client import ClusterClient


class OnlineDirectory(NamedTuple):
    total_bytes: int | None
    """Size of its file system; None if the broker does not report it."""
    usable_bytes: int | None
    log_bytes: int
    """Size of the requested replicas in it, with those that are being copied into it."""


class BrokerDirectories(NamedTuple):
    total_bytes: int | None
    """Size of their file systems; None if the broker does not report it."""
    usable_bytes: int | None
    offline: int
    sizes: Mapping[TopicPartition, int]
    """Size in bytes of each requested replica."""
    online: Sequence[OnlineDirectory] = ()


def describe_log_dirs(
    cluster: ClusterClient, brokers: Iterable[BrokerId], partitions: Sequence[TopicPartition] | None
) -> dict[BrokerId, BrokerDirectories]:
    """Send DescribeLogDirs to `brokers` at once; those that do not answer are missing in the result.

    `partitions` None: all.
    """
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = tuple(
            DescribableLogDirTopic(topic=topic, partitions=tuple(numbers))
            for topic, numbers in by_topic.items()
        )
    request = DescribeLogDirsRequest(topics=topics)
    answers = ask_brokers(cluster, dict.fromkeys(brokers, request))
    return {broker_id: _directories(response) for broker_id, response in answers.responses.items()}


def _directories(response: DescribeLogDirsResponse) -> BrokerDirectories:
    online = [result for result in response.results if result.error_code is ErrorCode.none]
    totals = [unless_minus_one(result.total_bytes) for result in online]
    usable = [unless_minus_one(result.usable_bytes) for result in online]
    return BrokerDirectories(
        total_bytes=_sum(totals),
        usable_bytes=_sum(usable),
        offline=len(response.results) - len(online),
        sizes={
            TopicPartition(topic.name, partition.partition_index): partition.partition_size
            for result in online
            for topic in result.topics
            for partition in topic.partitions
            if not partition.is_future_key
        },
        online=[
            OnlineDirectory(total, free, _log_bytes(result))
            for result, total, free in zip(online, totals, usable, strict=True)
        ],
    )


def _log_bytes(directory: DescribeLogDirsResult) -> int:
    return sum(partition.partition_size for topic in directory.topics for partition in topic.partitions)


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
