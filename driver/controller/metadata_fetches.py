"""Fetch of `__cluster_metadata`: brokers follow the log, and wait at its end for more.

Uncommitted records are served too, since fetches commit them. The high watermark in the response bounds the
records that may be acted upon; a fetcher that does not know it is answered at once (KIP-1166). A fetch shows
the progress of the fetcher only if the fetcher's log agrees with this one; progress of a majority commits.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from kio.schema.fetch.v18.request import FetchRequest
from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest

from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.metadata_log.log_serving import ServedLog, fetch_refusal
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_serving import fetch_snapshot_response
from sparklog.node.serving.requests import Deferred, Response
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID, BrokerId, LeaderEpoch, Offset


class MetadataFetches:
    """Answers Fetch and FetchSnapshot of __cluster_metadata; belongs to the controller's loop.

    A Fetch at the end of the log waits until there are records, or a higher high watermark.
    """

    def __init__(
        self,
        cluster_id: str,
        log: MetadataLog,
        quorum: QuorumLeader,
        controller: Controller,
        commit_queue: CommitQueue,
        on_deposed: Callable[[VoterKey, LeaderEpoch], None],
    ) -> None:
        """Serve `log`; `on_deposed` gets a replica that follows a newer leader, and its epoch."""
        self._cluster_id = cluster_id
        self._log = log
        self._quorum = quorum
        self._controller = controller
        self._commit_queue = commit_queue
        self._on_deposed = on_deposed
        self._progress_scheduled = False
        self._waiting: dict[Deferred, tuple[FetchRequest, int]] = {}
        self.known_offsets: dict[BrokerId, Offset] = {}
        """The high watermark that each broker knows."""

    def fetch(self, request: FetchRequest, now_ms: int) -> Response | Deferred:
        """Answer a Fetch of any version from 13 on, or hold it until there is something new."""
        if request.cluster_id not in (None, self._cluster_id):
            return fetch_refusal(ErrorCode.inconsistent_cluster_id)
        self._note(request, now_ms)
        wait_ms = request.max_wait // timedelta(milliseconds=1)
        if wait_ms > 0 and request.min_bytes > 0 and self._is_at_end(request):
            deferred = Deferred()
            self._waiting[deferred] = (request, now_ms + wait_ms)
            deferred.on_abandoned = lambda: self._forget(deferred)
            return deferred
        return self._served().answer(request)

    def fetch_snapshot(self, request: FetchSnapshotRequest, now_ms: int) -> Response:
        """Answer a FetchSnapshot of the newest version."""
        for topic in request.topics:
            for partition in topic.partitions:
                if (
                    partition.current_leader_epoch == self._log.leader_epoch
                    and partition.replica_directory_id is not None
                ):
                    self._quorum.heard(VoterKey(request.replica_id, partition.replica_directory_id), now_ms)
        return fetch_snapshot_response(
            request,
            self._log.snapshots.region,
            cluster_id=self._cluster_id,
            leader_id=CONTROLLER_ID,
            leader_epoch=self._log.leader_epoch,
        )

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    def schedule_progress(self) -> None:
        """Answer the fetches for which records have been appended or committed, in the next turn of the loop.

        Once for all decisions of a turn: the fetchers get them in one response.
        """
        if not self._progress_scheduled:
            self._progress_scheduled = True
            asyncio.get_running_loop().call_soon(self._progress)

    def _progress(self) -> None:
        self._progress_scheduled = False
        for deferred, (request, _) in list(self._waiting.items()):
            if not self._is_at_end(request):
                del self._waiting[deferred]
                deferred.complete(self._served().answer(request))

    def expire(self, now_ms: int) -> None:
        """Answer fetches whose max wait has passed, with nothing."""
        for deferred, (request, deadline_ms) in list(self._waiting.items()):
            if deadline_ms <= now_ms:
                del self._waiting[deferred]
                deferred.complete(self._served().answer(request))

    def _note(self, request: FetchRequest, now_ms: int) -> None:
        """Note the position of a registered broker for the controller, that of a replica for the quorum."""
        replica = request.replica_state
        broker = self._controller.image.brokers.get(replica.replica_id)
        is_registered = broker is not None and broker.broker_epoch == replica.replica_epoch
        for topic in request.topics:
            if topic.topic_id != CLUSTER_METADATA_TOPIC_ID:
                continue
            if is_registered and topic.partitions:
                self._controller.metadata_fetched(replica.replica_id, topic.partitions[0].fetch_offset)
            for partition in topic.partitions:
                if partition.replica_directory_id is None:
                    continue
                key = VoterKey(replica.replica_id, partition.replica_directory_id)
                if partition.current_leader_epoch > self._log.leader_epoch:
                    self._on_deposed(key, partition.current_leader_epoch)
                elif partition.current_leader_epoch == self._log.leader_epoch and self._served().agrees(
                    topic.topic_id, partition
                ):
                    self.known_offsets[key.node_id] = partition.high_watermark
                    self._fetched(key, partition.fetch_offset, now_ms)

    def _fetched(self, key: VoterKey, fetch_offset: Offset, now_ms: int) -> None:
        if self._quorum.fetched(key, fetch_offset, self._log.log_end_offset, now_ms):
            self._commit_queue.high_watermark_moved(self._quorum.high_watermark)
            self.schedule_progress()

    def _forget(self, deferred: Deferred) -> None:
        self._waiting.pop(deferred, None)

    def _is_at_end(self, request: FetchRequest) -> bool:
        """Whether a valid fetch has no news to get: it is at the log's end and knows the high watermark."""
        served = self._served()
        partitions = [
            (topic.topic_id, partition) for topic in request.topics for partition in topic.partitions
        ]
        return bool(partitions) and all(
            served.agrees(topic_id, partition)
            and partition.fetch_offset >= self._log.log_end_offset
            and partition.high_watermark >= self._quorum.high_watermark
            for topic_id, partition in partitions
        )

    def _served(self) -> ServedLog:
        return self._log.served(CONTROLLER_ID, self._quorum.high_watermark)
