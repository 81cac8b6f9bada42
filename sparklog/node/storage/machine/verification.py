"""Verification of batches that would begin a transaction, by the transaction's coordinator (KIP-890).

A transaction that is never ended stops every read_committed consumer forever, and a late batch, after its
transaction's end, would begin one. So the first batch of a transaction is appended only if its coordinator
has confirmed that the partition is in the transaction, and if the transaction has not ended since.

Rule kept: a verification is valid while its producer has it; the end of a transaction removes it, and so does
the batch that it admitted. While a producer has one, no batch above the lowest sequence under verification is
admitted: otherwise a batch that was refused for a while could not be retried. All requests that name a
producer share it, also those of a fenced or foreign instance: a refusal of one of them does not remove it
from the others.

Source: Kafka's VerificationStateEntry, VerificationGuard, UnifiedLog.
"""

from collections.abc import Iterator

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader
from sparklog.protocol.types import ProducerEpoch, ProducerId, TimestampMs


class Verification:
    """The verification of one producer in one log."""

    __slots__ = (
        "began_ms",
        "lowest_sequence",
        "producer_epoch",
        "producer_id",
        "request_count",
        "supports_epoch_bump",
    )

    def __init__(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: int,
        began_ms: TimestampMs,
        *,
        supports_epoch_bump: bool,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.lowest_sequence = base_sequence
        self.began_ms = began_ms
        """Time by which it expires."""
        self.supports_epoch_bump = supports_epoch_bump
        """Whether each transaction of the producer has its own epoch (transactions version 2)."""
        self.request_count = 1
        """Requests that share it and were not refused."""

    def joined_by(self, producer_epoch: ProducerEpoch, base_sequence: int) -> None:
        """Another batch needs verification, before one was appended."""
        self.request_count += 1
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch and base_sequence < self.lowest_sequence:
            self.lowest_sequence = base_sequence


class Verifications:
    """Verifications of one log: at most one for each producer."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[ProducerId, Verification] = {}

    def __len__(self) -> int:
        return len(self._of)

    def begin(
        self,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        base_sequence: int,
        now_ms: TimestampMs,
        *,
        supports_epoch_bump: bool,
    ) -> Verification:
        """Return the producer's verification, joined by this batch, or a new one."""
        verification = self._of.get(producer_id)
        if verification is None:
            verification = self._of[producer_id] = Verification(
                producer_id, producer_epoch, base_sequence, now_ms, supports_epoch_bump=supports_epoch_bump
            )
        else:
            verification.joined_by(producer_epoch, base_sequence)
        return verification

    def check(
        self, header: BatchHeader, brought: Verification | None, *, is_required: bool, is_first: bool
    ) -> None:
        """Refuse the first batch of a transaction unless it has `brought` its producer's verification.

        Without `is_required` none has to be brought. `is_first`: the log remembers no batch of the producer.

        Raises:
            KafkaError: INVALID_TXN_STATE; OUT_OF_ORDER_SEQUENCE_NUMBER: another batch comes first.
        """
        producer_id, sequence = header.producer_id, header.base_sequence
        verification = self._of.get(producer_id)
        if is_required and (verification is None or verification is not brought):
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"the records of producer {producer_id} are not part of a transaction of this partition",
            )
        if verification is None or sequence < 0:
            return
        if verification.supports_epoch_bump and is_first and sequence != 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id} begins here with sequence {sequence}, not 0",
            )
        if sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id} sent sequence {sequence}, "
                f"but {verification.lowest_sequence} is still under verification",
            )

    def refused(self, verification: Verification, *, for_good: bool) -> None:
        """The coordinator has refused one request; `for_good` if a retry can't succeed."""
        verification.request_count -= 1
        if (
            for_good
            and not verification.request_count
            and self._of.get(verification.producer_id) is verification
        ):
            del self._of[verification.producer_id]

    def data_appended(self, producer_id: ProducerId) -> None:
        """A transaction has begun."""
        self._of.pop(producer_id, None)

    def marker_appended(self, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> None:
        """A transaction has ended: pending batches may not join it."""
        verification = self._of.get(producer_id)
        if verification is not None and not (
            verification.supports_epoch_bump and verification.producer_epoch == producer_epoch
        ):  # else it is of the next transaction, which has the marker's epoch
            del self._of[producer_id]

    def __iter__(self) -> Iterator[ProducerId]:
        return iter(self._of)

    def remove_expired(self, producer_id: ProducerId, now_ms: TimestampMs, expiration_ms: int) -> None:
        """Remove a producer's verification that has stayed without an outcome."""
        verification = self._of.get(producer_id)
        if verification is not None and now_ms - verification.began_ms >= expiration_ms:
            del self._of[producer_id]

    def clear(self) -> None:
        self._of.clear()
