"""Events and outcomes of the transaction coordinator, independent of API and version.

A producer id that may be needed comes with the event: the controller allocates ids in blocks, and a machine
cannot wait for one. Few events need one, so none is allocated in advance: a caller that gets
`NEEDS_PRODUCER_ID` submits the event again with one.
"""

from collections.abc import Mapping, Set
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerId, TopicPartition


class InitProducer(NamedTuple):
    """A producer requests its id and epoch; earlier producers of the transactional id are fenced."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerStamp | None = None
    """Producer id and epoch that the client wants to keep; None for a new client."""
    new_producer_id: ProducerId | None = None


class AddPartitions(NamedTuple):
    """Adds partitions to the producer's transaction before records are written to them."""

    transactional_id: str
    producer: ProducerStamp
    partitions: Set[TopicPartition]
    transaction_version: int


class VerifyPartitions(NamedTuple):
    """A leader's check that partitions are part of the producer's transaction."""

    transactional_id: str
    producer: ProducerStamp
    partitions: Set[TopicPartition]


class EndTransaction(NamedTuple):
    transactional_id: str
    producer: ProducerStamp
    committed: bool
    transaction_version: int
    new_producer_id: ProducerId | None = None


class Describe(NamedTuple):
    transactional_id: str


class MarkersWritten(NamedTuple):
    transactional_id: str
    producer: ProducerStamp
    """As in the markers."""


class SendMarkers(NamedTuple):
    """An effect: send markers to the partitions until each has one, then decide `MarkersWritten`."""

    transactional_id: str
    producer: ProducerStamp
    committed: bool
    transaction_version: int
    partitions: Set[TopicPartition]


class AbortWithNewProducerId(NamedTuple):
    """An effect: a transaction has timed out, and its abort needs a producer id."""

    transactional_id: str


class NeedsProducerId(Enum):
    NEEDS_PRODUCER_ID = "nothing was decided: ask again with a new producer id"


NEEDS_PRODUCER_ID: Final = NeedsProducerId.NEEDS_PRODUCER_ID


class ProducerOutcome(NamedTuple):
    """An error, or the producer's id and epoch, which are None if the client does not receive them."""

    error_code: ErrorCode
    producer: ProducerStamp | None = None


PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
