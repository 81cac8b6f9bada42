"""From what the options say to the offsets a read covers: what the driver asks the cluster while it plans.

Partitions are fixed first, then both ends of each; whatever is written later is not read. Offsets that the
options name but a partition does not have are found out here, before the query runs.
"""

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.offsets import OffsetQuery, SpecialOffset, list_offsets
from sparklog.dataframe.errors import DataSourceOptionError
from sparklog.dataframe.offset_limits import (
    Earliest,
    Latest,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)
from sparklog.dataframe.options import Assigned, Pattern, ReadOptions, Subscribed, Topics
from sparklog.dataframe.planning import OffsetRange
from sparklog.dataframe.topic_pattern import compile_java_pattern
from sparklog.sink.machine.names import DECISIONS_TOPIC
from sparklog.types import Offset, TimestampMs, TopicPartition

__all__ = ["listed", "resolve_partitions", "resolve_ranges", "resolve_starts"]

logger = logging.getLogger(__name__)


def resolve_partitions(
    cluster: ClusterClient, topics: Topics, *, timeout_ms: int | None = None
) -> dict[TopicPartition, UUID | None]:
    """Return the partitions to read, each with its topic's id.

    Topics that are named and not there are waited for, for `timeout_ms` or as long as the client does.

    Raises:
        UnknownTopicError: a topic that is named does not exist. A pattern that nothing matches is no error.
        DataSourceOptionError: a partition that is assigned does not exist.
    """
    match topics:
        case Pattern(pattern):
            matches = compile_java_pattern("subscribePattern", pattern).search
            found = [
                topic
                for topic in cluster.topics().values()
                # Of our own as of Kafka's: what sinks have decided is of use to nobody else.
                if not topic.is_internal and topic.name != DECISIONS_TOPIC and matches(topic.name)
            ]
            if not found:
                logger.warning("no topic matches subscribePattern '%s'", pattern)
        case Subscribed(names):
            found = [cluster.topic(name, timeout_ms=timeout_ms) for name in names]
        case Assigned(partitions):
            named = sorted({each.topic for each in partitions})
            found = [cluster.topic(name, timeout_ms=timeout_ms) for name in named]
            counts = {topic.name: topic.partition_count for topic in found}
            for topic, partition in sorted(partitions):
                if partition >= counts[topic]:
                    raise DataSourceOptionError(
                        f"Option 'assign' names partition {partition} of {topic}, which has {counts[topic]}, "
                        "numbered from 0"
                    )
            ids = {topic.name: topic.topic_id for topic in found}
            return {each: ids[each.topic] for each in partitions}
    return {
        TopicPartition(topic.name, partition): topic.topic_id
        for topic in found
        for partition in topic.leaders
    }


def resolve_ranges(
    cluster: ClusterClient, options: ReadOptions, partitions: Mapping[TopicPartition, UUID | None]
) -> list[OffsetRange]:
    """Return the offsets to read of each partition.

    Raises:
        DataSourceOptionError: offsets or timestamps are given for other partitions than those to be read, no
            record is at or after the starting timestamp, or the end comes before the start.
        DataLossError: a partition does not have offsets that are asked for, and that shall not pass.
        ApiTimeoutError: a leader did not answer in time.
    """
    if not partitions:
        return []
    earliest = listed(cluster, options, partitions, SpecialOffset.EARLIEST)
    starts = _starts(cluster, options, earliest)
    ends = _by_limit(cluster, options, "ending", options.ending, earliest)
    # Asked last: what the timestamps found lies below it.
    latest = listed(cluster, options, partitions, SpecialOffset.LATEST)
    ranges = []
    for each in sorted(partitions):
        first, last = earliest[each], latest[each]
        start = last if starts[each] is None else starts[each]
        end = last if ends[each] is None else ends[each]
        assert start is not None
        assert end is not None
        if start > end:
            if isinstance(options.starting, SpecificOffsets) and isinstance(options.ending, SpecificOffsets):
                raise DataSourceOptionError(
                    f"{each}: the starting offset {start} is after the ending offset {end}"
                )
            if start > last and isinstance(options.starting, SpecificOffsets):
                options.report_data_loss(f"{each} ends at offset {last}, before the starting offset {start}")
            end = start
        else:
            if end > last:
                _report_end_beyond(options, each, end, last)
                start, end = min(start, last), last
            if start < first:
                options.report_data_loss(
                    f"{each} begins at offset {first}, after the starting offset {start}"
                )
                start, end = first, max(end, first)
        ranges.append(OffsetRange(each, start, end))
    return ranges


