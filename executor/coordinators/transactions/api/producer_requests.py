"""Submission of events to the transaction coordinators of this broker, and waiting for their replies."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, TypeVar

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Token
from sparklog.executor.coordinators.runtime import CoordinatorRuntime
from sparklog.executor.coordinators.transactions.machine.events import (
    NEEDS_PRODUCER_ID,
    EndTransaction,
    InitProducer,
    ProducerOutcome,
)
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.serving.requests import Deferred
from sparklog.node.serving.turns import in_task
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import ProducerId

logger = logging.getLogger(__name__)

NewProducerId = Callable[[int], Coroutine[Any, Any, ProducerId]]
"""Returns an unused id; raises KafkaError if there is none within so many ms."""
ALLOCATION_TIMEOUT_MS: Final = 10_000

_ProducerEvent = TypeVar("_ProducerEvent", InitProducer, EndTransaction)


async def nobody_allocates(timeout_ms: int) -> ProducerId:
    """Refuse as a `NewProducerId` for brokers without a controller.

    Raises:
        KafkaError: always.
    """
    raise KafkaError(ErrorCode.coordinator_not_available, "there is no controller to allocate producer ids")


async def outcomes_of(
    answers: Sequence[Any], *, within_s: float | None = None, late: Any = None
) -> list[Any]:
    """Return the coordinators' replies in place of their deferreds; other items are returned unchanged.

    A deferred without a reply after `within_s` yields `late`. Other tasks get their turn between two replies,
    as most may be complete already.
    """
    deferreds = [answer for answer in answers if isinstance(answer, Deferred)]
    if not deferreds:
        return list(answers)
    timer = None
    if within_s is not None:
        timer = asyncio.get_running_loop().call_later(within_s, _expire, deferreds, late)
    outcomes = []
    try:
        for answer in answers:
            await turn()
            outcomes.append(await answer if isinstance(answer, Deferred) else answer)
    finally:
        if timer is not None:
            timer.cancel()
        for deferred in deferreds:
            deferred.abandon()
    return outcomes


def _expire(deferreds: Iterable[Deferred], late: Any) -> None:
    for deferred in deferreds:
        deferred.expire(late)


async def ask_as_producer(
    coordinators: CoordinatorRuntime,
    decide: Callable[[TransactionMachine, _ProducerEvent, Token, Now], CoordinatorResult],
    event: _ProducerEvent,
    new_producer_id: NewProducerId,
) -> ProducerOutcome:
    """Submit a producer's event; if it needs a new producer id, allocate one and submit it again."""
    outcome = await coordinators.submit(event.transactional_id, decide, ProducerOutcome, event)
    while outcome is NEEDS_PRODUCER_ID:
        try:
            event = event._replace(new_producer_id=await in_task(new_producer_id(ALLOCATION_TIMEOUT_MS)))
        except KafkaError as error:
            logger.warning("No producer id for %s: %s", event.transactional_id, error)
            # The controller may succeed later; clients retry this code.
            return ProducerOutcome(ErrorCode.coordinator_load_in_progress)
        outcome = await coordinators.submit(event.transactional_id, decide, ProducerOutcome, event)
    assert isinstance(outcome, ProducerOutcome)
    return outcome


def older_fencing(error_code: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """Return an error as clients of the version know it: before `first_version`, no PRODUCER_FENCED.

    >>> older_fencing(ErrorCode.producer_fenced, 1, first_version=2)
    <ErrorCode.invalid_producer_epoch: 47>
    """
    if error_code is ErrorCode.producer_fenced and api_version < first_version:
        return ErrorCode.invalid_producer_epoch
    return error_code
