"""Regular expressions that members subscribe by.

A member's first heartbeat with a new expression is refused if RE2 rejects it. The expression is resolved
outside of the loop, over all topics of the image, and recorded, so that all members with the same expression,
and the next coordinator, have the same topics. Topics that the requesting member may not describe are left
out. It is resolved again after topics were created, and at intervals
(`group.consumer.regex.refresh.interval.ms`); never within ten seconds of the last resolution.

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
    sparklog.protocol.errors.KafkaError: INVALID_REGULAR_EXPRESSION: SubscribedTopicRegex `(a` is not a \
valid regular expression: missing ): (a.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION, it does not.
    """
    _compiled(regex)


def matching_topics(
    regexes: Iterable[str], topics: Iterable[str], may_describe: MayDescribe | None = None
) -> dict[str, frozenset[str]]:
    """Return the topics whose whole name each expression matches; none for an invalid one.

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
            # Valid when a member brought it; another coordinator's RE2 may accept more.
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
    """Whether the `subscribed` expressions have to be resolved now.

    `topics_created_at` is the end offset of the last image with new topics.
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
