"""The record in a control batch that ends a transaction: key int16, int16; value int16, int32."""

from struct import Struct
from typing import Final, NamedTuple

from sparklog.records.batch import BatchHeader, CorruptBatchError
from sparklog.records.builder import read_records

__all__ = ["TransactionMarker", "read_marker"]

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


class TransactionMarker(NamedTuple):
    """How a transaction ended."""

    aborted: bool
    coordinator_epoch: int


def read_marker(header: BatchHeader, batch: bytes | memoryview) -> TransactionMarker | None:
    """Return what a control batch, which has a record, says of a transaction; None if it is of another kind.

    Raises:
        CorruptBatchError: it is no control batch as brokers write them.
    """
    record = next(iter(read_records(batch, header, 0)))
    if record.key is None or len(record.key) < _KEY.size or record.value is None:
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} has no marker in it")
    _, control_type = _KEY.unpack_from(record.key)
    if control_type not in (_ABORT, _COMMIT):
        return None
    if len(record.value) < _VALUE.size:
        raise CorruptBatchError(f"the control batch at offset {header.base_offset} has no marker in it")
    _, coordinator_epoch = _VALUE.unpack_from(record.value)
    return TransactionMarker(control_type == _ABORT, coordinator_epoch)
