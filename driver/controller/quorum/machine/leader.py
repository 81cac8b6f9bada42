"""The leader of the metadata log: the high watermark, the majority, and the changes of voters.

A pure machine, fed by the fetches of brokers. The leader itself does not vote and its own disk does not count
(it may have come without one), so the high watermark is the offset beyond which a majority of the voters has
fetched: each flushes its records before it fetches the next ones.

The rules:

- The high watermark first moves when a record of the leader's own epoch is on a majority: counting alone does
  not commit records of earlier leaders (Raft, 5.4.2). It never moves back.
- A voter set is in force from the moment it is appended, and the next one waits until it is committed. Each
  differs from the one before by one voter, so that majorities of the two overlap (KIP-853).
- A leader that has not heard from a majority for `fetch_timeout_ms` may have a successor: it renews no lease.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.types import BrokerId, LeaderEpoch, Offset


@dataclass(slots=True)
class ReplicaProgress:
    log_end_offset: Offset
    """It has everything below on its disk."""
    last_fetch_ms: int
    last_caught_up_ms: int | None
    """When it last fetched from the end of the leader's log; None for never."""


class QuorumLeader:
    def __init__(
        self,
        leader_epoch: LeaderEpoch,
        voters: VoterSet,
        epoch_start_offset: Offset,
        *,
        wanted_voters: Collection[BrokerId],
        fetch_timeout_ms: int,
        now_ms: int,
    ) -> None:
        """Begin an epoch whose first record gets `epoch_start_offset`.

        `wanted_voters` are the brokers that vote if all is well; they join and leave as their disks do.
        """
        self.leader_epoch = leader_epoch
        self.voters = voters
        """In force: the last set in the log, committed or not."""
        self.high_watermark: Offset = 0
        """Exclusive; 0 until a record of this epoch is committed."""
        self.replicas: dict[VoterKey, ReplicaProgress] = {}
        """Voters and observers that have fetched."""
        self._epoch_start_offset = epoch_start_offset
        self._wanted_voters = frozenset(wanted_voters)
        self._fetch_timeout_ms = fetch_timeout_ms
        self._began_ms = now_ms
        self._voters_end_offset: Offset = 0

    def fetched(self, key: VoterKey, fetch_offset: Offset, log_end_offset: Offset, now_ms: int) -> bool:
        """A replica whose log agrees with the leader's up to `fetch_offset` fetches from there on.

        Returns whether the high watermark has moved.
        """
        replica = self.replicas.get(key)
        if replica is None:
            replica = self.replicas[key] = ReplicaProgress(fetch_offset, now_ms, None)
        replica.log_end_offset = fetch_offset
        replica.last_fetch_ms = now_ms
        if fetch_offset >= log_end_offset:
            replica.last_caught_up_ms = now_ms
        return key in self.voters and self._advance_high_watermark()

    def heard(self, key: VoterKey, now_ms: int) -> None:
        """A replica fetches a snapshot: it is alive, but its progress is unknown."""
        replica = self.replicas.setdefault(key, ReplicaProgress(0, now_ms, None))
        replica.last_fetch_ms = now_ms

    def voters_appended(self, voters: VoterSet, end_offset: Offset) -> None:
        """A record that puts `voters` in force ends at `end_offset`."""
        assert self.high_watermark >= self._voters_end_offset, "one change of the voters at a time"
        self.voters = voters
        self._voters_end_offset = end_offset

    def has_majority(self, now_ms: int) -> bool:
        """Whether a majority of the voters has fetched within the fetch timeout."""
        if now_ms - self._began_ms < self._fetch_timeout_ms:
            return True
        return self.voters.is_majority(key for key in self.voters.keys if self._is_heard(key, now_ms))

    def want_voters(self, wanted_voters: Collection[BrokerId]) -> None:
        """Change the brokers that vote if all is well: some have come, or leave."""
        self._wanted_voters = frozenset(wanted_voters)

    def next_voters(
        self, announced: Collection[AnnouncedBroker], now_ms: int, leaving: Collection[BrokerId] = ()
    ) -> VoterSet | None:
        """Return the voter set to append now, one voter away from the present one; None if it may stay.

        A wanted broker that has come back with another directory replaces the voter it was: that one is
        removed first, and the broker joins when it has caught up. Any other wanted broker joins likewise.
        Voters that are not wanted leave when all wanted ones vote. One of an even number leaves before that:
        as many voters may be lost without it. A broker in `leaving` is about to end, and gets no vote.
        """
        if self.high_watermark < max(self._voters_end_offset, self._epoch_start_offset + 1):
            return None
        for broker in sorted(announced):
            key = broker.key
            if key.node_id not in self._wanted_voters or key.node_id in leaving or key in self.voters:
                continue
            if not self._is_caught_up(key, now_ms):
                continue
            predecessor = self.voters.with_node(key.node_id)
            if predecessor is None:
                return self.voters.with_voter(Voter(key, broker.host, broker.port))
            if self._is_heard(predecessor.key, now_ms):
                continue
            remaining = self.voters.without(predecessor.key)
            if self._is_caught_up_majority(remaining, now_ms):
                return remaining
        return self._without_unwanted(now_ms)

    def _without_unwanted(self, now_ms: int) -> VoterSet | None:
        unwanted = sorted(key for key in self.voters.keys if key.node_id not in self._wanted_voters)
        if not unwanted:
            return None
        are_all_here = len(unwanted) + len(self._wanted_voters) <= len(self.voters)
        if not are_all_here and len(self.voters) % 2 == 1:
            return None
        remaining = self.voters.without(unwanted[-1])
        return remaining if self._is_caught_up_majority(remaining, now_ms) else None

    def are_voters_caught_up(self, now_ms: int) -> bool:
        """Whether any one voter may be away without the others lacking a majority."""
        return all(self._is_caught_up(key, now_ms) for key in self.voters.keys)

    def _is_caught_up_majority(self, voters: VoterSet, now_ms: int) -> bool:
        return len(voters) > 0 and voters.is_majority(
            key for key in voters.keys if self._is_caught_up(key, now_ms)
        )

    def _advance_high_watermark(self) -> bool:
        ends = sorted(
            (self.replicas[key].log_end_offset for key in self.voters.keys if key in self.replicas),
            reverse=True,
        )
        if len(ends) < self.voters.majority:
            return False
        end_offset = ends[self.voters.majority - 1]
        if end_offset <= self._epoch_start_offset or end_offset <= self.high_watermark:
            return False
        self.high_watermark = end_offset
        return True

    def _is_heard(self, key: VoterKey, now_ms: int) -> bool:
        replica = self.replicas.get(key)
        return replica is not None and now_ms - replica.last_fetch_ms < self._fetch_timeout_ms

    def _is_caught_up(self, key: VoterKey, now_ms: int) -> bool:
        replica = self.replicas.get(key)
        return (
            replica is not None
            and replica.last_caught_up_ms is not None
            and now_ms - replica.last_caught_up_ms < self._fetch_timeout_ms
        )
