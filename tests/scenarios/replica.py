"""One broker's replica in a story: a log in memory, and the machine that leads or follows with it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    FailWaitingAppends,
    FollowerFetched,
    LeaderEvent,
    PartitionChanged,
    ProposeIsr,
    RegisteredBroker,
    Ticked,
)
from sparklog.executor.partitions.machine.follower import (
    AdvanceLogStartOffset,
    AppendToLog,
    AwaitMetadata,
    BackOff,
    FetchAnswered,
    FollowerEvent,
    LogTruncated,
    MoveHighWatermark,
    PartitionFetch,
    PartitionFollower,
    RecordsAppended,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch, fetch_divergence
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

LAG_TIME_MAX_MS = 10_000

Tell = Callable[[str], None]


class Acknowledge(Protocol):
    """Tells a client that its record was taken."""

    def __call__(self, value: str, *, all_acks: bool) -> None: ...


class Record(NamedTuple):
    """A value, and the leader epoch in which it was written."""

    value: str
    leader_epoch: LeaderEpoch

    def __str__(self) -> str:
        return f"{self.value}@{self.leader_epoch}"


@dataclass
class Log:
    """What lies on a broker's disk; a record's offset is its index."""

    records: list[Record] = field(default_factory=list)
    high_watermark: Offset = 0

    @property
    def end_offset(self) -> Offset:
        return len(self.records)

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        return self.records[-1].leader_epoch if self.records else None

    def end_offset_for(self, leader_epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest epoch here that is not above `leader_epoch`, and where it ends."""
        if not self.records:
            return None
        older = [record.leader_epoch for record in self.records if record.leader_epoch <= leader_epoch]
        return (older[-1], len(older)) if older else (leader_epoch, 0)

    def truncate(self, end_offset: Offset) -> None:
        del self.records[end_offset:]
        self.high_watermark = min(self.high_watermark, end_offset)

    def __str__(self) -> str:
        return " ".join(map(str, self.records)) or "-"


class FetchResponse(NamedTuple):
    """What a leader answers a follower."""

    error_code: ErrorCode
    high_watermark: Offset | None = None
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
    records: tuple[Record, ...] = ()


