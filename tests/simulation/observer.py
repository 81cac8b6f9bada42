"""Who sees everything at once and tells nobody: what is committed, who was promised what, what must hold.

Processes report what they do; the observer keeps the ledgers, calls the invariants, and remembers the story.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparklog.driver.controller.quorum.machine.candidate import BecomeLeader
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer, VoteRequest
from sparklog.executor.partitions.replica import Replica
from sparklog.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from sparklog.node.metadata_log.machine.voter_set import VoterKey, VoterSet
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicIdPartition,
    TopicPartition,
)
from tests.simulation.active_controller import ActiveController
from tests.simulation.balancing import balances, balances_alone
from tests.simulation.broker_process import BrokerProcess
from tests.simulation.committed_table import CommittedTable
from tests.simulation.controller_process import ControllerProcess
from tests.simulation.coordinating import Asked
from tests.simulation.disk import Disk
from tests.simulation.invariant import Violation, ends_reassignment
from tests.simulation.invariants import Invariants
from tests.simulation.ledger import Ledger, Promise
from tests.simulation.metadata_copy import MetadataCopy
from tests.simulation.metadata_ledger import MetadataLedger
from tests.simulation.scheduler import Scheduler
from tests.simulation.topics import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
)
from tests.simulation.transaction_book import TransactionBook
from tests.simulation.transaction_logs import TransactionLogs

if TYPE_CHECKING:
    from tests.simulation.member import Held, Member
    from tests.simulation.sinks import Sinks

STORY_LENGTH: Final = 3_000
STORY_SHOWN: Final = 40


@dataclass(slots=True)
class Outcome:
    """How a seed ended."""

    seed: int
    trace_hash: str = ""
    event_count: int = 0
    simulated_ms: int = 0
    committed: int = 0
    promised: int = 0
    elections: int = 0
    faults: int = 0
    cleaned: int = 0
    """Batches that cleanings have taken away, of all replicas."""
    commits: int = 0
    """Offsets that were acknowledged to clients of groups."""
    assignments: int = 0
    """How often members of groups were told what is theirs."""
    transactions: int = 0
    """Ends of transactions that were acknowledged to producers."""
    decisions: int = 0
    """Decisions of sinks that were made."""
    losses: int = 0
    """Batches that were committed and may be lost: see `tests.simulation.ledger`."""
    has_lost: bool = False
    """Whether anything committed may be lost at all: no more is demanded of transactions from there on."""
    violation: Violation | None = None
    story: list[str] = field(default_factory=list)

    def report(self) -> str:
        """Say what went wrong, and how to see it again."""
        assert self.violation is not None
        lines = [
            f"seed {self.seed}, event {self.event_count}, {self.simulated_ms} ms: {self.violation}",
            *(f"    {line}" for line in self.story),
            f"replay: python -m tests.simulation --seed {self.seed} --trace",
        ]
        return "\n".join(lines)


class Observer:
    """All there is, and the ledgers and invariants that it is held against."""

    def __init__(self, scheduler: Scheduler, seed: int, on_story: Callable[[str], None] | None) -> None:
        self.scheduler = scheduler
        self.balances, self.balances_alone = balances(seed), balances_alone(seed)
        self.disks: dict[BrokerId, Disk] = {}
        self.brokers: dict[BrokerId, BrokerProcess] = {}
        """Those that are alive."""
        self.drivers: list[ControllerProcess] = []
        """Those that are alive."""
        self.metadata = MetadataLedger()
        self.voters: VoterSet | None = None
        """As committed last."""
        self.ledgers: dict[TopicIdPartition, Ledger] = {}
        self.next_producer_id = 0
        self.deposed_for_silence: dict[tuple[TopicIdPartition, LeaderEpoch], int] = {}
        """When a driver gave a leadership away because nothing was heard of the leader."""
        self._controller_epoch: LeaderEpoch = -1
        """Of the newest driver that has won an election."""
        self.replaced: dict[BrokerId, BrokerEpoch] = {}
        """The registrations that another process of the broker is about to replace, in several decisions."""
        self.unclean_asked: set[TopicIdPartition] = set()
        """Where an administrator has preferred a loss to waiting."""
        self.coordinates = False
        """Whether there are coordinators."""
        self.transacts = False
        """Whether there are transactions,"""
        self.has_lost = False
        """whether anything committed may be lost, after which nothing is demanded of them,"""
        self.transactions = TransactionBook()
        """what their clients know of them,"""
        self.transaction_logs = TransactionLogs()
        """what is committed of them,"""
        self.copied = (TopicPartition("topic0", 0), TopicPartition("topic1", 0))
        """and from where to where some copy."""
        self.has_sinks = False
        """Whether Spark writes,"""
        self.sinks: Sinks | None = None
        """and what."""
        self.compacts = False
        """Whether topics are compacted."""
        self.violations: list[Violation] = []
        self.outcome = Outcome(seed)
        self.invariants = Invariants(self)
        self._on_story = on_story
        self._story: deque[tuple[int, TopicIdPartition | None, str]] = deque(maxlen=STORY_LENGTH)
        self._deciding = (EMPTY_IMAGE, EMPTY_IMAGE)

    # --- what is so -----------------------------------------------------------------------------

    def ledger(self, key: TopicIdPartition) -> Ledger:
        """Return a partition's ledger."""
        ledger = self.ledgers.get(key)
        if ledger is None:
            ledger = self.ledgers[key] = Ledger(key)
            if self.compacts:
                ledger.table = CommittedTable(lambda: self.scheduler.now_ms)
        return ledger

    def decided(self, key: TopicIdPartition) -> PartitionRegistration | None:
        """Return a partition as it is committed."""
        return self.metadata.image.topics.partition(key.topic_id, key.partition)

    def has_topic(self, name: str) -> bool:
        """Whether a topic is there."""
        return name in self.metadata.image.topics.by_name

    def key_of(self, topic: str, partition: int) -> TopicIdPartition:
        """Return the key of a partition of a topic that is there."""
        return TopicIdPartition(self.metadata.image.topics.by_name[topic].topic_id, partition)

    def replica(self, broker_id: BrokerId, key: TopicIdPartition) -> Replica:
        """Return the replica that a broker has of a partition."""
        replica = self.brokers[broker_id].replicas.get(*key)
        assert replica is not None, f"broker {broker_id} has none of {key}"
        return replica

    def min_insync_replicas(self, key: TopicIdPartition) -> int:
        """Return a topic's min.insync.replicas as it is decided now."""
        return int(self._topic_configs(key)[MIN_INSYNC_REPLICAS])

    def changes_min_insync_replicas(self, key: TopicIdPartition) -> bool:
        """Whether what is being decided is another min.insync.replicas of a topic."""
        before, after = (
            image.topic_configs(self._deciding[1].topics.by_id[key.topic_id].name).get(MIN_INSYNC_REPLICAS)
            for image in self._deciding
        )
        return before != after

    def allows_unclean_election(self, key: TopicIdPartition) -> bool:
        """Whether a leader may be elected that misses records."""
        return key in self.unclean_asked or self._topic_configs(key).get(UNCLEAN_ELECTION) == "true"

    def _topic_configs(self, key: TopicIdPartition) -> Mapping[str, str]:
        image = self._deciding[1]
        return image.topic_configs(image.topics.by_id[key.topic_id].name)

    @property
    def eligible_leader_replicas(self) -> bool:
        """Whether KIP-966 is on."""
        return self._deciding[1].features.get(ELIGIBLE_LEADER_REPLICAS_FEATURE, 0) > 0

    def may_have_lost(self, broker_id: BrokerId) -> bool:
        """Whether what is being decided is that a broker's disk failed, or another process has its place."""
        before, after = (image.brokers.get(broker_id) for image in self._deciding)
        if before is None or after is None:
            return False
        failed = self.disks[broker_id].failed_epoch == before.broker_epoch
        replaced = self.replaced.get(broker_id) == before.broker_epoch
        return failed or replaced or before.broker_epoch != after.broker_epoch

    def is_as_decided(self, broker_id: BrokerId) -> bool:
        """Whether the process that is known to who decides is still there."""
        broker = self.brokers.get(broker_id)
        registration = self._deciding[1].brokers.get(broker_id)
        return (
            broker is not None
            and registration is not None
            and broker.broker_epoch == registration.broker_epoch
        )

    def in_sync(self, partition: PartitionRegistration) -> set[BrokerId]:
        """Return who has all that is committed, as far as the controller can know.

        Not who registers anew, or has a failed disk, in this very decision: it may have lost anything.
        """
        members = {*partition.isr, *partition.elr}
        return {broker_id for broker_id in members if not self.may_have_lost(broker_id)}

    # --- what happens ---------------------------------------------------------------------------

    def _decided(self, before: MetadataImage, after: MetadataImage) -> None:
        self._deciding = (before, after)
        if before.topics is after.topics:
            return
        for topic_id, topic in after.topics.by_id.items():
            earlier = before.topics.by_id.get(topic_id)
            if topic is earlier:
                continue
            for number, partition in topic.partitions.items():
                known = None if earlier is None else earlier.partitions.get(number)
                if partition is known:
                    continue
                key = TopicIdPartition(topic_id, number)
                self.tell(
                    key,
                    f"the controller decides: leader {partition.leader}, ISR {partition.isr}, "
                    f"{_eligible(partition)}leader epoch {partition.leader_epoch}, partition epoch "
                    f"{partition.partition_epoch}",
                )
                if known is not None and partition.leader not in (None, known.leader):
                    self.outcome.elections += 1
                    self._excuse(key, known, partition)
                for check in self.invariants.partition_decided:
                    check(key, known, partition)

    def _excuse(
        self, key: TopicIdPartition, before: PartitionRegistration, after: PartitionRegistration
    ) -> None:
        """Allow a loss that nobody can avoid, or that the topic allows."""
        assert after.leader is not None
        in_sync = self.in_sync(before)
        is_clean = after.leader in (*before.isr, *before.elr) or ends_reassignment(before, after)
        allowed = not is_clean and (self.allows_unclean_election(key) or not in_sync)
        if key in self.disks[after.leader].damaged:
            allowed = allowed or all(key in self.disks[broker_id].damaged for broker_id in in_sync)
        if allowed:
            self.tell(key, f"broker {after.leader} may miss records: nobody who has them may lead")
            self.has_lost = True
            self.ledger(key).allow_loss(after.leader_epoch, self.next_producer_id)

    def _forgive(self) -> None:
        """Forget what disks lost where it is known and durable that their brokers began anew."""
        images = [self.metadata.image]
        for driver in self.drivers:
            if driver.active_controller is not None:
                images.append(driver.active_controller.controller.image)
        for broker_id, disk in self.disks.items():
            for key in list(disk.damaged):
                if not any(self._counts_on(image, broker_id, key) for image in images):
                    disk.damaged.discard(key)

    def _counts_on(self, image: MetadataImage, broker_id: BrokerId, key: TopicIdPartition) -> bool:
        """Whether a broker may lead, or come into the ISR, by what it had before its disk failed."""
        partition = image.topics.partition(key.topic_id, key.partition)
        if partition is None or broker_id not in partition.replicas:
            return False
        registration = image.brokers[broker_id]
        return (
            broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
            or registration.broker_epoch == self.disks[broker_id].damaged_epoch
        )

    def silent(self, active_controller: ActiveController, broker_id: BrokerId) -> None:
        """A driver is about to fence a broker because nothing was heard of it."""
        self.tell(None, f"broker {broker_id} is fenced for its silence")
        if active_controller.leader_epoch < self._controller_epoch:
            # Nobody listens to it any more.
            return
        for topic in active_controller.controller.image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if partition.leader == broker_id:
                    key = TopicIdPartition(topic.topic_id, number)
                    self.deposed_for_silence[key, partition.leader_epoch] = self.scheduler.now_ms

    def broker_acted(self, broker: BrokerProcess) -> None:
        """A broker's process did something: look at what it changed."""
        for replica in broker.replicas.all:  # after every event: what has not changed costs next to nothing
            log: Any = replica.log
            leader = replica.leadership
            state = (
                replica.progress.high_watermark,
                None if leader is None else leader.high_watermark,
                log.log_end_offset,
                log.epochs.latest,
            )
            if log.seen == state and log.seen_leader is leader:
                continue
            log.seen, log.seen_leader = state, leader
            ledger = self.ledger(replica.key)
            if (
                leader is not None
                and leader.high_watermark > ledger.end_offset
                and ledger.counts(leader.leader_epoch)
            ):
                new = ledger.extend(log, log.count_below(leader.high_watermark))
                for check in self.invariants.committed:
                    check(ledger, new)
            for check in self.invariants.replica_changed:
                check(broker, replica, ledger)

    def leads(self, broker: BrokerProcess, replica: Replica, registration: PartitionRegistration) -> None:
        """A broker leads a partition, perhaps anew."""
        key = replica.key
        self.tell(
            key,
            f"{broker.name} leads in epoch {registration.leader_epoch}, ISR {registration.isr}, log end "
            f"{replica.log.log_end_offset}, high watermark {replica.high_watermark}",
        )
        if (
            replica.leadership is not None
            and replica.leadership.partition_epoch == registration.partition_epoch
        ):
            ledger = self.ledger(key)
            if ledger.losing and registration.leader_epoch >= ledger.since_epoch:
                self._strike(ledger, replica)
            for check in self.invariants.leader_began:
                check(broker, replica, registration, ledger)

    def _strike(self, ledger: Ledger, replica: Replica) -> None:
        log: Any = replica.log
        struck = ledger.strike(log, self.next_producer_id)
        self.outcome.losses += struck
        self.tell(ledger.key, f"{struck} committed batches are lost")
        for disk in self.disks.values():
            if (other := disk.logs.get(ledger.key)) is not None:
                other.verified = min(other.verified, len(ledger.batches))
                other.is_before_loss = other is not log
        assert replica.leadership is not None
        self.disks[replica.leadership.broker_id].damaged.discard(ledger.key)

    def wins(self, driver: ControllerProcess, lead: BecomeLeader) -> None:
        """A driver has a majority of votes, and is about to lead."""
        voters = sorted(key.node_id for key in lead.voters.keys)
        self.tell(None, f"{driver.name} leads in epoch {lead.leader_epoch}, brokers {voters} vote")
        self._controller_epoch = max(self._controller_epoch, lead.leader_epoch)
        for check in self.invariants.driver_won:
            check(driver, lead)
        for key, leader_epoch in list(self.deposed_for_silence):
            partition = self.decided(key)
            if partition is None or partition.leader_epoch <= leader_epoch:
                # Decided by a driver before this one, but not committed: the epoch will be another's.
                del self.deposed_for_silence[key, leader_epoch]

    def voted(self, key: VoterKey, request: VoteRequest, answer: QuorumAnswer) -> None:
        """A voter is about to answer a candidate."""
        for check in self.invariants.voted:
            check(key, request, answer)

    def controller_rests(self, image: MetadataImage) -> None:
        """A driver waits for something to happen."""
        for check in self.invariants.controller_rests:
            check(image)

    def metadata_committed(self, driver: ControllerProcess, copy: MetadataCopy, quorum: QuorumLeader) -> None:
        """A driver has counted a majority of voters."""
        for check in self.invariants.metadata_committed:
            check(driver, quorum.voters, quorum.high_watermark)
        number = copy.index_of(self.metadata.end_offset)
        for batch in copy.batches[number : copy.index_of(quorum.high_watermark)]:
            before = self.metadata.image
            self.metadata.extend(batch)
            self.voters = batch.voters or self.voters
            self._decided(before, self.metadata.image)
        self._forgive()

    def snapshot_loaded(self, broker: BrokerProcess, image: MetadataImage) -> None:
        """A broker begins with a snapshot."""
        for check in self.invariants.snapshot_loaded:
            check(broker, image)

    def image_replayed(self, broker: BrokerProcess, image: MetadataImage) -> None:
        """A broker has replayed up to an offset."""
        for check in self.invariants.image_replayed:
            check(broker, image)

    def appended(self, broker: BrokerProcess, replica: Replica, base_offset: Offset) -> None:
        """A leader took a client's batch."""
        self.tell(replica.key, f"{broker.name} appends {base_offset} to {replica.log.log_end_offset - 1}")

    def followed(self, broker: BrokerProcess, replica: Replica, before: tuple[Offset, Offset]) -> None:
        """A follower took an answer in."""
        after = (replica.log.log_end_offset, replica.high_watermark)
        log = broker.disk.logs[replica.key]
        if log.log_end_offset > before[0]:
            log.followed_ms.append((before[0], log.log_end_offset, self.scheduler.now_ms))
        self.tell(replica.key, f"{broker.name} follows: log end, high watermark {before} -> {after}")

    def acknowledging(
        self, broker: BrokerProcess, replica: Replica, end_offset: Offset, *, all_acks: bool
    ) -> None:
        """A leader acknowledges."""
        for check in self.invariants.acknowledging:
            check(broker, replica, end_offset, all_acks=all_acks)

    def serving(self, broker: BrokerProcess, key: TopicIdPartition, records: bytes) -> None:
        """A leader gives a consumer records."""
        for check in self.invariants.serving:
            check(broker, key)

    def coordinated(
        self, broker: BrokerProcess, replica: Replica, leader_epoch: LeaderEpoch, asked: Asked, response: Any
    ) -> None:
        """A coordinator answers."""
        key = replica.key
        for check in self.invariants.serving:
            check(broker, key)
        if asked.end_offset is not None:
            for check in self.invariants.acknowledging:
                check(broker, replica, asked.end_offset, all_acks=asked.wrote)
        for check in self.invariants.coordinated:
            check(broker, replica, leader_epoch, asked, response, self.ledger(key))

    def markers_sent(
        self, broker: BrokerProcess, replica: Replica, leader_epoch: LeaderEpoch, markers: SendMarkers
    ) -> None:
        """A coordinator begins to send markers, perhaps anew."""
        self.tell(replica.key, f"{broker.name} sends markers of {markers.producer}: {markers.committed}")
        for check in self.invariants.markers_sent:
            check(broker, leader_epoch, markers, self.ledger(replica.key))

    def producer_given(
        self, transactional_id: str, producer: ProducerStamp, asker: str, *, is_new: bool
    ) -> None:
        """A producer was told its id and epoch."""
        self.tell(None, f"{asker} of {transactional_id} is {producer}{' anew' if is_new else ''}")
        for check in self.invariants.producer_given:
            check(transactional_id, producer, asker, is_new=is_new)

    def read_committed(
        self, key: TopicIdPartition, offset: Offset, next_offset: Offset, shown: list[Offset]
    ) -> None:
        """A reader of committed records was answered."""
        for check in self.invariants.read_committed:
            check(offset, next_offset, shown, self.ledger(key))

    def offset_read(
        self, group_id: str, offset: Offset | None, possible: set[Offset | None], key: TopicIdPartition
    ) -> None:
        """A client was told what its group has committed."""
        for check in self.invariants.offset_read:
            check(group_id, offset, possible, key)

    def held_twice(
        self, group_id: str, held: "Held", members: "tuple[Member, Member]", key: TopicIdPartition
    ) -> None:
        """Two members of a group hold the same partition."""
        for check in self.invariants.held_twice:
            check(group_id, held, members, key)

    def member_refused(
        self, group_id: str, identity: str, error_code: ErrorCode, key: TopicIdPartition
    ) -> None:
        """A member in its session was told that it is none."""
        for check in self.invariants.member_refused:
            check(group_id, identity, error_code, key)

    def rebalanced(self, group_id: str, before: set[int] | None, after: set[int]) -> None:
        """A group has noticed a rolling restart."""
        for check in self.invariants.rebalanced:
            check(group_id, before, after)

    def epoch_fell(self, group_id: str, before: int, after: int, key: TopicIdPartition) -> None:
        """A member was told a lower epoch than before."""
        for check in self.invariants.epoch_fell:
            check(group_id, before, after, key)

    def promised(self, promise: Promise) -> None:
        """A producer was told that its batch is safe."""
        self.outcome.promised += 1
        for check in self.invariants.promised:
            check(promise, self.ledger(promise.key))

    def consumed(
        self, key: TopicIdPartition, offset: Offset, records: bytes, leader_epoch: LeaderEpoch
    ) -> None:
        """A consumer was given a batch."""
        for check in self.invariants.consumed:
            check(offset, records, leader_epoch, self.ledger(key))

    def out_of_range(self, key: TopicIdPartition, offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """A consumer was told that there is nothing where it has read before."""
        self.tell(key, f"a consumer is out of range at {offset}")
        for check in self.invariants.out_of_range:
            check(offset, leader_epoch, self.ledger(key))

    # --- the story ------------------------------------------------------------------------------

    def tell(self, key: TopicIdPartition | None, text: str) -> None:
        """Remember what happened, to one partition or to all."""
        now_ms = self.scheduler.now_ms
        self.scheduler.note(text)
        self._story.append((now_ms, key, text))
        if self._on_story is not None:
            self._on_story(_line(now_ms, key, text))

    def story_about(self, key: TopicIdPartition | None) -> list[str]:
        """Return the last of what happened to one partition, or to none in particular."""
        lines = [
            _line(now_ms, about, text) for now_ms, about, text in self._story if about is None or about == key
        ]
        return lines[-STORY_SHOWN:]


def _eligible(partition: PartitionRegistration) -> str:
    if not partition.elr and not partition.last_known_elr:
        return ""
    return f"eligible {partition.elr}, last leader {partition.last_known_elr}, "


def _line(now_ms: int, key: TopicIdPartition | None, text: str) -> str:
    about = "" if key is None else f" [{key.topic_id.int}-{key.partition}]"
    return f"{now_ms:>6} ms{about} {text}"
