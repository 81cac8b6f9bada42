"""Reading one partition for a Fetch: what its reader may see of the log, as regions of the log's files.

A consumer reads below the high watermark (the last stable offset with read_committed), of a follower below
the one that the follower knows (KIP-392); a follower reads to the end of the leader's log, and its fetch
offset tells the leader what it holds. Records that only the object store has are
read from there for consumers, and are not for followers (OFFSET_MOVED_TO_TIERED_STORAGE, KIP-405).
"""

import logging
from asyncio import Future
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

from sparklog.executor.api.fetch.cold_reads import ColdLookUp
from sparklog.executor.api.fetch.fetch_progress import FetchedPartition, FetchProgress
from sparklog.executor.api.fetch.fetch_sessions import FetchSessions
from sparklog.executor.partitions.damage_search import find_damage
from sparklog.executor.partitions.delayed_operations import DelayedOperations
from sparklog.executor.partitions.machine.damage import Damage
from sparklog.executor.partitions.machine.events import FollowerFetched
from sparklog.executor.partitions.machine.leader import PartitionLeader
from sparklog.executor.partitions.machine.preferred_read_replica import preferred_read_replica
from sparklog.executor.partitions.machine.replication_quota import ReplicationQuota
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.executor.remote_reads.row_group import gap_region
from sparklog.node.storage.file_region import FileRegion, NotCachedError
from sparklog.node.storage.machine.epoch_checks import fetch_divergence
from sparklog.node.storage.results import OffsetMovedToTierError
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.batch import CorruptBatchError
from sparklog.protocol.types import BrokerId, Offset

if TYPE_CHECKING:
    from sparklog.executor.remote_reads.remote_reader import RemoteReader

logger = logging.getLogger(__name__)


class FetchServices(NamedTuple):
    table: PartitionTable
    delayed: DelayedOperations
    executor: Executor
    """Reads beside the loop."""
    sessions: FetchSessions
    leader_quota: ReplicationQuota
    remote: "RemoteReader | None" = None
    """Reads records that only the object store has; None without a tier."""
    selects_by_rack: bool = False
    """Whether consumers are sent to replicas in their own racks (replica.selector.class)."""
    rack: str | None = None
    """The rack of this broker."""


def read_partition(
    replica: Replica, fetched: FetchedPartition, progress: FetchProgress, services: FetchServices
) -> None:
    """Read the partition of `fetched` into it, as far as there is room.

    Raises:
        KafkaError, OSError: it cannot be read.
    """
    params = progress.params
    asked = fetched.asked
    offset = asked.fetch_offset
    log = replica.log
    leader: PartitionLeader | None
    if params.broker_id is not None:
        leader = replica.require_leader_in(asked.current_leader_epoch)
    elif params.needs_leader:
        leader = replica.require_leader_for_client(asked.current_leader_epoch)
    else:
        leader = replica.taking_part_in(asked.current_leader_epoch)
    asked.is_touched = False
    start, end = log.log_start_offset, log.log_end_offset
    fetched.log_start_offset = start
    fetched.high_watermark, fetched.last_stable_offset = replica.high_watermark, replica.last_stable_offset
    fetched.diverging_epoch = fetch_divergence(log, asked.last_fetched_epoch, offset, start, end)
    if fetched.diverging_epoch is not None:
        return
    if leader is not None and params.rack_id and services.selects_by_rack:
        fetched.preferred_read_replica = _preferred(replica, leader, asked.fetch_offset, progress, services)
        if fetched.preferred_read_replica is not None:
            return
    broker_id = params.broker_id
    if broker_id is not None and start <= offset < log.local_log_start_offset:
        raise OffsetMovedToTierError(replica.topic_partition, offset, log.local_log_start_offset)
    limit: Offset
    if broker_id is not None:
        assert leader is not None, "a follower is served by the leader alone"
        known = leader.followers.get(broker_id)
        if progress.first_at_ms is None:
            fetched.is_unheard = known is not None and known.log_end_offset != offset
        else:
            moved = known is not None and known.log_start_offset != asked.log_start_offset
            fell_back = known is not None and offset < (known.log_end_offset or 0)
            replica.handle(
                FollowerFetched(
                    broker_id, params.broker_epoch, offset, asked.log_start_offset, progress.first_at_ms
                )
            )
            if moved:
                replica.low_watermark_moved()
            if fell_back:
                replica.progress.follower_fell_back()
            fetched.high_watermark = replica.high_watermark
            fetched.last_stable_offset = replica.last_stable_offset
            # A coordinator that has heard of it may have appended at once, and what it touched is read now.
            asked.is_touched = False
            end = log.log_end_offset
        limit = end
    elif params.read_committed:
        limit = fetched.last_stable_offset
    else:
        limit = fetched.high_watermark
    if broker_id is None and start <= offset < log.local_log_start_offset:
        if leader is None:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{replica}: offset {offset} is in the object store, for which a consumer asks the leader",
            )
        if _read_remotely(replica, fetched, progress, services):
            return
        # The tier has nothing between the fetch offset and the first local one.
        offset = log.local_log_start_offset
        if offset >= limit:
            epoch = log.epochs.epoch_at(asked.fetch_offset)
            _take_remote(fetched, gap_region(asked.fetch_offset, offset, epoch), progress)
            return
    if replica.unreadable.ranges:
        limit = replica.unreadable.limit(offset, limit)
    if offset >= limit:
        return
    if broker_id is not None and leader is not None and _is_held_back(replica, leader, broker_id, services):
        fetched.out_of_bytes = True
        return
    is_first_batch = not progress.has_records
    if progress.left_bytes == 0 and not is_first_batch:
        fetched.out_of_bytes = True
        return
    max_bytes = min(asked.max_bytes, progress.left_bytes)
    try:
        result = log.read(
            offset,
            max_bytes=max_bytes,
            up_to_offset=limit,
            min_one_batch=is_first_batch,
            cached_only=progress.cached_only,
        )
        if params.read_committed:
            fetched.aborted_transactions = log.aborted_transactions(
                offset, result.next_offset, cached_only=progress.cached_only
            )
    except NotCachedError:
        fetched.cold = ColdLookUp(log, offset, max_bytes, limit, is_first_batch, params.read_committed)
        return
    except (KafkaError, OSError) as error:
        read_failed(replica, offset, error)
        if leader is None and isinstance(error, CorruptBatchError):
            # The leader has these records. Consumers take this error for a change of leaders and ask it.
            raise KafkaError(
                ErrorCode.not_leader_or_follower, f"{replica} is damaged here: {error.message}"
            ) from error
        raise
    region = result.region
    if region is None:
        fetched.out_of_bytes = True
        return
    if broker_id is not None and leader is not None and asked.is_named:
        asked.is_named = False
        if replica.repeated_fetches.served(broker_id, offset, leader.leader_epoch):
            _look_for_damage(replica, region, offset, services)
    fetched.region = region
    fetched.size_bytes = region.length
    fetched.is_behind = result.next_offset < end


