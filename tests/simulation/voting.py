"""What a broker's process does as a voter: the production voter over a copy of the metadata log on its disk.

It mirrors the shells `sparklog.executor.metadata.metadata_replica`, `sparklog.executor.api.quorum`,
`voter_announcement` and `sparklog.executor.metadata.follower`: what was decided is on the disk before anybody
learns of it, and everything below the fetch offset is.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker
from sparklog.executor.metadata.follower import wait_ms
from sparklog.executor.metadata.machine.fetch_steps import (
    Append,
    BeginWith,
    FetchAnswer,
    PersistElection,
    Rest,
    TruncateTo,
    step_after,
)
from sparklog.executor.metadata.machine.quorum_voter import (
    NO_ELECTION,
    QuorumAnswer,
    QuorumVoter,
    VoteRequest,
)
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.types import LeaderEpoch
from tests.simulation.metadata_copy import MetadataCopy, Snapshot
from tests.simulation.network import Link, Reply
from tests.simulation.quorum_messages import (
    Announcement,
    AskLogEnd,
    BeginEpoch,
    CopyFetch,
    MetadataFetch,
    MetadataFetched,
    Vote,
)

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess

CALL_INTERVAL_MS: Final = 1_000
RETRY_MS: Final = 100


class Voting:
    """One broker's part in the quorum."""

    def __init__(self, broker: "BrokerProcess", link: Link, metadata_link: Link) -> None:
        self._broker = broker
        self._disk = disk = broker.disk
        self._link = link
        self._metadata_link = metadata_link
        self.copy: MetadataCopy = disk.metadata
        self.voter = QuorumVoter(
            VoterKey(broker.broker_id, disk.directory_id),
            disk.cluster_id,
            disk.election or NO_ELECTION,
            broker.world.config.controller_quorum_fetch_timeout_ms,
        )
        if disk.metadata.snapshot is not None:
            self.voter.appended(disk.metadata.snapshot.snapshot_id.end_offset, disk.metadata.end_offset)
        self.voter.lacks_records = disk.lacks_metadata
        self._waiting: list[Callable[[], None]] = []
        self._writing = False
        self._fetching = False
        link.stays_connected = True
        link.on_connected = self._call_in
        self._call_again()

    # --- announcement ----------------------------------------------------------------------------

    def _call_again(self) -> None:
        if not self.voter.hears_leader(self._broker.now_ms) and self._link.is_connected:
            self._call_in()
        self._broker.after(CALL_INTERVAL_MS, self._call_again)

    def _call_in(self) -> None:
        broker = self._broker
        announced = AnnouncedBroker(self.voter.key, self._disk.cluster_id, broker.host, broker.incarnation)
        self._link.request(Announcement(announced), broker.request_timeout_ms, lambda _: None)

    # --- requests -------------------------------------------------------------------------------

    def receive(self, message: Any, reply: Reply) -> bool:
        """Answer what candidates and leaders ask; say whether it was that."""
        match message:
            case Vote(request):
                answer = self.voter.vote(request, self.copy.position, self._broker.now_ms)
                self.settled(lambda: self._voted(request, answer, reply))
            case BeginEpoch():
                begun = self.voter.begin_quorum_epoch(*message)
                self.settled(lambda: reply(begun))
            case AskLogEnd():
                reply(self.copy.position)
            case CopyFetch(offset, last_epoch):
                reply(self.copy.read(offset, last_epoch))
            case _:
                return False
        return True

    def _voted(self, request: VoteRequest, answer: QuorumAnswer, reply: Reply) -> None:
        self._broker.world.voted(self.voter.key, request, answer)
        reply(answer)

    def settled(self, done: Callable[[], None]) -> None:
        """Call `done` when all that the voter has decided so far is on the disk."""
        self._waiting.append(done)
        self._write()

    def _write(self) -> None:
        if self._writing:
            return
        voter, disk = self.voter, self._disk
        decided = (voter.cluster_id, voter.election)
        if decided == (disk.cluster_id, disk.election or NO_ELECTION):
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                done()
            self._settled()
        else:
            self._writing = True
            self._broker.after(self._flush_ms(), self._written, *decided)

    def _written(self, cluster_id: str | None, election: Any) -> None:
        self._disk.cluster_id, self._disk.election = cluster_id, election
        self._writing = False
        self._write()

    def _flush_ms(self) -> int:
        return self._broker.world.flush_ms()

    def _settled(self) -> None:
        if self.voter.follows:
            if self._disk.cluster_id is not None:
                self._broker.joined()
            self._flush()

    # --- following ------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Fetch, after everything that is in the copy has been fsynced."""
        if self._fetching or not self.voter.follows:
            return
        self._fetching = True
        if self.copy.flushed_offset < self.copy.end_offset:
            self._broker.after(self._flush_ms(), self._flushed)
        else:
            self._fetch()

    def _flushed(self) -> None:
        self.copy.flushed_offset = self.copy.end_offset
        self._disk.lacks_metadata = self._disk.lacks_metadata and self.voter.lacks_records
        self._fetch()

    def _fetch(self) -> None:
        broker, copy, voter = self._broker, self.copy, self.voter
        asked_in, sent_ms = voter.leader_epoch, broker.now_ms
        longest_ms = wait_ms(sent_ms, broker.world.config.controller_quorum_fetch_timeout_ms)
        fetch = MetadataFetch(
            voter.key,
            broker.broker_epoch,
            asked_in,
            copy.end_offset,
            copy.epochs.latest,
            -1 if voter.high_watermark is None else voter.high_watermark,
            longest_ms,
        )
        self._metadata_link.request(
            fetch,
            longest_ms + broker.request_timeout_ms,
            lambda fetched: self._fetched(fetched, asked_in, sent_ms),
        )

    def _fetched(self, fetched: MetadataFetched | None, asked_in: LeaderEpoch, sent_ms: int) -> None:
        self._fetching = False
        if fetched is None or fetched.leader_epoch is None:
            self._broker.after(RETRY_MS, self._flush)
            return
        copy, voter, reading = self.copy, self.voter, fetched.reading
        answer = FetchAnswer(
            fetched.leader_id,
            fetched.leader_epoch,
            reading.error_code,
            None if reading.snapshot is None else reading.snapshot.snapshot_id,
            reading.diverging,
        )
        match step_after(
            answer, asked_in, voter, copy, copy.start_offset, copy.end_offset, self._broker.now_ms
        ):
            case PersistElection():
                self.settled(self._flush)
                return
            case Rest():
                self._broker.after(RETRY_MS, self._flush)
                return
            case BeginWith():
                assert reading.snapshot is not None, "it is named in the answer"
                self._begin_with(reading.snapshot)
            case TruncateTo(end_offset):
                self._tell(f"truncates its metadata from {copy.end_offset} to {end_offset}")
                copy.truncate_to(end_offset)
            case Append():
                for batch in reading.batches:
                    copy.append(batch)
                voter.appended(fetched.high_watermark, copy.end_offset)
                if fetched.high_watermark is not None and voter.high_watermark is not None:
                    self._broker.publishing.fetched(voter.high_watermark, fetched.high_watermark, sent_ms)
        self._flush()

    def _begin_with(self, snapshot: Snapshot) -> None:
        self._tell(f"begins with the snapshot {snapshot.snapshot_id}")
        self.copy.begin_behind(snapshot)
        self.voter.begun_at(self.copy.end_offset)
        self._broker.publishing.replaced(snapshot.image)

    def _tell(self, what: str) -> None:
        self._broker.world.tell(None, f"{self._broker.name} {what}")
