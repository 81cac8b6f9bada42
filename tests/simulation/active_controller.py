"""The time in which a driver leads: the production controller over the production quorum.

It mirrors the shells `active_controller`, `metadata_fetches`, `api` and `broker_liveness` of
`sparklog.driver.controller`; the queue between decision and answer is the production one.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest

from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.unclean_recovery import LogQuestion
from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker, BecomeLeader
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import BrokerRegistrationChangeRecord, MetadataRecord
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterSet
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tests.simulation.measured_loads import REPORT_INTERVAL_MS
from tests.simulation.metadata_copy import MetadataBatch, MetadataCopy, Reading
from tests.simulation.network import Connection, Reply
from tests.simulation.quorum_messages import AskLogEnds, BeginEpoch, MetadataFetch, MetadataFetched

if TYPE_CHECKING:
    from tests.simulation.controller_process import ControllerProcess

_FENCED = 1
PARTITIONS_PER_DECISION = 2
"""So few that parts of what a broker's state changes lie between others' decisions, and drivers' deaths."""


class NotLeading:
    """A heartbeat's answer while no majority is there: no lease is renewed."""

    error_code = ErrorCode.not_controller
    is_fenced = True
    should_shut_down = False


class _Log:
    """The driver's copy, as decisions are appended to it."""

    def __init__(self, copy: MetadataCopy, leader_epoch: LeaderEpoch) -> None:
        self._copy = copy
        self.leader_epoch = leader_epoch

    @property
    def log_end_offset(self) -> Offset:
        return self._copy.end_offset

    def append(self, records: Sequence[MetadataRecord], voters: VoterSet | None = None) -> Offset:
        """Append records, or none for a control record; return the last one's offset."""
        base_offset = self.log_end_offset
        last_offset = base_offset + max(len(records), 1) - 1
        self._copy.append(MetadataBatch(base_offset, list(records), last_offset, self.leader_epoch, voters))
        return last_offset


