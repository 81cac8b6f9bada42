"""One replica: a log and the machine that leads or follows it.

It decides nothing: the machines do. It calls the log, passes events to the machine, carries effects out,
answers who waits for acknowledgement and touches its readers. It knows no loop and no socket, so that a
simulator can run it over a log of its own.

A replica whose log raised an I/O error is offline for the rest of the process: it leads and follows
nothing and answers KAFKA_STORAGE_ERROR.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from executor.partitions.following import Following
from executor.partitions.machine.damage import Damage, RepeatedFetches, UnreadableRanges
from executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    BrokersChanged,
    BrokerStatus,
    FailWaitingAppends,
    IsrProposalAnswered,
    LeaderEffect,
    LeaderEvent,
    MinInsyncReplicasChanged,
    PartitionChanged,
    ProposeIsr,
    Ticked,
)
from executor.partitions.machine.follower import AwaitMetadata, BackOff, FetchAnswered
from executor.partitions.machine.leader import PartitionLeader
from executor.partitions.role_listener import RoleListener
from executor.partitions.settings import PartitionSettings
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import PartitionRegistration
from sparklog.metadata.topic_names import is_internal_topic
from sparklog.records.batch import BatchHeader
from sparklog.storage.files import may_pass
from sparklog.storage.log import Log
from sparklog.storage.machine.epoch_checks import check_leader_epoch
from sparklog.storage.machine.producer_states import ProducerStates
from sparklog.storage.producer_loading import ProducerLoading
from sparklog.storage.results import AppendInfo
from sparklog.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TimestampMs,
    TopicIdPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)


class WaitingAppend(Protocol):
    """Something that waits until what it appended is committed."""

    settled: bool
    """False while it waits for `settle`; its deadline may answer it before."""

    def settle(self, error: KafkaError | None) -> None:
        """It is committed, or never will be as far as this leader can tell."""


class PartitionReader(Protocol):
    """A part of a fetch that is to hear of its partition."""

    @property
    def is_follower(self) -> bool: ...

    def touch(self) -> None:
        """There is something to tell, when it next asks."""

    def wake(self) -> None:
        """There is something to tell now: records, or an error."""

    def unwatch(self) -> None:
        """The replica is no more: look for the partition again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHost:
    """What the replicas of one broker have in common: who it is, who hears of them, and whom they ask."""

    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    replica_lag_time_max_ms: int
    now_ms: Callable[[], int]
    """The monotonic time in milliseconds."""
    listeners: Sequence[RoleListener["Replica"]]
    """In the order in which they are told."""
    propose_isr: Callable[["Replica", ProposeIsr], None]
    """Send a proposal to the controller; report with `Replica.isr_proposal_answered`."""
    load_producers: Callable[["Replica"], None]
    """Have `replica.log.loading` run beside the loop; report with `Replica.producers_loaded`."""
    log_failed: Callable[["Replica", BaseException], None]
    log_damaged: Callable[["Replica"], None]
    """Others in sync have what this log has not: one of them is to lead."""


