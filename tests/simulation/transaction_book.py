"""What clients know of their transactions: what they wrote, what they asked for, what they were told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.protocol.types import Offset, TopicIdPartition


@dataclass(slots=True)
class ClientTransaction:
    """One transaction as its client sees it; its name is in all that it writes."""

    name: str
    producer: ProducerStamp
    commit_asked: bool = False
    told: bool | None = None
    """Whether its client was told that it is committed, or aborted."""
    acknowledged: list[tuple[TopicIdPartition, Offset]] = field(default_factory=list)
    """Batches of records, by their first offsets."""
    is_of_copier: bool = False
    """Whether it is to have copied a stretch of the input."""


class TransactionBook:
    """The transactions of all clients, by name."""

    def __init__(self) -> None:
        self._transactions: dict[str, ClientTransaction] = {}

    def __getitem__(self, name: str) -> ClientTransaction:
        return self._transactions[name]

    def __iter__(self) -> Iterator[ClientTransaction]:
        return iter(self._transactions.values())

    def begin(self, name: str, producer: ProducerStamp) -> ClientTransaction:
        """A client has begun a transaction."""
        transaction = self._transactions[name] = ClientTransaction(name, producer)
        return transaction