def _report_end_beyond(options: ReadOptions, each: TopicPartition, end: Offset, last: Offset) -> None:
    what = f"Option 'endingOffsets' names offset {end} of {each}, which ends at {last}"
    if options.fail_on_data_loss:
        raise DataSourceOptionError(
            f"{what}: the records up to there are not written yet, or lost. Give {last} or less, or -1 for "
            "the latest; or set failOnDataLoss to false to read what is there"
        )
    options.report_data_loss(what)


def resolve_starts(
    cluster: ClusterClient, options: ReadOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Return where a streaming query begins in each partition.

    Raises:
        DataSourceOptionError, DataLossError, ApiTimeoutError: as `resolve_ranges` does.
    """
    earliest = listed(cluster, options, partitions, SpecialOffset.EARLIEST)
    starts = _starts(cluster, options, earliest)
    latest = listed(cluster, options, partitions, SpecialOffset.LATEST)
    resolved = {}
    for each in sorted(partitions):
        first, last = earliest[each], latest[each]
        start = starts[each]
        resolved[each] = last if start is None else max(first, min(start, last))
        if start is not None and start != resolved[each]:
            options.report_data_loss(
                f"{each} has offsets {first} to {last} (exclusive), so none starts at {start}"
            )
    return resolved


def listed(
    cluster: ClusterClient, options: ReadOptions, partitions: Collection[TopicPartition], which: SpecialOffset
) -> dict[TopicPartition, Offset]:
    """Return the earliest or the latest offset of each partition.

    Raises:
        ApiTimeoutError: a leader did not answer in time.
    """
    offsets = _offsets(cluster, options, dict.fromkeys(partitions, which))
    return {each: _known(offsets, each) for each in partitions}


def _starts(
    cluster: ClusterClient, options: ReadOptions, earliest: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset | None]:
    starts = _by_limit(cluster, options, "starting", options.starting, earliest)
    if options.latest_without_match or isinstance(options.starting, Latest | SpecificOffsets):
        return starts
    for topic_partition, start in starts.items():
        if start is None:
            raise DataSourceOptionError(
                f"No offset matched the starting timestamp for {topic_partition}: all its records are older. "
                "Set startingOffsetsByTimestampStrategy to latest to read nothing of such partitions"
            )
    return starts


def _by_limit(
    cluster: ClusterClient,
    options: ReadOptions,
    side: str,
    limit: OffsetLimit,
    earliest: Mapping[TopicPartition, Offset],
) -> dict[TopicPartition, Offset | None]:
    """Return the offset of each partition that the limit means; None for its end."""
    match limit:
        case Earliest():
            return dict(earliest)
        case Latest():
            return dict.fromkeys(earliest)
        case SpecificOffsets(offsets):
            _check_same_partitions(f"{side}Offsets", offsets, earliest)
            return {
                each: earliest[each]
                if isinstance(offset, Earliest)
                else None
                if isinstance(offset, Latest)
                else offset
                for each, offset in offsets.items()
            }
        case SpecificTimestamps(timestamps_ms):
            _check_same_partitions(f"{side}OffsetsByTimestamp", timestamps_ms, earliest)
            return _at_timestamps(cluster, options, timestamps_ms)
        case _:
            return _at_timestamps(cluster, options, dict.fromkeys(earliest, limit.timestamp_ms))


def _check_same_partitions(
    option: str, given: Mapping[TopicPartition, object], partitions: Mapping[TopicPartition, object]
) -> None:
    if given.keys() != partitions.keys():
        missing = ", ".join(str(each) for each in sorted(partitions.keys() - given.keys()))
        surplus = ", ".join(str(each) for each in sorted(given.keys() - partitions.keys()))
        raise DataSourceOptionError(
            f"Option '{option}' must name all partitions that are read, and no others"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not read: {surplus}" if surplus else "")
            + ". For offsets, -1 stands for the latest and -2 for the earliest"
        )


def _at_timestamps(
    cluster: ClusterClient, options: ReadOptions, timestamps_ms: Mapping[TopicPartition, TimestampMs]
) -> dict[TopicPartition, Offset | None]:
    for topic_partition, timestamp_ms in timestamps_ms.items():
        if timestamp_ms < 0:
            raise DataSourceOptionError(f"The timestamp {timestamp_ms} for {topic_partition} is negative")
    return _offsets(cluster, options, timestamps_ms)


def _offsets(
    cluster: ClusterClient, options: ReadOptions, queries: Mapping[TopicPartition, OffsetQuery]
) -> dict[TopicPartition, Offset | None]:
    listed = list_offsets(cluster, queries, read_committed=options.fetch.read_committed)
    return {each: answer.offset for each, answer in listed.items()}


def _known(offsets: Mapping[TopicPartition, Offset | None], topic_partition: TopicPartition) -> Offset:
    offset = offsets[topic_partition]
    assert offset is not None, "every partition has a first and a last offset"
    return offset
