"""AddPartitionsToTxn: adds partitions to a transaction, or verifies that they are part of it.

Up to version 3 clients send it, for one transaction. From version 4 on the leaders of partitions do
(KIP-890), for many; they verify, or, for clients of version 2 of transactions, add. One partition that cannot
be added keeps out the others too.

One response is for all transactions of a request, and a leader has only one request in flight. So brokers get
a response in time, even if records of some transactions are not committed by then: for those the error is
COORDINATOR_NOT_AVAILABLE, and a retry finds the partitions added.

Source: Kafka's KafkaApis.handleAddPartitionsToTxnRequest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult as PartitionResultOfOne,
)
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse as ResponseForOne
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnTopicResult as TopicResultOfOne
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import older_fencing, outcomes_of
from sparklog.executor.coordinators.transactions.machine.events import (
    AddPartitions,
    PartitionErrors,
    VerifyPartitions,
)
from sparklog.executor.coordinators.transactions.machine.metadata import EPOCH_BUMP_VERSION
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.metadata.topic_names import INTERNAL_TOPICS
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition

_KNOWS_PRODUCER_FENCED: Final = 2
_FIRST_OF_BROKERS: Final = 4
_BETWEEN_STEPS: Final = 16
BROKERS_WAIT_S: Final = 5.0
"""Time that a broker waits for transactions' records to be committed; by default as for offsets."""

_Asked: TypeAlias = tuple[str, frozenset[TopicPartition], PartitionErrors | Deferred]
"""A transaction, its partitions, and their errors or the coordinator's pending reply."""


class AddPartitionsToTxnHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    async def handle(self, request: Request) -> Response:
        body: Any = request.body
        version = request.api_version
        asked: list[_Asked] = []
        if version < _FIRST_OF_BROKERS:
            producer = ProducerStamp(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
            partitions = await _partitions(body.v3_and_below_topics)
            refusals = await self._refusals(partitions, of_client=True)
            asked.append(
                self._ask(body.v3_and_below_transactional_id, producer, partitions, refusals, 0, False)
            )
        else:
            for each in body.transactions:
                await turn()
                producer = ProducerStamp(each.producer_id, each.producer_epoch)
                partitions = await _partitions(each.topics)
                refusals = await self._refusals(partitions, of_client=False)
                asked.append(
                    self._ask(
                        each.transactional_id,
                        producer,
                        partitions,
                        refusals,
                        EPOCH_BUMP_VERSION,
                        each.verify_only,
                    )
                )
        return await _answered(asked, version)

    def _ask(
        self,
        transactional_id: str,
        producer: ProducerStamp,
        partitions: frozenset[TopicPartition],
        refusals: PartitionErrors,
        transaction_version: int,
        verify_only: bool,
    ) -> _Asked:
        if not refusals and not transactional_id:
            refusals = dict.fromkeys(partitions, ErrorCode.invalid_request)
        if refusals:
            return transactional_id, partitions, refusals
        if verify_only:
            verify = VerifyPartitions(transactional_id, producer, partitions)
            answer = self._coordinators.submit(
                transactional_id, TransactionMachine.verify_partitions, _as_it_is, verify
            )
        else:
            add = AddPartitions(transactional_id, producer, partitions, transaction_version)
            answer = self._coordinators.submit(
                transactional_id, TransactionMachine.add_partitions, _as_it_is, add
            )
        return transactional_id, partitions, answer

    async def _refusals(self, partitions: Iterable[TopicPartition], *, of_client: bool) -> PartitionErrors:
        """Return an error for each partition if any is refused, else an empty mapping."""
        topics = self._coordinators.image.topics.by_name
        errors: dict[TopicPartition, ErrorCode] = {}
        for number, partition in enumerate(partitions, 1):
            if not number % _BETWEEN_STEPS:
                await turn()
            topic = topics.get(partition.topic)
            if of_client and partition.topic in INTERNAL_TOPICS:
                errors[partition] = ErrorCode.topic_authorization_failed
            elif topic is None or partition.partition not in topic.partitions:
                errors[partition] = ErrorCode.unknown_topic_or_partition
        if errors:
            errors = dict.fromkeys(partitions, ErrorCode.operation_not_attempted) | errors
        return errors


def _as_it_is(error_code: ErrorCode) -> ErrorCode:
    return error_code


async def _answered(asked: list[_Asked], api_version: int) -> Response:
    outcomes = await outcomes_of(
        [answer for _, _, answer in asked],
        within_s=None if api_version < _FIRST_OF_BROKERS else BROKERS_WAIT_S,
        late=ErrorCode.coordinator_not_available,
    )
    results = [
        (transactional_id, dict.fromkeys(partitions, outcome) if isinstance(outcome, ErrorCode) else outcome)
        for (transactional_id, partitions, _), outcome in zip(asked, outcomes, strict=True)
    ]
    if api_version < _FIRST_OF_BROKERS:
        return await _response_for_one(results[0][1], api_version)
    return await _response(results)


async def _partitions(topics: Any) -> frozenset[TopicPartition]:
    partitions: set[TopicPartition] = set()
    for topic in topics:
        await turn()
        for number, partition in enumerate(topic.partitions, 1):
            if not number % _BETWEEN_STEPS:
                await turn()
            partitions.add(TopicPartition(topic.name, partition))
    return frozenset(partitions)


def _by_topic(errors: PartitionErrors) -> Mapping[str, list[tuple[int, ErrorCode]]]:
    by_topic: defaultdict[str, list[tuple[int, ErrorCode]]] = defaultdict(list)
    for (topic, partition), error_code in errors.items():
        by_topic[topic].append((partition, error_code))
    return by_topic


async def _response(results: list[tuple[str, PartitionErrors]]) -> Response:
    by_transaction = []
    for transactional_id, errors in results:
        await turn()
        topics = []
        for topic, partitions in _by_topic(errors).items():
            rows = []
            for number, (partition, error_code) in enumerate(sorted(partitions), 1):
                if not number % _BETWEEN_STEPS:
                    await turn()
                rows.append(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition, partition_error_code=error_code
                    )
                )
            topics.append(AddPartitionsToTxnTopicResult(name=topic, results_by_partition=tuple(rows)))
        by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=tuple(topics))
        )
    return unthrottled(
        AddPartitionsToTxnResponse, error_code=ErrorCode.none, results_by_transaction=tuple(by_transaction)
    )


async def _response_for_one(errors: PartitionErrors, api_version: int) -> Response:
    topics = []
    for topic, partitions in _by_topic(errors).items():
        await turn()
        rows = []
        for number, (partition, error_code) in enumerate(sorted(partitions), 1):
            if not number % _BETWEEN_STEPS:
                await turn()
            rows.append(
                PartitionResultOfOne(
                    partition_index=partition,
                    partition_error_code=older_fencing(error_code, api_version, _KNOWS_PRODUCER_FENCED),
                )
            )
        topics.append(TopicResultOfOne(name=topic, results_by_partition=tuple(rows)))
    return unthrottled(ResponseForOne, results_by_topic_v3_and_below=tuple(topics))
