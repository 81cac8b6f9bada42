"""ListTransactions, versions 0 to 2: transactions of this broker's coordinators (KIP-664, KIP-994, KIP-1152).

The response is complete or an error: the transactions of a coordinator that moves or loads meanwhile would be
missing unnoticed, and clients retry. The same holds while a partition has no coordinator anywhere.

Filters that a version does not have accept all transactions. A duration filter accepts longer ones, and an id
without a transaction passes every duration filter, as in Kafka.

Source: Kafka's TransactionStateManager.listTransactionStates.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.list_transactions.v2.response import TransactionState as ListedTransaction

from sparklog.executor.coordinators.machine.coordinator_partition import CoordinatorState
from sparklog.executor.coordinators.machine.regular_expressions import compiled
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.api.producer_requests import outcomes_of
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata, TransactionState
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.serving.requests import Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import or_minus_one

_AT_ONCE: Final = 500
_BY_NAME: Final = {state.state_name: state for state in TransactionState}


class ListTransactionsHandler:
    def __init__(self, coordinators: CoordinatorRuntime) -> None:
        self._coordinators = coordinators

    async def handle(self, request: Request) -> Response:
        if not self._coordinators.is_complete():
            return _response(ErrorCode.coordinator_not_available)
        partitions = self._coordinators.partitions
        if CoordinatorState.LOADING in partitions.values():
            return _response(ErrorCode.coordinator_load_in_progress)
        body = upgrade(request.body)
        try:
            passes = _filter(body)
            matches = compiled(body.transactional_id_pattern) if body.transactional_id_pattern else None
        except ValueError:
            return _response(ErrorCode.invalid_regular_expression)
        asked = [
            self._coordinators.read_from(partition, TransactionMachine.list_all, lambda refusal: refusal)
            for partition in partitions
        ]
        outcomes = await outcomes_of(asked)
        if any(isinstance(outcome, ErrorCode) for outcome in outcomes):
            return _response(ErrorCode.coordinator_load_in_progress)
        passing: list[tuple[str, TransactionMetadata]] = []
        for outcome in outcomes:
            left = iter(outcome)
            while chunk := tuple(islice(left, _AT_ONCE)):
                passing += [each for each in chunk if passes(each[1])]
                if len(chunk) == _AT_ONCE:
                    await asyncio.sleep(0)
        if matches is not None:
            passing = await _matching(passing, matches)
        unknown = tuple(name for name in body.state_filters if name not in _BY_NAME)
        return _response(ErrorCode.none, unknown, tuple(map(_listed, passing)))


def _filter(body: Any) -> Callable[[TransactionMetadata], bool]:
    """Return the predicate of the request's filters, but for that by id."""
    states = {_BY_NAME[name] for name in body.state_filters if name in _BY_NAME}
    producer_ids = frozenset(body.producer_id_filters)
    started_before_ms = wall_clock_ms() - body.duration_filter

    def passes(known: TransactionMetadata) -> bool:
        if producer_ids and known.producer_id not in producer_ids:
            return False
        if body.state_filters and known.state not in states:
            return False
        return not (body.duration_filter >= 0 and or_minus_one(known.start_ms) >= started_before_ms)

    return passes


async def _matching(
    known: Sequence[tuple[str, TransactionMetadata]], matches: Callable[[str], object]
) -> list[tuple[str, TransactionMetadata]]:
    """Return the transactions whose ids match.

    RE2 takes milliseconds for an id with some patterns, and releases the interpreter meanwhile: it runs on
    another thread, once for the few that a writer of DataFrames looks for among all coordinators.
    """

    def matching(chunk: Sequence[tuple[str, TransactionMetadata]]) -> list[tuple[str, TransactionMetadata]]:
        return [each for each in chunk if matches(each[0])]

    found: list[tuple[str, TransactionMetadata]] = []
    for first in range(0, len(known), _AT_ONCE):
        found += await asyncio.to_thread(matching, known[first : first + _AT_ONCE])
    return found


def _listed(known: tuple[str, TransactionMetadata]) -> ListedTransaction:
    transactional_id, metadata = known
    return ListedTransaction(
        transactional_id=transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.state_name,
    )


def _response(
    error_code: ErrorCode,
    unknown_state_filters: tuple[str, ...] = (),
    transaction_states: tuple[ListedTransaction, ...] = (),
) -> ListTransactionsResponse:
    return unthrottled(
        ListTransactionsResponse,
        error_code=error_code,
        unknown_state_filters=unknown_state_filters,
        transaction_states=transaction_states,
    )
