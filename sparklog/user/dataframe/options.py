"""The options of a read and of a write, parsed and checked before any broker is asked.

Names, meanings and precedence are those of Spark's Kafka connector, so that a job moves over by naming
another format; names are case-insensitive. An option unknown to both is refused if it looks like a misspelt
known one, and otherwise reported and ignored, as by the connector.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from sparklog.node.metadata.topic_names import InvalidTopicNameError, check_topic_name
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.config import ClientConfig, FetchConfig, ProducerConfig
from sparklog.user.dataframe.delivery_guarantee import (
    GUARANTEE_OPTIONS,
    ApplicationVersion,
    DeliveryGuarantee,
    delivery_guarantee,
    version_of,
)
from sparklog.user.dataframe.errors import DataLossError, DataSourceOptionError
from sparklog.user.dataframe.given_options import GivenOptions
from sparklog.user.dataframe.kafka_options import KafkaOptions
from sparklog.user.dataframe.offset_limits import (
    EARLIEST,
    LATEST,
    Earliest,
    Latest,
    OffsetLimit,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    timestamp_ms,
)
from sparklog.user.dataframe.remote_options import REMOTE_OPTIONS, store_location
from sparklog.user.dataframe.topic_pattern import compile_java_pattern
from sparklog.user.dataframe.trigger_limits import TriggerLimits
from sparklog.user.dataframe.warn_once import warn_once

logger = logging.getLogger(__name__)

_TOPIC_OPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ENDING_OPTIONS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_READ_OPTIONS: Final = (
    *_TOPIC_OPTIONS,
    *_ENDING_OPTIONS,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *REMOTE_OPTIONS,
)
_STREAMING_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_WITHOUT_EFFECT: Final = ("groupIdPrefix",)
_WRITE_OPTIONS: Final = ("topic", *GUARANTEE_OPTIONS)
_OPTIONS_OF_SPARK: Final = ("checkpointLocation", "queryName")
"""Options that Spark itself uses, and passes on to the sink of a stream with the others."""
_DEFAULT_MAX_TRIGGER_DELAY: Final = "15m"
_DURATION: Final = re.compile("([0-9]{1,12}) *(us|ms|s|m|min|h|d)?")
_UNIT_MS: Final = {
    None: 1,
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Subscribed:
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """All partitions of the topics whose name contains a match, except of internal topics."""

    pattern: str
    """In Java's syntax."""


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: frozenset[TopicPartition]


