# Long because a replica is the one meeting point of log, roles, listeners and requests.
"""One replica: a log, its role in the partition, and the listeners of that role.

It decides nothing: `PartitionLeader` says what is committed and which replicas are in sync, and its effects
are carried out here; `Following` has what a follower does with the log. It knows no loop and no socket, so
that a simulator can run it over a log of its own.

A replica whose log raised an I/O error is offline for the rest of the process: it leads and follows
nothing and answers KAFKA_STORAGE_ERROR.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from sparklog.executor.partitions.following import FetcherAdvice, Following
from sparklog.executor.partitions.future_replica import FutureReplica
from sparklog.executor.partitions.machine.damage import Damage, RepeatedFetches, UnreadableRanges
from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    BrokersChanged,
    FailWaitingAppends,
    IsrProposalAnswered,
    LeaderEffect,
    LeaderEvent,
    LogRestarted,
    MinInsyncReplicasChanged,
    PartitionChanged,
    ProposeIsr,
    RegisteredBroker,
    Ticked,
)
from sparklog.executor.partitions.machine.follower import BuildFromTier, FetchAnswered, LeaderOffsetsKnown
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.executor.partitions.partition_tier_view import PartitionTierView
from sparklog.executor.partitions.progress import PartitionProgress, WaitingAppend
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.settings import PartitionSettings
from sparklog.executor.partitions.traffic import BrokerTraffic
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.node.metadata.schemas import LeaderRecoveryState
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.storage.files import is_transient
from sparklog.node.storage.log.log import Log
from sparklog.node.storage.machine.epoch_checks import check_leader_epoch
from sparklog.node.storage.machine.producer_states import ProducerStates
from sparklog.node.storage.machine.verification import Verification
from sparklog.node.storage.producers.producer_loading import ProducerLoading
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker, marker_batch
from sparklog.node.storage.results import AppendInfo
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import BatchHeader, read_header
from sparklog.protocol.types import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHost:
    """The services that the replicas of one broker share: its id, its listeners, and calls to other parts."""

    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    replica_lag_time_max_ms: int
    now_ms: Callable[[], int]
    """The monotonic time in milliseconds."""
    listeners: Sequence[RoleListener["Replica"]]
    """In the order of their calls."""
    propose_isr: Callable[["Replica", ProposeIsr], None]
    """Send a proposal to the controller; report with `Replica.isr_proposal_answered`."""
    load_producers: Callable[["Replica"], None]
    """Run `replica.log.loading` in a thread; report with `Replica.producers_loaded`."""
    log_failed: Callable[["Replica", BaseException], None]
    log_damaged: Callable[["Replica"], None]
    """Report that this replica does not count for now, and an in-sync one must lead."""
    is_in_sync_with_others: Callable[["Replica"], bool] = lambda replica: False
    """Whether the metadata has the replica in the ISR, and another one."""
    begins_at_tiered_end: Callable[[], bool] = lambda: False
    """follower.fetch.last.tiered.offset.enable, which may change."""
    traffic: BrokerTraffic = field(default_factory=BrokerTraffic)
    """The counts of records in and out."""


class Suspension(Enum):
    """A reason for which a leader serves nothing for now; it serves again when there is none."""

    LEASE = "lease"
    """This broker's lease has run out."""
    TIER = "tier"
    """The manifest of its tier has not been read in this leader epoch: the log may begin or end elsewhere."""


