"""The replica that a consumer is sent to: one in its own rack, while that has what the consumer asks for.

Pure. Source: KIP-392, Kafka's ReplicaManager.findPreferredReadReplica and RackAwareReplicaSelector.
"""

from collections.abc import Callable

from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.protocol.types import BrokerId, Offset


def preferred_read_replica(
    leader: PartitionLeader,
    client_rack: str,
    rack_of: Callable[[BrokerId], str | None],
    fetch_offset: Offset,
    tiered_end_offset: Offset,
) -> BrokerId | None:
    """Return the follower to read from, or None: the leader itself.

    A follower outside the ISR may lag further and further, and its readers with it. Of several in the
    rack it is the one with the most records. A follower's local log may begin anywhere up to
    `tiered_end_offset` (0 without a tier), and only the leader serves what lies in the object store.
    """
    if fetch_offset < tiered_end_offset or rack_of(leader.broker_id) == client_rack:
        return None
    best: tuple[Offset, int, BrokerId] | None = None
    for broker_id, progress in leader.followers.items():
        end_offset, start_offset = progress.log_end_offset, progress.log_start_offset
        if (
            broker_id in leader.isr
            and end_offset is not None
            and start_offset is not None
            and start_offset <= fetch_offset <= end_offset
            and rack_of(broker_id) == client_rack
        ):
            candidate = (end_offset, progress.last_caught_up_ms or 0, broker_id)
            best = candidate if best is None else max(best, candidate)
    return None if best is None else best[2]
