"""The follower of the metadata log, which fetches it into this broker's copy, epoch after epoch.

    wait for a leader -> flush -> Fetch in its epoch, from the own log's end -> append or truncate -> again
                                                                            -> or download a snapshot

Rules kept:
- Everything below the fetch offset is on disk, since that offset is this replica's vote for what is
  committed. That holds for the first fetch too: the writes of a former process may not be there yet.
- `step_after` decides on an answer; nothing is awaited between its decision and the append.
- Each fetch carries the high watermark that is known here, so that the leader answers as soon as it has moved
  (KIP-1166); otherwise a commit would be known only with the next record.
- A leader whose log begins above the own end, or that has forgotten the epoch there, names a snapshot
  (KIP-630). It is on disk, read and found whole, before the own log is given up for it.

A log that diverges from records committed here ends `run` with the error.

Source: KIP-595 (Fetch as replication of the metadata log).
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final

from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from sparklog.executor.control.controller_link import ControllerLink, ControllerUnreachableError
from sparklog.executor.metadata.machine.fetch_steps import (
    Append,
    BeginWith,
    FetchAnswer,
    PersistElection,
    Rest,
    TruncateTo,
    step_after,
)
from sparklog.executor.metadata.machine.quorum_voter import FetchOutcome
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.loop.whole_seconds import whole_interval_after
from sparklog.node.metadata_log.machine.snapshot_batches import DamagedSnapshotError, MetadataSnapshot
from sparklog.node.metadata_log.machine.snapshot_download import DownloadRefusedError, SnapshotDownload
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import (
    CLUSTER_METADATA_TOPIC_ID,
    BrokerEpoch,
    LeaderEpoch,
    Offset,
    SnapshotId,
    or_minus_one,
    unless_minus_one,
)

SHORT_WAIT_MS: Final = 500
"""How long a leader may hold a fetch open in any case; Kafka's only wait."""
FETCH_MAX_BYTES: Final = 8 * 1024 * 1024
RETRY_MS: Final = 100

logger = logging.getLogger(__name__)


