"""Evidence that a leader's log has all that its tier has, by which it serves before it knows the manifest.

Membership of the ISR alone is none. An application that begins from the store has all replicas in its ISRs
while their logs are empty, and the last member of an ISR leads again after a power cut that has shortened its
log.

Rule: a record is evidence that was appended in this process, in a leadership not older than the first one in
which the replica had a role here, nor than the last one before it leads. The leader of that record has
served, so it had, or had adopted, all that was in the tier before; a log is a prefix of its leader's; and
what came into the tier afterwards was committed, so every member of the ISR has it. A partition without
writes has no such record: there it is evidence to have been that last leader, beside its manifest.

To have everything that its leader says is committed is no evidence for a follower. In an outage of the store
the leader may serve a log that a power cut has shortened. Until it is written to it adopts the tier when the
store is back, and its successor must do the same.

Evidence from before the last leadership does not count: a power cut may have shortened the log of the last
leader, and the replica's own log with it. The caller adds that the election was clean, from that ISR. After
an unclean one the role begins as if it were the first.
"""

from typing import NamedTuple

from sparklog.protocol.types import LeaderEpoch, Offset


class FirstRole(NamedTuple):
    """The first role of a replica since its log was opened, or since an unclean election."""

    leader_epoch: LeaderEpoch
    log_end_offset: Offset

    def is_outgrown(
        self,
        latest_epoch: LeaderEpoch | None,
        log_end_offset: Offset,
        last_role_epoch: LeaderEpoch,
        complete_epoch: LeaderEpoch | None = None,
    ) -> bool:
        """Return whether the log was complete since, in the last role's leader epoch or a later one.

        `latest_epoch` is that of the log's last record, None without records; `last_role_epoch` is that of
        the last role before the one that begins, not older than the first; `complete_epoch` that in which the
        replica last led beside the manifest, None for no such evidence.

        >>> FirstRole(leader_epoch=5, log_end_offset=10).is_outgrown(5, 11, last_role_epoch=5)
        True
        >>> FirstRole(leader_epoch=5, log_end_offset=10).is_outgrown(4, 11, last_role_epoch=5)
        False
        >>> FirstRole(leader_epoch=5, log_end_offset=10).is_outgrown(5, 11, last_role_epoch=6)
        False
        >>> first = FirstRole(leader_epoch=5, log_end_offset=10)
        >>> first.is_outgrown(4, 10, last_role_epoch=5, complete_epoch=5)
        True
        """
        if complete_epoch is not None and complete_epoch >= last_role_epoch:
            return True
        is_of_the_last_leader = latest_epoch is not None and latest_epoch >= last_role_epoch
        return is_of_the_last_leader and log_end_offset > self.log_end_offset
