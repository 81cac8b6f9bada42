"""A driver's election as leader of the metadata log: from brokers that announce themselves to a vote.

A pure machine. Its caller carries out the effects that every method returns, in their order, and reports the
result of each: `log_end_answered`, `log_copied`, `vote_answered`; or, if a broker did not answer,
`copy_failed` or `lost`. `tick` lets time pass. The effect `BecomeLeader` is the last one.

    gathering      brokers announce themselves; each is asked how long its copy of the log is
    copying        the longest copy is copied, so that the driver, whose disk is empty, has a log of its own
    pre-voting     would a majority of the voters named by that log vote for it? (KIP-996)
    voting         a majority promises the new epoch, and with it to refuse all older ones

The rules:

- A voter votes only for a log that is at least as long as its own, so the log of a winner has every committed
  record (Raft's election restriction). If the driver's copy was too short it copies again.
- One copy is made at a time, and its end is waited for even when its source has gone: until then the length
  of the own log is unknown.
- The last voter set in the log names the voters (KIP-853). A majority of exactly these directories must
  have announced themselves; brokers with other directories do not count, however many they are.
- A new cluster is formed only when every broker of the application has announced itself, none belongs to a
  cluster with a log, and all its first voters vote: nothing may lie in a directory that has not been seen.
- A cluster whose metadata lies in an object store is formed under the same condition, and begins with what is
  there (`BeginAtStored`). Directories with a log of that cluster win, as they are newer, unless the stored
  snapshot is ahead of a majority of them: then another application has had the cluster since.

Source: KIP-595, KIP-853, KIP-996; D. Ongaro, Consensus: Bridging Theory and Practice, 3.6.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.node.metadata_log.machine.log_position import EMPTY_LOG, LogPosition
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.types import BrokerId, LeaderEpoch

RETRY_MS: Final = 50
"""Pause after a round of votes that was lost."""


class ExpectedBroker(NamedTuple):
    node_id: BrokerId
    rack: str


class AnnouncedBroker(NamedTuple):
    key: VoterKey
    cluster_id: str | None
    """The cluster to which its directories belong; None if they are blank."""
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class AskLogEnd:
    key: VoterKey


@dataclass(frozen=True, slots=True)
class CopyLog:
    """Make the own log equal to the broker's, truncating records that it does not have."""

    key: VoterKey


class StoredLog(NamedTuple):
    """The metadata of a cluster in an object store."""

    cluster_id: str
    position: LogPosition
    """The end of the log that the stored snapshot replaces."""
    uri: str


@dataclass(frozen=True, slots=True)
class BeginAtStored:
    """Begin the own log at the snapshot in the object store."""


@dataclass(frozen=True, slots=True)
class RefuseDirectories:
    """The brokers' directories and the object store contradict each other."""

    reason: str


@dataclass(frozen=True, slots=True)
class AskVote:
    key: VoterKey
    leader_epoch: LeaderEpoch
    position: LogPosition
    pre_vote: bool


@dataclass(frozen=True, slots=True)
class BecomeLeader:
    """Lead the log from its present end on."""

    leader_epoch: LeaderEpoch
    voters: VoterSet
    granting: frozenset[VoterKey]
    forms_cluster: bool
    """Whether the log does not name the voters yet."""


Effect = AskLogEnd | CopyLog | BeginAtStored | RefuseDirectories | AskVote | BecomeLeader


class ForeignClusterError(Exception):
    """A broker whose directories belong to another cluster announced itself."""

    def __init__(self, broker: AnnouncedBroker, cluster_id: str) -> None:
        """`cluster_id` is the one that this application serves."""
        super().__init__(
            f"the directories of broker {broker.key.node_id} on {broker.host} belong to cluster "
            f"{broker.cluster_id}, others of this application, or its sparklog.remote.uri, to {cluster_id}: "
            "name the log directories of one cluster, or remove those that do not belong to it"
        )


