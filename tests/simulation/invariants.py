"""What must always be true, one class an idea; design part 5.

`Invariants` passes what happens to those that care.
"""

from typing import TYPE_CHECKING, Any

from sparklog.executor.partitions.replica import Replica
from sparklog.node.metadata.image import PartitionRegistration
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.coordination_invariants import COORDINATION_INVARIANTS
from tests.simulation.disk import MemoryLog
from tests.simulation.ledger import Ledger, Promise
from tests.simulation.member_invariants import MEMBER_INVARIANTS
from tests.simulation.topics import MIN_INSYNC_REPLICAS
from tests.simulation.transaction_invariants import TRANSACTION_INVARIANTS

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.observer import Observer


from tests.simulation.invariant import Invariant, ends_reassignment
from tests.simulation.metadata_invariants import (
    BalanceEnds,
    BalanceKeepsReplicas,
    CommittedMetadataStays,
    ControllerHasCommitted,
    InactiveBrokersHaveLeft,
    MetadataImagesAgree,
    MetadataMajority,
    OneVotePerEpoch,
    SingleControllerPerEpoch,
    SnapshotAgreement,
)


class SingleLeaderPerEpoch(Invariant):
    """At most one process leads a partition in a leader epoch."""

    def leader_began(
        self, broker: "BrokerProcess", replica: Replica, registration: PartitionRegistration, ledger: Ledger
    ) -> None:
        leader = (broker.broker_id, broker.broker_epoch)
        known = ledger.leaders.setdefault(registration.leader_epoch, leader)
        if known != leader:
            self.fail(f"{leader} leads in epoch {registration.leader_epoch}, so does {known}", ledger.key)


class LeaderInIsr(Invariant):
    """A leader is in the ISR, and comes from the ISR or the eligible leader replicas before it.

    Unless the topic allows an unclean election, or all of these have stopped uncleanly (`LongestLogLeads`).
    """

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        if after.leader is not None and after.leader not in after.isr:
            self.fail(f"leader {after.leader} is not in the ISR {after.isr}", key)
        if before is None or after.leader is None or after.leader == before.leader:
            return
        in_sync = self.world.in_sync(before)
        if after.leader in (*before.isr, *before.elr) or self.world.allows_unclean_election(key):
            return
        if ends_reassignment(before, after):
            return
        if in_sync or not before.last_known_elr:
            self.fail(
                f"leader {after.leader} was neither in the ISR {before.isr} nor eligible {before.elr}", key
            )


class LongestLogLeads(Invariant):
    """When all who were in sync last may have lost records, what any of them still has is with the leader.

    Nobody whose disk may bring back more is left out (KIP-966).
    """

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._in_sync_last: dict[TopicIdPartition, set[BrokerId]] = {}

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        if before is None or before.leader == after.leader:
            return
        if after.leader is None:
            self._in_sync_last[key] = {*before.isr, *before.elr}
            return
        in_sync_last = self._in_sync_last.pop(key, {*before.isr, *before.elr})
        if after.leader in (*before.isr, *before.elr) or self.world.allows_unclean_election(key):
            return
        if ends_reassignment(before, after):
            return
        if not self.world.is_as_decided(after.leader):
            # It was chosen for what it has lost since, while the decision was on its way to a majority.
            return
        ledger = self.world.ledger(key)
        ours = self._kept(ledger, before, after.leader)
        for broker_id in in_sync_last:
            if (theirs := self._kept(ledger, before, broker_id)) > ours:
                self.fail(
                    f"broker {after.leader} is to lead after all have lost something, with {ours} of the "
                    f"committed batches; broker {broker_id} has {theirs}",
                    key,
                )

    def _kept(self, ledger: Ledger, partition: PartitionRegistration, broker_id: BrokerId) -> int:
        if broker_id not in partition.replicas:
            return 0
        disk = self.world.disks[broker_id]
        log = disk.logs.get(ledger.key)
        is_its_disk = partition.directory_of(broker_id) in (None, disk.directory_id)
        return ledger.common_count(log) if log is not None and is_its_disk else 0


