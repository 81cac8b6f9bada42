"""The limits of a Fetch request, and whether the records found for it suffice for an answer.

Rules kept: an error, a divergence, another replica to read from or records of the object store are answered
at once, local records when there are `min_bytes` of them, anything else when the deadline has passed. A
partition whose records are still to be loaded from the object store keeps no other waiting: it is read
again with the next request. An answer has at most `max_bytes`, but the first batch that is found always
goes with it, or its reader would never get past it (KIP-74). A partition is in the answer when it has
records, or offsets other than those sent last (KIP-227); one without room is read again with the next
request, and one whose records were sent goes to the end of the line.

Pure. Source: Kafka's FetchParams, DelayedFetch, DelayedRemoteFetch and FetchSession.
"""

import datetime
from typing import TYPE_CHECKING, Any, Final

from sparklog.executor.api.fetch.fetch_sessions import CachedPartition, FetchContext
from sparklog.protocol.codec.fetch_metadata import NO_SESSION_ID
from sparklog.protocol.codec.fixed.fetch import FollowerFetchRequest
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

if TYPE_CHECKING:
    from sparklog.executor.api.fetch.cold_reads import ColdLookUp
    from sparklog.executor.partitions.replica import Replica
    from sparklog.executor.remote_reads.loads import Load
    from sparklog.node.storage.file_region import FileRegion
    from sparklog.protocol.types import AbortedTransaction

_UNKNOWN: Final = -1
_READ_COMMITTED: Final = 1
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class FetchParams:
    __slots__ = (
        "broker_epoch",
        "broker_id",
        "is_fixed",
        "listener_name",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "peer",
        "rack_id",
        "read_committed",
        "version",
    )

    def __init__(
        self, body: Any, version: int, listener_name: str, max_consumer_bytes: int, peer: str = ""
    ) -> None:
        self.version = version
        self.is_fixed = type(body) is FollowerFetchRequest
        """Whether the response may be a fixed one, too."""
        self.listener_name = listener_name
        """By which it came."""
        self.broker_id: BrokerId | None
        """The follower that asks; None for a consumer."""
        self.broker_epoch: BrokerEpoch | None = None
        if version >= 15:
            state = body.replica_state
            self.broker_id = state.replica_id
            if state.replica_epoch >= 0:
                self.broker_epoch = state.replica_epoch
        else:
            self.broker_id = body.replica_id
        self.max_bytes: int = body.max_bytes
        if self.broker_id < 0:
            self.broker_id = self.broker_epoch = None
            self.max_bytes = min(self.max_bytes, max_consumer_bytes)
        self.max_wait_ms: int = body.max_wait // _MILLISECOND
        self.min_bytes: int = body.min_bytes
        self.read_committed: bool = body.isolation_level == _READ_COMMITTED
        self.rack_id: str = body.rack_id if version >= 11 and self.broker_id is None else ""
        """The client.rack of a consumer, empty without one."""
        self.peer = peer
        """The address of the reader, `host:port`."""

    @property
    def needs_leader(self) -> bool:
        """Whether followers don't serve it: it comes from one itself, or does not know KIP-392."""
        return self.broker_id is not None or self.version < 11

    def bound(self, max_bytes: int) -> None:
        """Lower the limit of the answer's size, and the number of bytes to wait for."""
        self.max_bytes = min(self.max_bytes, max_bytes)
        self.min_bytes = min(self.min_bytes, self.max_bytes)


