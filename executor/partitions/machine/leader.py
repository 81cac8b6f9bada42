"""Leading one partition in one leader epoch: its ISR and its high watermark.

Pure: events in, effects out, no log and no clock. A `PartitionLeader` lives as long as its leader epoch;
a new leadership, even of the same broker, is a new object, because followers must fetch again in the new
epoch anyway before anything is known about them.

Rules it keeps
- The high watermark passes an offset only when every replica of the maximal ISR has it (KIP-497): the
  committed ISR and the joiners of a pending proposal. A pending removal still counts the old ISR.
  It moves only while the committed ISR has at least min.insync.replicas members, and back only with a log
  that restarts where its tier ends.
- A smaller ISR is acted on when the metadata log has it, a larger one as soon as the controller says so.
- An ISR exists only when the controller has committed it: a proposal names the partition epoch it
  replaces, one is pending at a time, and an answer that was overtaken by metadata is ignored.
- A follower is counted only under the broker epoch the metadata knows (KIP-903): what an earlier
  incarnation held says nothing about the disk of the present one.
- A follower's progress is forgotten when the metadata says that its directory has failed, or that its
  replica is in none (KIP-858): it must fetch again before it counts.

Order for the caller: append to the log, then `Appended`; read for a follower and find no divergence
(`sparklog.node.storage.machine.epoch_checks.fetch_divergence`), then `FollowerFetched`. Carry effects out in
order, before the next event.
"""

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final
from uuid import UUID

from sparklog.executor.partitions.machine.events import (
    AdvanceHighWatermark,
    Appended,
    BrokersChanged,
    FailWaitingAppends,
    FollowerFetched,
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
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower; None where it has not fetched in this leader epoch.

    `last_caught_up_ms` is the last time at which the follower had everything the leader had.
    """

    log_end_offset: Offset | None = None
    log_start_offset: Offset | None = None
    broker_epoch: BrokerEpoch | None = None
    last_caught_up_ms: int | None = None
    last_fetch_ms: int | None = None
    leader_log_end_offset_at_last_fetch: Offset = 0


_FINAL_PROPOSAL_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
"""This leader's metadata is behind; the pending state stays, which is the strict side, until it is not."""

_REFUSED_PROPOSAL_ERRORS: Final = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})
"""The controller says that it did not, and never will, apply this proposal."""


@dataclass(slots=True)
class _Pending:
    proposal: ProposeIsr
    joiners: frozenset[BrokerId]
    send_again: bool = False


