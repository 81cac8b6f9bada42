"""Examination of a Produce request's batches, on the loop or in a thread (`executor.records.examination`).

The way to a thread and back takes several times what it takes to walk over the records of a small batch, so
these are looked into at once: of each request as much as takes about a millisecond. The others are left to a
thread.
"""

from typing import Final, NamedTuple

from sparklog.executor.api.produce.delayed_produce import ProducedPartition
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.records.examination import Demands, examine
from sparklog.executor.records.walk import CostlyWalkError
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.records.batch import CODEC_BITS, BatchHeader
from sparklog.protocol.records.codecs import DecompressionLimitError
from sparklog.protocol.types import LeaderEpoch

_AT_ONCE_BYTES: Final = 64 * 1024
"""How many bytes of compressed batches one request may have examined at once,"""
_PLAIN_AT_ONCE_BYTES: Final = 1024 * 1024
"""how many of others,"""
_AT_ONCE_RECORDS: Final = 4_000
"""how many records,"""
_EXPANDED_AT_ONCE_BYTES: Final = 256 * 1024
"""and to how much each batch may expand there: of one that is larger a thread begins from the start."""


class Unexamined(NamedTuple):
    produced: ProducedPartition
    replica: Replica
    leader_epoch: LeaderEpoch
    """In which it came."""
    records: bytes
    header: BatchHeader
    demands: Demands


class Examination:
    __slots__ = ("_bytes_left", "_max_decompressed_bytes", "_plain_bytes_left", "_records_left", "later")

    def __init__(self, max_decompressed_bytes: int) -> None:
        self.later: list[Unexamined] = []
        """The batches for a thread."""
        self._max_decompressed_bytes = max_decompressed_bytes
        self._bytes_left = _AT_ONCE_BYTES
        self._plain_bytes_left = _PLAIN_AT_ONCE_BYTES
        self._records_left = _AT_ONCE_RECORDS

    def look(
        self,
        produced: ProducedPartition,
        replica: Replica,
        leader_epoch: LeaderEpoch,
        records: bytes | memoryview,
        header: BatchHeader,
    ) -> tuple[bytes | memoryview, BatchHeader] | None:
        """Return a good batch in the form in which it is stored, and its header; None: a thread looks later.

        Raises:
            KafkaError: what `examine` raises.
        """
        demands = replica.settings.demands(produced.settling.wall_ms, self._max_decompressed_bytes)
        self._records_left -= header.record_count
        codec = header.attributes & CODEC_BITS
        if demands.codec is None or demands.codec == codec:
            if codec:
                self._bytes_left -= len(records)
                max_bytes = min(self._max_decompressed_bytes, _EXPANDED_AT_ONCE_BYTES)
                small_demands = demands._replace(max_decompressed_bytes=max_bytes, is_hasty=True)
            else:
                self._plain_bytes_left -= len(records)
                small_demands = demands._replace(is_hasty=True)
            if self._bytes_left >= 0 and self._plain_bytes_left >= 0 and self._records_left >= 0:
                try:
                    return examine(records, header, small_demands)
                except (DecompressionLimitError, CostlyWalkError):
                    pass  # it may expand to more, or have many headers, but not here
        self.later.append(Unexamined(produced, replica, leader_epoch, bytes(records), header, demands))
        return None

    def run(self) -> list[tuple[bytes | memoryview, BatchHeader] | KafkaError]:
        """Examine the remaining batches, on a thread; return the stored form or the error of each."""
        results: list[tuple[bytes | memoryview, BatchHeader] | KafkaError] = []
        for batch in self.later:
            try:
                results.append(examine(batch.records, batch.header, batch.demands))
            except KafkaError as error:
                results.append(error)
        return results
