"""What a log remembers of its producers: sequences, epochs, open transactions (KIP-98).

Pure state, no files: `Log` loads and stores it as `.snapshot` files. Order for callers: `check` before an
append, `update` after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparklog.types import Offset, TimestampMs

if TYPE_CHECKING:
    from sparklog.records.batch import BatchHeader


class Fresh(NamedTuple):
    """The batch is next in its producer's sequence (or has no producer id): append it."""


class Duplicate(NamedTuple):
    """The batch is in the log already: answer with where it is."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs


class ProducerStates:
    """The producers of one log."""

    def check(self, header: BatchHeader) -> Fresh | Duplicate:
        """Say whether a client's batch is next in sequence.

        Raises:
            KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        raise NotImplementedError
