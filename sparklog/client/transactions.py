"""What coordinators say of transactions, and leaders of their partitions' producers (KIP-664).

Each broker is asked once, and what is not answered is missing: who looks is told by whom.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.list_transactions.v1.request import ListTransactionsRequest

from sparklog.client.broker_requests import ask_brokers
from sparklog.client.cluster_client import ClusterClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import (
    BrokerId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    unless_minus_one,
)

__all__ = [
    "ActiveProducer",
    "ListedTransaction",
    "TransactionDescription",
    "TransactionDescriptions",
    "TransactionListing",
    "describe_producers",
    "describe_transactions",
    "list_transactions",
]

_NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of transactions that wait for somebody's decision (KIP-939)."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: BrokerId


class TransactionListing(NamedTuple):
    """The transactions of those brokers that answered, and why others did not."""

    transactions: tuple[ListedTransaction, ...]
    failures: Mapping[BrokerId, KafkaError]


class TransactionDescription(NamedTuple):
    """A transaction as its coordinator describes it."""

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int | None
    """None: it waits for a decision."""
    started_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]
    """Those that have no marker yet."""


class TransactionDescriptions(NamedTuple):
    """The transactions that were described, by their ids, and why brokers did not describe others."""

    transactions: Mapping[str, TransactionDescription]
    failures: Mapping[BrokerId, KafkaError]


class ActiveProducer(NamedTuple):
    """A producer as the leader of a partition remembers it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: int | None
    transaction_start_offset: Offset | None
    """Where its open transaction begins; None while it has none here."""


def list_transactions(
    cluster: ClusterClient,
    brokers: Iterable[BrokerId],
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[ProducerId] = (),
    open_for_ms: int | None = None,
) -> TransactionListing:
    """Ask brokers for the transactions that they coordinate; nothing given to choose by means all of them."""
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=-1 if open_for_ms is None else open_for_ms,
    )
    responses, failures = ask_brokers(cluster, dict.fromkeys(brokers, request))
    transactions = list[ListedTransaction]()
    for broker_id, response in responses.items():
        if response.error_code is not ErrorCode.none:
            what = f"broker {broker_id} does not list its transactions"
            failures[broker_id] = KafkaError(response.error_code, what)
            continue
        transactions.extend(
            ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker_id)
            for each in response.transaction_states
        )
    return TransactionListing(tuple(transactions), failures)


def describe_transactions(
    cluster: ClusterClient, coordinators: Mapping[str, BrokerId]
) -> TransactionDescriptions:
    """Ask coordinators about transactional ids, named with who coordinates each; unknown ones are missing."""
    by_broker = defaultdict[BrokerId, list[str]](list)
    for transactional_id, broker_id in coordinators.items():
        by_broker[broker_id].append(transactional_id)
    responses, failures = ask_brokers(
        cluster,
        {
            broker_id: DescribeTransactionsRequest(transactional_ids=tuple(transactional_ids))
            for broker_id, transactional_ids in by_broker.items()
        },
    )
    described = dict[str, TransactionDescription]()
    for broker_id, response in responses.items():
        for each in response.transaction_states:
            if each.error_code is ErrorCode.transactional_id_not_found:
                continue
            if each.error_code is not ErrorCode.none:
                what = f"broker {broker_id} does not describe transaction {each.transactional_id}"
                failures[broker_id] = KafkaError(each.error_code, what)
                continue
            timeout_ms = each.transaction_timeout // _MILLISECOND
            started = each.transaction_start_time
            described[each.transactional_id] = TransactionDescription(
                transactional_id=each.transactional_id,
                state=each.transaction_state,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                timeout_ms=None if timeout_ms == _NO_TIMEOUT_MS else timeout_ms,
                started_ms=None if started is None else (started - _EPOCH) // _MILLISECOND,
                partitions=tuple(
                    TopicPartition(topic.topic, partition)
                    for topic in each.topics
                    for partition in topic.partitions
                ),
            )
    return TransactionDescriptions(described, failures)


def describe_producers(
    cluster: ClusterClient, topic_partition: TopicPartition, leader: BrokerId
) -> tuple[ActiveProducer, ...]:
    """Ask the leader of a partition for its producers.

    Raises:
        KafkaError: it does not answer, or does not lead.
    """
    topic, partition = topic_partition
    request = DescribeProducersRequest(topics=(TopicRequest(name=topic, partition_indexes=(partition,)),))
    responses, failures = ask_brokers(cluster, {leader: request})
    if failures:
        raise failures[leader]
    (answer,) = responses[leader].topics[0].partitions
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(
            answer.error_code, f"broker {leader} does not tell of the producers of {topic_partition}"
        )
    return tuple(
        ActiveProducer(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=unless_minus_one(each.last_sequence),
            last_timestamp_ms=unless_minus_one(each.last_timestamp),
            coordinator_epoch=unless_minus_one(each.coordinator_epoch),
            transaction_start_offset=unless_minus_one(each.current_txn_start_offset),
        )
        for each in answer.active_producers
    )