class ActiveController:
    """A driver that leads."""

    def __init__(
        self,
        process: "ControllerProcess",
        lead: BecomeLeader,
        wanted_voters: Collection[BrokerId],
        announced: Collection[AnnouncedBroker],
    ) -> None:
        self._process = process
        self._world = world = process.world
        self._copy = copy = process.copy
        self.leader_epoch = lead.leader_epoch
        self._announced = {broker.key: broker for broker in announced}
        self._fetches: dict[int, tuple[MetadataFetch, Reply]] = {}
        self._fetch_number = 0
        self._progress_scheduled = False
        self._decision_scheduled = False
        self._log_questions: set[BrokerId] = set()
        self._loads_due_ms = 0
        self._brokers: dict[Connection, BrokerId] = {}
        cluster_id = process.cluster_id
        self.controller = Controller(
            cluster_id,
            world.config,
            world.new_topic_id,
            self._replayed(),
            partitions_per_decision=PARTITIONS_PER_DECISION,
        )
        self.quorum = QuorumLeader(
            lead.leader_epoch,
            lead.voters,
            copy.end_offset,
            wanted_voters=wanted_voters,
            fetch_timeout_ms=world.config.controller_quorum_fetch_timeout_ms,
            now_ms=process.now_ms,
        )
        self._log = _Log(copy, lead.leader_epoch)
        self.commit_queue = CommitQueue(
            self.controller,
            self._log,
            later=self._later,
            on_append=self._appended,
            on_commit=lambda _: None,
            on_failure=self._failed,
        )
        self._append_control(None)
        if lead.forms_cluster:
            self._append_control(lead.voters)
            self.quorum.voters_appended(lead.voters, copy.end_offset)
        self.decide(self.controller.bootstrap())
        for broker in announced:
            self._begin_quorum_epoch(broker)

    def _replayed(self) -> MetadataImage:
        snapshot = self._copy.snapshot
        image = EMPTY_IMAGE if snapshot is None else snapshot.image
        for batch in self._copy.batches:
            image, _ = replay_records(image, batch.records, batch.last_offset, batch.leader_epoch)
        return image

    # --- brokers --------------------------------------------------------------------------------

    def broker_announced(self, broker: AnnouncedBroker) -> None:
        """A broker has come, or does not know yet that this driver leads."""
        for key in [key for key in self._announced if key.node_id == broker.key.node_id]:
            del self._announced[key]
        self._announced[broker.key] = broker
        self._begin_quorum_epoch(broker)

    def _begin_quorum_epoch(self, broker: AnnouncedBroker) -> None:
        begin = BeginEpoch(
            self._process.cluster_id,
            CONTROLLER_ID,
            self.leader_epoch,
            broker.key.node_id,
            broker.key.directory_id,
        )
        self._process.ask(broker, begin, self._epoch_begun)

    def _epoch_begun(self, answer: QuorumAnswer | None) -> None:
        if answer is not None and answer.leader_epoch > self.leader_epoch:
            self._process.deposed(answer.leader_epoch)

    def handle(self, connection: Connection, message: Any, reply: Reply) -> None:
        """Decide about a request, and answer when it is committed."""
        now_ms = self._process.now_ms
        if type(message) is BrokerHeartbeatRequest and not self.quorum.has_majority(now_ms):
            reply(NotLeading())
            return
        broker_id = getattr(message, "broker_id", None)

        def answer(response: Any) -> None:
            if broker_id is not None and response.error_code is ErrorCode.none:
                self._brokers[connection] = broker_id
            reply(response)

        def decide() -> ControllerResult:
            decision = self.controller.handle(message, self._process.now_ms)
            if decision.is_first_part and type(message) is BrokerRegistrationRequest:
                registration = self.controller.image.brokers[message.broker_id]
                self._world.replaced[message.broker_id] = registration.broker_epoch
            return decision

        self.commit_queue.submit_parts(decide, answer)

    def disconnected(self, connection: Connection) -> None:
        """A broker's connection has ended: probe the listener of its present registration."""
        broker_id = self._brokers.pop(connection, None)
        registration = None if broker_id is None else self.controller.image.brokers.get(broker_id)
        if registration is not None:
            probe = (registration.broker_id, registration.broker_epoch, registration.incarnation_id)
            self._process.after(self._process.network.delay_ms(), self._probe, *probe)

    def _probe(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, incarnation_id: UUID) -> None:
        network, here, there = self._process.network, self._process.host, f"broker-{broker_id}"
        if there in network.crashed_hosts or network.is_cut(here, there) or network.is_cut(there, here):
            return
        listener = network.listening.get(there)
        # Every process listens on a port of its own.
        if listener is None or getattr(listener, "incarnation_id", None) != incarnation_id:
            self.decide(self.controller.broker_gone(broker_id, broker_epoch))

    def tick(self) -> None:
        """Let time pass."""
        self._note_loads()
        self._decide_next()
        if self.controller.is_settled:
            self._world.controller_rests(self.controller.image)
        self._ask_for_logs()
        voters = self.quorum.next_voters(
            self._announced.values(), self._process.now_ms, self.controller.leaving
        )
        if voters is not None:
            nodes = [key.node_id for key in sorted(voters.keys)]
            self._world.tell(None, f"{self._process.name} wants brokers {nodes} to vote")
            self._append_control(voters)
            self.quorum.voters_appended(voters, self._copy.end_offset)

    def _note_loads(self) -> None:
        """Report the loads of the brokers that can be reached, if that is due."""
        world, process = self._world, self._process
        if world.load_meter is None:
            return
        world.load_meter.look()
        if world.scheduler.now_ms < self._loads_due_ms:
            return
        self._loads_due_ms = world.scheduler.now_ms + REPORT_INTERVAL_MS
        for broker_id, broker in world.brokers.items():
            if not broker.stopped and not process.network.is_cut(broker.host, process.host):
                measured = broker_id, self.controller.image, process.now_ms
                disks, traffic = world.load_meter.disks(*measured), world.load_meter.traffic(*measured)
                delay_ms = process.network.delay_ms()
                process.after(delay_ms, self.controller.disks_reported, broker_id, disks)
                process.after(delay_ms, self.controller.traffic_reported, broker_id, traffic)

    def _appended(self) -> None:
        self._schedule_progress()
        if not self.controller.is_settled:
            self._schedule_decision()

    def _schedule_decision(self) -> None:
        if not self._decision_scheduled:
            self._decision_scheduled = True
            self._later(self._decide_next)

    def _later(self, action: Callable[[], None]) -> None:
        """Go on when the loop has done what else there is."""
        self._process.after(self._process.network.delay_ms(), action)

    def _decide_next(self) -> None:
        self._decision_scheduled = False
        decision = self.controller.tick(self._process.now_ms)
        for record in decision.records:
            if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == _FENCED:
                self._world.silent(self, record.broker_id)
        if decision.records:
            self.decide(decision)
        if decision.records or not self.controller.is_settled:
            self._schedule_decision()

    def _ask_for_logs(self) -> None:
        for question in self.controller.log_questions(self._process.now_ms):
            broker_id = question.broker_id
            broker = next((each for each in self._announced.values() if each.key.node_id == broker_id), None)
            if broker is not None and broker_id not in self._log_questions:
                self._log_questions.add(broker_id)
                self._process.ask(broker, AskLogEnds(question), partial(self._log_ends_reported, question))

    def _log_ends_reported(
        self, question: LogQuestion, positions: dict[tuple[str, int], LogPosition] | None
    ) -> None:
        self._log_questions.discard(question.broker_id)
        if positions is not None:
            self.decide(self.controller.log_question_answered(question, positions, self._process.now_ms))

    # --- commits --------------------------------------------------------------------------------

    def decide(self, decision: ControllerResult) -> None:
        """Commit a decision that nobody waits for."""
        self.commit_queue.submit(decision, lambda _: None)

    def _append_control(self, voters: VoterSet | None) -> None:
        self.controller.replay((), self._log.append((), voters), self.leader_epoch)
        self._schedule_progress()

    def _failed(self, error: BaseException) -> None:
        raise error

    def _schedule_progress(self) -> None:
        if not self._progress_scheduled:
            self._progress_scheduled = True
            self._process.after(0, self._progress)

    def _progress(self) -> None:
        self._progress_scheduled = False
        for number in list(self._fetches):
            if not self._is_at_end(self._fetches[number][0]):
                self._answer_fetch(number)

    # --- metadata fetches -----------------------------------------------------------------------

    def fetch(self, fetch: MetadataFetch, reply: Reply) -> None:
        """Take in what a replica has, and answer when there is something that it does not know."""
        registration = self.controller.image.brokers.get(fetch.key.node_id)
        if registration is not None and registration.broker_epoch == fetch.broker_epoch:
            self.controller.metadata_fetched(fetch.key.node_id, fetch.offset)
        if fetch.leader_epoch > self.leader_epoch:
            if fetch.key in self._announced:
                self._process.deposed(fetch.leader_epoch)
        elif fetch.leader_epoch == self.leader_epoch and self._agrees(fetch):
            now_ms = self._process.now_ms
            if self.quorum.fetched(fetch.key, fetch.offset, self._copy.end_offset, now_ms):
                self._committed()
        self._fetch_number += 1
        self._fetches[self._fetch_number] = (fetch, reply)
        if self._is_at_end(fetch):
            self._process.after(fetch.wait_ms, self._answer_fetch, self._fetch_number)
        else:
            self._answer_fetch(self._fetch_number)

    def _agrees(self, fetch: MetadataFetch) -> bool:
        reading = self._copy.read(fetch.offset, fetch.last_epoch)
        return reading.error_code is ErrorCode.none and reading.diverging is None and reading.snapshot is None

    def _is_at_end(self, fetch: MetadataFetch) -> bool:
        return (
            fetch.leader_epoch == self.leader_epoch
            and fetch.offset >= self._copy.end_offset
            and fetch.high_watermark >= self.quorum.high_watermark
            and self._agrees(fetch)
        )

    def _answer_fetch(self, number: int) -> None:
        waiting = self._fetches.pop(number, None)
        if waiting is None:
            return
        fetch, reply = waiting
        if fetch.leader_epoch > self.leader_epoch:
            reading = Reading(ErrorCode.unknown_leader_epoch)
        elif fetch.leader_epoch < self.leader_epoch:
            reading = Reading(ErrorCode.fenced_leader_epoch)
        else:
            reading = self._copy.read(fetch.offset, fetch.last_epoch)
        reply(MetadataFetched(reading, CONTROLLER_ID, self.leader_epoch, self.quorum.high_watermark))

    def _committed(self) -> None:
        high_watermark = self.quorum.high_watermark
        self._world.metadata_committed(self._process, self._copy, self.quorum)
        self.commit_queue.high_watermark_moved(high_watermark)
        self._schedule_progress()
