"""Regular expressions that members subscribe by.

A member's first heartbeat with a new one is refused if RE2 does not understand it. What it means is found out
beside the loop, over all topics of the image, and written down, so that all members with the same expression,
and the next coordinator, mean the same topics. Left out are those that the member whose request it is found
out at may not describe. It is found out again when topics were created, and from time
to time (`group.consumer.regex.refresh.interval.ms`); never sooner than ten seconds after the last time.

Source: KIP-848; Kafka's TopicRegexResolver and GroupMetadataManager.maybeUpdateRegularExpressions.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.membership import MayDescribe
from sparklog.executor.coordinators.machine.regular_expressions import compiled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import Offset, TimestampMs

MIN_REFRESH_INTERVAL_MS: Final = 10_000
"""Kafka's REGEX_BATCH_REFRESH_MIN_INTERVAL_MS."""
_SHOWN_CHARACTERS: Final = 256


def check_regular_expression(regex: str) -> None:
    """Check that RE2 understands an expression.

    >>> check_regular_expression("(a|b).*")
    >>> check_regular_expression("(a")
    Traceback (most recent call last):
    sparklog.protocol.errors.KafkaError: INVALID_REGULAR_EXPRESSION: SubscribedTopicRegex `(a` is not a valid \
regular expression: missing ): (a.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, it does not.
    """
    _compiled(regex)


def matching_topics(
    regexes: Iterable[str], topics: Iterable[str], may_describe: MayDescribe | None = None
) -> dict[str, frozenset[str]]:
    """Return the topics whose whole name each expression matches; of one that is none, no topic.

    Without `may_describe` all topics may be described.

    >>> matching_topics(["a+"], ["a", "aa", "ab"])["a+"] == {"a", "aa"}
    True
    """
    names = tuple(topics)
    matching = {}
    for regex in regexes:
        try:
            matches = _compiled(regex)
        except KafkaError:
            # Checked when a member brought it; another coordinator's RE2 may have understood more.
            matching[regex] = frozenset[str]()
        else:
            matching[regex] = frozenset(
                name for name in names if matches(name) and (may_describe is None or may_describe(name))
            )
    return matching


def wants_refresh(
    group: ConsumerGroup,
    subscribed: Collection[str],
    *,
    brings_new: bool,
    topics_created_at: Offset,
    refresh_interval_ms: int,
    wall_ms: TimestampMs,
) -> bool:
    """Whether what `subscribed` expressions mean is to be found out now.

    `topics_created_at` is the end of the image that had new topics last.
    """
    if not subscribed:
        return False
    resolved = next(iter(group.resolved.values()), None)
    if resolved is None:
        return True
    if wall_ms <= resolved.timestamp_ms + MIN_REFRESH_INTERVAL_MS:
        return False
    return (
        brings_new
        or set(subscribed) != set(group.resolved)
        or resolved.version < topics_created_at
        or wall_ms > resolved.timestamp_ms + refresh_interval_ms
    )


def _compiled(regex: str) -> Callable[[str], object]:
    try:
        return compiled(regex)
    except ValueError as error:
        shown = regex if len(regex) <= _SHOWN_CHARACTERS else f"{regex[:_SHOWN_CHARACTERS]}..."
        raise KafkaError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}.",
        ) from None
