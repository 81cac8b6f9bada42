"""What a transaction coordinator is asked, and its answers, in no API's words and no version's.

A producer id that may be needed comes with the event: ids are handed out in blocks by the controller, and
waiting for one is no machine's business. Few events need one, so none is taken in advance: who is answered
with `NEEDS_PRODUCER_ID` asks again with one.
"""

from collections.abc import Mapping, Set
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sparklog.executor.coordinators.machine.decision import ProducerStamp
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import ProducerId, TopicPartition


class InitProducer(NamedTuple):
    """A producer asks for its id and epoch, and that whoever had the transactional id before be fenced."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerStamp | None = None
    """As whom the producer wants to go on; one that begins has none."""
    new_producer_id: ProducerId | None = None


class AddPartitions(NamedTuple):
    """Partitions are to be part of the producer's transaction before anything is written to them."""

    transactional_id: str
    producer: ProducerStamp
    partitions: Set[TopicPartition]
    transaction_version: int


class VerifyPartitions(NamedTuple):
    """A partition's leader asks whether the partition is part of the producer's transaction."""

    transactional_id: str
    producer: ProducerStamp
    partitions: Set[TopicPartition]


class EndTransaction(NamedTuple):
    """A producer commits or aborts."""

    transactional_id: str
    producer: ProducerStamp
    committed: bool
    transaction_version: int
    new_producer_id: ProducerId | None = None


class Describe(NamedTuple):
    """Somebody wants to know where an id stands."""

    transactional_id: str


class MarkersWritten(NamedTuple):
    """Every partition of a prepared transaction has its marker."""

    transactional_id: str
    producer: ProducerStamp
    """As in the markers."""


class SendMarkers(NamedTuple):
    """An effect: send markers to the partitions until each has one, then say `MarkersWritten`."""

    transactional_id: str
    producer: ProducerStamp
    committed: bool
    transaction_version: int
    partitions: Set[TopicPartition]


class AbortWithNewProducerId(NamedTuple):
    """An effect: the transaction has timed out, and to abort it needs a producer id."""

    transactional_id: str


class NeedsProducerId(Enum):
    """The type of `NEEDS_PRODUCER_ID`."""

    NEEDS_PRODUCER_ID = "nothing was decided: ask again with a new producer id"


NEEDS_PRODUCER_ID: Final = NeedsProducerId.NEEDS_PRODUCER_ID


class ProducerOutcome(NamedTuple):
    """An error, or what the producer is from now on, if that is to be told."""

    error_code: ErrorCode
    producer: ProducerStamp | None = None


PartitionErrors: TypeAlias = Mapping[TopicPartition, ErrorCode]
