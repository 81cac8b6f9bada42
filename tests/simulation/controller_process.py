"""The driver's process: the production candidate until it has won, then the production controller.

It mirrors `sparklog.driver.controller.server` and `sparklog.driver.controller.quorum.candidacy`: brokers
announce themselves, the longest copy of the metadata log is copied, votes are asked for. Its own copy begins
empty and counts nothing.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.quorum.machine import candidate as machine
from sparklog.driver.controller.quorum.machine.candidate import (
    AnnouncedBroker,
    BecomeLeader,
    Candidate,
    ExpectedBroker,
)
from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer, VoteRequest
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode
from tests.simulation.active_controller import ActiveController
from tests.simulation.metadata_copy import MetadataCopy, Reading
from tests.simulation.network import Connection, Link, Process, Reply
from tests.simulation.quorum_messages import (
    Announcement,
    AskLogEnd,
    CopyFetch,
    MetadataFetch,
    Vote,
    refused,
)

if TYPE_CHECKING:
    from tests.simulation.cluster import World

CLUSTER_ID: Final = "simulated"
TICK_MS: Final = 100


class NotController:
    """What a driver answers that does not lead."""

    error_code = ErrorCode.not_controller
    broker_epoch = -1
    is_fenced = True
    should_shut_down = False
    topics = ()


class ControllerProcess(Process):
    """One life of the driver."""

    def __init__(self, world: "World", host: str, number: int) -> None:
        super().__init__(
            world.network,
            host,
            clock_offset_ms=world.scheduler.random.randrange(10**6),
            drift=world.scheduler.random.uniform(-world.max_drift, world.max_drift),
        )
        self.world = world
        self.name = f"driver {number}"
        self.key = VoterKey(CONTROLLER_ID, UUID(int=10**15 + number))
        self.copy = MetadataCopy()
        expected = [
            ExpectedBroker(broker_id, f"rack-{broker_id % world.rack_count}") for broker_id in world.disks
        ]
        self._expected = expected
        self._candidate = Candidate(expected, CLUSTER_ID)
        self.active_controller: ActiveController | None = None
        self._links: dict[str, Link] = {}
        self.after(TICK_MS, self._tick)

    # --- requests -------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: Any, reply: Reply) -> None:
        active_controller = self.active_controller
        match message:
            case Announcement(broker):
                if active_controller is None:
                    self._carry_out(self._candidate.broker_announced(broker, self.now_ms))
                else:
                    active_controller.broker_announced(broker)
                reply(True)
            case MetadataFetch():
                if active_controller is None:
                    reply(refused(ErrorCode.not_controller))
                else:
                    active_controller.fetch(message, reply)
            case _:
                if active_controller is None:
                    reply(NotController())
                else:
                    active_controller.handle(connection, message, reply)

    @property
    def asks_for_pre_votes(self) -> bool | None:
        """Whether the round of votes that is under way is one of pre-votes; None while there is none."""
        votes = None if self.active_controller is not None else self._candidate._round
        return None if votes is None else votes.pre_vote

    @property
    def cluster_id(self) -> str:
        """The cluster that is led, or about to be."""
        assert self._candidate.cluster_id is not None
        return self._candidate.cluster_id

    def disconnected(self, connection: Connection) -> None:
        if self.active_controller is not None:
            self.active_controller.disconnected(connection)

    def ask(self, broker: AnnouncedBroker, message: Any, done: Any) -> None:
        """Ask a broker that has announced itself."""
        link = self._links.get(broker.host)
        if link is None:
            link = self._links[broker.host] = Link(self, broker.host)
        link.request(message, self.world.config.controller_quorum_request_timeout_ms, done)

    # --- the election ---------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.active_controller is None:
            self._carry_out(self._candidate.tick(self.now_ms))
        else:
            self.active_controller.tick()
        self.after(TICK_MS, self._tick)

    def _carry_out(self, effects: list[machine.Effect]) -> None:
        for effect in effects:
            match effect:
                case machine.AskLogEnd(key):
                    self._ask(key, AskLogEnd(), partial(self._log_end_answered, key))
                case machine.CopyLog(key):
                    self._copy(key)
                case machine.AskVote(key):
                    self._ask(key, self._vote(effect), partial(self._vote_answered, key, effect))
                case BecomeLeader():
                    self._lead(effect)

    def _ask(self, key: VoterKey, message: Any, done: Any) -> None:
        broker = self._candidate.announced_broker(key)
        if broker is not None:
            self.ask(broker, message, done)

    def _lost(self, key: VoterKey) -> None:
        if self.active_controller is None:
            self._carry_out(self._candidate.lost(key, self.now_ms))

    def _log_end_answered(self, key: VoterKey, position: LogPosition | None) -> None:
        if position is None:
            self._lost(key)
        elif self.active_controller is None:
            self._carry_out(self._candidate.log_end_answered(key, position, self.now_ms))

    def _copy(self, key: VoterKey) -> None:
        broker = self._candidate.announced_broker(key)
        if broker is None:
            self._copy_failed(key)
        else:
            fetch = CopyFetch(self.copy.end_offset, self.copy.epochs.latest)
            self.ask(broker, fetch, partial(self._copied, key))

    def _copy_failed(self, key: VoterKey) -> None:
        copy = self.copy
        voters = copy.voter_history.latest
        self._carry_out(self._candidate.copy_failed(key, copy.position, voters, self.now_ms))

    def _copied(self, key: VoterKey, reading: Reading | None) -> None:
        copy = self.copy
        if reading is None or reading.error_code is not ErrorCode.none:
            self._copy_failed(key)
            return
        if reading.snapshot is not None:
            copy.begin_behind(reading.snapshot)
        elif reading.diverging is not None:
            copy.truncate_to(copy.truncation_offset(reading.diverging))
        elif reading.batches:
            for batch in reading.batches:
                copy.append(batch)
        else:
            voters = copy.voter_history.latest
            self._carry_out(self._candidate.log_copied(key, copy.position, voters, self.now_ms))
            return
        self._copy(key)

    def _vote(self, ask: machine.AskVote) -> Vote:
        return Vote(
            VoteRequest(
                cluster_id=self._candidate.cluster_id,
                voter_id=ask.key.node_id,
                voter_directory_id=ask.key.directory_id,
                candidate=self.key,
                candidate_epoch=ask.leader_epoch,
                log=ask.position,
                pre_vote=ask.pre_vote,
            )
        )

    def _vote_answered(self, key: VoterKey, ask: machine.AskVote, answer: QuorumAnswer | None) -> None:
        if self.active_controller is not None:
            return
        if answer is None or answer.error_code not in (ErrorCode.none, ErrorCode.fenced_leader_epoch):
            self._lost(key)
            return
        effects = self._candidate.vote_answered(
            key, ask, answer.leader_epoch, granted=answer.vote_granted, now_ms=self.now_ms
        )
        self._carry_out(effects)

    def _lead(self, lead: BecomeLeader) -> None:
        self.world.wins(self, lead)
        self.active_controller = ActiveController(
            self, lead, machine.first_voters(self._expected), self._candidate.announced_brokers
        )

    def deposed(self, leader_epoch: int) -> None:
        """Another driver leads with a newer epoch: this one can change nothing any more."""
        self.world.tell(None, f"{self.name} is deposed by leader epoch {leader_epoch}")
        self.after(0, self.world.driver_ended, self)
