"""Drivers and the brokers that vote for them, out of the production machines, for stories about controllers.

The candidate, the leader of the metadata log and the voters are the machines that run in production; around
them there are logs in memory, in which a record is a word, and requests that go when the story says so.
"""

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.driver.controller.quorum.machine.candidate import (
    AnnouncedBroker,
    AskLogEnd,
    AskVote,
    BecomeLeader,
    Candidate,
    CopyLog,
    Effect,
    ExpectedBroker,
)
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.executor.metadata.machine.quorum_voter import (
    NO_ELECTION,
    FetchOutcome,
    QuorumVoter,
    VoteRequest,
)
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey, VoterSet
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset
from tests.scenarios.replica import Log, Record, Tell

CLUSTER_ID = "c"
CONTROLLER_ID = 1_000_000
FETCH_TIMEOUT_MS = 2_000
STEP_MS = 100


@dataclass
class VoterProcess:
    """A broker's copy of the metadata log, and how it votes."""

    key: VoterKey
    machine: QuorumVoter
    log: Log = field(default_factory=Log)
    follows: str | None = None
    """The driver that said last, in an epoch that counts, that it leads."""
    under_way: dict[str, tuple[LeaderEpoch, list[Record]]] = field(default_factory=dict)
    """The drivers' answers that have not arrived: the epoch they were asked in, and what they bring."""


@dataclass
class DriverProcess:
    """A driver with a copy of the log."""

    name: str
    key: VoterKey
    log: Log = field(default_factory=Log)
    leader: QuorumLeader | None = None
    is_stopped: bool = False
    had_majority: bool = True


