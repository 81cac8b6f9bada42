"""A coordinator's way to its partition: records into its log, and word of what is committed there.

A batch is written with acks=all: not at all while fewer than min.insync.replicas are in sync, and it counts
as committed when the high watermark has passed it.

Source: Kafka's CoordinatorPartitionWriter.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol
from weakref import ref

from sparklog.coordinator_records.framing import encode_key, encode_value
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executor.coordinators.machine.decision import (
    CoordinatorRecord,
    Decision,
    Now,
    ProducerStamp,
    Token,
)
from sparklog.executor.partitions.replica import Replica
from sparklog.records.batch import read_header
from sparklog.records.builder import SimpleRecord, build_batch
from sparklog.records.codecs import Codec
from sparklog.storage.transaction_markers import EndTransaction
from sparklog.types import LeaderEpoch, Offset
from sparklog.wire.requests import Response


class _Owner(Protocol):
    def carry_out(self, effect: Any) -> None: ...

    def broken(self) -> None: ...

    def committed(self) -> None: ...


class ShardLog:
    """What one coordinator acts through, in one leader epoch of its partition."""

    is_follower: Final = False
    """It hears of its partition's progress as a consumer does."""

    def __init__(self, replica: Replica, leader_epoch: LeaderEpoch, codec: Codec, owner: _Owner) -> None:
        self._replica = replica
        self._leader_epoch = leader_epoch
        self._codec = codec
        self._owner = ref(owner)
        """Weakly: it has this. In a circle, the files of a partition that went elsewhere would stay open."""

    # --- what the partition wants done --------------------------------------------------------------

    def append(self, decision: Decision, now: Now) -> Offset:
        """Append a decision's records as one batch; return the offset after it.

        Raises:
            KafkaError, OSError: nothing was appended.
        """
        replica = self._leading()
        batch = self._batch(decision.records, decision.producer, now)
        limit_bytes = replica.settings.log.max_message_bytes
        if len(batch) > limit_bytes:
            raise KafkaError(
                ErrorCode.message_too_large,
                f"{replica}: {len(batch)} bytes of records exceed max.message.bytes, which is {limit_bytes}",
            )
        header = read_header(batch)
        appended = replica.append(batch, header, now.monotonic_ms, now.wall_ms, None, decision.verification)
        return appended.last_offset + 1

    def append_marker(self, end: EndTransaction, now: Now) -> Offset:
        """Append a transaction's marker; return the offset after it.

        Raises:
            KafkaError, OSError: nothing was appended.
        """
        appended = self._leading().append_marker(end, now.monotonic_ms, now.wall_ms, None)
        return appended.last_offset + 1

    def _leading(self) -> Replica:
        """Return the replica, which takes acks=all.

        Raises:
            KafkaError: it does not lead, or in another epoch, or with too few replicas in sync.
        """
        replica = self._replica
        leader = replica.leading_in(self._leader_epoch)
        if leader.is_under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{replica} has {len(leader.isr)} replicas in sync {sorted(leader.isr)}",
            )
        return replica

    def _batch(self, records: Sequence[CoordinatorRecord], producer: ProducerStamp | None, now: Now) -> bytes:
        try:
            encoded = [
                SimpleRecord(encode_key(key), None if value is None else encode_value(value), (), now.wall_ms)
                for key, value in records
            ]
        except Exception as error:
            # A value that does not fit its field is a mistake, and nothing is written of it.
            raise KafkaError(ErrorCode.unknown_server_error, f"{self._replica}: {error!r}") from error
        return build_batch(
            encoded,
            producer_id=None if producer is None else producer.producer_id,
            producer_epoch=None if producer is None else producer.producer_epoch,
            codec=self._codec,
            transactional=producer is not None,
        )

    def reply(self, token: Token, response: Response) -> None:
        """Answer a request."""
        token.answer(response)

    def refuse(self, token: Token, error_code: ErrorCode) -> None:
        """Answer a request with an error."""
        token.answer(token.refuse(error_code))

    def carry_out(self, effect: Any) -> None:
        """Do what a decision wants done."""
        if (owner := self._owner()) is not None:
            owner.carry_out(effect)

    def broken(self) -> None:
        """Load the partition again."""
        if (owner := self._owner()) is not None:
            owner.broken()

    # --- what the partition tells ---------------------------------------------------------------

    def touch(self) -> None:
        """The log start offset moved, which is nothing to a coordinator."""

    def wake(self) -> None:
        """The high watermark moved.

        A leader may commit as it begins another epoch, before anybody hears of that: then nothing is answered
        as of this one.
        """
        if self._replica.leader_epoch == self._leader_epoch and (owner := self._owner()) is not None:
            owner.committed()

    def unwatch(self) -> None:
        """The replica is no more; the role listener says so too."""
