"""Transaction markers: the record in a control batch that ends a transaction.

Big-endian. Key: version 0 (int16), type (int16: 0 abort, 1 commit). Value: version 0 (int16), the epoch of
its coordinator (int32). Source: Kafka's EndTransactionMarker.
"""

from struct import Struct
from typing import Final, NamedTuple

from sparklog.protocol.records.batch import BatchHeader, CorruptBatchError
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class TransactionMarker(NamedTuple):
    aborted: bool
    coordinator_epoch: int


class EndTransactionMarker(NamedTuple):
    """A coordinator's order to a partition to end one producer's transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    """Epoch of the records, or the next one (transactions version 2)."""
    committed: bool
    coordinator_epoch: int
    transaction_version: int


def marker_batch(end: EndTransactionMarker, now_ms: TimestampMs) -> bytes:
    key = _KEY.pack(_VERSION, _COMMIT if end.committed else _ABORT)
    record = SimpleRecord(key, _VALUE.pack(_VERSION, end.coordinator_epoch), timestamp_ms=now_ms)
    return build_batch(
        [record],
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(header: BatchHeader, batch: bytes | memoryview) -> TransactionMarker | None:
    """Return the marker of a non-empty control batch; None if the batch is of another kind.

    Raises:
        CorruptBatchError: it is malformed.
    """
    record = next(iter(read_records(batch, header, 0)))
    if record.key is None or len(record.key) < _KEY.size or record.value is None:
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} has no transaction marker")
    _, control_type = _KEY.unpack_from(record.key)
    if control_type not in (_ABORT, _COMMIT):
        return None
    if len(record.value) < _VALUE.size:
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} has no transaction marker")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return TransactionMarker(control_type == _ABORT, coordinator_epoch)
