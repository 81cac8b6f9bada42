"""The kind of the transaction coordinators: their topic, their machine and its effects."""

import asyncio
import logging

from sparklog.executor.coordinators.coordinator_kind import CoordinatorKind, EffectOrigin
from sparklog.executor.coordinators.records.framing import TRANSACTION_STATE_RECORDS
from sparklog.executor.coordinators.transactions.api.producer_requests import (
    ALLOCATION_TIMEOUT_MS,
    NewProducerId,
)
from sparklog.executor.coordinators.transactions.machine.events import AbortWithNewProducerId, SendMarkers
from sparklog.executor.coordinators.transactions.machine.time_outs import TransactionLimits
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.executor.coordinators.transactions.marker_sender import MarkerSender
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


def transaction_coordinator(
    config: BrokerConfig, sender: MarkerSender, new_producer_id: NewProducerId
) -> CoordinatorKind:
    """Return the kind; `new_producer_id` allocates ids for time-out aborts."""
    limits = TransactionLimits(
        max_timeout_ms=config.transaction_max_timeout_ms,
        expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiration_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        two_phase_commit_enable=config.transaction_two_phase_commit_enable,
        two_phase_commit_prefixes=config.sparklog_two_phase_commit_transactional_id_prefixes,
    )
    return CoordinatorKind(
        topic=TRANSACTION_STATE_TOPIC,
        records=TRANSACTION_STATE_RECORDS,
        new_machine=lambda partition: TransactionMachine(limits),
        effects={SendMarkers: sender.send, AbortWithNewProducerId: _Aborts(new_producer_id).begin},
        write_timeout_ms=config.request_timeout_ms,
        load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        skips_unknown_versions=True,
    )


class _Aborts:
    def __init__(self, new_producer_id: NewProducerId) -> None:
        self._new_producer_id = new_producer_id
        self._aborts: set[asyncio.Task[None]] = set()

    def begin(self, effect: AbortWithNewProducerId, origin: EffectOrigin) -> None:
        abort = asyncio.get_running_loop().create_task(self._abort(effect.transactional_id, origin))
        self._aborts.add(abort)
        abort.add_done_callback(self._aborts.discard)

    async def _abort(self, transactional_id: str, origin: EffectOrigin) -> None:
        """Abort a transaction with a new producer id; without one, retry at the next interval."""
        try:
            producer_id = await self._new_producer_id(ALLOCATION_TIMEOUT_MS)
        except KafkaError as error:
            logger.warning(
                "No producer id for the abort of the transaction of %s: %s", transactional_id, error
            )
            return
        origin.decide(lambda machine, now: machine.abort_timed_out(transactional_id, producer_id, now))