def first_voters(brokers: Iterable[ExpectedBroker]) -> tuple[BrokerId, ...]:
    """Return the voters of a new cluster: the first broker of each rack, of an odd number of racks.

    >>> first_voters(ExpectedBroker(node_id, f"rack-{node_id // 2}") for node_id in range(8))
    (0, 2, 4)
    """
    first: dict[str, BrokerId] = {}
    for node_id, rack in sorted(brokers):
        first.setdefault(rack, node_id)
    in_order = sorted(first.values())
    return tuple(in_order[: len(in_order) - (len(in_order) + 1) % 2])


class _Round:
    def __init__(self, leader_epoch: LeaderEpoch, asked: frozenset[VoterKey], pre_vote: bool) -> None:
        self.leader_epoch = leader_epoch
        self.pre_vote = pre_vote
        self.unanswered = set(asked)
        self.granting: set[VoterKey] = set()


class Candidate:
    def __init__(
        self, expected: Sequence[ExpectedBroker], new_cluster_id: str, *, awaits_store: bool = False
    ) -> None:
        """`new_cluster_id` is the id of the cluster if there turns out to be none yet.

        `awaits_store`: nothing is decided before `store_read`.
        """
        self.cluster_id: str | None = None
        """The cluster of the brokers, as soon as one belongs to any, or the new one that is formed."""
        self.position: LogPosition = EMPTY_LOG
        """The end of the driver's own copy."""
        self.voters: VoterSet | None = None
        """The voters that the own copy names."""
        self._expected = tuple(expected)
        self._new_cluster_id = new_cluster_id
        self._announced: dict[VoterKey, AnnouncedBroker] = {}
        """The brokers in touch."""
        self._silent: dict[BrokerId, AnnouncedBroker] = {}
        """Brokers that left a request unanswered, and have not announced themselves again."""
        self._log_ends: dict[VoterKey, LogPosition | None] = {}
        self._highest_epoch: LeaderEpoch = 0
        self._copying: VoterKey | None = None
        self._awaits_store = awaits_store
        self._stored: StoredLog | None = None
        self._begins_at_stored = False
        self._round: _Round | None = None
        self._retry_at_ms = 0
        self._has_won = False

    # --- events -----------------------------------------------------------------------------------

    def broker_announced(self, broker: AnnouncedBroker, now_ms: int) -> list[Effect]:
        """Note a broker, which is asked for its log's end; it may announce itself again, from another port.

        Raises:
            ForeignClusterError: its directories belong to another cluster than those seen before.
        """
        if broker.cluster_id is not None:
            if self.cluster_id is None:
                self.cluster_id = broker.cluster_id
            elif broker.cluster_id != self.cluster_id:
                raise ForeignClusterError(broker, self.cluster_id)
        if self._announced.get(broker.key) == broker:
            return self._advance(now_ms)
        for other in [key for key in self._announced if key.node_id == broker.key.node_id]:
            self._forget(other)
        self._silent.pop(broker.key.node_id, None)
        self._announced[broker.key] = broker
        self._log_ends[broker.key] = None
        return [AskLogEnd(broker.key), *self._advance(now_ms)]

    def lost(self, key: VoterKey, now_ms: int) -> list[Effect]:
        """A broker left a request unanswered; it gets no more until it announces itself again."""
        broker = self._announced.get(key)
        if broker is not None:
            self._silent[key.node_id] = broker
        self._forget(key)
        return self._advance(now_ms)

    def copy_failed(
        self, key: VoterKey, position: LogPosition, voters: VoterSet | None, now_ms: int
    ) -> list[Effect]:
        """A broker's log was copied in part only; the own log ends at `position` now and names `voters`."""
        self.position = position
        self.voters = voters
        self._copying = None
        return self.lost(key, now_ms)

    def log_end_answered(self, key: VoterKey, position: LogPosition, now_ms: int) -> list[Effect]:
        """A broker's copy ends at `position`."""
        if key in self._log_ends:
            self._log_ends[key] = position
            self._highest_epoch = max(self._highest_epoch, position.last_epoch)
        return self._advance(now_ms)

    def log_copied(
        self, key: VoterKey, position: LogPosition, voters: VoterSet | None, now_ms: int
    ) -> list[Effect]:
        """The own log is now a copy of the broker's; it ends at `position` and names `voters`."""
        self.position = position
        self.voters = voters
        self._copying = None
        if key in self._log_ends:
            self._log_ends[key] = position
        return self._advance(now_ms)

    def store_read(self, stored: StoredLog | None, now_ms: int) -> list[Effect]:
        """The object store has the metadata of this cluster, or of none."""
        self._awaits_store = False
        self._stored = stored
        if stored is not None and self.cluster_id not in (None, stored.cluster_id):
            self._has_won = True  # no election may follow
            return [
                RefuseDirectories(
                    f"the brokers' directories belong to cluster {self.cluster_id}, and {stored.uri} to "
                    f"{stored.cluster_id}: name another prefix, or other log directories"
                )
            ]
        if stored is not None:
            self.cluster_id = stored.cluster_id
        return self._advance(now_ms)

    def began_at_stored(self, position: LogPosition, now_ms: int) -> list[Effect]:
        """The own log begins, and ends, at `position`."""
        self.position = position
        self._begins_at_stored = False
        return self._advance(now_ms)

    def vote_answered(
        self, key: VoterKey, asked: AskVote, leader_epoch: LeaderEpoch, *, granted: bool, now_ms: int
    ) -> list[Effect]:
        """A broker whose epoch is now `leader_epoch` has answered the request `asked`."""
        self._highest_epoch = max(self._highest_epoch, leader_epoch)
        votes = self._round
        if votes is None or (votes.leader_epoch, votes.pre_vote) != (asked.leader_epoch, asked.pre_vote):
            return self._advance(now_ms)
        votes.unanswered.discard(key)
        if granted:
            votes.granting.add(key)
        return self._advance(now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        return self._advance(now_ms)

    # --- questions --------------------------------------------------------------------------------

    def announced_broker(self, key: VoterKey) -> AnnouncedBroker | None:
        """Return the broker with that directory, if it is in touch."""
        return self._announced.get(key)

    @property
    def announced_brokers(self) -> tuple[AnnouncedBroker, ...]:
        """All brokers that have announced themselves, for the leader.

        Also silent ones: a live broker that has a leader does not announce itself again.
        """
        return (*self._silent.values(), *self._announced.values())

    @property
    def missing_voters(self) -> tuple[BrokerId, ...]:
        """The absent voters of the own copy if the others are no majority."""
        if self.voters is None or self.voters.is_majority(self._announced):
            return ()
        return tuple(sorted(each.key.node_id for each in self.voters if each.key not in self._announced))

    def missing(self) -> str | None:
        """Return the missing voters or brokers in a sentence; None if none is missing."""
        if self.voters is not None:
            absent = [voter for voter in self.voters if voter.key not in self._announced]
            if self.voters.is_majority(self._announced):
                return None
            needed = self.voters.majority - (len(self.voters) - len(absent))
            return (
                f"cluster {self.cluster_id} needs {needed} more of its voters' directories: "
                + "; ".join(
                    f"that of broker {voter.key.node_id}, last on host {voter.host} "
                    f"(directory id {voter.key.directory_id})"
                    for voter in absent
                )
                + self._instead_of_directories()
            )
        present = {key.node_id for key in self._announced}
        absent_brokers = [broker for broker in self._expected if broker.node_id not in present]
        if not absent_brokers:
            return None
        return (
            "a new cluster is formed only when all brokers have come, and none of them has a log: "
            f"waiting for {', '.join(f'broker {node_id} of {rack}' for node_id, rack in absent_brokers)}"
        )

    def _instead_of_directories(self) -> str:
        if self._stored is None:
            return ""
        found = ", ".join(f"broker {key.node_id} on {each.host}" for key, each in self._announced.items())
        return (
            f". {self._stored.uri} has the cluster, too: it begins from there once the directories that are "
            f"left are removed, those of {found}"
        )

    # --- what to do next --------------------------------------------------------------------------

    def _forget(self, key: VoterKey) -> None:
        self._announced.pop(key, None)
        self._log_ends.pop(key, None)
        if self._round is not None:
            self._round.unanswered.discard(key)

    def _advance(self, now_ms: int) -> list[Effect]:
        if self._has_won or self._copying is not None or self._awaits_store or self._begins_at_stored:
            return []
        if self._round is not None:
            return self._count(now_ms)
        if now_ms < self._retry_at_ms or any(end is None for end in self._log_ends.values()):
            return []
        longest = max(self._log_ends, key=lambda key: (self._log_ends[key] or EMPTY_LOG, key), default=None)
        if longest is not None and (self._log_ends[longest] or EMPTY_LOG) > self.position:
            self._copying = longest
            return [CopyLog(longest)]
        if self._stored is not None and self._electorate() is not None:
            if self.voters is None and self.position == EMPTY_LOG:
                self._begins_at_stored = True
                return [BeginAtStored()]
            if self.position < self._stored.position:
                self._has_won = True  # no election may follow
                return [RefuseDirectories(self._older_than(self._stored))]
        return self._start_round(pre_vote=True)

    def _older_than(self, stored: StoredLog) -> str:
        return (
            f"the brokers' directories have cluster {stored.cluster_id} up to metadata offset "
            f"{self.position.end_offset} in leader epoch {self.position.last_epoch}, and {stored.uri} up to "
            f"{stored.position.end_offset} in {stored.position.last_epoch}: another application has gone on "
            "with it since. Remove the directories, and the cluster begins from there"
        )

    def _electorate(self) -> VoterSet | None:
        """Return the voters to ask; None while too few have announced themselves."""
        if self.voters is not None:
            return self.voters if self.voters.is_majority(self._announced) else None
        if self.missing() is not None:
            return None
        if self.cluster_id is None:
            self.cluster_id = self._new_cluster_id
        node_ids = first_voters(self._expected)
        return VoterSet.of(
            Voter(key, broker.host, broker.port)
            for key, broker in self._announced.items()
            if key.node_id in node_ids
        )

    def _start_round(self, *, pre_vote: bool) -> list[Effect]:
        electorate = self._electorate()
        if electorate is None:
            return []
        asked = electorate.keys & self._announced.keys()
        leader_epoch = max(self._highest_epoch, self.position.last_epoch) + 1
        self._round = _Round(leader_epoch, asked, pre_vote)
        return [AskVote(key, leader_epoch, self.position, pre_vote) for key in sorted(asked)]

    def _count(self, now_ms: int) -> list[Effect]:
        votes = self._round
        assert votes is not None, "only called during a round"
        electorate = self._electorate()
        if electorate is not None and self._is_enough(electorate, votes.granting):
            self._round = None
            if votes.pre_vote:
                return self._start_round(pre_vote=False)
            self._has_won = True
            return [
                BecomeLeader(
                    votes.leader_epoch,
                    electorate,
                    frozenset(votes.granting),
                    forms_cluster=self.voters is None,
                )
            ]
        if votes.unanswered:
            return []
        # Lost: a broker has a longer log by now, or a higher epoch, or has gone.
        self._round = None
        self._retry_at_ms = now_ms + RETRY_MS
        for key in self._log_ends:
            self._log_ends[key] = None
        return [AskLogEnd(key) for key in sorted(self._log_ends)]

    def _is_enough(self, electorate: VoterSet, granting: set[VoterKey]) -> bool:
        if self.voters is None:
            return electorate.keys <= granting
        return electorate.is_majority(granting)