def _preferred(
    replica: Replica,
    leader: PartitionLeader,
    offset: Offset,
    progress: FetchProgress,
    services: FetchServices,
) -> BrokerId | None:
    """Return the follower in the consumer's rack, reachable by the listener that the consumer uses."""
    params = progress.params

    def rack_of(broker_id: BrokerId) -> str | None:
        found = services.table.endpoint(broker_id, params.listener_name)
        return None if found is None else found[1]

    tiered_end = replica.log.local_log_start_offset
    if replica.tier is not None:
        tiered_end = max(tiered_end, replica.tier.manifest.end_offset)
    elif replica.awaits_tier or replica.log.config.is_cut_by_local_retention:
        return None  # the manifest is not read yet
    return preferred_read_replica(leader, params.rack_id, rack_of, offset, tiered_end)


def _read_remotely(
    replica: Replica, fetched: FetchedPartition, progress: FetchProgress, services: FetchServices
) -> bool:
    """Read records of the object store; return whether it has any from the fetch offset on.

    Raises:
        KafkaError: they cannot be read now.
    """
    asked = fetched.asked
    fetched.is_remote = True
    if services.remote is None or replica.tier is None:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{replica}: offset {asked.fetch_offset} is in the object store only, whose manifest of the "
            f"partition is not here: local records begin at {replica.log.local_log_start_offset}",
        )
    is_first_batch = not progress.has_records
    if progress.left_bytes == 0 and not is_first_batch:
        fetched.out_of_bytes = True
        return True
    found = services.remote.read(
        replica.key,
        replica.tier,
        asked.fetch_offset,
        max_bytes=min(asked.max_bytes, progress.left_bytes),
        min_one_batch=is_first_batch,
    )
    if found is None:
        end_offset, local_start = replica.tier.manifest.end_offset, replica.log.local_log_start_offset
        if end_offset < local_start:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{replica}: the tier ends at {end_offset}, the local log begins at {local_start}: records "
                f"from {asked.fetch_offset} on are in neither",
            )
        fetched.is_remote = False
        return False
    fetched.load = found.load
    if found.region is None:
        fetched.out_of_bytes = True
    else:
        _take_remote(fetched, found.region, progress)
    return True


def _take_remote(fetched: FetchedPartition, region: FileRegion, progress: FetchProgress) -> None:
    fetched.is_remote = True
    fetched.region = region
    fetched.size_bytes = region.length
    if progress.params.read_committed:
        fetched.aborted_transactions = []


def counts_for_quota(replica: Replica, services: FetchServices) -> bool:
    """Whether records of a replica count for the replication quota of this leader."""
    partition = replica.topic_partition.partition
    return services.leader_quota.includes(replica.settings.leader_throttled, partition)


def _is_held_back(
    replica: Replica, leader: PartitionLeader, broker_id: BrokerId, services: FetchServices
) -> bool:
    """Whether a follower that is not in sync has to wait for the quota."""
    quota = services.leader_quota
    return (
        quota.is_bounded
        and broker_id not in leader.isr
        and counts_for_quota(replica, services)
        and quota.is_exceeded(services.delayed.now_ms())
    )


def read_failed(replica: Replica, offset: Offset, error: Exception) -> None:
    """Report a failed read to its replica as damage or as a storage error."""
    if isinstance(error, CorruptBatchError):
        replica.found_damage(Damage(offset, None, error.message))
    else:
        replica.fail_if_storage(error)


def _look_for_damage(replica: Replica, region: FileRegion, offset: Offset, services: FetchServices) -> None:
    """Examine the records that a follower refuses, in another thread."""

    def looked(looking: Future[Damage | None]) -> None:
        error = looking.exception()
        if error is not None:
            replica.fail_if_storage(error)
        elif (damage := looking.result()) is not None:
            replica.found_damage(damage)
        else:
            logger.warning(
                "%s: the records at offset %d are sound; why the follower does not take them, its log says",
                replica,
                offset,
            )

    logger.warning("%s: a follower asks for offset %d again and again, looking at it", replica, offset)
    services.delayed.run_in_executor(services.executor, find_damage, region, offset).add_done_callback(looked)
