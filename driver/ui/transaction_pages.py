"""Pages of transactions and of partitions' producers, made on request from brokers' answers."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sparklog.driver.ui.asked_page import AskedPage
from sparklog.driver.ui.machine.coordinators import coordinators, leader_of, missing
from sparklog.driver.ui.machine.transactions import (
    OPEN_STATES,
    Preparation,
    ProducerRow,
    TransactionStatus,
    oldest_first,
    prepared_since,
    producer_rows,
    unknown_to_coordinators,
)
from sparklog.driver.ui.pages.html import Html, element
from sparklog.driver.ui.pages.remarks import lacking, said_of
from sparklog.driver.ui.pages.tables import pages_of, rows_of_page
from sparklog.driver.ui.pages.topic import unknown_topic_page
from sparklog.driver.ui.pages.transactions import producers_page, transactions_page
from sparklog.driver.ui.questions import Answer, LastAnswer, Questions
from sparklog.node.calling.blocking import ResponseTooLargeError
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.protocol.types import BrokerId, ProducerId, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.transactions import (
    ActiveProducer,
    TransactionDescription,
    describe_producers,
    describe_transactions,
    list_transactions,
)

MAX_DESCRIBED: Final = 1_000
"""The transactions that coordinators are asked about; if more are open, only the longest open ones."""
OPEN_FOR_MS: Final = (None, 60_000, 900_000, 86_400_000)
"""Filters tried one after the other; most transactions last for moments."""
MAX_LOOKED_UP: Final = 100
"""The open transactions of a partition that coordinators are asked about."""


class _Transactions(NamedTuple):
    transactions: tuple[TransactionStatus, ...]
    open_for_ms: int | None
    missing: str | None
    prepared_since: Mapping[Preparation, int]
    """Since when each has been observed as decided, on the monotonic clock."""


class _Producers(NamedTuple):
    rows: tuple[ProducerRow, ...]
    missing: str | None


class TransactionPages:
    """Makes pages of transactions; belongs to one thread."""

    def __init__(self, bootstrap_servers: str, questions: Questions) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._questions = questions

    def transactions(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        """Return a page of the open transactions, as HTML and as data for JSON."""
        answer: Answer[_Transactions] = self._questions.ask(
            "transactions", lambda client, before: _look_at_open(client, image, before)
        )
        known = answer.known or _Transactions((), None, None, {})
        page = min(max(1, asked.page), pages_of(len(known.transactions)))
        html = transactions_page(
            said_of(answer, known.missing),
            known.transactions,
            page,
            open_for_ms=known.open_for_ms,
            bootstrap_servers=self._bootstrap_servers,
        )
        return html, {
            "transaction_count": None if answer.known is None else len(known.transactions),
            "open_for_ms": known.open_for_ms,
            "missing": lacking(answer, known.missing),
            "age_ms": answer.age_ms,
            "transactions": rows_of_page(known.transactions, page),
        }

    def producers(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        topic_partition = TopicPartition(asked.name, asked.partition or 0)
        topic = image.topics.by_name.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.partitions:
            return unknown_topic_page(asked.name), {}
        leader = leader_of(image, topic_partition)
        answer: Answer[_Producers] = Answer(None, None, None)
        lacks: str | None = "This partition has no leader."
        said: Html | None = element("p", lacks, class_="alert alert-warning")
        if leader is not None:
            answer = self._questions.ask(
                ("producers", topic_partition),
                lambda client, _: _look_at_producers(client, image, topic_partition, leader),
            )
            missing_part = None if answer.known is None else answer.known.missing
            lacks, said = lacking(answer, missing_part), said_of(answer, missing_part)
        known = answer.known or _Producers((), None)
        page = min(max(1, asked.page), pages_of(len(known.rows)))
        html = producers_page(
            said, topic_partition, known.rows, page, bootstrap_servers=self._bootstrap_servers
        )
        return html, {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "leader": leader,
            "producer_count": None if answer.known is None else len(known.rows),
            "missing": lacks,
            "age_ms": answer.age_ms,
            "producers": rows_of_page(known.rows, page),
        }


def _look_at_open(
    client: ClusterClient, image: MetadataImage, before: LastAnswer[_Transactions] | None
) -> _Transactions:
    """Return the open transactions, or the oldest of them.

    Raises:
        ResponseTooLargeError: there are too many, even of the oldest.
    """
    asked = coordinators(image, TRANSACTION_STATE_TOPIC)
    for open_for_ms in OPEN_FOR_MS:
        listing = list_transactions(client, asked.brokers, states=OPEN_STATES, open_for_ms=open_for_ms)
        too_large = [each for each in listing.failures.values() if isinstance(each, ResponseTooLargeError)]
        if not too_large and len(listing.transactions) <= MAX_DESCRIBED:
            break
    for failure in too_large:
        raise failure
    by_id = {each.transactional_id: each.coordinator for each in listing.transactions[:MAX_DESCRIBED]}
    described, failures = describe_transactions(client, by_id)
    now_ms = monotonic_ms()
    since = prepared_since(described.values(), {} if before is None else before.known.prepared_since, now_ms)
    return _Transactions(
        oldest_first(
            described.values(),
            by_id,
            {key: now_ms - from_ms for key, from_ms in since.items()},
            wall_clock_ms(),
        ),
        open_for_ms,
        missing(asked, {**failures, **listing.failures}),
        since,
    )


def _look_at_producers(
    client: ClusterClient, image: MetadataImage, topic_partition: TopicPartition, leader: BrokerId
) -> _Producers:
    """Return the producers of a partition, and their hanging transactions.

    Raises:
        KafkaError: its leader does not answer.
    """
    producers = describe_producers(client, topic_partition, leader)
    is_open = sorted(
        (each for each in producers if each.transaction_start_offset is not None),
        key=lambda each: each.transaction_start_offset or 0,
    )[:MAX_LOOKED_UP]
    if not is_open:
        return _Producers(producer_rows(producers, {}, {}), None)
    asked = coordinators(image, TRANSACTION_STATE_TOPIC)
    listing = list_transactions(client, asked.brokers, producer_ids=[each.producer_id for each in is_open])
    by_id, failures = describe_transactions(
        client, {each.transactional_id: each.coordinator for each in listing.transactions}
    )
    described = {each.producer_id: each for each in by_id.values()}
    lacks = missing(asked, {**failures, **listing.failures})
    hanging = {}
    if lacks is None:
        hanging = _still_open(client, is_open, described, topic_partition, leader)
    return _Producers(producer_rows(producers, described, hanging), lacks)


def _still_open(
    client: ClusterClient,
    is_open: list[ActiveProducer],
    described: Mapping[ProducerId, TransactionDescription],
    topic_partition: TopicPartition,
    leader: BrokerId,
) -> dict[ProducerId, int]:
    """Return the open transactions that no coordinator knows and that have not ended meanwhile."""
    unknown = unknown_to_coordinators(is_open, described, topic_partition, wall_clock_ms())
    if not unknown:
        return {}
    again = describe_producers(client, topic_partition, leader)
    return {
        each.producer_id: each.transaction_start_offset
        for each in again
        if each.transaction_start_offset is not None
        and unknown.get(each.producer_id) == each.transaction_start_offset
    }
