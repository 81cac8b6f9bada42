"""A whole cluster under one seed: brokers, drivers, clients, faults, under the eyes of an observer.

A run has three parts: the cluster forms, faults happen
while clients write and read, and everything is healed; then it must be well again within
`LIVENESS_BOUND_MS` of simulated time.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Final
from uuid import UUID

from sparklog.driver.controller.quorum.machine.candidate import BecomeLeader
from sparklog.driver.process.machine.supervision import Effect, GiveUp, RestartAt, StartChild, Supervision
from sparklog.node.config import BrokerConfig, SnapshotLimits
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.types import BrokerId, TopicIdPartition, TopicPartition
from sparklog.user.sink.decisions_topic import DECISIONS_TOPIC
from tests.simulation.async_client import AsyncClient
from tests.simulation.balancing import BROKERS, REPLACE_AFTER_MS, has_loads
from tests.simulation.broker_process import BrokerProcess
from tests.simulation.cleaning import IN_ONE_SEED_OF as CLEANED_IN_ONE_SEED_OF
from tests.simulation.clients import ClientProcess, Consumer, Producer
from tests.simulation.committed_readers import CommittedReader
from tests.simulation.controller_process import ControllerProcess
from tests.simulation.coordinating import (
    cleans_transactions,
    coordinates,
    has_members,
    has_sinks,
    has_transactions,
    is_rolling,
)
from tests.simulation.disk import Disk
from tests.simulation.faults import Faults
from tests.simulation.few_epochs import few_epochs
from tests.simulation.group_clients import GroupClient
from tests.simulation.invariant import Violation
from tests.simulation.invariants import LIVENESS, NO_CRASH
from tests.simulation.liveness import unsettled, waits_for_the_lost
from tests.simulation.measured_loads import DELETE_DELAY_MS, LoadMeter
from tests.simulation.member_group import MemberGroup, Protocol
from tests.simulation.moves import Moves
from tests.simulation.network import Link, Network
from tests.simulation.observer import Observer, Outcome
from tests.simulation.rolling_restart import RollingRestart
from tests.simulation.scheduler import Scheduler
from tests.simulation.topics import (
    UNCLEAN_ELECTION,
    TopicPlan,
    configuration,
    deletion,
    growth,
    unclean_election,
)
from tests.simulation.transaction_clients import Copier, TransactionalClient, Writer

LIVENESS_BOUND_MS: Final = 20_000
FORMING_MS: Final = 1_500
_BEGINNING_MS: Final = 1_500
"""How long transactions, and groups with members, are left alone at first."""
_FAULTS_MS: Final = (2_500, 4_000, 8_000)
_TRANSACTIONS_FAULTS_MS: Final = (1_500, 2_500, 4_000)
"""Where each millisecond is dear: many short seeds find more than few long ones (see the document)."""
_ZOMBIE_MS: Final = (3_000, 3_000, 8_000)
"""For up to how long Spark lets the brokers of an application run that is gone; longer if it hangs."""
_ADMIN_TIMEOUT_MS: Final = 2_000
_SESSIONS_MS: Final = (800, 2_000, 4_000)
"""The session time-outs of groups' members: shorter than a failover, and longer."""
_RESTART_MS: Final = (20, 3_000)


