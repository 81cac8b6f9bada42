"""What must hold of transaction coordinators; see `tests.simulation.invariants`."""

from typing import TYPE_CHECKING, Any

from executor.coordinators.machine.decision import ProducerStamp
from executor.coordinators.transactions.machine.events import (
    EndTransaction,
    InitProducer,
    ProducerOutcome,
    SendMarkers,
)
from executor.partitions.replica import Replica
from sparklog.errors import ErrorCode
from sparklog.types import LeaderEpoch
from tests.simulation.invariant import Invariant
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.observer import Observer


class EpochGivenOnce(Invariant):
    """No two producers are ever given the same producer id and epoch."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._given: dict[tuple[Any, int, ProducerStamp], str] = {}

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        if not isinstance(response, ProducerOutcome) or response.producer is None:
            return
        if not ledger.counts(leader_epoch) or not isinstance(
            asked.message.event, InitProducer | EndTransaction
        ):
            return
        # What was given may be forgotten with what was lost.
        given = (ledger.key, ledger.losses, response.producer)
        asker = self._given.setdefault(given, asked.message.asker)
        if asker != asked.message.asker:
            self.fail(
                f"{broker.name} gives {asked.message.asker} {response.producer}, which {asker} has",
                ledger.key,
            )


class TransactionEndsOneWay(Invariant):
    """A transaction is committed or aborted, whoever sends its markers, and as its producer was told."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._ends: dict[tuple[Any, int, ProducerStamp], bool] = {}
        """By the producer as it is in the markers."""

    def coordinated(
        self,
        broker: "BrokerProcess",
        replica: Replica,
        leader_epoch: LeaderEpoch,
        asked: Any,
        response: Any,
        ledger: Ledger,
    ) -> None:
        event = asked.message.event
        if (
            isinstance(event, EndTransaction)
            and isinstance(response, ProducerOutcome)
            and response.error_code is ErrorCode.none
            and ledger.counts(leader_epoch)
        ):
            producer_id, producer_epoch = event.producer
            self._check(ledger, ProducerStamp(producer_id, producer_epoch + 1), event.committed)

    def markers_sent(
        self, broker: "BrokerProcess", leader_epoch: LeaderEpoch, markers: SendMarkers, ledger: Ledger
    ) -> None:
        if ledger.counts(leader_epoch):
            self._check(ledger, markers.producer, markers.committed)

    def _check(self, ledger: Ledger, producer: ProducerStamp, committed: bool) -> None:
        if self._ends.setdefault((ledger.key, ledger.losses, producer), committed) is not committed:
            self.fail(f"the transaction that {producer} ends is both committed and aborted", ledger.key)


TRANSACTION_INVARIANTS: tuple[type[Invariant], ...] = (EpochGivenOnce, TransactionEndsOneWay)
