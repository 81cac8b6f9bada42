"""A small cluster in which nothing happens but what a story says, out of the production machines.

The controller, each broker's lifecycle and each replica's leader or follower are the machines that run in
production. Around them there is a log in memory for each replica, and a wire over which a fetch goes when the
story says so. What the controller decides reaches every broker that is up and not cut off, at once; time
passes only with `wait`.

There is one topic, `t`. Partition 0 has the replicas that the story names, partition 1 the same ones from the
second on, and so forth.
"""

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from kio.schema.broker_heartbeat.v2 import BrokerHeartbeatRequest
from kio.schema.delete_topics.v6 import DeleteTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicState
from kio.schema.elect_leaders.v2 import ElectLeadersRequest

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.executor.control.machine.broker_lifecycle import BrokerState
from sparklog.executor.partitions.machine.events import (
    BrokersChanged,
    IsrProposalAnswered,
    ProposeIsr,
    RegisteredBroker,
    Ticked,
)
from sparklog.node.config import topic_config
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, TopicIdPartition
from tests.scenarios.broker import Broker, Disk, alter_partition_request, new_lifecycle, role
from tests.scenarios.promises import Promises, divergences
from tests.scenarios.replica import Log, Replica, Tell
from tests.unit.driver.controller.conversation import Conversation, creatable, directory_of

TOPIC = "t"
STEP_MS = 100
UNCLEAN = 1


