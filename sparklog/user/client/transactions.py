"""Transactions as reported by coordinators, and producers as reported by partition leaders (KIP-664).

Each broker is asked once; results of brokers that fail are missing, and the failures are returned.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TransactionState
from kio.schema.list_transactions.v2.request import ListTransactionsRequest

from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import (
    NO_TRANSACTION_TIMEOUT_MS,
    BrokerId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    unless_minus_one,
)
from sparklog.user.client.broker_requests import ask_brokers, ask_side_by_side
from sparklog.user.client.cluster_client import ClusterClient

_NEWEST_LISTING: Final = 2
_NOT_COORDINATING: Final = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: BrokerId


class TransactionListing(NamedTuple):
    transactions: tuple[ListedTransaction, ...]
    failures: Mapping[BrokerId, KafkaError]


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int | None
    """None: it waits for a decision."""
    started_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]
    """Partitions without a marker so far."""


class TransactionDescriptions(NamedTuple):
    transactions: Mapping[str, TransactionDescription]
    failures: Mapping[BrokerId, KafkaError]


class ActiveProducer(NamedTuple):
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: int | None
    transaction_start_offset: Offset | None
    """First offset of its open transaction; None without one here."""


def list_transactions(
    cluster: ClusterClient,
    brokers: Iterable[BrokerId],
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[ProducerId] = (),
    open_for_ms: int | None = None,
    prefix: str = "",
    version: int = _NEWEST_LISTING,
    coordinated: Mapping[BrokerId, Sequence[str]] | None = None,
) -> TransactionListing:
    """Ask brokers for the transactions that they coordinate; without filters, for all of them.

    `version` is the highest that they know. Versions 0 and 1 lack the filter by ids, version 0 also that by
    time. A broker that does not coordinate its transactional ids in `coordinated` just before it lists is
    among the failures: its list lacks transactions that it was presumed to coordinate.
    """
    newest = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=-1 if open_for_ms is None else open_for_ms,
        # The whole id is matched; a dot is the only character of ours with another meaning in a pattern.
        transactional_id_pattern=f"{prefix.replace('.', '[.]')}.*" if prefix else None,
    )
    request = downgrade(newest, min(version, _NEWEST_LISTING))
    asked = list[tuple[BrokerId, Any]]()
    for broker_id in brokers:
        ids = () if coordinated is None else coordinated.get(broker_id, ())
        if ids:
            asked.append((broker_id, DescribeTransactionsRequest(transactional_ids=tuple(ids))))
        asked.append((broker_id, request))
    transactions = list[ListedTransaction]()
    failures = dict[BrokerId, KafkaError]()
    for (broker_id, question), answer in zip(asked, ask_side_by_side(cluster, asked), strict=True):
        if isinstance(answer, KafkaError):
            failures[broker_id] = answer
        elif question is not request:
            for each in answer.transaction_states:
                if each.error_code in _NOT_COORDINATING:
                    what = f"broker {broker_id} does not coordinate transaction {each.transactional_id}"
                    failures[broker_id] = KafkaError(each.error_code, what)
        elif answer.error_code is not ErrorCode.none:
            what = f"broker {broker_id} refused to list its transactions"
            failures[broker_id] = KafkaError(answer.error_code, what)
        else:
            transactions.extend(
                ListedTransaction(each.transactional_id, each.producer_id, each.transaction_state, broker_id)
                for each in answer.transaction_states
                if each.transactional_id.startswith(prefix)
            )
    return TransactionListing(tuple(transactions), failures)


def describe_transactions(
    cluster: ClusterClient, coordinators: Mapping[str, BrokerId]
) -> TransactionDescriptions:
    """Describe transactional ids, given with the coordinator of each; unknown ones are missing."""
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
                what = f"broker {broker_id} refused to describe transaction {each.transactional_id}"
                failures[broker_id] = KafkaError(each.error_code, what)
                continue
            described[each.transactional_id] = transaction_description(each)
    return TransactionDescriptions(described, failures)


def transaction_description(state: TransactionState) -> TransactionDescription:
    timeout_ms = state.transaction_timeout // _MILLISECOND
    started = state.transaction_start_time
    return TransactionDescription(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=None if timeout_ms == NO_TRANSACTION_TIMEOUT_MS else timeout_ms,
        started_ms=None if started is None else (started - _EPOCH) // _MILLISECOND,
        partitions=tuple(
            TopicPartition(topic.topic, partition) for topic in state.topics for partition in topic.partitions
        ),
    )


def describe_producers(
    cluster: ClusterClient, topic_partition: TopicPartition, leader: BrokerId
) -> tuple[ActiveProducer, ...]:
    """Ask a partition's leader for its producers.

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
            answer.error_code, f"broker {leader} refused to describe the producers of {topic_partition}"
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
