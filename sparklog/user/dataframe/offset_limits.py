"""Start and end of a read as given in the options, before any broker is asked.

The JSON forms are those of Spark's Kafka connector: `{"topic": {"0": 23, "1": -2}}`, where -2 is the earliest
and -1 the latest offset, and `{"topic": [0, 1]}` for `assign`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from sparklog.protocol.types import Offset, TimestampMs, TopicPartition
from sparklog.user.dataframe.errors import DataSourceOptionError

_LATEST_IN_JSON: Final = -1
_EARLIEST_IN_JSON: Final = -2
_PARTITION: Final = re.compile("[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Earliest:
    """Each partition's log start offset."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Each partition's high watermark when the read is planned."""


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """An offset, the earliest or the latest for each named partition."""

    offsets: Mapping[TopicPartition, Offset | Earliest | Latest]


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """For each named partition: its first offset whose record's timestamp is at or after the given one."""

    timestamps_ms: Mapping[TopicPartition, TimestampMs]


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first offset of each partition whose record's timestamp is at or after this one."""

    timestamp_ms: TimestampMs


OffsetLimit: TypeAlias = Earliest | Latest | SpecificOffsets | SpecificTimestamps | Timestamp

EARLIEST: Final = Earliest()
LATEST: Final = Latest()


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """Return the partitions of `{"topic": [0, 1]}`.

    Raises:
        DataSourceOptionError: the text is not of that form, or names no partition.
    """
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    document = _json_object(option, text, example)
    partitions: set[TopicPartition] = set()
    for topic, numbers in document.items():
        if not isinstance(numbers, list) or not all(
            _is_integer(number) and number >= 0 for number in numbers
        ):
            raise _malformed(option, text, example)
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise DataSourceOptionError(
            f"No topicpartitions to assign: the value of option '{option}' is '{text}'"
        )
    return frozenset(partitions)


def parse_offsets(option: str, text: str) -> SpecificOffsets:
    """Return the offsets of `{"topic": {"0": 23, "1": -2}}`.

    Raises:
        DataSourceOptionError: the text is not of that form, or an offset is below -2.
    """
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    offsets: dict[TopicPartition, Offset | Earliest | Latest] = {}
    for topic_partition, number in _by_partition(option, text, example).items():
        if number == _LATEST_IN_JSON:
            offsets[topic_partition] = LATEST
        elif number == _EARLIEST_IN_JSON:
            offsets[topic_partition] = EARLIEST
        elif number >= 0:
            offsets[topic_partition] = number
        else:
            raise DataSourceOptionError(
                f"Option '{option}' has offset {number} for {topic_partition}; an offset is 0 or more, "
                "-1 for the latest or -2 for the earliest"
            )
    return SpecificOffsets(offsets)


def parse_timestamps(option: str, text: str) -> SpecificTimestamps:
    """Return the timestamps of `{"topic": {"0": 1357016400000}}`.

    Raises:
        DataSourceOptionError: the text is not of that form, or a timestamp is negative.
    """
    example = '{"topicA":{"0":1357016400000,"1":1357016400000}}'
    by_partition = {}
    for topic, timestamps in _json_object(option, text, example).items():
        if not isinstance(timestamps, dict):
            raise _malformed(option, text, example)
        for partition, timestamp in timestamps.items():
            if not _PARTITION.fullmatch(partition) or not isinstance(timestamp, int | str):
                raise _malformed(option, text, example)
            by_partition[TopicPartition(topic, int(partition))] = timestamp_ms(option, str(timestamp))
    return SpecificTimestamps(by_partition)


def timestamp_ms(option: str, text: str) -> TimestampMs:
    """Parse an option's timestamp.

    Raises:
        DataSourceOptionError: it is not a number of milliseconds since 1970; for a date and time the
            message has the number.
    """
    try:
        milliseconds = int(text)
    except ValueError:
        meant = _meant(text)
        raise DataSourceOptionError(
            f"Option '{option}' is '{text}'; it must be milliseconds since 1970"
            + ("" if meant is None else f", and {meant}")
        ) from None
    if not 0 <= milliseconds < 2**63:
        raise DataSourceOptionError(
            f"Option '{option}' is {milliseconds}; a timestamp is milliseconds since 1970, 0 or more"
        )
    return milliseconds


def _meant(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    zone = "that time" if moment.tzinfo is not None else "that time in UTC"
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return f"{zone} is {(moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)}"


def _by_partition(option: str, text: str, example: str) -> dict[TopicPartition, int]:
    by_partition = {}
    for topic, numbers in _json_object(option, text, example).items():
        if not isinstance(numbers, dict):
            raise _malformed(option, text, example)
        for partition, number in numbers.items():
            if not _PARTITION.fullmatch(partition) or not _is_integer(number):
                raise _malformed(option, text, example)
            by_partition[TopicPartition(topic, int(partition))] = number
    return by_partition


def _json_object(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # the latter: brackets in brackets in brackets
        raise _malformed(option, text, example) from error
    if not isinstance(document, dict):
        raise _malformed(option, text, example)
    return document


def _is_integer(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and -(2**63) <= number < 2**63


def _malformed(option: str, text: str, example: str) -> DataSourceOptionError:
    return DataSourceOptionError(f"Option '{option}': expected e.g. {example}, got {text}")
