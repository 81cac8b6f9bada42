"""Producers that begin and end transactions with their coordinator, two of each transactional id at a time.

They write to no partition: what is looked at is who is given which epoch, and how transactions end. Each
fences the other now and then; some leave their transaction open, and it is to be aborted for them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from executor.coordinators.machine.decision import ProducerStamp
from executor.coordinators.transactions.machine.events import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    Describe,
    EndTransaction,
    InitProducer,
    ProducerOutcome,
)
from executor.coordinators.transactions.machine.shard import TransactionShard
from sparklog.errors import ErrorCode
from sparklog.metadata.partition_for import partition_for
from sparklog.metadata.topic_names import TRANSACTION_STATE_TOPIC
from sparklog.types import TopicPartition
from tests.simulation.clients import REQUEST_TIMEOUT_MS, RETRY_MS, ClientProcess
from tests.simulation.coordinating import AskCoordinator, Coordinated

if TYPE_CHECKING:
    from tests.simulation.cluster import World

TIMEOUT_MS: Final = 1_000
_VERSION: Final = 2
_LEFT_OPEN: Final = 0.15
_PARTITIONS: Final = frozenset({TopicPartition("topic0", 0)})
_FENCED: Final = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)


class TransactionClient:
    """One producer after the other, of one transactional id."""

    def __init__(self, client: ClientProcess, transactional_id: str, name: str) -> None:
        self.transactional_id: Final = transactional_id
        self.has_settled = False
        """Whether its id was found to have no open transaction when none was begun any more."""
        self._client = client
        self._world: World = client.world
        self._random = client.scheduler.random
        self._name = name
        self._instances = 0
        self._new_producer_id: int | None = None
        self._pause_ms = self._random.choice((20, 100, 400))
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Be another producer, which knows nothing of the one before it."""
        self._instances += 1
        self._producer: ProducerStamp | None = None
        self._commits: bool | None = None
        """How the transaction that is open is to end."""
        self._later(4 * self._pause_ms)

    def _later(self, within_ms: int) -> None:
        self._client.after(1 + self._random.randrange(within_ms), self._go_on)

    def _go_on(self) -> None:
        transactional_id = self.transactional_id
        if self._producer is None and not self._world.accepts_writes:
            if not self.has_settled:
                self._ask(Describe(transactional_id), TransactionShard.describe, self._described)
        elif self._producer is None:
            event = InitProducer(transactional_id, TIMEOUT_MS, None, self._new_producer_id)
            self._ask(event, TransactionShard.init_producer, self._given)
        elif self._commits is None:
            if self._world.accepts_writes:
                add = AddPartitions(transactional_id, self._producer, _PARTITIONS, _VERSION)
                self._ask(add, TransactionShard.add_partitions, self._added)
            else:
                self._begin_anew()
        else:
            end = EndTransaction(
                transactional_id, self._producer, self._commits, _VERSION, self._new_producer_id
            )
            self._ask(end, TransactionShard.end, self._given)

    def _given(self, outcome: Any) -> None:
        if outcome is NEEDS_PRODUCER_ID:
            self._world.next_producer_id += 1
            self._new_producer_id = self._world.next_producer_id
            self._later(1)
            return
        assert isinstance(outcome, ProducerOutcome)
        if self._is_taken(outcome.error_code):
            assert outcome.producer is not None, "each transaction has an epoch of its own"
            if self._commits is not None:
                self._world.outcome.transactions += 1
            self._producer, self._commits, self._new_producer_id = outcome.producer, None, None
            self._later(2 * self._pause_ms)

    def _added(self, error_code: ErrorCode) -> None:
        if not self._is_taken(error_code):
            return
        if self._random.random() < _LEFT_OPEN:
            self._begin_anew()
        else:
            self._commits = self._random.random() < 0.6
            self._later(2 * self._pause_ms)

    def _described(self, known: Any) -> None:
        self.has_settled = known is None or known.state.is_idle
        self._later(2 * RETRY_MS)

    def _is_taken(self, error_code: ErrorCode) -> bool:
        """Whether it was done; else go on as who was refused does."""
        if error_code in _FENCED:
            self._begin_anew()
        elif error_code is not ErrorCode.none:
            self._later(2 * RETRY_MS)
        return error_code is ErrorCode.none

    def _ask(self, event: Any, decide: Any, answered: Callable[[Any], None]) -> None:
        image = self._client.image
        topic = None if image is None else image.topics.by_name.get(TRANSACTION_STATE_TOPIC)
        number = 0 if topic is None else partition_for(self.transactional_id, len(topic.partitions))
        leader = None if topic is None else topic.partitions[number].leader
        if leader is None:
            self._again()
            return

        def take(answer: Coordinated | None) -> None:
            if answer is None or answer.error_code is not ErrorCode.none:
                self._again()
            else:
                answered(answer.response)

        asker = f"{self._name}, producer {self._instances}"
        message = AskCoordinator(TRANSACTION_STATE_TOPIC, number, event, decide, asker)
        self._client.link(leader).request(message, REQUEST_TIMEOUT_MS, take)

    def _again(self) -> None:
        self._client.refresh()
        self._later(2 * RETRY_MS)
