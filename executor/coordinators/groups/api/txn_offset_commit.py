"""TxnOffsetCommit, versions 0 to 5: offsets that take effect with a producer's transaction (KIP-98).

The transaction is verified before it begins in the offsets' topic (KIP-890).

Source: Kafka's CoordinatorPartitionWriter.maybeStartTransactionVerification; for the error codes of clients,
CoordinatorOperationExceptionHelper.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from sparklog.executor.coordinators.groups.api.offset_topics import (
    CommittedTopics,
    Topics,
    all_refused,
    answer_commit,
    committed_topics,
)
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.offsets import OffsetCommit, TopicErrors
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
    Token,
)
from sparklog.executor.coordinators.machine.coordinator_partition import coordinator_error
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.verification.machine.waiting_additions import TransactionOperation
from sparklog.executor.verification.transaction_verifier import (
    BatchToVerify,
    TransactionOfProducer,
    TransactionVerifier,
)
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.partition_for import coordinator_partition
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_THAT_KNOWS_LOADING: Final = 2
"""Clients before it fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

Verify = Callable[[str, TransactionOfProducer], Awaitable[tuple[Any, ErrorCode]]]
"""(group, producer's transaction) -> verification for the batch's append, or the error that forbids it."""


def verify_in(table: PartitionTable, verifier: TransactionVerifier) -> Verify:
    async def verify(group_id: str, transaction: TransactionOfProducer) -> tuple[Any, ErrorCode]:
        try:
            found = coordinator_partition(table.image, CONSUMER_OFFSETS_TOPIC, group_id)
        except KafkaError as error:  # an id that no record can hold
            return None, error.error_code
        if found is None:
            return None, ErrorCode.not_coordinator
        try:
            batch = BatchToVerify(table.find(CONSUMER_OFFSETS_TOPIC, found[0]), base_sequence=-1)
        except KafkaError:
            return None, ErrorCode.not_coordinator
        await verifier.verify(transaction, [batch])
        if batch.refusal is None:
            return batch.verification, ErrorCode.none
        error_code = batch.refusal.error_code
        if error_code is ErrorCode.network_exception:  # older clients do not retry this error
            return None, ErrorCode.coordinator_load_in_progress
        return None, coordinator_error(error_code)

    return verify


class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit when the offsets are written; they take effect when the transaction commits."""

    def __init__(
        self,
        coordinators: CoordinatorRuntime,
        image: Callable[[], MetadataImage],
        verify: Verify,
        *,
        max_batch_bytes: int,
    ) -> None:
        """`max_batch_bytes`: size limit of a batch of the offsets' topic."""
        self._verify = verify
        self._coordinators = coordinators
        self._image = image
        self._max_batch_bytes = max_batch_bytes

    async def handle(self, request: Request) -> Response:
        body = request.body
        checked = await committed_topics(self._image(), body, by_id=False)

        def respond(errors: TopicErrors) -> Awaitable[Response]:
            return _response(checked, errors)

        def refused(error_code: ErrorCode, topics: Topics = checked.topics) -> TopicErrors:
            if (
                error_code is ErrorCode.coordinator_load_in_progress
                and request.api_version < FIRST_VERSION_THAT_KNOWS_LOADING
            ):
                error_code = ErrorCode.coordinator_not_available
            return all_refused(topics, error_code)

        if not checked.topics:
            return await respond([])
        if not body.group_id:
            return await respond(refused(ErrorCode.invalid_group_id))
        if not checked.fits(self._max_batch_bytes):
            return await respond(refused(ErrorCode.unknown_server_error))
        commit = OffsetCommit(
            group_id=body.group_id,
            member_id=getattr(body, "member_id", ""),
            group_instance_id=getattr(body, "group_instance_id", None),
            generation_or_member_epoch=getattr(body, "generation_id", -1),
            api_version=request.api_version,
            topics=checked.topics,
        )
        producer = ProducerStamp(body.producer_id, body.producer_epoch)
        if producer.producer_id < 0 or producer.producer_epoch < 0:
            # Without a producer no marker would ever end the transaction.
            return await respond(refused(ErrorCode.invalid_producer_id_mapping))
        operation = TransactionOperation.of_txn_offset_commit(request.api_version)
        verification, refusal = await self._verify(
            body.group_id, TransactionOfProducer(body.transactional_id, *producer, operation)
        )
        if refusal is not ErrorCode.none:
            return await respond(refused(refusal))

        def submit(topics: Topics) -> Deferred:
            def decide(machine: GroupMachine, token: Token, now: Now) -> CoordinatorResult:
                records, errors = machine.offsets.commit_in_transaction(commit._replace(topics=topics), now)
                reply = Reply(token, errors)
                if not records:
                    return CoordinatorResult(replies=(reply,))
                return CoordinatorResult(records, (reply,), producer=producer, verification=verification)

            return self._coordinators.submit(
                commit.group_id, decide, lambda error_code: refused(error_code, topics)
            )

        return await answer_commit(checked, respond, submit)


async def _response(checked: CommittedTopics, errors: TopicErrors) -> Response:
    topics = []
    for named, partitions in await checked.answers(errors):
        rows = []
        for partition, error_code in partitions:
            await turn()
            rows.append(TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error_code))
        topics.append(TxnOffsetCommitResponseTopic(name=named, partitions=tuple(rows)))
    return unthrottled(TxnOffsetCommitResponse, topics=tuple(topics))
