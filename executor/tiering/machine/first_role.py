"""Evidence that a leader's log has all that its tier has, by which it serves before it knows the manifest.

Membership of the ISR alone is none. An application that begins from the store has all replicas in its ISRs
while their logs are empty, and the last member of an ISR leads again after a power cut that has shortened its
log.

Rule: a record is evidence that was appended in this process, in a leadership not older than the first one in
which the replica had a role here. The leader of that record has served, so it had, or had adopted, all that
was in the tier before; a log is a prefix of its leader's; and what came into the tier afterwards was
committed, so every member of the ISR has it. The caller adds that the election was clean, from that ISR.
"""

from typing import NamedTuple

from sparklog.protocol.types import LeaderEpoch, Offset


class FirstRole(NamedTuple):
    """The first role of a replica since its log was opened."""

    leader_epoch: LeaderEpoch
    log_end_offset: Offset

    def is_outgrown(self, latest_epoch: LeaderEpoch | None, log_end_offset: Offset) -> bool:
        """Return whether the log has a record that was appended since, in this leader epoch or a later one.

        `latest_epoch` is that of the log's last record; None without records.

        >>> FirstRole(leader_epoch=5, log_end_offset=10).is_outgrown(5, 11)
        True
        >>> FirstRole(leader_epoch=5, log_end_offset=10).is_outgrown(4, 11)
        False
        """
        is_of_a_known_leader = latest_epoch is not None and latest_epoch >= self.leader_epoch
        return is_of_a_known_leader and log_end_offset > self.log_end_offset
