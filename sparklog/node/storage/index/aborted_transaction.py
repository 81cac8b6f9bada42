"""An entry of a transaction index."""

from typing import NamedTuple

from sparklog.protocol.types import Offset, ProducerId


class AbortedTransactionEntry(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """The abort marker's (inclusive)."""
    last_stable_offset: Offset