@dataclass(slots=True)
class PartitionLeader:
    broker_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    leader_epoch_start_offset: Offset
    high_watermark: Offset
    min_insync_replicas: int
    replica_lag_time_max_ms: int
    brokers: Mapping[BrokerId, RegisteredBroker]
    own_broker_epoch: BrokerEpoch | None
    started_ms: int
    directories: InitVar[tuple[UUID | None, ...]] = ()
    """The directories of the replicas, parallel to them; empty if unknown."""
    adding_replicas: InitVar[tuple[BrokerId, ...]] = ()
    """Replicas that a reassignment under way adds."""
    log_end_offset: Offset = field(init=False)
    followers: dict[BrokerId, FollowerProgress] = field(init=False)
    maximal_isr: frozenset[BrokerId] = field(init=False)
    replication_factor: int = field(init=False)
    """How many replicas there are, those that are being added not counted."""
    _pending: _Pending | None = field(init=False, default=None)
    _directories: Mapping[BrokerId, UUID | None] = field(init=False)

    def __post_init__(
        self, directories: tuple[UUID | None, ...], adding_replicas: tuple[BrokerId, ...]
    ) -> None:
        assert self.high_watermark <= self.leader_epoch_start_offset
        self.log_end_offset = self.leader_epoch_start_offset
        self.maximal_isr = self.isr
        self.followers = {}
        self._directories = dict(zip(self.replicas, directories, strict=False))
        self._assign(self.replicas, adding_replicas, self.started_ms)

    # --- what is so -----------------------------------------------------------------------------

    @property
    def effective_min_insync_replicas(self) -> int:
        """min.insync.replicas, or the number of replicas where that is less.

        Replicas that are being added count when they are there to stay: a topic with fewer than
        min.insync.replicas of them would take nothing, otherwise, while it is moved or gets more.
        """
        return min(self.min_insync_replicas, self.replication_factor)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the committed ISR is too small for acks=all."""
        return len(self.isr) < self.effective_min_insync_replicas

    @property
    def wants_tick(self) -> bool:
        """Whether a proposal will be sent again at the next `Ticked`."""
        return self._pending is not None and self._pending.send_again

    @property
    def high_watermark_is_behind_epoch(self) -> bool:
        """Whether records committed in an earlier epoch may still lie above the high watermark.

        Until it has reached the start of this epoch, "latest" offsets would appear to go back.
        """
        return self.high_watermark < self.leader_epoch_start_offset

    def low_watermark(self, log_start_offset: Offset) -> Offset | None:
        """Return the lowest log start offset of all live replicas, or None while one of them is unknown.

        A fenced broker is not waited for, as in Kafka's Partition: it learns the leader's log start offset
        with its first fetch once it is back.
        """
        lowest = log_start_offset
        for broker_id, progress in self.followers.items():
            status = self.brokers.get(broker_id)
            if status is None or status.fenced:
                continue
            if progress.log_start_offset is None:
                return None
            lowest = min(lowest, progress.log_start_offset)
        return lowest

    # --- events ---------------------------------------------------------------------------------

    def handle(self, event: LeaderEvent) -> list[LeaderEffect]:
        """Handle an event; return its effects, in order.

        Raises:
            KafkaError: a `FollowerFetched` by a broker that is no replica (unknown_leader_epoch: one of
                the two has newer metadata) or by an earlier incarnation (not_leader_or_follower).
        """
        match event:
            case FollowerFetched():
                return self._follower_fetched(event)
            case Appended():
                return self._appended(event)
            case Ticked():
                # Also the first event of a leader: alone in its ISR, it waits for no fetch.
                return self._check_isr(event.now_ms) + self._advance_high_watermark(event.now_ms)
            case IsrProposalAnswered():
                return self._isr_proposal_answered(event)
            case PartitionChanged():
                return self._partition_changed(event)
            case BrokersChanged():
                self._learn_directories(event.brokers, self._directories)
                return self._admit_joiners(event.now_ms) + self._advance_high_watermark(event.now_ms)
            case LogRestarted():
                return self._log_restarted(event)
            case MinInsyncReplicasChanged():
                was_under = self.is_under_min_isr
                self.min_insync_replicas = event.min_insync_replicas
                return self._after_isr_change(event.now_ms, was_under)

    def _log_restarted(self, event: LogRestarted) -> list[LeaderEffect]:
        # A tier has committed records only, so that no follower need have them for this to be committed. It
        # may end below the high watermark of a log that an unclean election has chosen: that log's records
        # are gone, as after a truncation.
        self.log_end_offset = self.leader_epoch_start_offset = event.log_end_offset
        for broker_id in self.followers:
            # Their positions are those of the former log.
            self.followers[broker_id] = self._unknown_progress(broker_id, event.now_ms)
        if event.log_end_offset == self.high_watermark:
            return []
        self.high_watermark = event.log_end_offset
        return [AdvanceHighWatermark(event.log_end_offset)]

    def _appended(self, event: Appended) -> list[LeaderEffect]:
        before = self.log_end_offset
        assert event.log_end_offset >= before
        self.log_end_offset = event.log_end_offset
        for progress in self.followers.values():
            # It had everything until this very append. Recording that here, and not at each of its
            # fetches, is what lets an idle partition stay out of its fetch requests.
            if progress.log_end_offset is not None and progress.log_end_offset >= before:
                progress.last_caught_up_ms = event.now_ms
        return self._advance_high_watermark(event.now_ms)

    def _follower_fetched(self, event: FollowerFetched) -> list[LeaderEffect]:
        progress = self.followers.get(event.broker_id)
        if progress is None:
            raise KafkaError(
                ErrorCode.unknown_leader_epoch,
                f"broker {event.broker_id} is not among the replicas {list(self.replicas)} "
                f"in leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch}",
            )
        status = self.brokers.get(event.broker_id)
        if event.broker_epoch is not None and status is not None and event.broker_epoch < status.broker_epoch:
            raise KafkaError(
                ErrorCode.not_leader_or_follower,
                f"broker {event.broker_id} fetched under broker epoch {event.broker_epoch}, "
                f"which {status.broker_epoch} has replaced",
            )
        if event.fetch_offset >= self.log_end_offset:
            progress.last_caught_up_ms = event.now_ms
        elif (
            progress.last_fetch_ms is not None
            and event.fetch_offset >= progress.leader_log_end_offset_at_last_fetch
        ):
            # Under steady appends it never sees the very end, but it has all there was last time.
            progress.last_caught_up_ms = max(progress.last_caught_up_ms or 0, progress.last_fetch_ms)
        moved = progress.log_end_offset != event.fetch_offset
        progress.log_end_offset = event.fetch_offset
        progress.log_start_offset = event.log_start_offset
        progress.broker_epoch = event.broker_epoch
        progress.last_fetch_ms = event.now_ms
        progress.leader_log_end_offset_at_last_fetch = self.log_end_offset
        effects: list[LeaderEffect] = []
        if self._pending is None and event.broker_id not in self.isr and self._may_join(event.broker_id):
            effects.append(self._propose(self.isr | {event.broker_id}))
        if moved:
            effects += self._advance_high_watermark(event.now_ms)
        return effects

    def _check_isr(self, now_ms: int) -> list[LeaderEffect]:
        pending = self._pending
        if pending is not None:
            if not pending.send_again:
                return []
            pending.send_again = False
            return [pending.proposal]
        behind = {
            broker_id
            for broker_id in self.isr
            if broker_id != self.broker_id and not self._is_caught_up(broker_id, now_ms)
        }
        if behind:
            return [self._propose(self.isr - behind)]
        return self._admit_joiners(now_ms)

    def _isr_proposal_answered(self, event: IsrProposalAnswered) -> list[LeaderEffect]:
        pending = self._pending
        if pending is None or pending.proposal != event.proposal:
            return []
        if event.error_code != ErrorCode.none:
            if event.error_code in _REFUSED_PROPOSAL_ERRORS:
                self._pending = None
                self.maximal_isr = self.isr
                return self._advance_high_watermark(event.now_ms)
            pending.send_again = event.error_code not in _FINAL_PROPOSAL_ERRORS
            return []
        if event.leader_epoch != self.leader_epoch or event.partition_epoch < self.partition_epoch:
            return []
        if not self.isr <= event.isr:
            # The metadata log will say so too, after everything that it was decided upon. Under an older and
            # smaller min.insync.replicas this leader would commit what those who left do not have, and they
            # may be eligible to lead (KIP-966). Until then they are waited for.
            return []
        was_under = self.is_under_min_isr
        self._commit(event.isr, event.partition_epoch)
        return self._after_isr_change(event.now_ms, was_under)

    def _partition_changed(self, event: PartitionChanged) -> list[LeaderEffect]:
        was_under = self.is_under_min_isr
        has_new_minimum = event.min_insync_replicas != self.min_insync_replicas
        self.min_insync_replicas = event.min_insync_replicas
        if event.partition_epoch >= self.partition_epoch:
            self._learn_directories(self.brokers, dict(zip(event.replicas, event.directories, strict=False)))
        if event.partition_epoch > self.partition_epoch:
            self._assign(event.replicas, event.adding_replicas, event.now_ms)
            self._commit(event.isr, event.partition_epoch)
        elif not has_new_minimum:
            # Known already from the controller's answer. A later pending proposal must stay counted:
            # the controller may be committing it right now.
            return []
        return self._after_isr_change(event.now_ms, was_under)

    # --- steps ----------------------------------------------------------------------------------

    def _assign(self, replicas: tuple[BrokerId, ...], adding: tuple[BrokerId, ...], now_ms: int) -> None:
        self.replicas = replicas
        self.replication_factor = sum(broker_id not in adding for broker_id in replicas)
        self.followers = {
            broker_id: self.followers.get(broker_id) or self._unknown_progress(broker_id, now_ms)
            for broker_id in replicas
            if broker_id != self.broker_id
        }

    def _unknown_progress(self, broker_id: BrokerId, now_ms: int) -> FollowerProgress:
        # A follower in sync gets the usual time to fetch; others must fetch first.
        return FollowerProgress(last_caught_up_ms=now_ms if broker_id in self.isr else None)

    def _learn_directories(
        self, brokers: Mapping[BrokerId, RegisteredBroker], directories: Mapping[BrokerId, UUID | None]
    ) -> None:
        """Update brokers and the replicas' directories; forget the progress of replicas in no directory."""
        for broker_id in self.followers:
            old, status = self.brokers.get(broker_id), brokers.get(broker_id)
            if (
                old is not None
                and status is not None
                and old.broker_epoch == status.broker_epoch
                and not status.has_online_directory(directories.get(broker_id))
                and old.has_online_directory(self._directories.get(broker_id))
            ):
                self.followers[broker_id] = FollowerProgress()
        self.brokers = brokers
        self._directories = directories

    def _commit(self, isr: frozenset[BrokerId], partition_epoch: PartitionEpoch) -> None:
        self.isr = self.maximal_isr = isr
        self.partition_epoch = partition_epoch
        self._pending = None

    def _propose(self, isr: Iterable[BrokerId]) -> ProposeIsr:
        new_isr = tuple((broker_id, self._broker_epoch(broker_id)) for broker_id in sorted(isr))
        proposal = ProposeIsr(self.leader_epoch, self.partition_epoch, new_isr)
        joiners = frozenset(isr) - self.isr
        self._pending = _Pending(proposal, joiners)
        self.maximal_isr = self.isr | joiners
        return proposal

    def _broker_epoch(self, broker_id: BrokerId) -> BrokerEpoch | None:
        if broker_id == self.broker_id:
            return self.own_broker_epoch
        progress = self.followers.get(broker_id)
        return progress.broker_epoch if progress is not None else None

    def _is_eligible(self, broker_id: BrokerId) -> bool:
        """Whether the metadata lets the incarnation that fetched last join an ISR."""
        progress = self.followers[broker_id]
        status = self.brokers.get(broker_id)
        return (
            progress.last_fetch_ms is not None
            and status is not None
            and status.may_join_isr
            and progress.broker_epoch in (None, status.broker_epoch)
        )

    def _may_join(self, broker_id: BrokerId) -> bool:
        log_end_offset = self.followers[broker_id].log_end_offset
        # Reaching the epoch's start matters: records above the high watermark may be committed by the
        # previous leader, and a member that lacks them could be elected.
        return (
            log_end_offset is not None
            and log_end_offset >= self.high_watermark
            and log_end_offset >= self.leader_epoch_start_offset
            and self._is_eligible(broker_id)
        )

    def _is_caught_up(self, broker_id: BrokerId, now_ms: int) -> bool:
        progress = self.followers.get(broker_id)
        if progress is None:
            return False
        if progress.log_end_offset == self.log_end_offset:
            return True
        return (
            progress.last_caught_up_ms is not None
            and now_ms - progress.last_caught_up_ms <= self.replica_lag_time_max_ms
        )

    def _after_isr_change(self, now_ms: int, was_under_min_isr: bool) -> list[LeaderEffect]:
        effects = self._admit_joiners(now_ms)
        if not self.is_under_min_isr:
            return effects + self._advance_high_watermark(now_ms)
        if not was_under_min_isr:
            effects.append(FailWaitingAppends(self.isr, self.effective_min_insync_replicas))
        return effects

    def _admit_joiners(self, now_ms: int) -> list[LeaderEffect]:
        """Propose followers that have caught up, since they will not fetch again before the next append."""
        if self._pending is not None:
            return []
        joiners = {
            broker_id
            for broker_id in self.followers
            if broker_id not in self.isr
            and self._may_join(broker_id)
            and self._is_caught_up(broker_id, now_ms)
        }
        return [self._propose(self.isr | joiners)] if joiners else []

    def _advance_high_watermark(self, now_ms: int) -> list[LeaderEffect]:
        if self.is_under_min_isr:
            return []
        committed = self.log_end_offset
        maximal_isr = self.maximal_isr
        for broker_id, progress in self.followers.items():
            log_end_offset = progress.log_end_offset or 0
            if log_end_offset < committed and (
                broker_id in maximal_isr
                # Without waiting for who is about to join, it could run after the end for ever.
                or (self._is_caught_up(broker_id, now_ms) and self._is_eligible(broker_id))
            ):
                committed = log_end_offset
        if committed <= self.high_watermark:
            return []
        self.high_watermark = committed
        return [AdvanceHighWatermark(committed)]