def wait_ms(now_ms: int, fetch_timeout_ms: int) -> int:
    """Return how long the leader may hold a fetch that is sent at `now_ms`.

    The answer comes in the whole second of this broker's clock at which other periodic work is done, but so
    that the leader hears of this voter twice in the time-out, or twice a second.

    >>> wait_ms(7_010, 2_000), wait_ms(7_800, 2_000), wait_ms(7_010, 200)
    (990, 200, 500)
    """
    return min(whole_interval_after(now_ms, 1_000) - now_ms, max(SHORT_WAIT_MS, fetch_timeout_ms // 2))


class MetadataFollower:
    """The fetch loop of one broker's replica of `__cluster_metadata`."""

    def __init__(
        self,
        replica: MetadataReplica,
        link: ControllerLink,
        *,
        broker_epoch: Callable[[], BrokerEpoch | None],
        on_fetched: Callable[[Offset, Offset, int], None],
        on_replaced: Callable[[MetadataSnapshot], None],
        now_ms: Callable[[], int],
        request_timeout_ms: int,
        fetch_timeout_ms: int,
    ) -> None:
        """Follow in the log of `replica`.

        `fetch_timeout_ms` is the silence of a voter after which the leader misses it.
        After every answer of a leader that knows its high watermark, `on_fetched` is called with the end of
        the own log's committed records, the leader's high watermark, and the time (of `now_ms`) at which the
        fetch was sent. `on_replaced` is called with a snapshot as soon as the log begins behind it.
        """
        self._replica = replica
        self._log = replica.log
        self._voter = replica.voter
        self._link = link
        self._broker_epoch = broker_epoch
        self._on_fetched = on_fetched
        self._on_replaced = on_replaced
        self._now_ms = now_ms
        self._request_timeout_ms = request_timeout_ms
        self._fetch_timeout_ms = fetch_timeout_ms

    async def run(self) -> None:
        """Follow the leader of each epoch until cancelled.

        Raises:
            MetadataDivergedError: see the class.
            KafkaError: the disk does not take the log or the epoch.
        """
        voter = self._voter
        while True:
            await self._replica.until(lambda: voter.follows)
            await self._replica.flush()
            asked_in, sent_ms = voter.leader_epoch, self._now_ms()
            longest_ms = wait_ms(sent_ms, self._fetch_timeout_ms)
            try:
                response = await self._link.request(
                    self._fetch(asked_in, longest_ms), longest_ms + self._request_timeout_ms
                )
            except ControllerUnreachableError as error:
                logger.info("The metadata log could not be fetched: %s", error)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            partition = _only_partition(response)
            if partition is None:
                logger.warning("The metadata log could not be fetched: %s", response.error_code.name)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            await self._answered(partition, asked_in, sent_ms)

    def _fetch(self, leader_epoch: LeaderEpoch, longest_ms: int) -> Any:
        broker_epoch = self._broker_epoch()
        latest = self._log.epochs.latest
        high_watermark = self._voter.high_watermark
        return FetchRequest(
            cluster_id=self._voter.cluster_id,
            replica_state=ReplicaState(
                replica_id=self._voter.key.node_id,
                replica_epoch=or_minus_one(broker_epoch),
            ),
            max_wait=timedelta(milliseconds=longest_ms),
            min_bytes=1,
            max_bytes=FETCH_MAX_BYTES,
            topics=(
                FetchTopic(
                    topic_id=CLUSTER_METADATA_TOPIC_ID,
                    partitions=(
                        FetchPartition(
                            partition=0,
                            current_leader_epoch=leader_epoch,
                            fetch_offset=self._log.log_end_offset,
                            last_fetched_epoch=or_minus_one(latest),
                            log_start_offset=self._log.log_start_offset,
                            partition_max_bytes=FETCH_MAX_BYTES,
                            replica_directory_id=self._voter.key.directory_id,
                            high_watermark=or_minus_one(high_watermark),
                        ),
                    ),
                ),
            ),
            forgotten_topics_data=(),
        )

    async def _answered(self, partition: Any, asked_in: LeaderEpoch, sent_ms: int) -> None:
        log, voter = self._log, self._voter
        match step_after(
            _answer_of(partition),
            asked_in,
            voter,
            log,
            log.log_start_offset,
            log.log_end_offset,
            self._now_ms(),
        ):
            case PersistElection():
                logger.info("The metadata log is in leader epoch %d now", voter.leader_epoch)
                await self._replica.settled()
            case Rest(reason):
                logger.info("The metadata log could not be fetched: %s", reason)
                await asyncio.sleep(RETRY_MS / 1000)
            case BeginWith(snapshot_id):
                await self._begin_with(snapshot_id, asked_in)
            case TruncateTo(end_offset):
                logger.warning("Truncating the metadata log from %d to %d", log.log_end_offset, end_offset)
                self._replica.truncate_to(end_offset)
            case Append():
                if partition.records:
                    log.append_as_follower(partition.records, wall_clock_ms())
                leader_high_watermark = unless_minus_one(partition.high_watermark)
                voter.appended(leader_high_watermark, log.log_end_offset)
                if leader_high_watermark is not None and voter.high_watermark is not None:
                    self._on_fetched(voter.high_watermark, leader_high_watermark, sent_ms)
                if not self._replica.is_settled:
                    await self._replica.settled()

    async def _begin_with(self, snapshot_id: SnapshotId, asked_in: LeaderEpoch) -> None:
        """Download the snapshot and start the log behind it."""
        replica = self._replica
        logger.info("Downloading the snapshot %s, this log ends at %d", snapshot_id, self._log.log_end_offset)
        machine = SnapshotDownload(
            snapshot_id,
            cluster_id=self._voter.cluster_id,
            leader_epoch=asked_in,
            replica_id=self._voter.key.node_id,
            directory_id=self._voter.key.directory_id,
        )
        await replica.snapshot_taker.idle()
        try:
            snapshot = await replica.snapshots.download(machine, partial(self._ask_for_piece, asked_in))
        except (ControllerUnreachableError, DownloadRefusedError, DamagedSnapshotError) as error:
            logger.warning("The snapshot %s was not downloaded: %s", snapshot_id, error)
            await asyncio.sleep(RETRY_MS / 1000)
            return
        if self._voter.leader_epoch == asked_in:
            removed = replica.begin_at(snapshot)
            self._on_replaced(snapshot)
            logger.info("The metadata log begins behind the snapshot %s now", snapshot_id)
        else:
            logger.info("The snapshot %s came too late: %s", snapshot_id, self._voter.election)
            removed = (snapshot_id,)
        await asyncio.to_thread(replica.snapshots.remove, removed)

    async def _ask_for_piece(self, asked_in: LeaderEpoch, request: Any) -> Any:
        response = await self._link.request(request, self._request_timeout_ms)
        for leader in (
            partition.current_leader for topic in response.topics for partition in topic.partitions
        ):
            outcome = self._voter.fetch_answered(
                asked_in,
                unless_minus_one(leader.leader_id),
                unless_minus_one(leader.leader_epoch),
                self._now_ms(),
            )
            if outcome is not FetchOutcome.COUNTS:
                await self._replica.settled()
                raise DownloadRefusedError(
                    ErrorCode.fenced_leader_epoch, f"another leads meanwhile: {self._voter.election}"
                )
        return response


def _only_partition(response: Any) -> Any | None:
    """Return the row of the metadata log in a response, None without one."""
    partitions = [partition for topic in response.responses for partition in topic.partitions]
    if response.error_code is not ErrorCode.none or len(partitions) != 1:
        return None
    return partitions[0]


def _answer_of(partition: Any) -> FetchAnswer:
    leader, snapshot = partition.current_leader, partition.snapshot_id
    diverging = partition.diverging_epoch
    return FetchAnswer(
        unless_minus_one(leader.leader_id),
        unless_minus_one(leader.leader_epoch),
        partition.error_code,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot.end_offset >= 0 else None,
        (diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
    )
