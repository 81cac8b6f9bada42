"""Carries out the candidate's effects until it has won: asks brokers, copies a log, counts votes.

This module decides nothing. A missing or wrong response counts as the loss of its broker; if that lives it
announces itself again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final
from uuid import uuid4

from sparklog.driver.controller.errors import StaleDirectoriesError
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.broker_channels import BrokerChannels
from sparklog.driver.controller.quorum.machine.candidate import (
    AnnouncedBroker,
    AskLogEnd,
    AskVote,
    BecomeLeader,
    BeginAtStored,
    Candidate,
    CopyLog,
    Effect,
    RefuseDirectories,
    StoredLog,
)
from sparklog.driver.controller.quorum.requests import (
    BrokerAnswerError,
    copy_request,
    log_end_of,
    log_end_request,
    only_partition,
    vote_request,
)
from sparklog.node.metadata_log.machine.snapshot_download import DownloadRefusedError, SnapshotDownload
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import SnapshotId

TICK_MS: Final = 25
PATIENCE_MS: Final = 15_000
"""The time after which missing brokers are logged; logged again whenever they change."""

_Question = Callable[[AnnouncedBroker], Coroutine[Any, Any, Sequence[Effect]]]
_Failed = Callable[[VoterKey], Coroutine[Any, Any, Sequence[Effect]]]

logger = logging.getLogger(__name__)


class Candidacy:
    """One driver's way to the leadership, on one event loop."""

    def __init__(
        self,
        candidate: Candidate,
        log: MetadataLog,
        channels: BrokerChannels,
        now_ms: Callable[[], int],
        begin_at_stored: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`begin_at_stored` lets `log` begin at the snapshot in the object store."""
        # All drivers have the same node id. Votes are for this one: were two taken for the same candidate,
        # both could win in one epoch.
        self._directory_id = uuid4()
        self._candidate = candidate
        self._log = log
        self._channels = channels
        self._now_ms = now_ms
        self._begin_at_stored = begin_at_stored
        self._tasks: set[asyncio.Task[None]] = set()
        self._won: asyncio.Future[BecomeLeader] = asyncio.get_running_loop().create_future()

    def broker_announced(self, broker: AnnouncedBroker) -> None:
        """Note a broker.

        Raises:
            ForeignClusterError: it belongs to another cluster.
        """
        if self._candidate.announced_broker(broker.key) is None:
            logger.info(
                "%s has announced itself from %s:%d, %s",
                broker.key,
                broker.host,
                broker.port,
                "blank" if broker.cluster_id is None else f"of cluster {broker.cluster_id}",
            )
        self._carry_out(self._candidate.broker_announced(broker, self._now_ms()))

    def store_read(self, stored: StoredLog | None) -> None:
        """Note the metadata in the object store, None if there is none."""
        self._carry_out(self._candidate.store_read(stored, self._now_ms()))

    async def won(self) -> BecomeLeader:
        """Wait until the election is won; return the epoch and voters to lead.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: the driver's copy of the log cannot be written.
            StaleDirectoriesError: the brokers' directories contradict the object store.
            StartError: the metadata in the object store cannot be read.
        """
        began_ms = self._now_ms()
        said: str | None = None
        try:
            while not self._won.done():
                await asyncio.wait([self._won], timeout=TICK_MS / 1000)
                self._carry_out(self._candidate.tick(self._now_ms()))
                missing = self._candidate.missing()
                if missing is not None and missing != said and self._now_ms() - began_ms >= PATIENCE_MS:
                    logger.warning("The controller waits: %s", missing)
                    said = missing
            return self._won.result()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case AskLogEnd(key):
                    self._ask(key, self._ask_log_end)
                case CopyLog(key):
                    self._ask(key, self._copy, self._copy_failed)
                case AskVote(key):
                    self._ask(key, partial(self._ask_vote, ask=effect))
                case BeginAtStored():
                    self._run(self._begin())
                case RefuseDirectories(reason):
                    self._fail(StaleDirectoriesError(reason))
                case BecomeLeader():
                    if not self._won.done():
                        self._won.set_result(effect)

    def _fail(self, error: Exception) -> None:
        if not self._won.done():
            self._won.set_exception(error)

    async def _begin(self) -> None:
        assert self._begin_at_stored is not None, "there is a store"
        try:
            await self._begin_at_stored()
        except Exception as error:
            self._fail(error)
        else:
            self._carry_out(self._candidate.began_at_stored(self._log.position, self._now_ms()))

    def _ask(self, key: VoterKey, question: _Question, failed: _Failed | None = None) -> None:
        self._run(self._answered(key, question, failed or self._lost))

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, key: VoterKey, question: _Question, failed: _Failed) -> None:
        broker = self._candidate.announced_broker(key)
        try:
            if broker is None:
                raise KafkaError(ErrorCode.broker_not_available, "it has gone")
            effects = await question(broker)
        except KafkaError as error:
            is_own = not isinstance(error, BrokerAnswerError | DownloadRefusedError)
            if is_own and error.error_code is ErrorCode.kafka_storage_error:
                self._fail(error)
                return
            logger.info("%s does not take part: %s", key, error)
            effects = await failed(key)
        self._carry_out(effects)

    async def _lost(self, key: VoterKey) -> Sequence[Effect]:
        return self._candidate.lost(key, self._now_ms())

    async def _ask_log_end(self, broker: AnnouncedBroker) -> Sequence[Effect]:
        response = await self._channels.request(broker, log_end_request())
        return self._candidate.log_end_answered(broker.key, log_end_of(response), self._now_ms())

    async def _copy(self, broker: AnnouncedBroker) -> Sequence[Effect]:
        log = self._log
        while True:
            response = await self._channels.request(broker, copy_request(log.position))
            partition = only_partition(response.responses)
            if partition.snapshot_id.end_offset >= 0:
                wanted = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
                await self._copy_snapshot(broker, wanted)
            elif (diverging := partition.diverging_epoch).end_offset >= 0:
                log.truncate_to(log.truncation_offset((diverging.epoch, diverging.end_offset)))
            elif partition.records:
                log.append_copied(partition.records)
            else:
                break
        voters = await asyncio.to_thread(log.voters)
        logger.info("Copied the metadata log of %s up to offset %d", broker.key, log.log_end_offset)
        return self._candidate.log_copied(broker.key, log.position, voters, self._now_ms())

    async def _copy_failed(self, key: VoterKey) -> Sequence[Effect]:
        voters = await asyncio.to_thread(self._log.voters)
        return self._candidate.copy_failed(key, self._log.position, voters, self._now_ms())

    async def _copy_snapshot(self, broker: AnnouncedBroker, snapshot_id: SnapshotId) -> None:
        machine = SnapshotDownload(
            snapshot_id,
            cluster_id=broker.cluster_id,
            leader_epoch=None,
            replica_id=CONTROLLER_ID,
            directory_id=self._directory_id,
        )
        snapshot = await self._log.snapshots.download(machine, partial(self._channels.request, broker))
        await asyncio.to_thread(self._log.begin_at, snapshot)
        logger.info("Copied the snapshot %s of %s", snapshot_id, broker.key)

    async def _ask_vote(self, broker: AnnouncedBroker, ask: AskVote) -> Sequence[Effect]:
        response = await self._channels.request(
            broker, vote_request(self._candidate.cluster_id, self._directory_id, ask)
        )
        if response.error_code is not ErrorCode.none:
            raise BrokerAnswerError(response.error_code, "the vote was refused")
        partition = response.topics[0].partitions[0]
        if partition.error_code not in (ErrorCode.none, ErrorCode.fenced_leader_epoch):
            raise BrokerAnswerError(partition.error_code, "the vote was refused")
        logger.info(
            "%s %s leader epoch %d%s",
            broker.key,
            "votes for" if partition.vote_granted else "refuses",
            ask.leader_epoch,
            ", if asked" if ask.pre_vote else "",
        )
        return self._candidate.vote_answered(
            broker.key,
            ask,
            partition.leader_epoch,
            granted=partition.vote_granted,
            now_ms=self._now_ms(),
        )