class Replica:
    """A log under a leader or a follower machine."""

    def __init__(
        self,
        broker_id: BrokerId,
        partition: str,
        log: Log,
        tell: Tell,
        acknowledge: Acknowledge,
        *,
        truncates_to_high_watermark: bool,
    ) -> None:
        self.broker_id = broker_id
        self.partition = partition
        """What stories call it, where there is more than one."""
        self.log = log
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.leader_epoch: LeaderEpoch = -1
        self.proposals: list[ProposeIsr] = []
        self._waiting: list[tuple[Offset, str]] = []
        self._tell = tell
        self._acknowledge = acknowledge
        self._truncates_to_high_watermark = truncates_to_high_watermark
        """The rule before KIP-101, which stories can play with."""

    def __str__(self) -> str:
        return f"broker {self.broker_id}{self.partition}"

    # --- roles ----------------------------------------------------------------------------------

    def obey(
        self,
        partition: PartitionRegistration,
        brokers: Mapping[BrokerId, RegisteredBroker],
        own_broker_epoch: BrokerEpoch | None,
        min_insync_replicas: int,
        now_ms: int,
    ) -> None:
        """Lead or follow as the metadata says."""
        if partition.leader_epoch == self.leader_epoch:
            if self.leader is not None:
                isr = frozenset(partition.isr)
                self.handle(
                    PartitionChanged(
                        partition.partition_epoch,
                        partition.replicas,
                        isr,
                        min_insync_replicas,
                        now_ms,
                        partition.directories,
                    )
                )
            return
        self.resign()
        self.leader_epoch = partition.leader_epoch
        if partition.leader == self.broker_id:
            self._tell(f"{self} leads in epoch {self.leader_epoch}")
            self.leader = PartitionLeader(
                broker_id=self.broker_id,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                replicas=partition.replicas,
                isr=frozenset(partition.isr),
                leader_epoch_start_offset=self.log.end_offset,
                high_watermark=self.log.high_watermark,
                min_insync_replicas=min_insync_replicas,
                replica_lag_time_max_ms=LAG_TIME_MAX_MS,
                brokers=brokers,
                own_broker_epoch=own_broker_epoch,
                started_ms=now_ms,
                directories=partition.directories,
            )
            self.handle(Ticked(now_ms))
        else:
            self._follow(partition)

    def _follow(self, partition: PartitionRegistration) -> None:
        leader = "nobody" if partition.leader is None else f"broker {partition.leader}"
        self._tell(f"{self} follows {leader} in epoch {self.leader_epoch}")
        log = self.log
        if self._truncates_to_high_watermark and log.end_offset > log.high_watermark:
            cut = " ".join(map(str, log.records[log.high_watermark :]))
            self._tell(f"{self} cuts its log to its high watermark: without {cut}")
            log.truncate(log.high_watermark)
        self.follower = PartitionFollower(
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            history=log,
            log_start_offset=0,
            log_end_offset=log.end_offset,
            last_epoch=log.last_epoch,
            high_watermark=log.high_watermark,
        )

    def resign(self) -> None:
        """Lead and follow nothing; whoever waits is told so."""
        self.leader = self.follower = None
        self._fail_waiting(ErrorCode.not_leader_or_follower)

    def lease_ended(self) -> None:
        """Acknowledge nothing for now; what was learnt as a leader still counts."""
        self._fail_waiting(ErrorCode.not_leader_or_follower)

    def _fail_waiting(self, error_code: ErrorCode) -> None:
        for _, value in self._waiting:
            self._tell(f"{value} is not acknowledged: {error_code.name.upper()}")
        self._waiting.clear()

    # --- leading --------------------------------------------------------------------------------

    def append(self, value: str, now_ms: int, *, all_acks: bool) -> None:
        """Take a client's record, and answer at once or when it is committed."""
        assert self.leader is not None
        if all_acks and self.leader.is_under_min_isr:
            self._tell(f"{value} is not acknowledged: NOT_ENOUGH_REPLICAS")
            return
        self.log.records.append(Record(value, self.leader_epoch))
        self._tell(f"{self} appends {value} at offset {self.log.end_offset - 1}")
        if all_acks:
            self._waiting.append((self.log.end_offset, value))
        else:
            self._acknowledge(value, all_acks=False)
        self.handle(Appended(self.log.end_offset, now_ms))

    def handle(self, event: LeaderEvent) -> None:
        """Pass an event to the leader machine, and do what it says."""
        assert self.leader is not None
        for effect in self.leader.handle(event):
            match effect:
                case AdvanceHighWatermark():
                    self._advance(effect.high_watermark)
                case ProposeIsr():
                    self.proposals.append(effect)
                case FailWaitingAppends():
                    self._fail_waiting(ErrorCode.not_enough_replicas_after_append)

    def _advance(self, high_watermark: Offset) -> None:
        self._tell(f"{self} moves the high watermark from {self.log.high_watermark} to {high_watermark}")
        self.log.high_watermark = high_watermark
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._acknowledge(self._waiting.pop(0)[1], all_acks=True)

    def answer(
        self, fetch: PartitionFetch, broker_id: BrokerId, broker_epoch: BrokerEpoch | None, now_ms: int
    ) -> FetchResponse:
        """Answer a follower's fetch, as a broker that may lead the partition or not."""
        leader = self.leader
        try:
            if leader is None:
                raise KafkaError(ErrorCode.not_leader_or_follower, "it does not lead")
            check_leader_epoch(fetch.leader_epoch, leader.leader_epoch)
            diverging_epoch = fetch_divergence(
                self.log, fetch.last_fetched_epoch, fetch.offset, 0, self.log.end_offset
            )
            if diverging_epoch is not None:
                return FetchResponse(ErrorCode.none, self.log.high_watermark, diverging_epoch)
            records = tuple(self.log.records[fetch.offset :])
            self.handle(FollowerFetched(broker_id, broker_epoch, fetch.offset, 0, now_ms))
        except KafkaError as error:
            return FetchResponse(error.error_code)
        return FetchResponse(ErrorCode.none, self.log.high_watermark, None, records)

    # --- following ------------------------------------------------------------------------------

    @property
    def next_fetch(self) -> PartitionFetch | None:
        """What to ask the leader for."""
        fetch = None if self.follower is None else self.follower.next_fetch
        if fetch is not None and self._truncates_to_high_watermark:
            # Before leader epochs a follower could say no more than where its log ends.
            return PartitionFetch(fetch.leader_epoch, fetch.offset, None)
        return fetch

    def take(self, fetch: PartitionFetch, response: FetchResponse) -> None:
        """Take the leader's answer in."""
        event = FetchAnswered(
            fetch.leader_epoch,
            fetch.offset,
            response.error_code,
            response.high_watermark,
            0,
            response.diverging_epoch,
            bool(response.records),
        )
        self._carry_out(event, response.records)

    def _carry_out(self, event: FollowerEvent, records: tuple[Record, ...]) -> None:
        assert self.follower is not None
        log, name = self.log, str(self)
        for effect in self.follower.handle(event):
            match effect:
                case AppendToLog():
                    log.records += records
                    self._tell(f"{name} fetches {' '.join(map(str, records))}")
                    self._carry_out(RecordsAppended(log.end_offset, log.last_epoch), ())
                case TruncateTo() | TruncateFullyAndStartAt():
                    cut = " ".join(map(str, log.records[effect.offset :])) or "nothing"
                    if isinstance(effect, TruncateTo):
                        self._tell(f"{name} hears where its log parts from the leader's: without {cut}")
                    else:
                        self._tell(f"{name} is beyond the leader's end and begins anew: without {cut}")
                    log.truncate(effect.offset)
                    self._carry_out(LogTruncated(0, log.end_offset, log.last_epoch), ())
                case MoveHighWatermark():
                    log.high_watermark = effect.high_watermark
                case BackOff() | AwaitMetadata():
                    self._tell(f"{name} is refused: {effect.error_code.name.upper()}")
                case AdvanceLogStartOffset():
                    raise AssertionError("nothing is deleted in these stories")