class FetchedPartition:
    """The result of reading a partition. Offsets are the wire's -1 where a failed read has none."""

    __slots__ = (
        "aborted_transactions",
        "asked",
        "cold",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "is_behind",
        "is_remote",
        "is_unheard",
        "last_stable_offset",
        "load",
        "log_start_offset",
        "out_of_bytes",
        "preferred_read_replica",
        "region",
        "replica",
        "size_bytes",
    )

    def __init__(self, asked: CachedPartition) -> None:
        self.asked = asked
        self.replica: Replica | None = None
        self.error_code = ErrorCode.none
        """Only the code: an exception holds its traceback, and there may be thousands of these."""
        self.region: FileRegion | None = None
        self.size_bytes = 0
        self.is_behind = False
        """The region ends before the log does, so it may be old and no longer in memory."""
        self.is_unheard = False
        """The follower's position differs from the leader's view: its next request must state it again."""
        self.high_watermark: Offset = _UNKNOWN
        self.last_stable_offset: Offset = _UNKNOWN
        self.log_start_offset: Offset = _UNKNOWN
        self.diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
        self.aborted_transactions: list[AbortedTransaction] | None = None
        self.cold: ColdLookUp | None = None
        """The blocking look-up that precedes the read."""
        self.is_remote = False
        """The records are in the object store alone."""
        self.load: Load | None = None
        """The look-up in the object store that precedes the read."""
        self.preferred_read_replica: BrokerId | None = None
        """The follower that the consumer is sent to, without records; None to read here."""
        self.out_of_bytes = False
        """There are records, but the response had no room for them, or they are not in memory yet."""

    def hide_high_watermark(self) -> None:
        """Send none with an error, as Kafka does.

        A consumer of librdkafka whose offset is out of a follower's range asks the leader only if the offset
        lies above the high watermark of the answer; otherwise it resets its position, and records are skipped
        or read twice.
        """
        self.high_watermark = self.last_stable_offset = _UNKNOWN

    @property
    def sends_elsewhere(self) -> bool:
        """Whether the reader has something to do before records can come from here."""
        return (
            self.error_code is not ErrorCode.none
            or self.diverging_epoch is not None
            or self.preferred_read_replica is not None
        )


class FetchProgress:
    """The results of one pass over the changed partitions."""

    __slots__ = (
        "_found_bytes",
        "_must_answer",
        "cached_only",
        "cold",
        "first_at_ms",
        "found",
        "has_records",
        "left_bytes",
        "loads",
        "params",
    )

    def __init__(self, params: FetchParams, first_at_ms: int | None, *, cached_only: bool) -> None:
        self.params = params
        self.first_at_ms = first_at_ms
        """The time of the request, when it is looked for the first time: then a follower's offsets are taken
        as its progress."""
        self.cached_only = cached_only
        """Whether no disk is waited for."""
        self.found: list[FetchedPartition] = []
        """The partitions there is news of."""
        self.cold: list[FetchedPartition] = []
        """Partitions of these that cannot be read without waiting for the disk."""
        self.loads: list[Load] = []
        """The look-ups in the object store after which more can be read."""
        self.left_bytes = params.max_bytes
        self.has_records = False
        self._found_bytes = 0
        self._must_answer = False

    def add(self, fetched: FetchedPartition) -> None:
        size_bytes = fetched.size_bytes
        asked = fetched.asked
        if fetched.load is not None:
            self.loads.append(fetched.load)
        if size_bytes:
            self.has_records = True
            if fetched.is_remote:
                self._must_answer = True
            self._found_bytes += size_bytes
            self.left_bytes = max(0, self.left_bytes - size_bytes)
        elif fetched.sends_elsewhere:
            self._must_answer = True
        elif fetched.cold is not None:
            self.cold.append(fetched)
        elif (
            asked.sent_high_watermark == fetched.high_watermark
            and asked.sent_log_start_offset == fetched.log_start_offset
        ):
            if not (fetched.out_of_bytes or fetched.is_unheard or asked.is_touched):
                asked.context.changed.pop(asked.key, None)
            return
        self.found.append(fetched)

    @property
    def found_bytes(self) -> int:
        return self._found_bytes

    @property
    def is_enough(self) -> bool:
        """Whether the request can be answered now."""
        return self._must_answer or self._found_bytes >= self.params.min_bytes

    def sent(self, context: FetchContext) -> None:
        """Remember in a session the offsets that the answer carries."""
        if context.session_id == NO_SESSION_ID:
            return
        changed = context.changed
        for fetched in self.found:
            asked = fetched.asked
            if fetched.cold is not None and fetched.error_code is ErrorCode.none:
                continue  # it was not read yet, and is answered without for another's sake
            asked.sent_high_watermark = fetched.high_watermark
            asked.sent_log_start_offset = fetched.log_start_offset
            if fetched.size_bytes:
                # A partition with records goes to the end of the line for the next answer's bytes.
                changed.pop(asked.key, None)
                if not asked.is_forgotten:
                    changed[asked.key] = asked
            elif not fetched.sends_elsewhere and not (
                fetched.out_of_bytes or fetched.is_unheard or asked.is_touched
            ):
                changed.pop(asked.key, None)