class Replica:
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
        self.progress: Final = PartitionProgress(_within(log, high_watermark))
        self.leadership: PartitionLeader | None = None
        """The machine that leads, None if this replica does not."""
        self.follower_state: Following | None = None
        self.leader_id: BrokerId | None = None
        self.leader_epoch: LeaderEpoch | None = None
        self.partition_epoch: PartitionEpoch | None = None
        self.is_recovering = False
        """Whether the leader was elected uncleanly, and no ISR was committed since (KIP-704)."""
        self.complete_epoch: LeaderEpoch | None = None
        """The last leader epoch, since its opening, in which this led beside the manifest of its tier."""
        self.is_reassigning = False
        """Whether this replica leads a partition that is on its way to other brokers."""
        self.future: FutureReplica | None = None
        """The log of it that is being copied into another directory, if one is."""
        self.offline = False
        self.suspended = False
        """Set while there is a `Suspension`: it answers nothing as a leader, but stays one."""
        self.is_wanted = False
        """Whether a client was refused by a suspended leader: its tier is read before others'."""
        self._suspensions: set[Suspension] = set()
        self.damage: Damage | None = None
        """Set from when damage was found in its log until the log is repaired."""
        self.tier: PartitionTierView | None = None
        """The part of the log that lies in the object store; None without one, or before it is known."""
        self.awaits_tier = False
        """Whether it leads without knowing yet what its tier has; it may serve before."""
        self.unreadable = UnreadableRanges()
        self.repeated_fetches = RepeatedFetches()
        self.traffic: Final = host.traffic.of(log.topic_partition.topic)
        self.bytes_in = self.bytes_out = 0
        """Bytes that clients wrote to and read from this replica."""
        self._host = host
        self._listeners = host.listeners

    @property
    def high_watermark(self) -> Offset:
        """The end of the records known here to be committed."""
        return self.progress.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The end of the records for read_committed consumers."""
        return self.log.last_stable_offset(self.progress.high_watermark)

    # --- roles ----------------------------------------------------------------------------------

    def lead(
        self,
        registration: PartitionRegistration,
        settings: PartitionSettings,
        brokers: Mapping[BrokerId, RegisteredBroker],
    ) -> None:
        """Become or remain the leader by `registration`, under `settings` of the same image.

        The end of a reassignment begins a leader epoch also where the leader stays. The log stays the
        partition's, so clients' appends go on waiting, as in Kafka (DelayedProduce.tryComplete): refused ones
        would come again after a pause. In an internal topic they are refused, since its coordinator may load
        again; a coordinator's own do not wait here, but for the high watermark.
        """
        now_ms = self._host.now_ms()
        self._adopt(settings)
        self.is_reassigning = registration.is_reassigning
        if self.leadership is not None and self.leader_epoch == registration.leader_epoch:
            self.handle(
                PartitionChanged(
                    registration.partition_epoch,
                    registration.replicas,
                    frozenset(registration.isr),
                    settings.min_insync_replicas,
                    now_ms,
                    registration.directories,
                    registration.adding_replicas,
                )
            )
            self.low_watermark_moved()
            self._isr_changed()
            return
        # In an epoch between the two another replica may have led.
        leads_on = self.leadership is not None and registration.leader_epoch - 1 == self.leader_epoch
        keeps_appends = leads_on and not self.is_internal
        self._leave_role(registration, keeps_appends=keeps_appends)
        self.leadership = PartitionLeader(
            broker_id=self._host.broker_id,
            leader_epoch=registration.leader_epoch,
            partition_epoch=registration.partition_epoch,
            replicas=registration.replicas,
            isr=frozenset(registration.isr),
            leader_epoch_start_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            min_insync_replicas=settings.min_insync_replicas,
            replica_lag_time_max_ms=self._host.replica_lag_time_max_ms,
            brokers=brokers,
            own_broker_epoch=self._host.broker_epoch(),
            started_ms=now_ms,
            directories=registration.directories,
            adding_replicas=registration.adding_replicas,
        )
        if keeps_appends and self.leadership.is_under_min_isr:
            self._fail_appends(self.leadership.isr, self.leadership.effective_min_insync_replicas)
        self.handle(Ticked(now_ms))
        for listener in self._listeners:
            if leads_on:
                listener.led_on(self)
            else:
                listener.became_leader(self)

    def follow(self, registration: PartitionRegistration, settings: PartitionSettings) -> None:
        """Follow the leader that `registration` names (it may name none), or go on following it.

        `settings` are those of the same image: nothing is committed here under them before.
        """
        self._adopt(settings)
        if self.follower_state is not None and self.leader_epoch == registration.leader_epoch:
            self.partition_epoch = registration.partition_epoch
            return
        self._leave_role(registration)
        self.follower_state = Following(
            self.log,
            registration.leader,
            registration.leader_epoch,
            self.high_watermark,
            begins_at_tiered_end=self._host.begins_at_tiered_end(),
        )
        for listener in self._listeners:
            listener.became_follower(self)

    def stop(self) -> None:
        """Lead and follow nothing; fail the requests that wait or read here."""
        self._end_role()
        for listener in self._listeners:
            listener.stopped(self)

    def delete(self) -> None:
        """Leave this broker; readers look for the partition again."""
        self._end_role()
        self.progress.forget_readers()
        listeners, self._listeners = self._listeners, ()
        for listener in listeners:
            listener.deleted(self)

    def suspend(self, reason: Suspension = Suspension.LEASE) -> None:
        """Acknowledge and serve nothing for now. The leader's progress meanwhile still counts."""
        self._suspensions.add(reason)
        if not self.suspended:
            self.suspended = True
            self.progress.turn_away(self._not_leader)
            for listener in self._listeners:
                listener.suspended(self)

    def resume(self, reason: Suspension = Suspension.LEASE) -> None:
        """Serve again, unless there is another reason not to."""
        self._suspensions.discard(reason)
        if self.suspended and not self._suspensions:
            self.suspended = False
            for listener in self._listeners:
                listener.resumed(self)

    def _leave_role(self, registration: PartitionRegistration, *, keeps_appends: bool = False) -> None:
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.is_recovering = registration.leader_recovery_state is LeaderRecoveryState.RECOVERING
        # An adoption of the tier that did not come to its end leaves a shorter log.
        self.progress.high_watermark = _within(self.log, self.high_watermark)
        self._end_role(keeps_appends=keeps_appends)

    def _end_role(self, *, keeps_appends: bool = False) -> None:
        self.leadership = self.follower_state = None
        if keeps_appends:
            self.progress.wake_readers()
        else:
            self.progress.turn_away(self._not_leader)

    # --- leading --------------------------------------------------------------------------------

    def handle(self, event: LeaderEvent) -> None:
        """Pass an event to the leader, if this replica is one, and carry its effects out.

        Raises:
            KafkaError: what `PartitionLeader.handle` raises.
        """
        if self.leadership is not None:
            effects = self.leadership.handle(event)
            if effects:
                self._carry_out(effects)

    def _carry_out(self, effects: Sequence[LeaderEffect]) -> None:
        for effect in effects:
            match effect:
                case AdvanceHighWatermark():
                    self.progress.committed(effect.high_watermark)
                case ProposeIsr():
                    self._host.propose_isr(self, effect)
                case FailWaitingAppends():
                    self._fail_appends(effect.isr, effect.min_insync_replicas)

    def _fail_appends(self, isr: Collection[BrokerId], min_insync_replicas: int) -> None:
        self.progress.fail_appends(
            KafkaError(
                ErrorCode.not_enough_replicas_after_append,
                f"{self}: replicas in sync fell to {sorted(isr)}, "
                f"min.insync.replicas asks for {min_insync_replicas}",
            )
        )

    def brokers_changed(self, brokers: Mapping[BrokerId, RegisteredBroker]) -> None:
        if self.leadership is not None:
            self.handle(BrokersChanged(brokers, self._host.now_ms()))
            self.low_watermark_moved()

    def require_min_isr(self) -> None:
        """Check, as the leader that `require_leader` has just returned, that acks=all can be promised.

        Raises:
            KafkaError: not_enough_replicas.
        """
        leader = self.leadership
        assert leader is not None, "`require_leader` says so"
        if leader.is_under_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self} has {len(leader.isr)} replicas in sync {sorted(leader.isr)}, "
                f"min.insync.replicas asks for {leader.effective_min_insync_replicas}",
            )

    def append(
        self,
        records: bytes | memoryview,
        header: BatchHeader,
        now_ms: int,
        wall_ms: int,
        waiting: WaitingAppend | None,
        verification: Verification | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendInfo:
        """Append a client's validated batch, as the leader that `require_leader` has just returned.

        With acks=all there must be enough replicas in sync before anything is written, and `waiting` is
        settled when the batch is committed. The first batch of a transaction comes with its `verification`
        (`ProducerStates.begin_verification`); a batch that ends one is made of a `marker`.

        Raises:
            KafkaError: not_enough_replicas, kafka_storage_error, or what is known of the producer says.
        """
        leader = self.leadership
        assert leader is not None, "`require_leader` says so"
        try:
            if waiting is not None:
                self.require_min_isr()
            appended = self.log.append_as_leader(
                records, header, leader.leader_epoch, wall_ms, verification, marker
            )
            end_offset = appended.last_offset + 1
            if not appended.duplicate:
                effects = leader.handle(Appended(end_offset, now_ms))
                if effects:
                    self._carry_out(effects)
                self.progress.appended(end_offset, waiting)
            elif waiting is not None:
                self.progress.await_commit(end_offset, waiting)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        if not appended.duplicate:
            self.traffic.produced(header.record_count, len(records))
            self.bytes_in += len(records)
        return appended

    def append_marker(
        self, marker: EndTransactionMarker, now_ms: int, wall_ms: TimestampMs, waiting: WaitingAppend | None
    ) -> AppendInfo:
        """End a transaction, as the leader that `require_leader` has just returned; see `append`.

        Raises:
            KafkaError: not_enough_replicas, kafka_storage_error, or what `ProducerStates.check_marker` says.
        """
        batch = marker_batch(marker, wall_ms)
        return self.append(batch, read_header(batch), now_ms, wall_ms, waiting, marker=marker)

    def require_leader_for_client(self, leader_epoch: LeaderEpoch | None = None) -> PartitionLeader:
        """Return the leader machine, as `require_leader_in`; while it is suspended, note that it is wanted.

        Raises:
            KafkaError: as `require_leader_in`.
        """
        self.is_wanted = self.suspended
        return self.require_leader() if leader_epoch is None else self.require_leader_in(leader_epoch)

    def require_leader(self) -> PartitionLeader:
        """Return the leader machine.

        Raises:
            KafkaError: not_leader_or_follower, kafka_storage_error.
        """
        if self.leadership is None or self.suspended or self.log.loading is not None:
            raise self._not_leader()
        return self.leadership

    def taking_part(self) -> None:
        """Return if this replica has a role, whichever, and knows what its log has.

        Raises:
            KafkaError: not_leader_or_follower, kafka_storage_error.
        """
        if self.follower_state is None or self.suspended or self.log.loading is not None:
            self.require_leader()

    def require_leader_in(self, leader_epoch: LeaderEpoch | None) -> PartitionLeader:
        """Return the leader machine if the requester means this leadership (None: whichever it is).

        Raises:
            KafkaError: fenced_leader_epoch, unknown_leader_epoch, or what `require_leader` raises.
        """
        if leader_epoch != self.leader_epoch and self.leader_epoch is not None:
            check_leader_epoch(leader_epoch, self.leader_epoch)
        return self.require_leader()

    def taking_part_in(self, leader_epoch: LeaderEpoch | None) -> PartitionLeader | None:
        """Return the leader machine, None for a follower, of the leadership that a client means.

        Raises:
            KafkaError: fenced_leader_epoch, unknown_leader_epoch, or what `taking_part` raises.
        """
        if self.follower_state is None:
            return self.require_leader_for_client(leader_epoch)
        if self.leader_epoch is not None:
            check_leader_epoch(leader_epoch, self.leader_epoch)
        self.taking_part()
        return None

    def isr_proposal_answered(self, answer: IsrProposalAnswered) -> None:
        leader = self.leadership
        if leader is None:
            return
        self.handle(answer)
        self.partition_epoch = leader.partition_epoch
        self._isr_changed()

    def _isr_changed(self) -> None:
        for listener in self._listeners:
            listener.isr_changed(self)

    def delete_records(self, before_offset: Offset | None) -> Offset:
        """Make records below `before_offset` (None: the high watermark) unreadable; return that offset.

        Raises:
            KafkaError: not_leader_or_follower, offset_out_of_range, kafka_storage_error.
        """
        self.require_leader()
        offset = self.high_watermark if before_offset is None else before_offset
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self}: cannot delete up to {offset}, the high watermark is {self.high_watermark}",
            )
        try:
            if self.log.advance_log_start_offset(offset):
                self.log_start_offset_moved()
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        return offset

    def low_watermark_moved(self) -> None:
        """Pass on that followers' log start offsets, or the followers that count, have changed."""
        for listener in self._listeners:
            listener.low_watermark_moved(self)

    def log_start_offset_moved(self) -> None:
        """Pass on a changed log start offset (retention may have moved it)."""
        self.progress.log_start_offset_moved()

    def reconfigure(self, settings: PartitionSettings) -> None:
        """Apply the topic's new configuration, in an unchanged role."""
        changed = settings.min_insync_replicas != self.settings.min_insync_replicas
        self._adopt(settings)
        if changed:
            self.handle(MinInsyncReplicasChanged(settings.min_insync_replicas, self._host.now_ms()))
            self._isr_changed()

    def _adopt(self, settings: PartitionSettings) -> None:
        if settings is not self.settings:
            self.settings = settings
            self.log.reconfigure(settings.log)

    def restart_at_log_end(self) -> None:
        """Lead on, in the same leader epoch, with a log that has begun again where the tier ends.

        All records below are committed: the tier holds nothing else.
        """
        end_offset = self.log.log_end_offset
        self.handle(LogRestarted(end_offset, self._host.now_ms()))
        self.log_start_offset_moved()
        self.load_producers()

    # --- following ------------------------------------------------------------------------------

    def take_fetched(
        self, answered: FetchAnswered, records: bytes | memoryview, wall_ms: TimestampMs
    ) -> FetcherAdvice | None:
        """Apply a leader's answer and append its records.

        Returns the effect for the fetcher, if any.

        Raises:
            KafkaError: corrupt_message and the like, when what was fetched is no continuation of the log;
                kafka_storage_error, after which the replica is offline.
        """
        following = self.follower_state
        if following is None or self.log.loading is not None:
            return None
        try:
            advice = following.take(answered, records, wall_ms)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        finally:
            self.progress.follow(following.high_watermark)
        self._host.traffic.replication_bytes_in += len(records)
        self.load_producers()
        return advice

    def leader_offsets_known(self, following: Following, known: LeaderOffsetsKnown) -> BuildFromTier | None:
        """Return what to build from the tier: of no use unless the replica still follows as `following`."""
        return following.leader_offsets_known(known) if self.follower_state is following else None

    def build_from_tier(
        self,
        following: Following,
        wanted: BuildFromTier,
        manifest: Manifest,
        producers: bytes | None,
        wall_ms: TimestampMs,
    ) -> None:
        """Begin the log again at the end of its tier, unless the role has changed meanwhile.

        Raises:
            KafkaError: the tier cannot be used, or kafka_storage_error, after which the replica is offline.
        """
        if self.follower_state is not following:
            return
        try:
            following.build(wanted, manifest, producers, wall_ms)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
            raise
        self.progress.follow(following.high_watermark)
        self.load_producers()

    def load_producers(self) -> None:
        """Start to load the producers if the log was truncated.

        Until then nothing is fetched, and if this replica leads meanwhile it serves no request: it would take
        a retry for a new batch.
        """
        if self.log.loading is not None:
            self._host.load_producers(self)

    def producers_loaded(self, loading: ProducerLoading, producers: ProducerStates) -> None:
        """Install the loaded producers; fetching can go on."""
        self.log.take_producers(loading, producers)
        logger.info("%s: %d producers loaded", self, len(producers.producers))

    # --- both -----------------------------------------------------------------------------------

    def take_log(self, log: Log) -> None:
        """Replace the log, in the same role, by another one with the same content."""
        self.log = log
        self.future = None
        if self.follower_state is not None:
            self.follower_state.take_log(log)

    def fail_if_storage(self, error: BaseException) -> None:
        """Take the replica offline if `error` came from its files.

        An error that says nothing of the disk (no descriptors, no memory, a file taken by another process)
        leaves it online, as long as its log is.
        """
        if isinstance(error, KafkaError) and error.error_code != ErrorCode.kafka_storage_error:
            return
        if is_transient(error) and self.log.is_intact:
            logger.warning("%s: refused, and may be tried again: %s", self, error)
            return
        if not self.offline:
            logger.error("%s: offline after an I/O error in %s: %s", self, self.log.directory, error)
            self.go_offline()
            self._host.log_failed(self, error)

    def go_offline(self) -> None:
        """Lead and follow nothing until the broker restarts: the log can no longer be used."""
        self.offline = True
        self.stop()

    def found_damage(self, damage: Damage) -> None:
        """Stop serving damaged records: let another in-sync replica lead, or refuse them.

        A follower leaves the ISR, to be repaired, unless it is the last one there. One outside of it might be
        on its way in with what it has: it stays as it is.
        """
        leader = self.leadership
        if leader is None:
            if self.follower_state is not None and self._host.is_in_sync_with_others(self):
                logger.error("%s: following no more until it is repaired: %s", self, damage.reason)
                self._give_up(damage)
            return
        if leader.isr == {self._host.broker_id}:
            self._refuse(damage)
            return
        logger.error("%s: leading no more, others in sync have these records: %s", self, damage.reason)
        self._give_up(damage)

    def _give_up(self, damage: Damage) -> None:
        self.damage = damage
        self.stop()
        self._host.log_damaged(self)

    def _refuse(self, damage: Damage) -> None:
        logger.error("%s: no other replica has these records, they are refused: %s", self, damage.reason)
        self.unreadable.add(damage)

    def keep_damage(self) -> None:
        """Keep the log, and refuse the damaged records: no other replica can be elected cleanly."""
        if self.damage is not None:
            self._refuse(self.damage)
            self.damage = None

    def repair(self) -> None:
        """Truncate the log to the beginning of its damage; the leader has the missing records.

        Only under another leader, and while no election counts on the log. `follow` comes next.
        """
        damage = self.damage
        if damage is None:
            return
        self.damage = None
        # One that follows already, because its log was perhaps the longest, goes on at its new end.
        self.follower_state = None
        try:
            self.log.cut_at(damage.first_offset, damage.reason)
        except (OSError, KafkaError) as error:
            self.fail_if_storage(error)
        self.load_producers()
        self.progress.high_watermark = _within(self.log, self.high_watermark)

    def _not_leader(self) -> KafkaError:
        if self.offline:
            return KafkaError(ErrorCode.kafka_storage_error, f"{self} is offline after an I/O error")
        return KafkaError(
            ErrorCode.not_leader_or_follower, f"broker {self._host.broker_id} does not lead {self}"
        )

    def __str__(self) -> str:
        return str(self.topic_partition)


def _within(log: Log, high_watermark: Offset) -> Offset:
    """Return a high watermark for a log; all that is in the tier alone is committed."""
    return max(min(high_watermark, log.log_end_offset), log.local_log_start_offset)