class Cluster:
    """The cluster of one story. Every command returns after saying what it led to, with `tell`."""

    def __init__(
        self,
        tell: Tell,
        *,
        brokers: int,
        replicas: tuple[BrokerId, ...],
        partitions: int,
        topic: dict[str, str],
        old_rule: bool,
    ) -> None:
        self._tell = tell
        self._old_rule = old_rule
        self._topic = topic
        self._assignments = {number: replicas[number:] + replicas[:number] for number in range(partitions)}
        self.now_ms = 0
        self.controller = Conversation(broker_session_timeout_ms="3000", broker_heartbeat_interval_ms="500")
        self.brokers: dict[BrokerId, Broker] = {}
        self.disks = {broker_id: Disk(directory_of(broker_id)) for broker_id in range(brokers)}
        self._promises = Promises()
        self._quiet = True
        for broker_id in range(brokers):
            self.start(broker_id)
        self._quiet = False
        self.create_topic()

    # --- what clients do --------------------------------------------------------------------------

    def produce(self, value: str, broker_id: BrokerId, number: int = 0, *, all_acks: bool) -> None:
        """A producer that takes the broker for the leader sends it a record."""
        broker = self.brokers.get(broker_id)
        if broker is not None and broker.lifecycle.holds_lease(self.now_ms):
            for key, replica in broker.replicas.items():
                if key.partition == number and replica.leader is not None:
                    replica.append(value, self.now_ms, all_acks=all_acks)
                    self._propose()
                    return
        self._say(f"{value} is not acknowledged: NOT_LEADER_OR_FOLLOWER")

    def delete_topic(self) -> None:
        """An administrator deletes the topic."""
        state = DeleteTopicState(name=TOPIC, topic_id=None)
        self._decided(self.controller.say(DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=1))))
        self._promises = Promises()

    def create_topic(self) -> None:
        """An administrator creates the topic."""
        self._decided(
            self.controller.create(creatable(TOPIC, assignments=self._assignments, configs=self._topic))
        )

    def elect_uncleanly(self) -> None:
        """An administrator would rather have an old log than none."""
        request = ElectLeadersRequest(
            election_type=UNCLEAN, topic_partitions=None, timeout=timedelta(seconds=1)
        )
        self._decided(self.controller.say(request))

    # --- replication ------------------------------------------------------------------------------

    def fetch(self, broker_id: BrokerId, *, answered: bool = True) -> None:
        """A follower asks the leaders it knows of for what follows, once."""
        broker = self.brokers[broker_id]
        for key, replica in list(broker.replicas.items()):
            fetch = replica.next_fetch
            if fetch is None or replica.follower is None:
                continue
            leader_id = replica.follower.leader_id
            leader = None if leader_id is None else self.brokers.get(leader_id)
            if leader is None or leader.is_cut_off or broker.is_cut_off:
                self._say(f"{replica} cannot reach broker {leader_id}")
                continue
            theirs = leader.replicas.get(key)
            if theirs is None:
                self._say(f"{replica} is refused: UNKNOWN_TOPIC_ID")
                continue
            response = theirs.answer(fetch, broker_id, broker.lifecycle.broker_epoch, self.now_ms)
            if answered:
                replica.take(fetch, response)
            else:
                self._say(f"the answer to {replica} is lost")
        self._propose()

    # --- brokers ----------------------------------------------------------------------------------

    def start(self, broker_id: BrokerId, *, empty: bool = False) -> None:
        """A broker's process starts, registers, and is unfenced when it has applied the metadata."""
        if empty:
            self.disks[broker_id] = Disk(UUID(int=self.disks[broker_id].directory_id.int + 100))
        disk = self.disks[broker_id]
        lifecycle = new_lifecycle(broker_id, disk, self.controller.image, self.now_ms)
        self.brokers[broker_id] = broker = Broker(broker_id, disk, lifecycle, self.controller.image)
        decision = self.controller.say(lifecycle.next_request(self.now_ms))
        lifecycle.registration_answered(decision.reply.error_code, decision.reply.broker_epoch, self.now_ms)
        self._decided(decision)
        self._heartbeat(broker)
        self._publish()
        self._tick_controller()

    def _tick_controller(self) -> None:
        """Let the controller do what is due, and ask brokers how far their logs reach."""
        controller = self.controller.controller
        while (decision := self.controller.take(controller.tick(self.now_ms))).records:
            self._decided(decision)
        for question in controller.log_questions(self.now_ms):
            broker = self.brokers[question.broker_id]
            if not broker.is_cut_off:
                self._say(f"broker {broker.broker_id} says how far its log reaches")
                positions = {
                    (TOPIC, key.partition): LogPosition(replica.log.last_epoch or 0, replica.log.end_offset)
                    for key, replica in broker.replicas.items()
                }
                decision = controller.log_question_answered(question, positions, self.now_ms)
                self._decided(self.controller.take(decision))

    def restart_unnoticed(self, broker_id: BrokerId) -> None:
        """A process ends and is there again before anybody has noticed, and takes its old place."""
        broker = self.brokers[broker_id]
        broker.replicas.clear()
        self._apply(broker, self.controller.image)

    def stop(self, broker_id: BrokerId) -> None:
        """A broker is asked to go: its leaderships move first."""
        broker = self.brokers[broker_id]
        broker.lifecycle.stop_asked(self.now_ms)
        while broker.lifecycle.state is not BrokerState.SHUTTING_DOWN:
            self._heartbeat(broker)
        self._end(broker)

    def kill(self, *broker_ids: BrokerId) -> None:
        """Processes end, all at once. What they had written is there: it is the kernel's."""
        ended = [self.brokers[broker_id] for broker_id in broker_ids]
        for broker in ended:
            self._end(broker)
        for broker in ended:
            epoch = broker.lifecycle.broker_epoch
            assert epoch is not None
            gone = self.controller.controller.broker_gone(broker.broker_id, epoch)
            self._decided(self.controller.take(gone))

    def cut_power(self, *broker_ids: BrokerId, losing: int) -> None:
        """Machines go down, all at once; so many records were not on the disk of the last one."""
        last = self.brokers[broker_ids[-1]].disk
        for log in last.logs.values():
            log.truncate(log.end_offset - losing)
        self.kill(*broker_ids)
        for broker_id in broker_ids:
            self.disks[broker_id].previous_broker_epoch = None

    def _end(self, broker: Broker) -> None:
        broker.disk.previous_broker_epoch = broker.lifecycle.broker_epoch
        del self.brokers[broker.broker_id]
        for replica in broker.replicas.values():
            replica.resign()

    def deafen(self, broker_id: BrokerId) -> None:
        """A broker's metadata stays what it is for now."""
        self.brokers[broker_id].hears_metadata = False

    def cut_off(self, broker_id: BrokerId) -> None:
        """Nothing passes between a broker and the rest of the cluster; clients still reach it."""
        self.brokers[broker_id].is_cut_off = True

    def heal(self, broker_id: BrokerId) -> None:
        """The broker is reached again."""
        broker = self.brokers[broker_id]
        broker.is_cut_off = False
        broker.hears_metadata = True
        self._apply(broker, self.controller.image)
        self._heartbeat(broker)
        self._publish()

    # --- time -------------------------------------------------------------------------------------

    def wait(self, milliseconds: int) -> None:
        """Let time pass for everybody."""
        for _ in range(0, milliseconds, STEP_MS):
            self.now_ms += STEP_MS
            self.controller.now_ms = self.now_ms
            for broker in list(self.brokers.values()):
                if broker.lifecycle.due_ms <= self.now_ms and not broker.is_cut_off:
                    self._heartbeat(broker)
                self._look_at_lease(broker)
                for replica in broker.replicas.values():
                    if replica.leader is not None:
                        replica.handle(Ticked(self.now_ms))
            self._propose()
            self._tick_controller()

    def _look_at_lease(self, broker: Broker) -> None:
        holds_lease = broker.lifecycle.holds_lease(self.now_ms)
        if broker.held_lease and not holds_lease and broker.replicas:
            self._say(f"the lease of broker {broker.broker_id} is over")
            for replica in broker.replicas.values():
                replica.lease_ended()
        broker.held_lease = holds_lease

    def _heartbeat(self, broker: Broker) -> None:
        lifecycle = broker.lifecycle
        registration = broker.image.brokers.get(broker.broker_id)
        epoch = None if registration is None else registration.broker_epoch
        lifecycle.metadata_applied(broker.image.offset, epoch, self.now_ms)
        request = lifecycle.next_request(self.now_ms)
        assert isinstance(request, BrokerHeartbeatRequest)
        decision = self.controller.say(request)
        reply = decision.reply
        lifecycle.heartbeat_answered(reply.error_code, reply.is_fenced, reply.should_shut_down, self.now_ms)
        lifecycle.metadata_fetched(self.now_ms + 1)
        self._decided(decision)

    # --- metadata ---------------------------------------------------------------------------------

    def _decided(self, decision: ControllerResult) -> None:
        if decision.records:
            self._publish()

    def _publish(self) -> None:
        for broker in list(self.brokers.values()):
            if not broker.is_cut_off and broker.hears_metadata:
                self._apply(broker, self.controller.image)
        for broker in self.brokers.values():
            # Whoever shuts down, or waits to be unfenced, must be known to have applied this.
            if not broker.is_cut_off and broker.hears_metadata:
                end_offset = broker.image.end_offset
                self.controller.controller.metadata_fetched(broker.broker_id, end_offset)
        self._propose()

    def _apply(self, broker: Broker, image: MetadataImage) -> None:
        before, broker.image = broker.image, image
        status = {other.broker_id: RegisteredBroker.of(other) for other in image.brokers.values()}
        if image.brokers != before.brokers:
            for replica in broker.replicas.values():
                if replica.leader is not None:
                    replica.handle(BrokersChanged(status, self.now_ms))
        self._drop_deleted(broker, image)
        config = topic_config(self.controller.config, image.topic_configs(TOPIC))
        for topic_id, topic in image.topics.by_id.items():
            for number, partition in topic.partitions.items():
                if broker.broker_id in partition.replicas:
                    key = TopicIdPartition(topic_id, number)
                    replica = broker.replicas.get(key) or self._open(broker, key)
                    epoch = broker.lifecycle.broker_epoch
                    replica.obey(partition, status, epoch, config.min_insync_replicas, self.now_ms)

    def _drop_deleted(self, broker: Broker, image: MetadataImage) -> None:
        for key in [key for key in broker.disk.logs if key.topic_id not in image.topics.by_id]:
            replica = broker.replicas.pop(key, None)
            log = broker.disk.logs.pop(key)
            if replica is None:
                self._say(f"broker {broker.broker_id} finds a stray log and sets it aside: {log}")
            else:
                replica.resign()
                self._say(f"{replica} deletes its log: {log}")

    def _open(self, broker: Broker, key: TopicIdPartition) -> Replica:
        replica = broker.replicas[key] = Replica(
            broker.broker_id,
            self._name(key.partition),
            broker.disk.logs.setdefault(key, Log()),
            self._say,
            self._acknowledge,
            truncates_to_high_watermark=self._old_rule,
        )
        return replica

    def _name(self, number: int) -> str:
        return f" {TOPIC}-{number}" if len(self._assignments) > 1 else ""

    def _acknowledge(self, value: str, *, all_acks: bool) -> None:
        self._say(f"{value} is acknowledged" + ("" if all_acks else " by the leader alone"))
        self._promises.given(value, all_acks=all_acks)

    # --- ISR changes ------------------------------------------------------------------------------

    def _propose(self) -> None:
        """Take leaders' proposals to the controller; those of whoever is cut off wait."""
        while proposed := next(self._proposals(), None):
            broker, key, replica, proposal = proposed
            members = [broker_id for broker_id, _ in proposal.new_isr]
            decision = self.controller.say(alter_partition_request(broker, key, proposal))
            answer = decision.reply.topics[0].partitions[0]
            outcome = "" if answer.error_code is ErrorCode.none else f": {answer.error_code.name.upper()}"
            self._say(f"{replica} proposes the ISR {_names(members)}{outcome}")
            if replica.leader is not None:
                replica.handle(
                    IsrProposalAnswered(
                        proposal,
                        answer.error_code,
                        frozenset(answer.isr),
                        answer.leader_epoch,
                        answer.partition_epoch,
                        self.now_ms,
                    )
                )
            self._decided(decision)

    def _proposals(self) -> Iterator[tuple[Broker, TopicIdPartition, Replica, ProposeIsr]]:
        for broker in self.brokers.values():
            if not broker.is_cut_off:
                for key, replica in broker.replicas.items():
                    if replica.proposals:
                        yield broker, key, replica, replica.proposals.pop(0)

    # --- what there is to see ---------------------------------------------------------------------

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._tell(line)

    def _partitions(self) -> list[tuple[TopicIdPartition, PartitionRegistration]]:
        return [
            (TopicIdPartition(topic_id, number), partition)
            for topic_id, topic in self.controller.image.topics.by_id.items()
            for number, partition in topic.partitions.items()
        ]

    def show(self) -> None:
        """Tell log, high watermark and log end of each replica, and what the controller has decided."""
        for key, partition in self._partitions():
            for broker_id in sorted(partition.replicas):
                log = self.disks[broker_id].logs.get(key) or Log()
                broker = self.brokers.get(broker_id)
                self._tell(
                    f"broker {broker_id}{self._name(key.partition)}   high watermark {log.high_watermark}   "
                    f"log end {log.end_offset}   log {log!s:15} {role(broker, key)}"
                )
            recovering = ", recovering" if partition.leader_recovery_state else ""
            leader = "nobody" if partition.leader is None else f"broker {partition.leader}"
            self._tell(
                f"leader{self._name(key.partition)} {leader}{recovering}, epoch {partition.leader_epoch}, "
                f"ISR {_names(partition.isr)}, eligible {_names(partition.elr)}"
            )

    def check(self) -> None:
        """Tell of promises newly broken, and of live replicas that differ below their high watermarks."""
        there: set[str] = set()
        for key, partition in self._partitions():
            logs = {id_: self.disks[id_].logs.get(key) or Log() for id_ in partition.replicas}
            # While nobody leads, nobody has lost anything.
            asked = logs if partition.leader is None else [partition.leader]
            there.update(record.value for broker_id in asked for record in logs[broker_id].records)
            up = {broker_id: logs[broker_id] for broker_id in sorted(logs) if broker_id in self.brokers}
            for line in divergences(up):
                self._tell(line)
        for line in self._promises.newly_broken(there):
            self._tell(line)


def _names(broker_ids: tuple[BrokerId, ...] | list[BrokerId]) -> str:
    return " ".join(map(str, broker_ids)) or "none"
