"""Warning about event times that retention deletes: the rows are written, and deleted minutes later.

Retention goes by the timestamps of records, not by the time of writing. A segment is deleted as soon as its
newest record is older than `retention.ms`, so a write of last year's events, to a topic that keeps a week, is
acknowledged and then deleted. Tasks note the oldest timestamp of each topic; the driver, when all tasks are
done, reads the topics' configurations and warns once.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import TimestampMs
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig
from sparklog.user.client.topic_configs import describe_topic_configs

logger = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[Sequence[str]], Mapping[str, Mapping[str, str]]]

CLEANUP_POLICY: Final = "cleanup.policy"
RETENTION_MS: Final = "retention.ms"
TIMESTAMP_TYPE: Final = "message.timestamp.type"
AT_ONCE_MS: Final = 300_000
"""The default of `log.retention.check.interval.ms`: younger records can be read before they are deleted."""
KNOWN_FOR_MS: Final = 600_000
"""Time for which a topic's configuration is cached."""


class TopicSettings:
    """Cache of topic configurations.

    Without it a stream that fills a topic with old events, which the topic keeps, would request them for
    every batch.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[TimestampMs, Mapping[str, str]]] = {}

    def of(self, topics: Iterable[str], now_ms: TimestampMs, ask: Ask) -> dict[str, Mapping[str, str]]:
        """Return the configuration of each topic; `ask` for those that are unknown or outdated."""
        wanted = sorted(topics)
        outdated = [
            topic
            for topic in wanted
            if topic not in self._known or now_ms - self._known[topic][0] >= KNOWN_FOR_MS
        ]
        if outdated:
            self._known |= {topic: (now_ms, config) for topic, config in ask(outdated).items()}
        return {topic: self._known[topic][1] for topic in wanted if topic in self._known}


class _OfCluster:
    """Cached configurations of a cluster's topics, and the topics with a warning."""

    def __init__(self) -> None:
        self.settings = TopicSettings()
        self.warned: set[str] = set()


# A stream's batches share the process, and two streams may write topics of the same name to two clusters.
_clusters: Final[defaultdict[tuple[tuple[str, int], ...], _OfCluster]] = defaultdict(_OfCluster)
"""By bootstrap servers."""


def oldest_of(tasks: Iterable[Mapping[str, TimestampMs]]) -> dict[str, TimestampMs]:
    oldest: dict[str, TimestampMs] = {}
    for task in tasks:
        for topic, timestamp_ms in task.items():
            oldest[topic] = min(timestamp_ms, oldest.get(topic, timestamp_ms))
    return oldest


def warn_of_old_event_times(
    client: ClientConfig, oldest: Mapping[str, TimestampMs], now_ms: TimestampMs
) -> None:
    """Log a warning, once for each topic whose retention is shorter than the age of the written records."""

    def ask(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        with ClusterClient(client) as cluster:
            return describe_topic_configs(cluster, topics, (CLEANUP_POLICY, RETENTION_MS, TIMESTAMP_TYPE))

    known = _clusters[client.bootstrap_servers]
    old = {
        topic
        for topic, oldest_ms in oldest.items()
        if topic not in known.warned and now_ms - oldest_ms > AT_ONCE_MS
    }
    try:
        configs = known.settings.of(old, now_ms, ask)
    except KafkaError as error:
        logger.debug("Topic configurations are unknown: %s", error)
        return
    for topic, config in configs.items():
        if (warning := too_old(topic, oldest[topic], config, now_ms)) is not None:
            known.warned.add(topic)
            logger.warning("%s", warning)


def too_old(topic: str, oldest_ms: TimestampMs, config: Mapping[str, str], now_ms: TimestampMs) -> str | None:
    """Return the warning for a topic with records of that age; None if it keeps them."""
    if "delete" not in config.get(CLEANUP_POLICY, "") or config.get(TIMESTAMP_TYPE) == "LogAppendTime":
        return None
    retention_ms = int(config.get(RETENTION_MS, "-1"))
    if retention_ms < 0 or now_ms - oldest_ms <= retention_ms:
        return None
    moment = datetime.fromtimestamp(oldest_ms / 1000, UTC)
    return (
        f"Records with timestamps back to {moment:%Y-%m-%d %H:%M:%S} UTC were written to topic {topic}, "
        f"which keeps {timedelta(milliseconds=retention_ms)} (retention.ms={retention_ms}): a segment goes "
        "as soon as its newest record is older than that, whenever it was written. Set the topic's "
        "retention.ms (-1 keeps everything), or leave out the column 'timestamp'"
    )
