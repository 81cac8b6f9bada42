"""What the committed part of each log says of transactions: which batches are of which, and how each ended.

Told by the observer's ledgers, so that it is true whatever any broker believes.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

from sparklog.executor.coordinators.records.consumer_offsets import OffsetCommitKey
from sparklog.executor.coordinators.records.framing import CONSUMER_OFFSETS_RECORDS
from sparklog.node.storage.producers.transaction_markers import read_marker
from sparklog.protocol.records.batch import BatchHeader, read_header
from sparklog.protocol.records.builder import read_records
from sparklog.protocol.types import Offset, ProducerEpoch, ProducerId, TopicIdPartition
from tests.key_values import read_keys_and_values
from tests.simulation.ledger import Ledger


@dataclass(slots=True)
class LoggedTransaction:
    """A transaction in one partition, or a marker without any."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    first_offset: Offset
    names: list[str] = field(default_factory=list)
    """Which transactions its batches say they are of."""
    marker_offset: Offset | None = None
    committed: bool = False
    coordinator_epoch: int = -1
    marker_epoch: ProducerEpoch = -1


@dataclass(slots=True)
class LoggedBatch:
    """A batch of records."""

    base_offset: Offset
    next_offset: Offset
    transaction: LoggedTransaction | None
    value: str
    """Of its first record: the name of its transaction, and what it copies."""


def name_of_producer(header: BatchHeader) -> str:
    """Return the name of a batch's transaction where each has an epoch of its own."""
    return f"{header.producer_id}-{header.producer_epoch}"


class PartitionTransactions:
    """The transactions of one partition."""

    def __init__(self, *, named_by_producer: bool = False) -> None:
        self._named_by_producer = named_by_producer
        self.batches: list[LoggedBatch] = []
        """Of records, without markers."""
        self.ended: list[LoggedTransaction] = []
        """In the order of their markers."""
        self.begun: list[LoggedTransaction] = []
        """Those that have batches, in the order of their first."""
        self.open: dict[ProducerId, LoggedTransaction] = {}
        self._count = 0

    def follow(self, ledger: Ledger, *, holds_offsets: bool) -> None:
        """Take in what is committed by now."""
        for batch in ledger.batches[self._count :]:
            header = read_header(batch)
            if header.is_control:
                self._end(batch, header)
            elif header.is_transactional:
                transaction = self.open.get(header.producer_id)
                if transaction is None:
                    transaction = self.open[header.producer_id] = LoggedTransaction(
                        header.producer_id, header.producer_epoch, header.base_offset
                    )
                    self.begun.append(transaction)
                if self._named_by_producer:
                    value = name_of_producer(header)
                else:
                    value = _name_of_offsets(batch, header) if holds_offsets else _first_value(batch, header)
                transaction.names.append(value.partition(" ")[0])
                self.batches.append(LoggedBatch(header.base_offset, header.next_offset, transaction, value))
            else:
                self.batches.append(LoggedBatch(header.base_offset, header.next_offset, None, ""))
        self._count = len(ledger.batches)

    def _end(self, batch: bytes, header: BatchHeader) -> None:
        marker = read_marker(header, batch)
        assert marker is not None
        transaction = self.open.pop(header.producer_id, None)
        if transaction is None:
            transaction = LoggedTransaction(header.producer_id, header.producer_epoch, header.base_offset)
        transaction.marker_offset = header.base_offset
        transaction.committed = not marker.aborted
        transaction.coordinator_epoch = marker.coordinator_epoch
        transaction.marker_epoch = header.producer_epoch
        self.ended.append(transaction)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Return the first offset of a transaction that is open below a high watermark, or that."""
        for transaction in self.begun:
            if transaction.first_offset >= high_watermark:
                break
            if transaction.marker_offset is None or transaction.marker_offset >= high_watermark:
                return transaction.first_offset
        return high_watermark

    def visible(self, offset: Offset, end_offset: Offset) -> list[LoggedBatch]:
        """Return the batches between two offsets that readers of committed records may see."""
        first = bisect_left(self.batches, offset, key=lambda batch: batch.base_offset)
        found = []
        for batch in self.batches[first:]:
            if batch.base_offset >= end_offset:
                break
            transaction = batch.transaction
            if transaction is None or (transaction.marker_offset is not None and transaction.committed):
                found.append(batch)
        return found

    def batch_at(self, base_offset: Offset) -> LoggedBatch | None:
        """Return the batch that begins at an offset."""
        number = bisect_left(self.batches, base_offset, key=lambda batch: batch.base_offset)
        if number < len(self.batches) and self.batches[number].base_offset == base_offset:
            return self.batches[number]
        return None


class TransactionLogs:
    """Those of all partitions."""

    def __init__(self, *, named_by_producer: bool = False) -> None:
        """`named_by_producer`: by who writes them, not by what is written."""
        self._named_by_producer = named_by_producer
        self._partitions: dict[TopicIdPartition, PartitionTransactions] = {}

    def of(self, ledger: Ledger, *, holds_offsets: bool = False) -> PartitionTransactions:
        """Return a partition's, as of now."""
        found = self._partitions.get(ledger.key)
        if found is None:
            found = self._partitions[ledger.key] = PartitionTransactions(
                named_by_producer=self._named_by_producer
            )
        found.follow(ledger, holds_offsets=holds_offsets)
        return found


def _first_value(batch: bytes, header: BatchHeader) -> str:
    value = next(iter(read_records(batch, header))).value
    return "" if value is None else value.decode()


def _name_of_offsets(batch: bytes, header: BatchHeader) -> str:
    for key, value in read_keys_and_values(batch, header, 0):
        of, committed = CONSUMER_OFFSETS_RECORDS.decode(key, value)
        if isinstance(of, OffsetCommitKey) and committed is not None:
            return str(committed.metadata)
    return ""
