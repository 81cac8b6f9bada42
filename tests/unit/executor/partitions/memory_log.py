"""A log in memory, and leader and follower machines joined over a perfect wire, for property tests."""

from dataclasses import dataclass, field

from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    FollowerFetched,
    LeaderEffect,
    ProposeIsr,
    RegisteredBroker,
)
from sparklog.executor.partitions.machine.follower import (
    AdvanceLogStartOffset,
    AppendToLog,
    FetchAnswered,
    FollowerEffect,
    LogTruncated,
    MoveHighWatermark,
    PartitionFollower,
    RecordsAppended,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.node.storage.machine.epoch_checks import fetch_divergence
from sparklog.protocol.errors import ErrorCode, KafkaError


@dataclass
class MemoryLog:
    """Records as (leader epoch, value); the offset is the index."""

    records: list[tuple[int, str]] = field(default_factory=list)

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def last_epoch(self) -> int | None:
        return self.records[-1][0] if self.records else None

    def end_offset_for(self, leader_epoch: int) -> tuple[int, int] | None:
        known = [epoch for epoch, _ in self.records if epoch <= leader_epoch]
        if not known:
            return (leader_epoch, 0) if self.records else None
        epoch = max(known)
        return epoch, sum(other <= epoch for other, _ in self.records)


class Node:
    """A broker's replica."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log = MemoryLog()
        self.high_watermark = 0
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None

    def lead(self, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...], isr: set[int]) -> None:
        self.follower = None
        self.leader = PartitionLeader(
            broker_id=self.broker_id,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            replicas=replicas,
            isr=frozenset(isr),
            leader_epoch_start_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            min_insync_replicas=1,
            replica_lag_time_max_ms=1000,
            brokers={broker_id: RegisteredBroker(1) for broker_id in replicas},
            own_broker_epoch=1,
            started_ms=0,
        )

    def follow(self, leader_epoch: int, leader_id: int) -> None:
        self.leader = None
        self.follower = PartitionFollower(
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            history=self.log,
            log_start_offset=0,
            log_end_offset=self.log.log_end_offset,
            last_epoch=self.log.last_epoch,
            high_watermark=self.high_watermark,
        )

    def append(self, value: str, now_ms: int = 0) -> list[ProposeIsr]:
        """Append a client's record as the leader; return the proposals made."""
        assert self.leader is not None
        self.log.records.append((self.leader.leader_epoch, value))
        return self.carry_out(self.leader.handle(Appended(self.log.log_end_offset, now_ms)))

    def carry_out(self, effects: list[LeaderEffect]) -> list[ProposeIsr]:
        proposals = []
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    assert effect.high_watermark > self.high_watermark
                    self.high_watermark = effect.high_watermark
                case ProposeIsr():
                    proposals.append(effect)
        return proposals

    def fetch_from(self, other: "Node", now_ms: int = 0, max_records: int = 1000) -> list[ProposeIsr]:
        """One fetch, answered and taken in; return the proposals the leader made."""
        follower, leader = self.follower, other.leader
        assert follower is not None
        fetch = follower.next_fetch
        if fetch is None:
            return []
        proposals: list[ProposeIsr] = []
        records: list[tuple[int, str]] = []
        diverging = None
        error_code = ErrorCode.none
        if leader is None or fetch.leader_epoch > leader.leader_epoch:
            error_code = ErrorCode.unknown_leader_epoch
        elif fetch.leader_epoch < leader.leader_epoch:
            error_code = ErrorCode.fenced_leader_epoch
        else:
            try:
                diverging = fetch_divergence(
                    other.log, fetch.last_fetched_epoch, fetch.offset, 0, other.log.log_end_offset
                )
                if diverging is None:
                    proposals = other.carry_out(
                        leader.handle(FollowerFetched(self.broker_id, 1, fetch.offset, 0, now_ms))
                    )
                    records = other.log.records[fetch.offset : fetch.offset + max_records]
            except KafkaError as error:
                error_code = error.error_code
        self._take(
            follower,
            follower.handle(
                FetchAnswered(
                    fetch.leader_epoch,
                    fetch.offset,
                    error_code,
                    other.high_watermark,
                    0,
                    diverging,
                    bool(records),
                )
            ),
            records,
        )
        return proposals

    def _take(
        self, follower: PartitionFollower, effects: list[FollowerEffect], records: list[tuple[int, str]]
    ) -> None:
        log = self.log
        for effect in effects:
            match effect:
                case AppendToLog():
                    log.records += records
                    self._take(
                        follower, follower.handle(RecordsAppended(log.log_end_offset, log.last_epoch)), []
                    )
                case TruncateTo() | TruncateFullyAndStartAt():
                    del log.records[effect.offset :]
                    after = LogTruncated(0, log.log_end_offset, log.last_epoch)
                    self._take(follower, follower.handle(after), [])
                    self.high_watermark = min(self.high_watermark, log.log_end_offset)
                case MoveHighWatermark():
                    self.high_watermark = effect.high_watermark
                case AdvanceLogStartOffset():
                    raise AssertionError("nothing is deleted here")
