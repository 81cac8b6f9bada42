"""A broker's replica of the metadata log on the event loop: the log, the voter, and its durable state.

A decision of the `QuorumVoter` is on disk before any other process learns of it: `settled` formats blank
directories with the cluster's id, writes `quorum-state`, and only then returns. The log belongs to the
`MetadataFollower`; other parts read it.

The snapshots beside the log belong to the replica too (KIP-630): `loaded` is the one it begins with,
`begin_at` replaces the log by another that was downloaded, and `snapshot_taker` writes new ones.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Self

from sparklog.executor.metadata.machine.quorum_voter import (
    NO_ELECTION,
    ElectionState,
    QuorumAnswer,
    QuorumVoter,
    VoteRequest,
)
from sparklog.executor.metadata.quorum_state_file import (
    lacks_records,
    read_election,
    write_election,
    write_lacks_records,
)
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.config import BrokerConfig, SnapshotLimits
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.metadata_log.snapshot_taker import SnapshotTaker
from sparklog.node.storage import ForeignDirectoryError, Log
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, Offset, SnapshotId, TimestampMs

logger = logging.getLogger(__name__)


class MetadataReplica:
    """One broker's replica of `__cluster_metadata`. Made by `open`."""

    def __init__(
        self,
        log: Log,
        voter: QuorumVoter,
        snapshots: SnapshotStore,
        loaded: MetadataSnapshot | None,
        limits: SnapshotLimits,
        format_directories: Callable[[str], None],
    ) -> None:
        self.log = log
        self.voter = voter
        self.snapshots = snapshots
        self.loaded = loaded
        """The newest snapshot there was when the log was opened; the log goes on from it."""
        self.snapshot_taker = SnapshotTaker(snapshots, log, limits, wall_clock_ms)
        self.cluster_id = voter.cluster_id
        """The id that is in the directories; None while they are blank."""
        self._format_directories = format_directories
        self._election: ElectionState = voter.election
        self._lacks_records = voter.lacks_records
        self._settling = asyncio.Lock()
        self._changed = asyncio.Event()
        self._writing: set[asyncio.Future[None]] = set()
        self._settled_last: asyncio.Future[None] | None = None

    @classmethod
    def open(
        cls,
        parent: Path,
        config: BrokerConfig,
        *,
        key: VoterKey,
        cluster_id: str | None,
        fetch_timeout_ms: int,
        format_directories: Callable[[str], None],
        stop: PreviousStop = PreviousStop.UNKNOWN,
        now_ms: TimestampMs,
    ) -> Self:
        """Open or create the log below `parent`, a locked directory, and read the election state. Blocks.

        `format_directories` is called, off the loop, with the cluster id that a blank broker learns. `stop`,
        the end of the former process, distinguishes damage from records that were never fsynced.

        Raises:
            ForeignDirectoryError: there is a log, but nothing says which cluster's.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        directory = parent / f"{CLUSTER_METADATA_TOPIC}-0"
        log_config = config.metadata_log_config()
        # Everything is read, after a clean stop too: a vote must not rest on a flipped bit.
        if stop is PreviousStop.CLEAN:
            stop = PreviousStop.KILLED
        snapshots, loaded = SnapshotStore.open(
            directory,
            lambda start: Log.open(directory, log_config, log_start_offset=start, stop=stop, now_ms=now_ms),
        )
        log = snapshots.log
        try:
            election = read_election(directory)
            if log.missing is not None:
                write_lacks_records(directory, True)
            if cluster_id is None and (election is not None or log.log_end_offset > 0):
                raise ForeignDirectoryError(
                    f"{directory} has a metadata log, but {parent} has no meta.properties that says of which "
                    "cluster; restore the file, or remove the directory if its records are not wanted"
                )
        except BaseException:
            log.close(clean=False)
            raise
        voter = QuorumVoter(key, cluster_id, election or NO_ELECTION, fetch_timeout_ms)
        if loaded is not None:
            voter.begun_at(loaded.image.end_offset)
        voter.lacks_records = lacks_records(directory)
        if voter.lacks_records:
            logger.error(
                "%s lacks records that were on its disk: it grants no vote until it has caught up",
                directory,
            )
        return cls(log, voter, snapshots, loaded, config.snapshot_limits(), format_directories)

    @property
    def position(self) -> LogPosition:
        """The end of the log, whether on disk yet or not."""
        return LogPosition(self.log.epochs.latest or 0, self.log.log_end_offset)

    async def vote(self, request: VoteRequest, now_ms: int) -> QuorumAnswer:
        """Return the answer to a candidate, once it may leave.

        Raises:
            KafkaError: the disk does not take the vote, so there is no answer.
        """
        answer = self.voter.vote(request, self.position, now_ms)
        await self.settled()
        return answer

    @property
    def is_settled(self) -> bool:
        """Whether all decisions of the voter are on disk."""
        voter = self.voter
        return (voter.cluster_id, voter.election, voter.lacks_records) == (
            self.cluster_id,
            self._election,
            self._lacks_records,
        )

    async def settled(self) -> None:
        """Return when all decisions of the voter so far are on disk.

        Raises:
            KafkaError: the disk does not take it. The next call tries again.
        """
        async with self._settling:
            while (self.voter.cluster_id, self.voter.election) != (self.cluster_id, self._election):
                cluster_id, election = self.voter.cluster_id, self.voter.election
                if cluster_id is not None and cluster_id != self.cluster_id:
                    await self._one_at_a_time(self._format_directories, cluster_id)
                    self.cluster_id = cluster_id
                if election != self._election:
                    await self._one_at_a_time(write_election, self.log.directory, election)
                    self._election = election
            if self._lacks_records and not self.voter.lacks_records:
                await self.flush()
                await self._one_at_a_time(write_lacks_records, self.log.directory, False)
                self._lacks_records = False
                logger.info("%s has caught up, and votes again", self.log.directory)
        self.wake()

    def wake(self) -> None:
        """Check the conditions of all `until`."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds, which is checked whenever a decision is on disk."""
        while not condition():
            await self._changed.wait()

    def truncate_to(self, end_offset: Offset) -> None:
        """Remove the records from `end_offset` on, none of which was committed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        self.log.truncate_to(end_offset)
        self.snapshots.mark_start()

    def begin_at(self, snapshot: MetadataSnapshot) -> tuple[SnapshotId, ...]:
        """Replace the log by a snapshot that was downloaded; return the snapshots that go with it.

        Raises:
            MetadataDivergedError: records behind it were committed.
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        end_offset = snapshot.image.end_offset
        self.voter.check_truncation(end_offset)
        removed = self.snapshots.replace_log(snapshot.snapshot_id)
        self.voter.begun_at(end_offset)
        return removed

    async def flush(self) -> None:
        """Return when the whole log is on disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self.log.recovery_point < self.log.log_end_offset:
            await self._off_the_loop(self.log.flush)

    async def close(self) -> None:
        """Flush and close the log, once nothing is being written any more.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        if self._writing:
            await asyncio.wait(self._writing)
        await self.snapshot_taker.idle()
        await asyncio.to_thread(self.log.close)

    async def _off_the_loop(self, write: Callable[..., None], *arguments: object) -> None:
        """Write in a thread; the caller may be cancelled, but `close` waits for the write."""
        await asyncio.shield(self._begun(write, *arguments))

    async def _one_at_a_time(self, write: Callable[..., None], *arguments: object) -> None:
        """Write likewise, after the last such write has ended; only while `_settling` is held.

        The write of a cancelled caller goes on: with another beside it, an older election could replace a
        newer one.
        """
        if self._settled_last is not None:
            await asyncio.wait({self._settled_last})
        self._settled_last = self._begun(write, *arguments)
        await asyncio.shield(self._settled_last)

    def _begun(self, write: Callable[..., None], *arguments: object) -> "asyncio.Future[None]":
        writing = asyncio.ensure_future(asyncio.to_thread(write, *arguments))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return writing
