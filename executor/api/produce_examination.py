"""Which batches of a Produce request are looked into before they are appended, and where.

A batch whose header is not enough to go by (`executor.records.examination`: it is compressed, or its topic
asks for more) is examined by a thread. The way to a thread and back takes several times what it takes to
count the records of a small batch, so these are counted at once: of each request as much as takes about a
millisecond.
"""

from typing import Final, NamedTuple

from executor.api.machine.delayed_produce import ProducedPartition
from executor.partitions.replica import Replica
from executor.partitions.settings import PartitionSettings
from executor.records.examination import Demands, examine
from sparklog.errors import KafkaError
from sparklog.records.batch import BatchHeader
from sparklog.records.codecs import DecompressionLimitError
from sparklog.types import LeaderEpoch

__all__ = ["AtOnce", "Unexamined", "examine_all"]

_AT_ONCE_BYTES: Final = 64 * 1024
"""How many bytes of compressed batches one request may have examined at once,"""
_AT_ONCE_RECORDS: Final = 4_000
"""how many records,"""
_EXPANDED_AT_ONCE_BYTES: Final = 256 * 1024
"""and to how much each batch may expand there: one that is found to be larger begins anew on a thread."""


class Unexamined(NamedTuple):
    """A batch that is looked into by a thread before it is appended."""

    produced: ProducedPartition
    replica: Replica
    leader_epoch: LeaderEpoch | None
    """In which it came."""
    records: bytes
    header: BatchHeader
    demands: Demands


class AtOnce:
    """What is examined of one request without a thread."""

    __slots__ = ("_bytes_left", "_max_decompressed_bytes", "_records_left")

    def __init__(self, max_decompressed_bytes: int) -> None:
        self._max_decompressed_bytes = min(max_decompressed_bytes, _EXPANDED_AT_ONCE_BYTES)
        self._bytes_left = _AT_ONCE_BYTES
        self._records_left = _AT_ONCE_RECORDS

    def examine(self, records: bytes | memoryview, header: BatchHeader, settings: PartitionSettings) -> bool:
        """Return whether the batch has been found good, and is stored as it is; False leaves it to a thread.

        Raises:
            KafkaError: what `examine` raises.
        """
        self._bytes_left -= len(records)
        self._records_left -= header.record_count
        if settings.examines_all or settings.codec is not None:
            return False
        if self._bytes_left < 0 or self._records_left < 0:
            return False
        demands = Demands(self._max_decompressed_bytes, settings.log.max_message_bytes)
        try:
            examine(records, header, demands)
        except DecompressionLimitError:
            return False
        return True


def examine_all(batches: list[Unexamined]) -> list[tuple[bytes | memoryview, BatchHeader] | KafkaError]:
    """Look into the batches of one request, on a thread of its own; return what became of each."""
    results: list[tuple[bytes | memoryview, BatchHeader] | KafkaError] = []
    for batch in batches:
        try:
            results.append(examine(batch.records, batch.header, batch.demands))
        except KafkaError as error:
            results.append(error)
    return results