class ReassignmentKeepsReplicas(Invariant):
    """A reassignment takes replicas away when all others are in sync, or those that it had added.

    Until then it is known what there was before, and nothing is said of replicas that there are not.
    """

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        named = {*after.isr, *after.elr, *after.last_known_elr}
        if strangers := {*named, *after.adding_replicas, *after.removing_replicas}.difference(after.replicas):
            self.fail(f"{strangers} are no replicas of {after.replicas}", key)
        if before is None:
            return
        is_complete = not after.is_reassigning and set(after.replicas) <= set(after.isr)
        if set(after.original_replicas) != set(before.original_replicas) and not is_complete:
            self.fail(
                f"the replicas were {before.original_replicas} and are {after.original_replicas}, without "
                f"having been in sync: ISR {after.isr}",
                key,
            )
        removed = set(before.replicas).difference(after.replicas)
        if removed and after.leader_epoch == before.leader_epoch:
            self.fail(f"{removed} are removed in the leader epoch {after.leader_epoch} of their time", key)


class EligibleReplicasStay(Invariant):
    """Who was in sync when the ISR became too small stays eligible to lead, unless its log may be gone.

    With KIP-966 only: nothing is committed under min.insync.replicas, so it misses nothing.
    """

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        world = self.world
        if before is None or not world.eligible_leader_replicas:
            return
        if before.isr and world.changes_min_insync_replicas(key):
            # They were chosen under another minimum.
            return
        if len(after.isr) >= min(world.min_insync_replicas(key), len(after.original_replicas)):
            return
        gone = {*before.isr, *before.elr} - {*after.isr, *after.elr}
        for broker_id in gone.intersection(after.replicas):
            if not world.may_have_lost(broker_id) and not world.allows_unclean_election(key):
                self.fail(f"broker {broker_id} was in sync and is not even eligible to lead any more", key)


class StrongIsr(Invariant):
    """Each member of the ISR, and each eligible leader replica, has every committed record on its disk."""

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        self._check(self.world.ledger(key), after)

    def replica_changed(self, broker: "BrokerProcess", replica: Replica, ledger: Ledger) -> None:
        if replica in broker.replicas:
            self._check(ledger, self.world.decided(ledger.key))

    def _check(self, ledger: Ledger, registration: PartitionRegistration | None) -> None:
        if registration is None or not ledger.counts(registration.leader_epoch):
            return
        for broker_id in (*registration.isr, *registration.elr):
            disk = self.world.disks[broker_id]
            if ledger.key in disk.damaged:
                continue
            log = disk.logs.get(ledger.key)
            end_offset = 0 if log is None else log.log_end_offset
            if end_offset < ledger.end_offset:
                self.fail(
                    f"broker {broker_id} in the ISR {registration.isr} or eligible {registration.elr} has "
                    f"records up to {end_offset}, committed are those up to {ledger.end_offset}",
                    ledger.key,
                )
            if log is not None and (number := ledger.first_difference(log, len(log.batches))) is not None:
                self.fail(
                    f"broker {broker_id} in the ISR {registration.isr} or eligible {registration.elr} has "
                    f"another batch at offset {log.headers[number].base_offset} than is committed",
                    ledger.key,
                )


class CommittedPrefixAgreement(Invariant):
    """Any two replicas agree on every offset below the smaller of their high watermarks."""

    def replica_changed(self, broker: "BrokerProcess", replica: Replica, ledger: Ledger) -> None:
        if not ledger.counts(replica.leader_epoch):
            return
        log: Any = replica.log
        number = ledger.first_difference(log, log.count_below(replica.high_watermark))
        if log.is_before_loss:
            # Until its leader has told it where they part, and has committed as much again.
            log.is_before_loss = number is not None or replica.high_watermark > ledger.end_offset
            return
        if replica.high_watermark > ledger.end_offset:
            self.fail(
                f"{broker.name} has high watermark {replica.high_watermark}, no leader's has passed "
                f"{ledger.end_offset}",
                ledger.key,
            )
        if number is not None:
            self.fail(
                f"{broker.name} has another batch below its high watermark {replica.high_watermark}, at "
                f"offset {log.headers[number].base_offset}, than is committed",
                ledger.key,
            )