Topics: TypeAlias = Subscribed | Pattern | Assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    client: ClientConfig
    fetch: FetchConfig
    topics: Topics
    starting: OffsetLimit
    ending: OffsetLimit
    latest_without_match: bool
    """Start at the end of a partition without a record after the starting timestamp; else that is an
    error."""
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    store: StoreLocation | None = None
    """Where history is read from; None for brokers alone."""

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        default_bootstrap_servers: str | None,
        *,
        report: Callable[[str], None] = warn_once,
    ) -> "ReadOptions":
        """Parse the options of a batch read; call `report` for those without effect.

        Raises:
            DataSourceOptionError: one is missing, malformed, refused, or contradicts another.
        """
        given = GivenOptions(
            options,
            known=_READ_OPTIONS,
            without_effect=(*_STREAMING_OPTIONS, *_WITHOUT_EFFECT, *_WRITE_OPTIONS),
            report=report,
        )
        starting, ending = _starting(given), _ending(given)
        _check_order(starting, ending)
        return _read_options(given, default_bootstrap_servers, starting, ending)

    def report_data_loss(self, what_was_lost: str, cause: Exception | None = None) -> None:
        """Report lost data: by an error, or by a warning if `failOnDataLoss` is false.

        Raises:
            DataLossError: it is true.
        """
        if self.fail_on_data_loss:
            raise DataLossError(what_was_lost) from cause
        logger.warning("%s; continuing without them (failOnDataLoss is false)", what_was_lost)


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    read: ReadOptions
    """As for a batch; it ends at the latest offsets of the moment."""
    limits: TriggerLimits

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        default_bootstrap_servers: str | None,
        *,
        report: Callable[[str], None] = warn_once,
    ) -> "StreamReadOptions":
        """Parse the options of a streaming read; call `report` for those without effect.

        Raises:
            DataSourceOptionError: one is missing, malformed, refused, or contradicts another.
        """
        given = GivenOptions(
            options,
            known=(*_READ_OPTIONS, *_STREAMING_OPTIONS),
            without_effect=(*_WITHOUT_EFFECT, *_WRITE_OPTIONS),
            report=report,
        )
        for name in _ENDING_OPTIONS:
            if given.text(name) is not None:
                raise DataSourceOptionError(
                    f"Option '{name}': a streaming query has no end; use spark.read, or Trigger.AvailableNow"
                )
        starting = _limit(given, "starting", default=LATEST)
        return cls(_read_options(given, default_bootstrap_servers, starting, LATEST), _trigger_limits(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    client: ClientConfig
    producer: ProducerConfig
    topic: str | None
    """Topic of every row; None leaves it to the rows' topic column."""
    guarantee: DeliveryGuarantee
    version: ApplicationVersion | None
    transaction_timeout_ms: int | None
    """None: no time-out if the cluster permits that."""

    @classmethod
    def parse(cls, options: Mapping[str, str], default_bootstrap_servers: str | None) -> "WriteOptions":
        """Parse the options of a write.

        Raises:
            DataSourceOptionError: one is malformed, refused, or contradicts another.
        """
        given = GivenOptions(
            options,
            known=(*_WRITE_OPTIONS, *_OPTIONS_OF_SPARK),
            without_effect=(*_READ_OPTIONS, *_WITHOUT_EFFECT),
            report=warn_once,
        )
        kafka = KafkaOptions(given.kafka_settings(), default_bootstrap_servers, report=given.report)
        topic = given.text("topic")
        if topic == "":
            raise DataSourceOptionError("Option 'topic' is empty; give a topic's name, or a column 'topic'")
        if topic is not None:
            _check_name("topic", topic)
        producer = kafka.producer()
        guarantee = delivery_guarantee(given, producer)
        return cls(
            client=kafka.client(),
            producer=producer,
            topic=topic,
            guarantee=guarantee,
            version=version_of(given, guarantee),
            transaction_timeout_ms=kafka.transaction_timeout_ms(
                has_transactions=guarantee is DeliveryGuarantee.EXACTLY_ONCE
            ),
        )


def _read_options(
    given: GivenOptions, default_bootstrap_servers: str | None, starting: OffsetLimit, ending: OffsetLimit
) -> ReadOptions:
    kafka = KafkaOptions(given.kafka_settings(), default_bootstrap_servers, report=given.report)
    retries = given.integer("fetchOffset.numRetries", 0)
    interval_ms = given.integer("fetchOffset.retryIntervalMs", 0)
    client = kafka.client(
        unknown_topic_timeout_ms=(3 if retries is None else retries)
        * (1_000 if interval_ms is None else interval_ms)
    )
    return ReadOptions(
        client=client,
        store=store_location(given, client, default_bootstrap_servers),
        fetch=kafka.fetch(poll_timeout_ms=given.integer("kafkaConsumer.pollTimeoutMs", 1)),
        topics=_topics(given),
        starting=starting,
        ending=ending,
        latest_without_match=_strategy(given) == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        min_partitions=given.integer("minPartitions", 1),
        max_records_per_partition=given.integer("maxRecordsPerPartition", 1),
        include_headers=given.boolean("includeHeaders", default=False),
    )


def _trigger_limits(given: GivenOptions) -> TriggerLimits:
    low = given.integer("minOffsetsPerTrigger", 1)
    high = given.integer("maxOffsetsPerTrigger", 1)
    if low is not None and high is not None and low > high:
        raise DataSourceOptionError(
            f"Option 'minOffsetsPerTrigger' is {low}, more than maxOffsetsPerTrigger, which is {high}"
        )
    delay = given.text("maxTriggerDelay") or _DEFAULT_MAX_TRIGGER_DELAY
    matched = _DURATION.fullmatch(delay.lower())
    if matched is None:
        raise DataSourceOptionError(
            f"Option 'maxTriggerDelay' is '{delay}'; it must be a number with a unit, such as 500ms or 15m"
        )
    return TriggerLimits(high, low, int(int(matched[1]) * _UNIT_MS[matched[2]]))


def read_options_of_either_kind(
    options: Mapping[str, str], default_bootstrap_servers: str | None
) -> ReadOptions:
    """Return the common options of a batch and a streaming read, before it is known which of them this is.

    Options that either permits pass, and nothing is reported: they are parsed again once the kind is known.

    Raises:
        DataSourceOptionError: one is wrong for both.
    """

    def report(_: str) -> None: ...

    try:
        return StreamReadOptions.parse(options, default_bootstrap_servers, report=report).read
    except DataSourceOptionError:
        return ReadOptions.parse(options, default_bootstrap_servers, report=report)


def _check_name(option: str, topic: str) -> None:
    try:
        check_topic_name(topic)
    except InvalidTopicNameError as error:
        raise DataSourceOptionError(f"Option '{option}': {error.message}") from None


def _topics(given: GivenOptions) -> Topics:
    chosen = [name for name in _TOPIC_OPTIONS if given.text(name) is not None]
    if len(chosen) != 1:
        count = "One" if not chosen else "Only one"
        verb = "must" if not chosen else "can"
        raise DataSourceOptionError(
            f"{count} of the following options {verb} be specified: {', '.join(_TOPIC_OPTIONS)}"
            + (
                f"; given are {' and '.join(chosen)}"
                if chosen
                else ". In SQL it is given with the query: SELECT ... FROM t WITH (subscribe = '...')"
            )
        )
    value = given.text(chosen[0]) or ""
    match chosen[0]:
        case "assign":
            partitions = parse_partitions("assign", value)
            for name in {each.topic for each in partitions}:
                _check_name("assign", name)
            return Assigned(partitions)
        case "subscribe":
            names = tuple(dict.fromkeys(filter(None, (name.strip() for name in value.split(",")))))
            if not names:
                raise DataSourceOptionError(f"No topics to subscribe to: option 'subscribe' is '{value}'")
            for name in names:
                _check_name("subscribe", name)
            return Subscribed(names)
        case _:
            if not value:
                raise DataSourceOptionError("Pattern to subscribe is empty: option 'subscribePattern'")
            compile_java_pattern("subscribePattern", value)
            return Pattern(value)


def _starting(given: GivenOptions) -> OffsetLimit:
    limit = _limit(given, "starting", default=EARLIEST)
    if isinstance(limit, Latest):
        raise DataSourceOptionError(
            "Option 'startingOffsets': starting offset can't be latest for batch queries; use earliest, "
            "offsets by partition, or startingTimestamp"
        )
    if isinstance(limit, SpecificOffsets):
        for topic_partition, offset in limit.offsets.items():
            if isinstance(offset, Latest):
                raise DataSourceOptionError(
                    f"startingOffsets for {topic_partition} can't be latest (-1) for batch queries"
                )
    return limit


def _ending(given: GivenOptions) -> OffsetLimit:
    limit = _limit(given, "ending", default=LATEST)
    if isinstance(limit, Earliest):
        raise DataSourceOptionError(
            "Option 'endingOffsets': ending offset can't be earliest for batch queries; use latest, "
            "offsets by partition, or endingTimestamp"
        )
    if isinstance(limit, SpecificOffsets):
        for topic_partition, offset in limit.offsets.items():
            if isinstance(offset, Earliest):
                raise DataSourceOptionError(
                    f"endingOffsets for {topic_partition} can't be earliest (-2) for batch queries"
                )
    return limit


def _limit(given: GivenOptions, side: str, *, default: OffsetLimit) -> OffsetLimit:
    """Return a bound by the connector's precedence: one timestamp, timestamps by partition, offsets."""
    if (text := given.text(f"{side}Timestamp")) is not None:
        return Timestamp(timestamp_ms(f"{side}Timestamp", text))
    if (text := given.text(f"{side}OffsetsByTimestamp")) is not None:
        return parse_timestamps(f"{side}OffsetsByTimestamp", text)
    text = given.text(f"{side}Offsets")
    match text and text.lower():
        case None:
            return default
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
        case _:
            return parse_offsets(f"{side}Offsets", text or "")


def _strategy(given: GivenOptions) -> str:
    value = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if value not in ("error", "latest"):
        raise DataSourceOptionError(
            f"Option 'startingOffsetsByTimestampStrategy' is '{value}'; it must be error or latest"
        )
    return value


def _check_order(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Refuse bounds by partition that name different partitions, or that end before they start."""
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        _check_bounds(
            {each: offset if isinstance(offset, int) else None for each, offset in starting.offsets.items()},
            {each: offset if isinstance(offset, int) else None for each, offset in ending.offsets.items()},
            "offset",
        )
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        _check_bounds(starting.timestamps_ms, ending.timestamps_ms, "timestamp")
    elif (
        isinstance(starting, Timestamp)
        and isinstance(ending, Timestamp)
        and starting.timestamp_ms > ending.timestamp_ms
    ):
        raise DataSourceOptionError(
            f"startingTimestamp {starting.timestamp_ms} is after endingTimestamp {ending.timestamp_ms}"
        )


def _check_bounds(
    starts: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int | None], what: str
) -> None:
    if starts.keys() != ends.keys():
        differing = ", ".join(str(each) for each in sorted(starts.keys() ^ ends.keys()))
        raise DataSourceOptionError(
            f"The starting and the ending {what}s must name the same partitions; "
            f"{differing} is in one of them only"
        )
    for topic_partition, start in starts.items():
        end = ends[topic_partition]
        if start is not None and end is not None and start > end:
            raise DataSourceOptionError(
                f"{topic_partition}: the starting {what} {start} is after the ending {what} {end}"
            )
