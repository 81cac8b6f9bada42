"""Batches that would begin a transaction in a log, while its coordinator is asked whether they may (KIP-890).

A transaction that nobody will end stops every reader of committed records for ever, and a batch that comes
late, after its transaction's end, would begin one. So the first batch of a transaction is appended only if
its coordinator has said that the partition is in the transaction, and if nothing has ended that since.

Rule kept: a verification is good for as long as its producer has it; the end of a transaction takes it away,
and so does the batch that it let in. While a producer has one, no batch is let in above the lowest sequence
that was to be verified: otherwise one that was refused for a while could not be retried any more. All
requests that name a producer share it, those of a fenced instance or of somebody else too: what is refused to
one of them is not taken from the others.
Source: Kafka's VerificationStateEntry, VerificationGuard, UnifiedLog.
"""

from collections.abc import Iterator

from sparklog.errors import ErrorCode, KafkaError
from sparklog.records.batch import BatchHeader
from sparklog.types import ProducerEpoch, ProducerId, TimestampMs


class Verification:
    """What one producer has under verification in one log."""

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
        """What it expires by."""
        self.supports_epoch_bump = supports_epoch_bump
        """Whether every transaction of the producer has an epoch of its own (transactions version 2)."""
        self.request_count = 1
        """Of how many requests it is, that were not refused."""

    def joined_by(self, producer_epoch: ProducerEpoch, base_sequence: int) -> None:
        """Another batch is to be verified, before one was appended."""
        self.request_count += 1
        if producer_epoch > self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.lowest_sequence = base_sequence
        elif producer_epoch == self.producer_epoch and base_sequence < self.lowest_sequence:
            self.lowest_sequence = base_sequence


class Verifications:
    """What the producers of one log have under verification: at most one each."""

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
        """Return what the producer has, and is joined by this batch, or a new one."""
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
        """Refuse the first batch of a transaction if it has not `brought` what its producer has.

        Nothing need be brought unless it `is_required`. `is_first`: the log remembers no batch of the
        producer.

        Raises:
            KafkaError: INVALID_TXN_STATE; OUT_OF_ORDER_SEQUENCE_NUMBER: it is not its turn.
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
                f"but {verification.lowest_sequence} is still to be verified",
            )

    def refused(self, verification: Verification, *, for_good: bool) -> None:
        """The coordinator has refused one request, whether or not a retry may change that."""
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
        """A transaction has ended: what was to join it may not any more."""
        verification = self._of.get(producer_id)
        if verification is not None and not (
            verification.supports_epoch_bump and verification.producer_epoch == producer_epoch
        ):  # else it is of the next transaction, which has the marker's epoch
            del self._of[producer_id]

    def __iter__(self) -> Iterator[ProducerId]:
        """Iterate over the producers that have one."""
        return iter(self._of)

    def remove_expired(self, producer_id: ProducerId, now_ms: TimestampMs, expiration_ms: int) -> None:
        """Forget a producer's if it has come to no end."""
        verification = self._of.get(producer_id)
        if verification is not None and now_ms - verification.began_ms >= expiration_ms:
            del self._of[producer_id]

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