class World(Observer):
    """The cluster and everything around it."""

    def __init__(self, seed: int, on_story: Callable[[str], None] | None = None) -> None:
        super().__init__(Scheduler(seed), seed, on_story)
        random = self.scheduler.random
        self.network = Network(self.scheduler)
        self.network.slow_share = random.choice((0.0, 0.01, 0.05, 0.2))
        broker_count = random.choice((3, 3, 3, 4, 5))
        if self.balances:
            broker_count = BROKERS
        self.rack_count = min(broker_count, 3) if random.random() < 0.5 else broker_count
        self.max_drift = random.choice((0.0, 0.0001, 0.005))
        self.fetch_max_bytes = random.choice((1, 200, 2_000))
        """Of a partition: one batch at a time, a few, or many."""
        self.config = _config(
            replica_lag_time_max_ms=random.choice((500, 1_000, 2_000, 4_000)),
            request_timeout_ms=random.choice((250, 1_000, 2_000)),
            balance_seconds=random.choice((2, 5)),
            session_timeout_ms=_SESSIONS_MS[-1 if is_rolling(seed) else seed // 32 % len(_SESSIONS_MS)],
            has_short_leases=has_members(seed) and not is_rolling(seed) and bool(seed // 32 % 2),
            balances=self.balances,
            delete_delay_ms=DELETE_DELAY_MS if has_loads(seed) else None,
        )
        self.snapshot_limits = SnapshotLimits(
            max_record_bytes=random.choice((5, 20, 10**9)),
            max_interval_ms=None,
            retention_bytes=None,
            retention_ms=None,
        )
        """Counted in records here."""
        self.compacts = seed % CLEANED_IN_ONE_SEED_OF == CLEANED_IN_ONE_SEED_OF - 1 or cleans_transactions(
            seed
        )
        self.load_meter = LoadMeter(self) if has_loads(seed) else None
        self.coordinates = coordinates(seed)
        self.transacts = has_transactions(seed) or has_sinks(seed)
        self.has_members = has_members(seed)
        self.has_sinks = has_sinks(seed)
        self._applications = 0
        self._driver_count = 0
        self._next_topic_id = 1_000
        self.starting: set[BrokerId] = set()
        self.accepts_writes = True
        self.is_rolling = self.has_members and is_rolling(seed)
        self.faults = RollingRestart(self) if self.is_rolling else Faults(self)
        self._moves = Moves(self, seed)
        self._incarnations = 0
        self._directories = 0
        for broker_id in range(broker_count):
            self.disks[broker_id] = Disk(self.new_directory_id(), compacts=self.compacts)
        self.start_application()
        for broker_id in range(broker_count):
            self.start_broker(broker_id)
        self._admin = ClientProcess(self, "admin")
        self._admin_links: dict[str, Link] = {}
        self.client = ClientProcess(self, "client")
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.topics: dict[str, TopicPlan] = {}
        self.group_clients: list[GroupClient] = []
        self.member_groups: list[MemberGroup] = []
        self.transaction_clients: list[TransactionalClient] = []
        self.committed_readers: list[CommittedReader] = []
        if self.has_sinks:
            self._add_sinks()
        elif self.transacts:
            self._add_transactions()
        else:
            self._add_topics()
            if self.coordinates:
                self._add_groups()
        for name in self.topics:
            self.scheduler.after(FORMING_MS // 2, self.create_topic, name)

    def _add_topics(self) -> None:
        """Have there be topics, and clients that write and read."""
        random = self.scheduler.random
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
        if self.balances:
            self.topics["many"] = TopicPlan("many", random.randint(6, 12), random.choice((2, 3, 3)), 1, False)

    def _add_groups(self) -> None:
        """Have there be coordinators of groups, and clients of theirs."""
        random = self.scheduler.random
        name = CONSUMER_OFFSETS_TOPIC
        self.topics[name] = TopicPlan(name, random.randint(1, 2), 3, random.randint(1, 2), False)
        for number in range(random.randint(2, 5)):
            self.group_clients.append(GroupClient(self.client, f"group{number}", "topic0"))
        if self.has_members:
            self.topics["shared"] = TopicPlan("shared", random.randint(2, 5), 1, 1, False)
            for number in range(random.randint(1, 3)):
                protocol = random.choice((*Protocol, Protocol.MIGRATING))
                timeout_ms = self.config.group_consumer_session_timeout_ms
                self.member_groups.append(MemberGroup(self, number, protocol, timeout_ms))

    def _add_transactions(self) -> None:
        """Have there be topics that are written in transactions, with both kinds of coordinators."""
        random = self.scheduler.random
        for name in ("topic0", "topic1", CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            self.topics[name] = TopicPlan(name, random.randint(1, 2), 3, 2, False)
        self.data_partitions = [
            TopicPartition(name, partition)
            for name in ("topic0", "topic1")
            for partition in range(self.topics[name].partitions)
        ]
        self.transaction_clients = [
            kind(self, transactional_id, f"{transactional_id}{rival}", is_first=rival == "a")
            for kind, transactional_id in ((Writer, "writer0"), (Writer, "writer1"), (Copier, "copier"))
            for rival in "ab"
        ]
        reader = AsyncClient(self)
        self.committed_readers = [CommittedReader(reader, where) for where in self.data_partitions]

    def _add_sinks(self) -> None:
        """Have Spark write exactly once, with both kinds of coordinators."""
        from tests.simulation.sinks import TOPICS, Sinks  # Spark takes a while to import

        random = self.scheduler.random
        for name in (*TOPICS, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, DECISIONS_TOPIC):
            self.topics[name] = TopicPlan(name, random.randint(1, 2), 3, 2, False)
        self._read_what_is_committed(TOPICS)
        self.sinks = Sinks(self)

    def _read_what_is_committed(self, topics: Iterable[str]) -> None:
        self.data_partitions = [
            TopicPartition(name, partition)
            for name in topics
            for partition in range(self.topics[name].partitions)
        ]
        reader = AsyncClient(self)
        self.committed_readers = [CommittedReader(reader, where) for where in self.data_partitions]

    @property
    def writers_have_settled(self) -> bool:
        """Whether nothing more is written, but for copies."""
        return all(client.has_settled for client in self.transaction_clients if isinstance(client, Writer))

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
        finally:
            if self.sinks is not None:
                self.sinks.close()
        if self.violations:
            outcome.violation = self.violations[0]
        if outcome.violation is not None:
            outcome.story = self.story_about(outcome.violation.key)
        outcome.trace_hash = self.scheduler.trace_hash
        outcome.event_count = self.scheduler.event_count
        outcome.simulated_ms = self.scheduler.now_ms
        outcome.has_lost = self.has_lost
        outcome.committed = sum(len(ledger.batches) for ledger in self.ledgers.values())
        return outcome

    def _run(self) -> None:
        scheduler = self.scheduler
        begin_ms = FORMING_MS + (_BEGINNING_MS if self.transacts or self.has_members else 0)
        faults_end_ms = begin_ms + scheduler.random.choice(
            _TRANSACTIONS_FAULTS_MS if self.transacts else _FAULTS_MS
        )
        scheduler.after(begin_ms, self.faults.begin, faults_end_ms)
        scheduler.after(begin_ms, self._moves.begin)
        for group in self.member_groups:
            if not self.is_rolling:
                scheduler.after(begin_ms, group.begin_mishaps)
        while not self.faults.may_end(faults_end_ms):
            self._step()
        faults_end_ms = max(faults_end_ms, scheduler.now_ms)
        self.faults.end()
        self._moves.end()
        for group in self.member_groups:
            group.end_mishaps()
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
            self._step()
        for key, ledger in self.ledgers.items():
            registration = self.decided(key)
            if registration is not None and registration.leader is not None:
                logs = [self.disks[broker_id].logs[key] for broker_id in registration.isr]
                for check in self.invariants.settled:
                    check(ledger, logs)
        if self.sinks is not None:
            self.sinks.check()

    def _step(self) -> None:
        self.scheduler.step()
        if self.violations:
            raise self.violations[0]

    def _give_up_the_lost(self) -> None:
        """Do what an administrator does when all faults are over and a partition still has no leader."""
        for topic in self.metadata.image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if waits_for_the_lost(self, partition):
                    self.elect_uncleanly(topic.name, TopicIdPartition(topic.topic_id, number))

    # --- processes ------------------------------------------------------------------------------

    @property
    def controller(self) -> ControllerProcess:
        """The newest driver, alive or not."""
        return self._newest

    @property
    def controller_host(self) -> str:
        """Where brokers are told that their driver is."""
        return f"driver-{self._applications}"

    def start_application(self) -> None:
        """Start a driver on another host; the brokers of the one before it end soon, and are started anew."""
        self._applications += 1
        self._supervision = Supervision()
        self._carry_out(self._supervision.begin(self.scheduler.now_ms), self._supervision)
        random = self.scheduler.random
        longest_ms = random.choice(_ZOMBIE_MS)
        for broker in list(self.brokers.values()):
            self.scheduler.after(random.randrange(longest_ms), self._end_zombie, broker)

    def _end_zombie(self, broker: BrokerProcess) -> None:
        if broker.alive and broker.controller_host != self.controller_host:
            self.tell(None, f"{broker.name} ends with its application")
            self.broker_ended(broker, silently=False)

    def start_driver(self) -> None:
        """Start a driver where the brokers look for it."""
        self._driver_count += 1
        driver = self._newest = ControllerProcess(self, self.controller_host, self._driver_count)
        self.drivers.append(driver)
        self.network.listening[driver.host] = driver
        self.tell(None, f"{driver.name} starts on {driver.host}")

    def driver_ended(self, driver: ControllerProcess) -> None:
        """A driver's process is no more; the newest one's supervisor starts another."""
        if not driver.alive:
            return
        self.drivers.remove(driver)
        if self.network.listening.get(driver.host) is driver:
            del self.network.listening[driver.host]
        driver.end(silently=False)
        if driver is self._newest:
            # The time of an interpreter to load, or of a supervisor to start the whole application again.
            load_ms = 1 + self.scheduler.random.randrange(1_000)
            effects = self._supervision.child_ended("SIGKILL", self.scheduler.now_ms)
            self._carry_out(effects, self._supervision, load_ms)

    def wins(self, driver: ControllerProcess, lead: BecomeLeader) -> None:
        """A driver has a majority of votes, and is about to lead."""
        super().wins(driver, lead)
        if driver is self._newest:
            self._supervision.child_leads({})

    def _carry_out(self, effects: Sequence[Effect], supervision: Supervision, load_ms: int = 0) -> None:
        for effect in effects:
            match effect:
                case StartChild():
                    self.start_driver()
                case RestartAt(at_ms):
                    pause_ms = max(load_ms, at_ms - self.scheduler.now_ms)
                    self.scheduler.after(pause_ms, self._supervise, supervision)
                case GiveUp():
                    # Its supervisor starts the application's driver again.
                    self.scheduler.after(load_ms, self._start_over, supervision)

    def _supervise(self, supervision: Supervision) -> None:
        if supervision is self._supervision:
            self._carry_out(supervision.tick(self.scheduler.now_ms), supervision)

    def _start_over(self, supervision: Supervision) -> None:
        if supervision is self._supervision:
            self._supervision = Supervision()
            self._carry_out(self._supervision.begin(self.scheduler.now_ms), self._supervision)

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
        failure = None if broker.lifecycle is None else broker.lifecycle.failure
        self.tell(None, f"{broker.name} leaves{'' if failure is None else f': {failure}'}")
        self.broker_ended(broker, silently=False)

    def broker_ended(
        self, broker: BrokerProcess, *, silently: bool, away_ms: tuple[int, int] = _RESTART_MS
    ) -> None:
        """A broker's process is no more; its supervisor starts another."""
        del self.brokers[broker.broker_id]
        self.network.listening.pop(broker.host, None)
        if silently:
            self.network.crashed_hosts.add(broker.host)
        broker.end(silently=silently)
        self.starting.add(broker.broker_id)
        for log in broker.disk.logs.values():
            log.seen = None
        delay_ms = self.scheduler.random.randint(*away_ms)
        self.scheduler.after(delay_ms, self.start_broker, broker.broker_id)

    def damage(self, broker: BrokerProcess, lose: Callable[[], None]) -> None:
        """Let a broker's disk lose something; what is known of its present epoch no longer holds."""
        registration = self.metadata.image.brokers.get(broker.broker_id)
        broker.disk.damaged_epoch = None if registration is None else registration.broker_epoch
        broker.disk.running_broker_epoch = None
        lose()

    def new_topic_id(self) -> UUID:
        """Return the id of a topic that is about to be created."""
        self._next_topic_id += 1
        return UUID(int=self._next_topic_id)

    def flush_ms(self) -> int:
        """How long the next fsync takes."""
        return self.scheduler.random.randint(1, 10)

    def may_lose_disk(self, broker_id: BrokerId) -> bool:
        """Whether enough of the voters' disks are left without a broker's.

        Fewer than a majority is more than anything can recover from.
        """
        if self.voters is None:
            return False
        in_force = [self.voters]
        in_force += [
            driver.active_controller.quorum.voters
            for driver in self.drivers
            if driver.active_controller is not None
        ]
        for voters in in_force:
            intact = [
                key
                for key in voters.keys
                if self.disks[key.node_id].directory_id == key.directory_id
                and not self.disks[key.node_id].lacks_metadata
            ]
            if voters.with_node(broker_id) is not None and (len(intact) < len(voters) or len(voters) < 3):
                return False
        return True

    def new_directory_id(self) -> UUID:
        """Return the id of a freshly formatted directory."""
        self._directories += 1
        return UUID(int=10**9 + self._directories)

    # --- administration -------------------------------------------------------------------------

    def create_topic(self, name: str) -> None:
        """Create a topic whenever it is not there, and have it grow while it has too few partitions."""
        self.scheduler.after(300 + self.scheduler.random.randrange(1_000), self.create_topic, name)
        plan, topic = self.topics[name], self.metadata.image.topics.by_name.get(name)
        if topic is None:
            self.ask_controller(plan.creation())
        elif len(topic.partitions) < plan.partitions:
            self.ask_controller(growth(name, plan.partitions))

    def grow_topic(self, name: str) -> None:
        """Have a topic get one partition more, with clients of its own."""
        plan = self.topics[name]
        self.topics[name] = plan._replace(partitions=plan.partitions + 1)
        self.producers.append(Producer(self.client, name, plan.partitions, all_acks=True))
        self.consumers.append(Consumer(self.client, name, plan.partitions))
        self.ask_controller(growth(name, plan.partitions + 1))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; it is made again, under the same name. What was written in transactions stays."""
        if not self.transacts:
            self.ask_controller(deletion(name))

    def disturb_coordinators(self) -> None:
        """Have a broker that coordinates groups end, or lead no more."""
        if isinstance(self.faults, Faults):
            self.faults.disturb_coordinators()

    def configure_topic(self, name: str, key: str, value: str) -> None:
        """Change one key of a topic's configuration."""
        if self.transacts and (key == UNCLEAN_ELECTION or value == "1"):
            # What is demanded of transactions is so only while nothing is lost.
            return
        self.ask_controller(configuration(name, key, value))

    def elect_uncleanly(self, topic: str, key: TopicIdPartition) -> None:
        """Prefer any leader to none: nobody who has everything will come back."""
        if key not in self.unclean_asked:
            self.unclean_asked.add(key)
            self.tell(key, "an administrator asks for an unclean election")
        self.ask_controller(unclean_election(topic, key.partition))

    def ask_controller(self, request: Any) -> None:
        """Send an administrator's request."""
        link = self._admin_links.get(self.controller_host)
        if link is None:
            link = self._admin_links[self.controller_host] = Link(self._admin, self.controller_host)
        link.request(request, _ADMIN_TIMEOUT_MS, lambda response: None)


def run_seed(seed: int, on_story: Callable[[str], None] | None = None) -> Outcome:
    """Simulate one cluster."""
    disabled, collects = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    # All that a seed makes goes with it: looking for what has gone meanwhile is a fifth of its time.
    gc.disable()
    try:
        with few_epochs(seed), spark_simulated(seed):
            outcome = World(seed, on_story).run()
    finally:
        logging.disable(disabled)
        if collects:
            gc.enable()
    gc.collect(0)
    return outcome


def spark_simulated(seed: int) -> AbstractContextManager[None]:
    """Have what runs in Spark's processes run in simulated time while inside, if this is such a seed."""
    if not has_sinks(seed):
        return nullcontext()
    from tests.simulation.sinks import sinks_simulated

    return sinks_simulated()


@cache
def _config(
    *,
    replica_lag_time_max_ms: int,
    request_timeout_ms: int,
    balance_seconds: int,
    session_timeout_ms: int,
    has_short_leases: bool,
    balances: bool,
    delete_delay_ms: int | None,
) -> BrokerConfig:
    # Shorter than the default: leases are to run out often in so short a time.
    leases = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    if has_short_leases:
        leases = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
    delay = {} if delete_delay_ms is None else {"log.segment.delete.delay.ms": str(delete_delay_ms)}
    return BrokerConfig.from_mapping(
        {
            **leases,
            **delay,
            "replica.lag.time.max.ms": str(replica_lag_time_max_ms),
            "controller.quorum.request.timeout.ms": str(request_timeout_ms),
            "request.timeout.ms": "1500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "100",
            "group.min.session.timeout.ms": "100",
            "group.consumer.min.session.timeout.ms": "100",
            "group.consumer.session.timeout.ms": str(session_timeout_ms),
            "group.consumer.min.heartbeat.interval.ms": "50",
            "group.consumer.heartbeat.interval.ms": "50",
            "leader.imbalance.check.interval.seconds": str(balance_seconds),
            "sparklog.balance.enable": "always" if balances else "false",
            "sparklog.replace.after.ms": str(REPLACE_AFTER_MS),
        }
    )
