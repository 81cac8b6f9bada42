"""Resolution of options to the offsets of a read: the driver's requests to the cluster during planning.

Partitions are fixed first, then both ends of each; later records are not read. Offsets in the options that a
partition does not have are detected here, before the query runs.

Under read_committed, a partition ends at its last stable offset for now, before the first record of an open
transaction. The records from there to its high watermark are not lost: a position or an end in that range
waits (`end_for_now`).
"""

import logging
from collections.abc import Collection, Mapping
from uuid import UUID

from sparklog.protocol.types import Offset, TimestampMs, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.offsets import SpecialOffset, list_offsets
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.offset_limits import (
    Earliest,
    Latest,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
)
from sparklog.user.dataframe.options import Assigned, Pattern, ReadOptions, Subscribed, Topics
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.topic_pattern import compile_java_pattern
from sparklog.user.sink.machine.names import DECISIONS_TOPIC

logger = logging.getLogger(__name__)


def resolve_partitions(
    cluster: ClusterClient, topics: Topics, *, timeout_ms: int | None = None
) -> dict[TopicPartition, UUID | None]:
    """Return the partitions to read, each with its topic's id.

    Missing named topics are waited for, for `timeout_ms` or the client's limit.

    Raises:
        UnknownTopicError: a named topic does not exist. A pattern without a match is not an error.
        DataSourceOptionError: an assigned partition does not exist.
    """
    match topics:
        case Pattern(pattern):
            matches = compile_java_pattern("subscribePattern", pattern).search
            found = [
                topic
                for topic in cluster.topics().values()
                # Neither Kafka's internal topics nor ours: sinks' decisions are of no use to users.
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
    """Return the offset range to read of each partition.

    An end that is given by offset and is beyond the last stable offset stays: tasks wait, like a consumer,
    until the transactions before it have ended.

    Raises:
        DataSourceOptionError: offsets or timestamps are given for other partitions than the read ones, no
            record is at or after the starting timestamp, or the end comes before the start.
        DataLossError: a partition does not have requested offsets, and failOnDataLoss is true.
        ApiTimeoutError: a leader did not answer in time.
    """
    if not partitions:
        return []
    earliest = listed(cluster, options, partitions, SpecialOffset.EARLIEST)
    starts = _starts(cluster, options, earliest)
    ends = _by_limit(cluster, options, "ending", options.ending, earliest)
    # Listed last: offsets found by timestamps lie below.
    latest = listed(cluster, options, partitions, SpecialOffset.LATEST)
    asked = {each: max(starts[each] or 0, ends[each] or 0) for each in partitions}
    high_watermarks = _high_watermarks(cluster, options, latest, asked)
    ranges = []
    for each in sorted(partitions):
        first, last, high_watermark = earliest[each], latest[each], high_watermarks[each]
        start = last if starts[each] is None else starts[each]
        end = last if ends[each] is None else ends[each]
        assert start is not None
        assert end is not None
        if start > end:
            if isinstance(options.starting, SpecificOffsets) and isinstance(options.ending, SpecificOffsets):
                raise DataSourceOptionError(
                    f"{each}: the starting offset {start} is after the ending offset {end}"
                )
            if start > high_watermark and isinstance(options.starting, SpecificOffsets):
                options.report_data_loss(
                    f"{each} ends at offset {high_watermark}, before the starting offset {start}"
                )
            end = start
        else:
            if end > high_watermark:
                _report_end_beyond(options, each, end, high_watermark)
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
    """Return a streaming query's starting offset in each partition.

    Raises:
        DataSourceOptionError, DataLossError, ApiTimeoutError: as `resolve_ranges` raises them.
    """
    earliest = listed(cluster, options, partitions, SpecialOffset.EARLIEST)
    starts = _starts(cluster, options, earliest)
    latest = listed(cluster, options, partitions, SpecialOffset.LATEST)
    high_watermarks = _high_watermarks(
        cluster, options, latest, {each: start or 0 for each, start in starts.items()}
    )
    resolved = {}
    for each in sorted(partitions):
        first, last, high_watermark = earliest[each], latest[each], high_watermarks[each]
        start = starts[each]
        if start is None:
            resolved[each] = last
            continue
        resolved[each] = max(first, min(start, end_for_now(start, last, high_watermark)))
        if start != resolved[each]:
            options.report_data_loss(
                f"{each} has offsets {first} to {high_watermark} (exclusive), so none starts at {start}"
            )
    return resolved


def listed_ends(
    cluster: ClusterClient, options: ReadOptions, starts: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, Offset]:
    """Return the present end of reading from each start, by `end_for_now`.

    Raises:
        ApiTimeoutError: a leader did not answer in time.
    """
    latest = listed(cluster, options, starts, SpecialOffset.LATEST)
    high_watermarks = _high_watermarks(cluster, options, latest, starts)
    return {each: end_for_now(start, latest[each], high_watermarks[each]) for each, start in starts.items()}


def end_for_now(start: Offset, latest: Offset, high_watermark: Offset) -> Offset:
    """Return the present end of reading from `start`; it is below `start` only if records were lost.

    `latest` is the last stable offset under read_committed. A query that has read uncommitted records before,
    or was given its start, may be beyond it, and has nothing to read until a transaction ends.

    >>> end_for_now(10, 20, 25), end_for_now(10, 5, 12), end_for_now(10, 5, 8)
    (20, 10, 5)
    """
    return start if latest < start <= high_watermark else latest


def listed(
    cluster: ClusterClient, options: ReadOptions, partitions: Collection[TopicPartition], which: SpecialOffset
) -> dict[TopicPartition, Offset]:
    """Return the earliest or the latest offset of each partition.

    Raises:
        ApiTimeoutError: a leader did not answer in time.
    """
    return _listed(cluster, partitions, which, read_committed=options.fetch.read_committed)


def _high_watermarks(
    cluster: ClusterClient,
    options: ReadOptions,
    latest: Mapping[TopicPartition, Offset],
    asked: Mapping[TopicPartition, Offset],
) -> Mapping[TopicPartition, Offset]:
    """Return high watermarks; only listed for partitions `asked` beyond the readable offsets.

    The others get their `latest` offset, which makes no difference.
    """
    beyond = [each for each, offset in asked.items() if offset > latest[each]]
    if not beyond or not options.fetch.read_committed:
        return latest
    return {**latest, **_listed(cluster, beyond, SpecialOffset.LATEST, read_committed=False)}


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
    """Return the offset of each partition by a bound; None for the partition's end."""
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
    answers = list_offsets(cluster, timestamps_ms, read_committed=options.fetch.read_committed)
    return {each: answer.offset for each, answer in answers.items()}


def _listed(
    cluster: ClusterClient,
    partitions: Collection[TopicPartition],
    which: SpecialOffset,
    *,
    read_committed: bool,
) -> dict[TopicPartition, Offset]:
    answers = list_offsets(cluster, dict.fromkeys(partitions, which), read_committed=read_committed)
    offsets = {}
    for each in partitions:
        offset = answers[each].offset
        assert offset is not None, "every partition has a first and a last offset"
        offsets[each] = offset
    return offsets
