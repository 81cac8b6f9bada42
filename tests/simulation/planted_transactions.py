"""Bugs of transaction coordinators that the simulator must find; see `planted`."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now
from sparklog.executor.coordinators.transactions.machine import ending
from sparklog.executor.coordinators.transactions.machine.events import EndTransaction, SendMarkers
from sparklog.executor.coordinators.transactions.machine.metadata import TransactionMetadata
from sparklog.executor.coordinators.transactions.machine.transaction_machine import TransactionMachine
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs
from tests.simulation.coordinating import TRANSACTION_SEEDS
from tests.simulation.planted_bug import PlantedBug, Replacement


def _epoch_kept() -> Sequence[Replacement]:
    initialized = TransactionMetadata.initialized

    def with_the_same_epoch(
        self: TransactionMetadata,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        timeout_ms: int,
        wall_ms: TimestampMs,
    ) -> TransactionMetadata:
        return initialized(self, producer_id, min(producer_epoch, self.producer_epoch), timeout_ms, wall_ms)

    return [Replacement(TransactionMetadata, "initialized", with_the_same_epoch)]


def _markers_forgotten() -> Sequence[Replacement]:
    loaded = TransactionMachine.loaded

    def load_only(self: TransactionMachine, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        for _ in loaded(self, image, now):
            pass
        return ()

    return [Replacement(TransactionMachine, "loaded", load_only)]


def _prepared_ends_otherwise() -> Sequence[Replacement]:
    loaded = TransactionMachine.loaded

    def abort(self: TransactionMachine, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        for decision in loaded(self, image, now):
            effects = [
                effect._replace(committed=False) if isinstance(effect, SendMarkers) else effect
                for effect in decision.effects
            ]
            yield decision._replace(effects=effects)

    return [Replacement(TransactionMachine, "loaded", abort)]


def _open_for_ever() -> Sequence[Replacement]:
    return [Replacement(TransactionMetadata, "has_timed_out", lambda self, wall_ms: False)]


def _zombie_ends_the_next() -> Sequence[Replacement]:
    end = ending.end

    def end_whatever_is_open(event: EndTransaction, known: TransactionMetadata, wall_ms: TimestampMs) -> Any:
        if event.producer.producer_id == known.producer_id:
            event = event._replace(producer=known.producer)
        return end(event, known, wall_ms)

    return [Replacement(ending, "end", end_whatever_is_open)]


TRANSACTION_BUGS: Final = {
    "epoch-given-twice": PlantedBug(
        "a producer is given the epoch that another one has", _epoch_kept, TRANSACTION_SEEDS
    ),
    "markers-forgotten": PlantedBug(
        "a coordinator does not go on with the markers of the one before it",
        _markers_forgotten,
        TRANSACTION_SEEDS,
    ),
    "prepared-ends-otherwise": PlantedBug(
        "a coordinator aborts what the one before it has decided to commit",
        _prepared_ends_otherwise,
        TRANSACTION_SEEDS,
    ),
    "open-for-ever": PlantedBug("transactions do not time out", _open_for_ever, TRANSACTION_SEEDS),
    "zombie-ends-the-next": PlantedBug(
        "a producer ends the transaction that is open now, not its own",
        _zombie_ends_the_next,
        TRANSACTION_SEEDS,
    ),
}
