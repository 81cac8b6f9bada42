"""The page of a topic, made on request: committed metadata, leaders' offsets, settings."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.ui.asked_page import AskedPage
from sparklog.driver.ui.machine.status import as_json
from sparklog.driver.ui.machine.topic_health import TopicHealth, trouble_of
from sparklog.driver.ui.machine.topic_settings import topic_settings
from sparklog.driver.ui.pages.html import Html
from sparklog.driver.ui.pages.topic import (
    PartitionMetrics,
    partitions_of_page,
    topic_page,
    unknown_topic_page,
)
from sparklog.driver.ui.pages.topics import topics_page
from sparklog.driver.ui.questions import Answer, LastAnswer, Questions
from sparklog.node.clocks import monotonic_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
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


_OLD_MS = 3_000


class TopicPages:
    """Makes pages of topics; belongs to one thread."""

    def __init__(
        self,
        config: BrokerConfig,
        health: TopicHealth,
        questions: Questions,
        tables: Callable[[], Iterable[TableStatus]] = tuple,
    ) -> None:
        """`tables` returns the states of the topics' tables."""
        self._tables = tables
        self._config = config
        self._health = health
        self._questions = questions

    def topics(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        """Return a page of the list of topics, as HTML and as data for JSON."""
        return topics_page(self._health, asked.page)

    def topic(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        name, page = asked.name, asked.page
        topic = image.topics.by_name.get(name)
        if topic is None:
            return unknown_topic_page(name), {}
        numbers = partitions_of_page(topic, page)
        leaders = {
            number: leader for number in numbers if (leader := topic.partitions[number].leader) is not None
        }
        answer: Answer[LeaderMetrics] = Answer(None, None, None)
        if leaders:
            answer = self._questions.ask((name, numbers[0]), partition_metrics(name, leaders))
        age_ms = answer.age_ms
        metrics = {} if answer.known is None else answer.known.metrics
        remark = None
        if leaders and (age_ms is None or age_ms > _OLD_MS):
            remark = "Not every leader answers; offsets and sizes are " + (
                "unknown." if age_ms is None else f"{age_ms / 1_000:.0f} s old."
            )
        settings = topic_settings(self._config, image, name)
        minimum = int(next(each.value for each in settings if each.name == "min.insync.replicas"))
        iceberg = next((each for each in self._tables() if each.topic == name), None)
        html = topic_page(
            topic,
            page,
            min_insync_replicas=minimum,
            metrics=metrics,
            settings=settings,
            remark=remark,
            iceberg=iceberg,
        )
        return html, {
            "name": name,
            "topic_id": str(topic.topic_id),
            "partition_count": len(topic.partitions),
            "partitions": [
                _as_data(number, topic.partitions[number], minimum, metrics.get(number)) for number in numbers
            ],
            "table": None if iceberg is None else as_json(iceberg),
            "settings": {each.name: each.value for each in settings},
        }


def _as_data(
    number: int, partition: PartitionRegistration, minimum: int, metrics: PartitionMetrics | None
) -> dict[str, Any]:
    return {
        "partition": number,
        "trouble": trouble_of(partition, minimum),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        **(metrics or PartitionMetrics())._asdict(),
    }
