"""DescribeTransactions 0: states of the transactions of these ids (KIP-664).

A decided transaction lists only the partitions without a marker, which its completion awaits.

Source: Kafka's TransactionCoordinator.handleDescribeTransactions.
"""

from collections import defaultdict
from collections.abc import Callable, Set
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kio.schema.describe_transactions.v0.response import TopicData

from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import outcomes_of
from sparklog.executor.coordinators.transactions.machine.events import Describe
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.described_transactions import DescribeTransactionsResponse, TransactionState
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition

_EPOCH: Final[Any] = datetime(1970, 1, 1, tzinfo=UTC)
"""kio's type of times is one of any `datetime`."""


class DescribeTransactionsHandler:
    def __init__(
        self,
        coordinators: CoordinatorRuntime,
        missing: Callable[[str], Set[TopicPartition] | None],
    ) -> None:
        """`missing` returns the partitions without an id's marker; None if none is being sent."""
        self._coordinators = coordinators
        self._missing = missing

    async def handle(self, request: Request) -> Response:
        body: Any = request.body
        asked: list[tuple[str, Any]] = []
        for transactional_id in body.transactional_ids:
            await turn()
            answer: Any = ErrorCode.invalid_request
            if transactional_id:
                event = Describe(transactional_id)
                answer = self._coordinators.read(
                    transactional_id, TransactionMachine.describe, lambda refused: refused, event
                )
            asked.append((transactional_id, answer))
        known = await outcomes_of([answer for _, answer in asked])
        states = []
        for (transactional_id, _), each in zip(asked, known, strict=True):
            await turn()
            states.append(_state(transactional_id, self._without_marker(transactional_id, each)))
        return unthrottled(DescribeTransactionsResponse, transaction_states=tuple(states))

    def _without_marker(self, transactional_id: str, known: Any) -> Any:
        """Restrict a decided transaction to the partitions that lack their marker."""
        if not isinstance(known, TransactionMetadata) or not known.state.is_prepared:
            return known
        missing = self._missing(transactional_id)
        return known if missing is None else replace(known, partitions=frozenset(missing))


def _state(transactional_id: str, known: TransactionMetadata | ErrorCode | None) -> TransactionState:
    if known is None:
        known = ErrorCode.transactional_id_not_found
    if isinstance(known, ErrorCode):
        return TransactionState(
            error_code=known,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout=timedelta(0),
            transaction_start_time=_EPOCH,
            producer_id=0,
            producer_epoch=0,
            topics=(),
        )
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(known.partitions):
        by_topic[topic].append(partition)
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=known.state.state_name,
        transaction_timeout=timedelta(milliseconds=known.timeout_ms),
        transaction_start_time=None
        if known.start_ms is None
        else _EPOCH + timedelta(milliseconds=known.start_ms),
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(partitions)) for topic, partitions in by_topic.items()
        ),
    )