class MonotonicHighWatermark(Invariant):
    """The high watermark never moves back in a leader's eyes."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._seen: dict[tuple[TopicIdPartition, BrokerId, LeaderEpoch], Offset] = {}

    def replica_changed(self, broker: "BrokerProcess", replica: Replica, ledger: Ledger) -> None:
        leader = replica.leadership
        if leader is None:
            return
        seen = (ledger.key, broker.broker_id, leader.leader_epoch)
        before = self._seen.get(seen, 0)
        if leader.high_watermark < before or replica.high_watermark < before:
            self.fail(
                f"{broker.name} leads with high watermark {replica.high_watermark}, had {before}", ledger.key
            )
        self._seen[seen] = leader.high_watermark


class AcknowledgedByMinIsr(Invariant):
    """An acknowledgement with acks=all means that min.insync.replicas brokers had the records."""

    def acknowledging(
        self, broker: "BrokerProcess", replica: Replica, end_offset: Offset, *, all_acks: bool
    ) -> None:
        leader = replica.leadership
        key = replica.key
        if not all_acks or leader is None:
            return
        holders = [
            broker_id
            for broker_id in leader.replicas
            if self.world.disks[broker_id].reached(key) >= end_offset
        ]
        # While an image is being applied, the replica may go by either.
        images = (broker.applied_image, broker.image)
        minima = [
            image.topic_configs(replica.topic_partition.topic).get(MIN_INSYNC_REPLICAS) for image in images
        ]
        registrations = (image.topics.partition(*key) for image in images)
        counts = [len(each.original_replicas) for each in registrations if each is not None]
        minimum = min([*counts, *(int(value) for value in minima if value is not None)])
        if len(holders) < minimum:
            self.fail(
                f"{broker.name} acknowledges up to {end_offset}, which only {holders} have; "
                f"min.insync.replicas is {minimum}",
                key,
            )


class AcknowledgedRecordsSurvive(Invariant):
    """What was acknowledged with acks=all is committed, is with every new leader, and stays."""

    def leader_began(
        self, broker: "BrokerProcess", replica: Replica, registration: PartitionRegistration, ledger: Ledger
    ) -> None:
        decided = self.world.decided(ledger.key)
        if decided is None or decided.leader_epoch != registration.leader_epoch:
            # Another has been elected meanwhile, and may have committed.
            return
        if replica.log.log_end_offset < ledger.end_offset and ledger.counts(registration.leader_epoch):
            self.fail(
                f"{broker.name} leads in epoch {registration.leader_epoch} with records up to "
                f"{replica.log.log_end_offset}, committed are those up to {ledger.end_offset}",
                ledger.key,
            )

    def promised(self, promise: Promise, ledger: Ledger) -> None:
        if promise.all_acks and ledger.counts(promise.leader_epoch) and not _has(ledger, promise):
            self.fail(f"a batch acknowledged at offset {promise.base_offset} is not committed", ledger.key)

    def settled(self, ledger: Ledger, logs: list[MemoryLog]) -> None:
        for log in logs:
            count = log.count_below(ledger.end_offset)
            if log.log_end_offset < ledger.end_offset or ledger.first_difference(log, count) is not None:
                self.fail("a replica in sync does not have what is committed", ledger.key)


class CompactedStateStays(Invariant):
    """Whoever reads a whole log that was cleaned, of whatever replica, has the last record of every key."""

    def settled(self, ledger: Ledger, logs: list[MemoryLog]) -> None:
        for log in logs if ledger.table is not None else ():
            assert ledger.table is not None
            difference = ledger.table.difference(
                log.batches[: log.count_below(ledger.end_offset)], log.fetched_ms
            )
            if difference is not None:
                self.fail(difference, ledger.key)


class IdempotentOnce(Invariant):
    """An idempotent producer's batches are committed once each, in order."""

    def committed(self, ledger: Ledger, batches: list[bytes]) -> None:
        for batch in batches:
            header = read_header(batch)
            if header.producer_id <= ledger.producers_before_loss or header.base_sequence < 0:
                continue
            producer = (header.producer_id, header.producer_epoch)
            last_sequence = ledger.sequences.get(producer, -1)
            if header.base_sequence != last_sequence + 1:
                self.fail(
                    f"producer {header.producer_id}'s sequence {header.base_sequence} follows "
                    f"{last_sequence} at offset {header.base_offset}",
                    ledger.key,
                )
            ledger.sequences[producer] = header.last_sequence


class ConsumersReadCommitted(Invariant):
    """A consumer is given what is committed, and nothing else."""

    def consumed(self, offset: Offset, records: bytes, leader_epoch: LeaderEpoch, ledger: Ledger) -> None:
        if not ledger.counts(leader_epoch):
            return
        if ledger.number_behind(ledger.number_at(offset), records) is None:
            self.fail(f"what was read at offset {offset} is not what is committed there", ledger.key)

    def out_of_range(self, offset: Offset, leader_epoch: LeaderEpoch, ledger: Ledger) -> None:
        if ledger.counts(leader_epoch):
            self.fail(f"offset {offset} is out of range, but was read before", ledger.key)


