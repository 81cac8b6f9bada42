"""A whole cluster under one seed: brokers, controller, clients, faults; and the observer that judges them.

`World` knows everything at once and tells nobody. A run has three parts: the cluster forms, faults happen
while clients write and read, and everything is healed; then it must be well again within
`LIVENESS_BOUND_MS` of simulated time.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from uuid import UUID

from executor.replication.replica import Replica
from sparklog.config import BrokerConfig
from sparklog.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from sparklog.storage.results import AppendInfo
from sparklog.types import BrokerId, LeaderEpoch, Offset, TopicIdPartition
from tests.simulation.broker_process import BrokerProcess
from tests.simulation.clients import ClientProcess, Consumer, Producer
from tests.simulation.controller_process import CONTROLLER_HOST, ControllerProcess, MetadataDisk
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.invariants import LIVENESS, NO_CRASH, Invariants, Violation
from tests.simulation.ledger import Ledger, Promise
from tests.simulation.liveness import unsettled, waits_for_the_lost
from tests.simulation.network import Link, Network
from tests.simulation.scheduler import Scheduler
from tests.simulation.topics import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    TopicPlan,
    configuration,
    deletion,
    unclean_election,
)

LIVENESS_BOUND_MS: Final = 20_000
FORMING_MS: Final = 1_500
STORY_LENGTH: Final = 3_000
STORY_SHOWN: Final = 40
_ADMIN_TIMEOUT_MS: Final = 2_000
_RESTART_MS: Final = (20, 3_000)


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
    losses: int = 0
    """Batches that were committed and may be lost: see `tests.simulation.ledger`."""
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


class World:
    """The cluster and everything around it."""

    def __init__(self, seed: int, on_story: Callable[[str], None] | None = None) -> None:
        self.scheduler = Scheduler(seed)
        random = self.scheduler.random
        self.network = Network(self.scheduler)
        self.network.slow_share = random.choice((0.0, 0.01, 0.05, 0.2))
        broker_count = random.choice((3, 3, 3, 4, 5))
        self.rack_count = min(broker_count, 3) if random.random() < 0.5 else broker_count
        self.max_drift = random.choice((0.0, 0.0001, 0.005))
        self.fetch_batches = random.choice((1, 2, 20))
        self.config = _config(
            replica_lag_time_max_ms=random.choice((500, 1_000, 2_000, 4_000)),
            request_timeout_ms=random.choice((250, 1_000, 2_000)),
            balance_seconds=random.choice((2, 5)),
        )
        self.metadata_disk = MetadataDisk()
        self.disks: dict[BrokerId, Disk] = {}
        self.brokers: dict[BrokerId, BrokerProcess] = {}
        """Those that are alive."""
        self.starting: set[BrokerId] = set()
        self.accepts_writes = True
        self.next_producer_id = 0
        self.deposed_for_silence: dict[tuple[TopicIdPartition, LeaderEpoch], int] = {}
        """When the controller gave a leadership away because nothing was heard of the leader."""
        self.unclean_asked: set[TopicIdPartition] = set()
        """Where an administrator has preferred a loss to waiting."""
        self.ledgers: dict[TopicIdPartition, Ledger] = {}
        self.outcome = Outcome(seed)
        self.invariants = Invariants(self)
        self.faults = Faults(self)
        self._on_story = on_story
        self._story: deque[tuple[int, TopicIdPartition | None, str]] = deque(maxlen=STORY_LENGTH)
        self._deciding = (EMPTY_IMAGE, EMPTY_IMAGE)
        self._incarnations = 0
        self._directories = 0
        self.start_controller()
        for broker_id in range(broker_count):
            self.disks[broker_id] = Disk(self.new_directory_id())
            self.start_broker(broker_id)
        self._admin = ClientProcess(self, "admin")
        self._admin_link = Link(self._admin, CONTROLLER_HOST)
        self.client = ClientProcess(self, "client")
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.topics: dict[str, TopicPlan] = {}
        for number in range(random.randint(1, 2)):
            name = f"topic{number}"
            self.topics[name] = plan = TopicPlan(
                name,
                random.randint(1, 2),
                random.choice((2, 3, 3)),
                random.randint(1, 2),
                random.random() < 0.15,
            )
            for partition in range(plan.partitions):
                self.producers.append(Producer(self.client, name, partition, all_acks=True))
                self.consumers.append(Consumer(self.client, name, partition))
                if random.random() < 0.3:
                    self.producers.append(Producer(self.client, name, partition, all_acks=False))
        for name in self.topics:
            self.scheduler.after(FORMING_MS // 2, self.create_topic, name)

    # --- running --------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        outcome = self.outcome
        try:
            self._run()
        except Violation as violation:
            outcome.violation = violation
        except Exception as error:  # whatever a machine raises is a finding
            outcome.violation = Violation(NO_CRASH, f"{type(error).__name__}: {error}")
            outcome.violation.__cause__ = error
        if outcome.violation is not None:
            outcome.story = self._story_about(outcome.violation.key)
        outcome.trace_hash = self.scheduler.trace_hash
        outcome.event_count = self.scheduler.event_count
        outcome.simulated_ms = self.scheduler.now_ms
        outcome.committed = sum(len(ledger.batches) for ledger in self.ledgers.values())
        return outcome

    def _run(self) -> None:
        scheduler = self.scheduler
        faults_end_ms = FORMING_MS + scheduler.random.choice((4_000, 8_000, 12_000))
        scheduler.after(FORMING_MS, self.faults.begin, faults_end_ms)
        while scheduler.now_ms < faults_end_ms:
            scheduler.step()
        self.faults.end()
        self.tell(None, "all faults are over")
        stop_writing_ms = faults_end_ms + 500
        next_look_ms = 0
        while True:
            if scheduler.now_ms >= stop_writing_ms:
                self.accepts_writes = False
                if scheduler.now_ms >= next_look_ms:
                    next_look_ms = scheduler.now_ms + 50
                    self._give_up_the_lost()
                    problem = unsettled(self)
                    if problem is None:
                        break
                    if scheduler.now_ms > faults_end_ms + LIVENESS_BOUND_MS:
                        raise Violation(
                            LIVENESS, f"{LIVENESS_BOUND_MS} ms after the last fault {problem[0]}", problem[1]
                        )
            scheduler.step()
        for key, ledger in self.ledgers.items():
            registration = self.decided(key)
            if registration is not None and registration.leader is not None:
                logs = [self.disks[broker_id].logs[key] for broker_id in registration.isr]
                for check in self.invariants.settled:
                    check(ledger, logs)

    def _give_up_the_lost(self) -> None:
        """Do what an administrator does when all faults are over and a partition still has no leader."""
        for topic in self.controller.committed_image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if waits_for_the_lost(self, partition):
                    self.elect_uncleanly(topic.name, TopicIdPartition(topic.topic_id, number))

    # --- processes ------------------------------------------------------------------------------

    def start_controller(self) -> None:
        """Start the driver."""
        self.controller = ControllerProcess(
            self.network, self.metadata_disk, self.config, self._decided, self._silent, self._forgive
        )
        self.network.listening[CONTROLLER_HOST] = self.controller
        for key, leader_epoch in list(self.deposed_for_silence):
            partition = self.decided(key)
            if partition is not None and partition.leader_epoch == leader_epoch:
                # Decided by the controller before this one, but not durably.
                del self.deposed_for_silence[key, leader_epoch]
        for key, ledger in self.ledgers.items():
            partition = self.decided(key)
            if ledger.losing and partition is not None and partition.leader_epoch < ledger.since_epoch:
                ledger.disallow_loss()
        self.tell(None, f"the controller starts, leader epoch {self.controller.leader_epoch}")

    def start_broker(self, broker_id: BrokerId) -> None:
        """Start a broker on its disk."""
        self.starting.discard(broker_id)
        self._incarnations += 1
        broker = BrokerProcess(self, broker_id, self.disks[broker_id], self._incarnations)
        self.brokers[broker_id] = broker
        self.network.crashed_hosts.discard(broker.host)
        self.network.listening[broker.host] = broker
        self.tell(None, f"broker {broker_id} starts")

    def broker_left(self, broker: BrokerProcess) -> None:
        """A broker's process has ended by itself."""
        failure = broker.lifecycle.failure
        self.tell(None, f"{broker.name} leaves{'' if failure is None else f': {failure}'}")
        self.broker_ended(broker, silently=False)

    def broker_failed(self, broker: BrokerProcess) -> None:
        """A broker's process has ended because its disk failed."""
        if broker.alive:
            self.tell(None, f"{broker.name} ends: its disk failed")
            self.broker_ended(broker, silently=False)

    def broker_ended(self, broker: BrokerProcess, *, silently: bool) -> None:
        """A broker's process is no more; its supervisor starts another."""
        del self.brokers[broker.broker_id]
        self.network.listening.pop(broker.host, None)
        if silently:
            self.network.crashed_hosts.add(broker.host)
        broker.end(silently=silently)
        self.starting.add(broker.broker_id)
        for log in broker.disk.logs.values():
            log.seen = None
        delay_ms = self.scheduler.random.randint(*_RESTART_MS)
        self.scheduler.after(delay_ms, self.start_broker, broker.broker_id)

    def damage(self, broker: BrokerProcess, lose: Callable[[], None]) -> None:
        """Let a broker's disk lose something; what is known of its present epoch no longer holds."""
        registration = self.controller.controller.image.brokers.get(broker.broker_id)
        broker.disk.damaged_epoch = None if registration is None else registration.broker_epoch
        broker.disk.running_broker_epoch = None
        lose()

    def new_directory_id(self) -> UUID:
        """Return the id of a freshly formatted directory."""
        self._directories += 1
        return UUID(int=10**9 + self._directories)

    # --- administration -------------------------------------------------------------------------

    def create_topic(self, name: str) -> None:
        """Create a topic whenever it is not there."""
        self.scheduler.after(300 + self.scheduler.random.randrange(1_000), self.create_topic, name)
        if name in self.controller.committed_image.topics.by_name:
            return
        self.ask_controller(self.topics[name].creation())

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is made again, under the same name."""
        self.ask_controller(deletion(name))

    def configure_topic(self, name: str, key: str, value: str) -> None:
        """Change one key of a topic's configuration."""
        self.ask_controller(configuration(name, key, value))

    def elect_uncleanly(self, topic: str, key: TopicIdPartition) -> None:
        """Prefer any leader to none: nobody who has everything will come back."""
        if key not in self.unclean_asked:
            self.unclean_asked.add(key)
            self.tell(key, "an administrator asks for an unclean election")
        self.ask_controller(unclean_election(topic, key.partition))

    def ask_controller(self, request: Any) -> None:
        """Send an administrator's request."""
        self._admin_link.request(request, _ADMIN_TIMEOUT_MS, lambda response: None)

    # --- what is so -----------------------------------------------------------------------------

    def ledger(self, key: TopicIdPartition) -> Ledger:
        """Return a partition's ledger."""
        ledger = self.ledgers.get(key)
        if ledger is None:
            ledger = self.ledgers[key] = Ledger(key)
        return ledger

    def decided(self, key: TopicIdPartition) -> PartitionRegistration | None:
        """Return a partition as the controller has decided, durable or not."""
        controller = self.controller
        image = controller.controller.image if controller.alive else controller.committed_image
        return image.topics.partition(key.topic_id, key.partition)

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

    def registered_anew(self, broker_id: BrokerId) -> bool:
        """Whether what is being decided is that another process has a broker's place."""
        before, after = (image.brokers.get(broker_id) for image in self._deciding)
        return before is not None and after is not None and before.broker_epoch != after.broker_epoch

    def in_sync(self, partition: PartitionRegistration) -> set[BrokerId]:
        """Return who has all that is committed, as far as the controller can know.

        Not who registers anew in this very decision: it may have lost anything.
        """
        members = {*partition.isr, *partition.elr}
        return {broker_id for broker_id in members if not self.registered_anew(broker_id)}

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
        allowed = after.leader not in in_sync and self.allows_unclean_election(key)
        if key in self.disks[after.leader].damaged:
            allowed = allowed or all(key in self.disks[broker_id].damaged for broker_id in in_sync)
        if allowed:
            self.tell(key, f"broker {after.leader} may miss records: nobody who has them may lead")
            self.ledger(key).allow_loss(after.leader_epoch, self.next_producer_id)

    def _forgive(self) -> None:
        """Forget what disks lost where it is known and durable that their brokers began anew."""
        controller = self.controller
        images = (controller.committed_image, controller.controller.image)
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

    def _silent(self, broker_id: BrokerId) -> None:
        self.tell(None, f"broker {broker_id} is fenced for its silence")
        for topic in self.controller.controller.image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if partition.leader == broker_id:
                    key = TopicIdPartition(topic.topic_id, number)
                    self.deposed_for_silence[key, partition.leader_epoch] = self.scheduler.now_ms

    def broker_acted(self, broker: BrokerProcess) -> None:
        """A broker's process did something: look at what it changed."""
        for key, replica in broker.replicas.items():
            log: Any = replica.log
            leader = replica.leader
            state = (replica.high_watermark, log.log_end_offset, log.epochs.latest, leader)
            if log.seen == state:
                continue
            log.seen = state
            ledger = self.ledger(key)
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
        key = _key(replica)
        self.tell(
            key,
            f"{broker.name} leads in epoch {registration.leader_epoch}, ISR {registration.isr}, log end "
            f"{replica.log.log_end_offset}, high watermark {replica.high_watermark}",
        )
        if replica.leader is not None and replica.leader.partition_epoch == registration.partition_epoch:
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
        assert replica.leader is not None
        self.disks[replica.leader.broker_id].damaged.discard(ledger.key)

    def image_replayed(self, broker: BrokerProcess, image: MetadataImage) -> None:
        """A broker has replayed up to an offset."""
        for check in self.invariants.image_replayed:
            check(broker, image)

    def appended(self, broker: BrokerProcess, replica: Replica, appended: AppendInfo) -> None:
        """A leader took a client's batch."""
        again = " once more" if appended.duplicate else ""
        self.tell(
            _key(replica), f"{broker.name} appends {appended.base_offset} to {appended.last_offset}{again}"
        )

    def followed(self, broker: BrokerProcess, replica: Replica, before: tuple[Offset, Offset]) -> None:
        """A follower took an answer in."""
        after = (replica.log.log_end_offset, replica.high_watermark)
        self.tell(_key(replica), f"{broker.name} follows: log end, high watermark {before} -> {after}")

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

    def _story_about(self, key: TopicIdPartition | None) -> list[str]:
        lines = [
            _line(now_ms, about, text)
            for now_ms, about, text in self._story
            if key is None or about is None or about == key
        ]
        return lines[-STORY_SHOWN:]


def run_seed(seed: int, on_story: Callable[[str], None] | None = None) -> Outcome:
    """Simulate one cluster."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        return World(seed, on_story).run()
    finally:
        logging.disable(disabled)


def _eligible(partition: PartitionRegistration) -> str:
    if not partition.elr and not partition.last_known_elr:
        return ""
    return f"eligible {partition.elr}, last leader {partition.last_known_elr}, "


def _line(now_ms: int, key: TopicIdPartition | None, text: str) -> str:
    about = "" if key is None else f" [{key.topic_id.int}-{key.partition}]"
    return f"{now_ms:>6} ms{about} {text}"


def _key(replica: Replica) -> TopicIdPartition:
    return TopicIdPartition(replica.topic_id, replica.topic_partition.partition)


@cache
def _config(*, replica_lag_time_max_ms: int, request_timeout_ms: int, balance_seconds: int) -> BrokerConfig:
    return BrokerConfig.from_mapping(
        {
            "replica.lag.time.max.ms": str(replica_lag_time_max_ms),
            "controller.quorum.request.timeout.ms": str(request_timeout_ms),
            "leader.imbalance.check.interval.seconds": str(balance_seconds),
        }
    )