class Replica:
    """This broker's replica of one partition."""

    def __init__(
        self,
        topic_id: UUID,
        log: Log,
        settings: PartitionSettings,
        host: ReplicaHost,
        *,
        high_watermark: Offset,
    ) -> None:
        self.topic_id = topic_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.key: Final = TopicIdPartition(topic_id, log.topic_partition.partition)
        self.is_internal: Final = is_internal_topic(log.topic_partition.topic)
        """Whether only a coordinator writes here, and no client."""
        self.log = log
        self.settings = settings
        self.leader: PartitionLeader | None = None
        self.follower: Following | None = None
        self.leader_id: BrokerId | None = None
        self.leader_epoch: LeaderEpoch | None = None
        self.partition_epoch: PartitionEpoch | None = None
        self.high_watermark = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        self.offline = False
        self.suspended = False
        """Set while this broker's lease is out: it answers nothing as a leader, but stays one."""
        self.damage: Damage | None = None
        """Set from when a leader found its log damaged until it follows another one."""
        self.unreadable = UnreadableRanges()
        self.repeated_fetches = RepeatedFetches()
        self.follower_readers: dict[PartitionReader, None] = {}
        self.consumer_readers: dict[PartitionReader, None] = {}
        self._waiting_appends: deque[tuple[Offset, WaitingAppend]] = deque()
        self._host = host
        self._listeners = host.listeners

    # --- roles ----------------------------------------------------------------------------------

    def lead(
        self,
        registration: PartitionRegistration,
        settings: PartitionSettings,
        brokers: Mapping[BrokerId, BrokerStatus],
    ) -> None:
        """Be the leader that `registration` says, or go on being it, under `settings` of the same image."""
        host, isr = self._host, frozenset(registration.isr)
        now_ms = host.now_ms()
        self._adopt(settings)
        if self.leader is not None and self.leader_epoch == registration.leader_epoch:
            self.handle(
                PartitionChanged(
                    registration.partition_epoch,
                    registration.replicas,
                    isr,
                    settings.min_insync_replicas,
                    now_ms,
                    registration.directories,
                )
            )
            self._low_watermark_moved()
            return
        self._leave_role(registration)
        self.leader = PartitionLeader(
            broker_id=host.broker_id,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=isr,
            leader_epoch_start_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            min_insync_replicas=self.settings.min_insync_replicas,
            replica_lag_time_max_ms=host.replica_lag_time_max_ms,
            brokers=brokers,
            own_broker_epoch=host.broker_epoch(),
            started_ms=now_ms,
            directories=registration.directories,
        )
        self.handle(Ticked(now_ms))
        for listener in self._listeners:
            listener.became_leader(self)

    def follow(self, registration: PartitionRegistration, settings: PartitionSettings) -> None:
        """Follow the leader that `registration` names (it may name none), or go on following it.

        `settings` are those of the same image: nothing is committed here under them before.
        """
        self._adopt(settings)
        if self.follower is not None and self.leader_epoch == registration.leader_epoch:
            self.partition_epoch = registration.partition_epoch
            return
        self._leave_role(registration)
        self.follower = Following(
            self.log, registration.leader, registration.leader_epoch, self.high_watermark
        )
        for listener in self._listeners:
            listener.became_follower(self)

    def stop(self) -> None:
        """Lead and follow nothing; whoever waits or reads here is told so."""
        self._end_role()
        for listener in self._listeners:
            listener.stopped(self)

    def delete(self) -> None:
        """Be no replica of this broker's any more; who reads here looks for the partition again."""
        self._end_role()
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.unwatch()
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            listener.deleted(self)

    def suspend(self) -> None:
        """Acknowledge and serve nothing for now. What the leader learns meanwhile still counts."""
        if not self.suspended:
            self.suspended = True
            self._turn_away()
            for listener in self._listeners:
                listener.suspended(self)

    def resume(self) -> None:
        """Serve again."""
        if self.suspended:
            self.suspended = False
            for listener in self._listeners:
                listener.resumed(self)

    def _leave_role(self, registration: PartitionRegistration) -> None:
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self._end_role()

    def _end_role(self) -> None:
        self.leader = self.follower = None
        self._turn_away()

    def _turn_away(self) -> None:
        """Answer who waits here with why this broker does not serve."""
        if self._waiting_appends:
            self._fail_waiting(self._not_leader())
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.wake()

    # --- leading --------------------------------------------------------------------------------

    def handle(self, event: LeaderEvent) -> None:
        """Pass an event to the leader, if this replica is one, and carry its effects out.

        Raises:
            KafkaError: what `PartitionLeader.handle` raises.
        """
        leader = self.leader
        if leader is not None:
            effects = leader.handle(event)
            if effects:
                self._carry_out_as_leader(effects)

    def brokers_changed(self, brokers: Mapping[BrokerId, BrokerStatus]) -> None:
        """Count those brokers, and as they are now."""
        if self.leader is not None:
            self.handle(BrokersChanged(brokers, self._host.now_ms()))
            self._low_watermark_moved()

    def append(
        self,
        leader: PartitionLeader,
        records: bytes | memoryview,
        header: BatchHeader,
        now_ms: int,
        wall_ms: int,
        waiting: WaitingAppend | None,
    ) -> AppendInfo:
        """Append a client's validated batch as the `leader` that `leading` has just returned.

        With acks=all there must be enough replicas in sync before anything is written, and `waiting` is
        settled when the batch is committed.

        Raises:
            KafkaError: not_enough_replicas, kafka_storage_error, or what the producer's sequence says.
        """
        if waiting is not None and leader.is_under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition} has {len(leader.isr)} replicas in sync {sorted(leader.isr)}, "
                f"min.insync.replicas asks for {leader.effective_min_insync_replicas}",
            )
        try:
            appended = self.log.append_as_leader(records, header, leader.leader_epoch, wall_ms)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        end_offset = appended.last_offset + 1
        if not appended.duplicate:
            effects = leader.handle(Appended(end_offset, now_ms))
            for reader in self.follower_readers:
                reader.wake()
            if effects:
                self._carry_out_as_leader(effects)
        if waiting is not None and self.high_watermark < end_offset:
            waiting.settled = False
            self._waiting_appends.append((end_offset, waiting))
        return appended

    def drop_settled_appends(self) -> None:
        """Let go of those at the front that their deadline has answered."""
        waiting_appends = self._waiting_appends
        while waiting_appends and waiting_appends[0][1].settled:
            waiting_appends.popleft()

    def leading(self) -> PartitionLeader:
        """Return the leader machine.

        Raises:
            KafkaError: not_leader_or_follower, kafka_storage_error.
        """
        if self.leader is None or self.suspended or self.log.loading is not None:
            raise self._not_leader()
        return self.leader

    def leading_in(self, leader_epoch: LeaderEpoch | None) -> PartitionLeader:
        """Return the leader machine if the requester means this leadership (None: whichever it is).

        Raises:
            KafkaError: fenced_leader_epoch, unknown_leader_epoch, or what `leading` raises.
        """
        if self.leader_epoch is not None:
            check_leader_epoch(leader_epoch, self.leader_epoch)
        return self.leading()

    @property
    def last_stable_offset(self) -> Offset:
        """The end of what a read_committed consumer may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def isr_proposal_answered(self, answer: IsrProposalAnswered) -> None:
        """Pass the controller's answer on."""
        leader = self.leader
        if leader is None:
            return
        before = leader.isr
        self.handle(answer)
        if answer.error_code != ErrorCode.none:
            logger.info("%s: the controller answered an ISR proposal with %s", self, answer.error_code.name)
        elif leader.isr != before:
            logger.info("%s: ISR %s, was %s", self, sorted(leader.isr), sorted(before))
        self.partition_epoch = leader.partition_epoch

    def delete_records(self, before_offset: Offset | None) -> Offset:
        """Make records below `before_offset` (None: the high watermark) unreadable; return that offset.

        Raises:
            KafkaError: not_leader_or_follower, offset_out_of_range, kafka_storage_error.
        """
        self.leading()
        offset = self.high_watermark if before_offset is None else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self}: cannot delete up to {offset}, the high watermark is {self.high_watermark}",
            )
        self.advance_log_start_offset(offset)
        return offset

    def advance_log_start_offset(self, offset: Offset) -> None:
        """Let records below `offset` go, and tell followers with their next fetch.

        Raises:
            KafkaError: kafka_storage_error.
        """
        try:
            if self.log.advance_log_start_offset(offset):
                self.log_start_offset_moved()
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise

    def follower_log_start_offset_moved(self) -> None:
        """A follower of this leader let go of records, or was heard of for the first time."""
        self._low_watermark_moved()

    def _low_watermark_moved(self) -> None:
        for listener in self._listeners:
            listener.low_watermark_moved(self)

    def log_start_offset_moved(self) -> None:
        """The log start offset is another one than before (retention may have moved it)."""
        for reader in (*self.follower_readers, *self.consumer_readers):
            reader.touch()

    def reconfigure(self, settings: PartitionSettings) -> None:
        """Obey the topic's new configuration, in a role that goes on as it was."""
        changed = settings.min_insync_replicas != self.settings.min_insync_replicas
        self._adopt(settings)
        if changed:
            self.handle(MinInsyncReplicasChanged(settings.min_insync_replicas, self._host.now_ms()))

    def _adopt(self, settings: PartitionSettings) -> None:
        if settings is not self.settings:
            self.settings = settings
            self.log.reconfigure(settings.log)

    def _carry_out_as_leader(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    self._advance_high_watermark(effect.high_watermark)
                case ProposeIsr():
                    self._host.propose_isr(self, effect)
                case FailWaitingAppends():
                    self._fail_waiting(
                        KafkaError(
                            ErrorCode.not_enough_replicas_after_append,
                            f"{self}: replicas in sync fell to {sorted(effect.isr)}, "
                            f"min.insync.replicas asks for {effect.min_insync_replicas}",
                        )
                    )

    def _advance_high_watermark(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark
        waiting_appends = self._waiting_appends
        while waiting_appends and waiting_appends[0][0] <= high_watermark:
            waiting_appends.popleft()[1].settle(None)
        for reader in self.consumer_readers:
            reader.wake()
        for reader in self.follower_readers:
            reader.touch()

    # --- following ------------------------------------------------------------------------------

    def take_fetched(
        self, answered: FetchAnswered, records: bytes | memoryview, wall_ms: TimestampMs
    ) -> BackOff | AwaitMetadata | None:
        """Take a leader's answer in, and the records it brought.

        Returns what the fetcher is to do about the partition, if anything.

        Raises:
            KafkaError: corrupt_message and the like, when what was fetched is no continuation of the log;
                kafka_storage_error, after which the replica is offline.
        """
        following = self.follower
        if following is None or self.log.loading is not None:
            return None
        try:
            advice = following.take(answered, records, wall_ms)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        finally:
            self.high_watermark = following.high_watermark
        self._load_producers()
        return advice

    def _load_producers(self) -> None:
        """Have the producers loaded if the log was cut.

        Until then nothing is fetched, and if this replica leads meanwhile it serves nobody: it would take a
        retry for something new.
        """
        if self.log.loading is not None:
            self._host.load_producers(self)

    def producers_loaded(self, loading: ProducerLoading, producers: ProducerStates) -> None:
        """Go on with the producers that the log has now; there is something to fetch again."""
        self.log.take_producers(loading, producers)
        logger.info("%s: %d producers loaded", self, len(producers.producers))

    # --- both -----------------------------------------------------------------------------------

    def fail_if_storage(self, error: BaseException) -> None:
        """Take the replica offline if `error` came from its files.

        A refusal that says nothing of the disk (no descriptors, no memory, a file that somebody else took)
        leaves it as it is, as long as its log is.
        """
        if isinstance(error, KafkaError) and error.error_code != ErrorCode.kafka_storage_error:
            return
        if may_pass(error) and self.log.is_intact:
            logger.warning("%s: refused, and may be tried again: %s", self, error)
            return
        if not self.offline:
            logger.error("%s: offline after an I/O error in %s: %s", self, self.log.directory, error)
            self.go_offline()
            self._host.log_failed(self, error)

    def go_offline(self) -> None:
        """Lead and follow nothing until the broker starts anew: the log can no longer be used."""
        self.offline = True
        self.stop()

    def found_damage(self, damage: Damage) -> None:
        """Stop serving damaged records: let somebody else lead who has them, or refuse them."""
        leader = self.leader
        if leader is None:
            return
        if leader.isr == {self._host.broker_id}:
            logger.error("%s: nobody else has these records, they are refused: %s", self, damage.reason)
            self.unreadable.add(damage)
            return
        logger.error("%s: leading no more, others in sync have these records: %s", self, damage.reason)
        self.damage = damage
        self.stop()
        self._host.log_damaged(self)

    def repair(self) -> None:
        """Cut the log where its damage begins; the leader has what is missing then.

        Only once this replica is in no ISR.
        """
        damage = self.damage
        if damage is None:
            return
        self.damage = None
        try:
            self.log.cut_at(damage.first_offset, damage.reason)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
        self._load_producers()
        self.high_watermark = max(
            min(self.high_watermark, self.log.log_end_offset), self.log.log_start_offset
        )

    def _not_leader(self) -> KafkaError:
        if self.offline:
            return KafkaError(ErrorCode.kafka_storage_error, f"{self} is offline after an I/O error")
        return KafkaError(
            ErrorCode.not_leader_or_follower, f"broker {self._host.broker_id} does not lead {self}"
        )

    def add_reader(self, reader: PartitionReader) -> None:
        """Tell `reader` of changes from now on."""
        (self.follower_readers if reader.is_follower else self.consumer_readers)[reader] = None

    def remove_reader(self, reader: PartitionReader) -> None:
        """Tell it nothing more."""
        (self.follower_readers if reader.is_follower else self.consumer_readers).pop(reader, None)

    def _fail_waiting(self, error: KafkaError) -> None:
        waiting_appends, self._waiting_appends = self._waiting_appends, deque()
        for _, waiting in waiting_appends:
            waiting.settle(error)

    def __str__(self) -> str:
        return str(self.topic_partition)

    def role(self) -> str:
        """Return what this replica does now, as a line for the log."""
        if self.leader is not None:
            return (
                f"{self}: leading in epoch {self.leader_epoch} from offset "
                f"{self.leader.leader_epoch_start_offset}, high watermark {self.high_watermark}, "
                f"ISR {sorted(self.leader.isr)}"
            )
        leader = "nobody" if self.leader_id is None else f"broker {self.leader_id}"
        return (
            f"{self}: following {leader} in epoch {self.leader_epoch} from offset {self.log.log_end_offset}"
        )