class DeposedLeaderIsSilent(Invariant):
    """A broker that was fenced for its silence acknowledges and serves nothing as the leader it was.

    Its lease ends no later than the controller's patience; it looks at its clock before every request, and
    else every 200 ms. So it has `GRACE_MS` of running time. A clock that stood still says nothing of a lease.
    """

    GRACE_MS = 250

    def acknowledging(
        self, broker: "BrokerProcess", replica: Replica, end_offset: Offset, *, all_acks: bool
    ) -> None:
        key = replica.key
        self._check(broker, key, "acknowledges")

    def serving(self, broker: "BrokerProcess", key: TopicIdPartition) -> None:
        self._check(broker, key, "serves")

    def _check(self, broker: "BrokerProcess", key: TopicIdPartition, what: str) -> None:
        replica = broker.replicas.get(*key)
        if replica is None or replica.leader_epoch is None or broker.was_frozen:
            return
        deposed_ms = self.world.deposed_for_silence.get((key, replica.leader_epoch))
        partition = self.world.decided(key)
        if deposed_ms is None or partition is None or partition.leader_epoch == replica.leader_epoch:
            return
        late_ms = self.world.scheduler.now_ms - max(deposed_ms, broker.went_on_ms)
        if late_ms > self.GRACE_MS:
            self.fail(
                f"{broker.name} {what} in leader epoch {replica.leader_epoch}, {late_ms} ms after it was "
                "deposed for its silence",
                key,
            )


def _has(ledger: Ledger, promise: Promise) -> bool:
    """Whether what was promised is committed."""
    number = 0
    if promise.base_offset:
        if promise.base_offset not in ledger.end_offsets:
            return False
        number = ledger.end_offsets.index(promise.base_offset) + 1
    return number < len(ledger.batches) and promise.is_kept_by(ledger.batches[number])


INVARIANTS: tuple[type[Invariant], ...] = (
    SingleLeaderPerEpoch,
    LeaderInIsr,
    LongestLogLeads,
    EligibleReplicasStay,
    StrongIsr,
    ReassignmentKeepsReplicas,
    CommittedPrefixAgreement,
    MonotonicHighWatermark,
    AcknowledgedByMinIsr,
    AcknowledgedRecordsSurvive,
    CompactedStateStays,
    IdempotentOnce,
    ConsumersReadCommitted,
    DeposedLeaderIsSilent,
    MetadataImagesAgree,
    SnapshotAgreement,
    OneVotePerEpoch,
    SingleControllerPerEpoch,
    ControllerHasCommitted,
    MetadataMajority,
    CommittedMetadataStays,
    InactiveBrokersHaveLeft,
    BalanceEnds,
    BalanceKeepsReplicas,
    *COORDINATION_INVARIANTS,
    *MEMBER_INVARIANTS,
    *TRANSACTION_INVARIANTS,
)
"""All but liveness, which the cluster itself looks for when the faults are over."""
LIVENESS = "Liveness"
NO_CRASH = "NothingRaises"


class Invariants:
    """All invariants of one simulation, by what they want to know."""

    def __init__(self, world: "Observer") -> None:
        invariants = [invariant(world) for invariant in INVARIANTS]

        def those_with(name: str) -> list[Any]:
            return [
                getattr(invariant, name)
                for invariant in invariants
                if getattr(type(invariant), name) is not getattr(Invariant, name)
            ]

        self.leader_began = those_with("leader_began")
        self.replica_changed = those_with("replica_changed")
        self.committed = those_with("committed")
        self.partition_decided = those_with("partition_decided")
        self.image_replayed = those_with("image_replayed")
        self.acknowledging = those_with("acknowledging")
        self.serving = those_with("serving")
        self.promised = those_with("promised")
        self.consumed = those_with("consumed")
        self.out_of_range = those_with("out_of_range")
        self.coordinated = those_with("coordinated")
        self.markers_sent = those_with("markers_sent")
        self.producer_given = those_with("producer_given")
        self.read_committed = those_with("read_committed")
        self.offset_read = those_with("offset_read")
        self.held_twice = those_with("held_twice")
        self.member_refused = those_with("member_refused")
        self.rebalanced = those_with("rebalanced")
        self.epoch_fell = those_with("epoch_fell")
        self.settled = those_with("settled")
        self.snapshot_loaded = those_with("snapshot_loaded")
        self.voted = those_with("voted")
        self.driver_won = those_with("driver_won")
        self.metadata_committed = those_with("metadata_committed")
        self.controller_rests = those_with("controller_rests")