class Quorum:
    """Voters, and the drivers of one story."""

    def __init__(self, tell: Tell, voters: int) -> None:
        self._tell = tell
        self.now_ms = 0
        keys = [VoterKey(broker_id, UUID(int=100 + broker_id)) for broker_id in range(voters)]
        self.voters = {
            key.node_id: VoterProcess(key, QuorumVoter(key, None, NO_ELECTION, FETCH_TIMEOUT_MS))
            for key in keys
        }
        self.drivers: dict[str, DriverProcess] = {}
        self._voters: VoterSet | None = None
        """What the log says since the first driver led."""

    # --- drivers ----------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """A driver starts with an empty disk, and tries once to lead the log."""
        key = VoterKey(CONTROLLER_ID, UUID(int=200 + len(self.drivers)))
        driver = self.drivers[name] = DriverProcess(name, key)
        self._campaign(driver)

    def _campaign(self, driver: DriverProcess) -> None:
        candidate = Candidate([ExpectedBroker(id_, f"rack-{id_}") for id_ in self.voters], CLUSTER_ID)
        effects: deque[Effect] = deque()
        for voter in self.voters.values():
            broker = AnnouncedBroker(voter.key, voter.machine.cluster_id, "127.0.0.1", 9093)
            effects += candidate.broker_announced(broker, self.now_ms)
        while effects:
            match effect := effects.popleft():
                case AskLogEnd(key):
                    position = _position(self.voters[key.node_id].log)
                    effects += candidate.log_end_answered(key, position, self.now_ms)
                case CopyLog(key):
                    driver.log.records[:] = self.voters[key.node_id].log.records
                    voters = self._voters if driver.log.records else None
                    effects += candidate.log_copied(key, _position(driver.log), voters, self.now_ms)
                    self._tell(f"driver {driver.name} copies the log of broker {key.node_id}: {driver.log}")
                case AskVote(key):
                    effects += self._ask(driver, candidate, effect)
                case BecomeLeader():
                    self._lead(driver, effect)
                    return
        self._tell(f"driver {driver.name} is not elected")

    def _ask(self, driver: DriverProcess, candidate: Candidate, ask: AskVote) -> list[Effect]:
        voter = self.voters[ask.key.node_id]
        request = VoteRequest(
            cluster_id=CLUSTER_ID,
            voter_id=ask.key.node_id,
            voter_directory_id=ask.key.directory_id,
            candidate=driver.key,
            candidate_epoch=ask.leader_epoch,
            log=ask.position,
            pre_vote=ask.pre_vote,
        )
        answer = voter.machine.vote(request, _position(voter.log), self.now_ms)
        would = "would vote" if ask.pre_vote else "votes"
        if not answer.vote_granted:
            would = "would not vote" if ask.pre_vote else "does not vote"
        self._tell(f"broker {ask.key.node_id} {would} for driver {driver.name} in epoch {ask.leader_epoch}")
        return candidate.vote_answered(
            ask.key, ask, answer.leader_epoch, granted=answer.vote_granted, now_ms=self.now_ms
        )

    def _lead(self, driver: DriverProcess, lead: BecomeLeader) -> None:
        self._tell(f"driver {driver.name} leads in epoch {lead.leader_epoch}")
        self._voters = lead.voters
        driver.leader = QuorumLeader(
            lead.leader_epoch,
            lead.voters,
            driver.log.end_offset,
            wanted_voters=list(self.voters),
            fetch_timeout_ms=FETCH_TIMEOUT_MS,
            now_ms=self.now_ms,
        )
        driver.log.records.append(Record("leads", lead.leader_epoch))
        self.begin(driver.name)

    def begin(self, name: str) -> None:
        """A driver tells every broker that it leads."""
        driver = self.drivers[name]
        leader = driver.leader
        assert leader is not None
        for broker_id, voter in self.voters.items():
            answer = voter.machine.begin_quorum_epoch(CLUSTER_ID, CONTROLLER_ID, leader.leader_epoch)
            if answer.error_code is ErrorCode.none:
                self._tell(f"broker {broker_id} follows driver {name} in epoch {leader.leader_epoch}")
                voter.follows = name
            else:
                self._tell(
                    f"broker {broker_id} refuses driver {name} in epoch {leader.leader_epoch}: "
                    f"{answer.error_code.name.upper()}, it is in epoch {answer.leader_epoch}"
                )

    def decide(self, value: str, name: str) -> None:
        """A driver decides something and appends it to its log."""
        driver = self.drivers[name]
        assert driver.leader is not None
        driver.log.records.append(Record(value, driver.leader.leader_epoch))
        self._tell(f"driver {name} appends {value} at offset {driver.log.end_offset - 1}")

    def stop(self, name: str) -> None:
        """A driver's process stands still."""
        self.drivers[name].is_stopped = True

    def go_on(self, name: str) -> None:
        """A driver's process goes on as if nothing had happened."""
        self.drivers[name].is_stopped = False

    # --- voters -----------------------------------------------------------------------------------

    def fetch(self, broker_id: BrokerId, *, answered: bool = True) -> None:
        """A broker asks the driver that it follows for what follows in the log."""
        voter = self.voters[broker_id]
        driver = self.drivers[voter.follows or ""]
        leader = driver.leader
        if driver.is_stopped or leader is None:
            self._tell(f"broker {broker_id} gets no answer from driver {driver.name}")
            return
        offset = _common(voter.log, driver.log)
        if offset < voter.log.end_offset:
            voter.machine.check_truncation(offset)
            cut = " ".join(map(str, voter.log.records[offset:]))
            voter.log.truncate(offset)
            self._tell(f"broker {broker_id} hears where its log parts from the driver's: without {cut}")
        before = leader.high_watermark
        if leader.fetched(voter.key, offset, driver.log.end_offset, self.now_ms):
            self._tell(f"driver {driver.name} has committed up to {leader.high_watermark}, before {before}")
        voter.under_way[driver.name] = (voter.machine.leader_epoch, driver.log.records[offset:])
        if answered:
            self.deliver(broker_id, driver.name)

    def deliver(self, broker_id: BrokerId, name: str) -> None:
        """The driver's answer to a broker's last fetch arrives."""
        voter = self.voters[broker_id]
        asked_in, records = voter.under_way.pop(name)
        leader = self.drivers[name].leader
        assert leader is not None
        outcome = voter.machine.fetch_answered(asked_in, CONTROLLER_ID, leader.leader_epoch, self.now_ms)
        if outcome is not FetchOutcome.COUNTS:
            self._tell(f"broker {broker_id} takes nothing from driver {name}: {outcome.value}")
        elif records:
            voter.log.records += records
            self._tell(f"broker {broker_id} writes {' '.join(map(str, records))}")
        voter.machine.appended(leader.high_watermark, voter.log.end_offset)

    # --- time, and what there is to see -----------------------------------------------------------

    def wait(self, milliseconds: int) -> None:
        """Let time pass; nobody fetches meanwhile."""
        for _ in range(0, milliseconds, STEP_MS):
            self.now_ms += STEP_MS
            for driver in self.drivers.values():
                if driver.leader is None or driver.is_stopped:
                    continue
                has_majority = driver.leader.has_majority(self.now_ms)
                if driver.had_majority and not has_majority:
                    self._tell(f"driver {driver.name} hears no majority, and renews no broker's lease")
                driver.had_majority = has_majority

    def show(self) -> None:
        """Tell every log, and how much of it is committed."""
        for driver in self.drivers.values():
            leader = driver.leader
            role = "does not lead"
            if leader is not None:
                role = f"epoch {leader.leader_epoch}   committed {leader.high_watermark}"
            stopped = "   stopped" if driver.is_stopped else ""
            self._tell(f"driver {driver.name}   {role}   log {driver.log}{stopped}")
        for broker_id, voter in self.voters.items():
            machine = voter.machine
            committed = machine.high_watermark or 0
            self._tell(
                f"broker {broker_id}   epoch {machine.leader_epoch}   committed {committed}   log {voter.log}"
            )


def _position(log: Log) -> LogPosition:
    return LogPosition(log.last_epoch or 0, log.end_offset)


def _common(one: Log, other: Log) -> Offset:
    count = 0
    for mine, theirs in zip(one.records, other.records, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
