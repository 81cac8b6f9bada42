"""A broker's copy of the metadata log: what is fetched, kept, replayed and published."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kio.schema.fetch.v18.response import SnapshotId as WireSnapshotId

from executor.concurrency import until_first_ends
from executor.metadata_follower import MetadataFollower
from executor.metadata_publisher import MetadataPublisher
from executor.quorum.metadata_replica import MetadataReplica
from executor.quorum.quorum_state_file import read_election
from executor.quorum.quorum_voter import Election, MetadataDivergedError, VoteRequest
from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.metadata.delta import MetadataDelta
from sparklog.metadata.framing import encode_record
from sparklog.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.metadata.schemas import (
    BrokerEndpoint,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from sparklog.metadata.snapshot_batches import MetadataSnapshot, encode_snapshot
from sparklog.metadata.snapshot_serving import fetch_snapshot_response
from sparklog.quorum.log_position import LogPosition
from sparklog.quorum.voter_set import VoterKey
from sparklog.records.builder import SimpleRecord, build_batch
from sparklog.storage.file_region import FileRegion, LogFile
from sparklog.storage.recovery_rules import PreviousStop
from sparklog.storage.snapshot_files import PartialSnapshot, list_snapshots, snapshot_path
from sparklog.types import CLUSTER_METADATA_TOPIC_ID, SnapshotId
from sparklog.wire.apis import ApiKey
from sparklog.wire.requests import Deferred, Request
from tests.unit.executor.controller_script import linked_controller

BROKER = 1
DRIVER = 1_000_000
KEY = VoterKey(BROKER, UUID(int=500))


def registration(broker_epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=BROKER,
        incarnation_id=UUID(int=broker_epoch + 1000),
        broker_epoch=broker_epoch,
        rack=None,
        end_points=(BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0),),
        log_dirs=(UUID(int=500),),
    )


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"topic-{number}", topic_id=UUID(int=5000 + number))


def batch(base_offset: int, leader_epoch: int, *records: MetadataRecord) -> bytes:
    return build_batch(
        [SimpleRecord(value=encode_record(record)) for record in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def answer(
    records: bytes,
    high_watermark: int,
    diverging: EpochEndOffset | None = None,
    error: ErrorCode = ErrorCode.none,
    leader_epoch: int = 1,
    snapshot: SnapshotId | None = None,
) -> FetchResponse:
    begin = (
        WireSnapshotId() if snapshot is None else WireSnapshotId(end_offset=snapshot[0], epoch=snapshot[1])
    )
    partition = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        diverging_epoch=diverging or EpochEndOffset(),
        snapshot_id=begin,
        current_leader=LeaderIdAndEpoch(leader_id=DRIVER, leader_epoch=leader_epoch),
        aborted_transactions=None,
        records=records,
    )
    return FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.none,
        responses=(FetchableTopicResponse(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
    )


class Scene:
    """A follower, the answers it is to get, and what it made of them."""

    def __init__(self, directory: Path, config: Mapping[str, str] | None = None) -> None:
        self.replica = MetadataReplica.open(
            directory,
            BrokerConfig.from_mapping(config or {}),
            key=KEY,
            cluster_id="c",
            fetch_timeout_ms=2_000,
            format_directories=lambda _: None,
            stop=PreviousStop.KILLED,
            now_ms=0,
        )
        self.log = self.replica.log
        self.fetches: list[tuple[int, int]] = []
        self.positions: list[tuple[int, int]] = []
        """In which epoch each fetch was sent, and up to where the log was on disk then."""
        self.high_watermarks: list[int] = []
        self.answers: list[FetchResponse] = []
        self.broker_epoch: int | None = None
        self.published: list[tuple[MetadataImage, MetadataDelta]] = []
        self.caught_up: list[int] = []
        self.on_fetch: Callable[[], None] = lambda: None
        self.leader_snapshot: Path | None = None
        self.pieces = 0
        self.on_piece: Callable[[], None] = lambda: None

    def fetch(self, request: Request) -> Any:
        """Give the next answer; when there is none left, let the follower wait."""
        partition = request.body.topics[0].partitions[0]
        self.fetches.append((partition.fetch_offset, partition.last_fetched_epoch))
        self.positions.append((partition.current_leader_epoch, self.log.recovery_point))
        self.high_watermarks.append(partition.high_watermark)
        self.on_fetch()
        return self.answers.pop(0) if self.answers else Deferred()

    def fetch_snapshot(self, request: Request) -> Any:
        """Give a piece of the leader's snapshot, of 200 bytes at most."""
        self.pieces += 1
        self.on_piece()
        election = self.replica.voter.election
        return fetch_snapshot_response(
            replace(request.body, max_bytes=200),
            lambda _: None if self.leader_snapshot is None else _whole(self.leader_snapshot),
            cluster_id="c",
            leader_id=DRIVER,
            leader_epoch=election.leader_epoch,
        )

    async def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Take note of what is published."""
        self.published.append((image, delta))

    async def lead(self, leader_epoch: int = 1) -> None:
        """Have the driver say that it leads."""
        self.replica.voter.begin_quorum_epoch("c", DRIVER, leader_epoch)
        await self.replica.settled()

    @asynccontextmanager
    async def running(
        self, leader_epoch: int = 1
    ) -> AsyncIterator[tuple[MetadataPublisher, "asyncio.Task[None]"]]:
        """Run the follower against the script."""
        answers = {ApiKey.FETCH: self.fetch, ApiKey.FETCH_SNAPSHOT: self.fetch_snapshot}
        async with linked_controller(answers) as (_, link):
            publisher = MetadataPublisher(
                self.replica,
                node_id=BROKER,
                broker_epoch=lambda: self.broker_epoch,
                publish=self.publish,
                on_caught_up=self.caught_up.append,
            )
            follower = MetadataFollower(
                self.replica,
                link,
                broker_epoch=lambda: self.broker_epoch,
                on_fetched=publisher.fetched,
                on_replaced=publisher.replaced,
                now_ms=lambda: len(self.fetches),
                request_timeout_ms=2_000,
            )
            await self.lead(leader_epoch)
            task = asyncio.create_task(until_first_ends(follower.run(), publisher.run()))
            try:
                yield publisher, task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def fetched(self, count: int) -> None:
        """Return when the follower has sent that many fetches: it is done with the answers before."""
        await self.until(lambda: len(self.fetches) >= count)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110 - the follower runs by itself
                await asyncio.sleep(0.001)


def _whole(path: Path) -> FileRegion:
    file = LogFile.open(path)
    return FileRegion(file, 0, file.size_bytes())


def leaders_snapshot(
    directory: Path, *records: MetadataRecord, end_offset: int, epoch: int = 1
) -> MetadataSnapshot:
    """Write a snapshot of what the records make, as the leader has it; return it."""
    directory.mkdir(exist_ok=True)
    image, _ = EMPTY_IMAGE.apply(records, end_offset - 1, epoch)
    snapshot = MetadataSnapshot(image, None, 1_700_000_000_000)
    with PartialSnapshot(directory, snapshot.snapshot_id) as partial:
        for each in encode_snapshot(snapshot):
            partial.append(each)
        partial.finish()
    return snapshot


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    asyncio.run(main())


def test_follower_publishes_nothing_before_its_own_registration(scene: Scene) -> None:
    """An older image may call this broker leader by virtue of a process that is dead."""

    async def scenario() -> None:
        scene.broker_epoch = 4
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0), topic(1)), 3),
            answer(batch(3, 1, NoOpRecord(), registration(4)), 5),
            answer(batch(5, 1, topic(2)), 6),
        ]
        async with scene.running():
            await scene.fetched(4)
            await scene.until(lambda: len(scene.published) == 2)
        assert [image.offset for image, _ in scene.published] == [4, 5]
        first, everything = scene.published[0]
        assert first.brokers[BROKER].broker_epoch == 4
        assert everything.created_topics == {UUID(int=5000), UUID(int=5001)}
        assert scene.published[1][1].created_topics == {UUID(int=5002)}

    run(scenario)


def test_follower_says_as_of_which_fetch_nothing_is_left_to_apply(scene: Scene) -> None:
    """A broker whose lease had run out leads on only when it knows of everything decided meanwhile."""

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0)), 1),
            answer(batch(1, 1, topic(0)), 3),
            answer(b"", 3, error=ErrorCode.unknown_server_error),
            answer(batch(2, 1, topic(1)), 3),
        ]
        async with scene.running():
            await scene.fetched(5)
            await scene.until(lambda: len(scene.caught_up) == 2)
        # The second answer left something out, the third was none.
        assert scene.caught_up == [0, 3]

    run(scenario)


def test_follower_that_learns_its_epoch_last_publishes_without_another_fetch(scene: Scene) -> None:
    """The registration's answer may come after its record; the next long poll would cost a second."""

    async def scenario() -> None:
        scene.answers = [answer(batch(0, 1, registration(0)), 1)]
        async with scene.running() as (publisher, _):
            await scene.fetched(2)
            assert scene.published == []
            scene.broker_epoch = 0
            publisher.registered()
            await scene.until(lambda: len(scene.published) == 1)
            assert scene.published[0][0].offset == 0
            assert len(scene.fetches) == 2

    run(scenario)


def test_follower_keeps_everything_but_replays_only_what_is_committed(scene: Scene) -> None:
    """Records above the high watermark may never have happened."""

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0)) + batch(1, 1, topic(0)), 1),
            answer(b"", 2),
        ]
        async with scene.running():
            await scene.fetched(3)
            await scene.until(lambda: len(scene.published) == 2)
        assert scene.fetches == [(0, -1), (2, 1), (2, 1)]
        assert scene.high_watermarks == [-1, 1, 2]
        assert [image.offset for image, _ in scene.published] == [0, 1]

    run(scenario)


def test_follower_with_a_copy_on_disk_fetches_on_from_its_end(scene: Scene) -> None:
    """A restarted broker has the log already; only what came since travels."""

    async def scenario() -> None:
        scene.log.append_as_follower(batch(0, 1, registration(0), topic(0)))
        scene.broker_epoch = 2
        scene.answers = [answer(batch(2, 2, registration(2)), 3, leader_epoch=2)]
        async with scene.running(leader_epoch=2):
            await scene.fetched(2)
            await scene.until(lambda: len(scene.published) == 1)
        assert scene.fetches == [(2, 1), (3, 2)]
        assert [(image.offset, len(image.topics.by_id)) for image, _ in scene.published] == [(2, 1)]

    run(scenario)


def test_follower_truncates_a_tail_that_the_controller_does_not_have(scene: Scene) -> None:
    """What was fetched from a deposed controller and never committed must go."""

    async def scenario() -> None:
        scene.log.append_as_follower(batch(0, 1, registration(0)))
        scene.log.append_as_follower(batch(1, 1, topic(0)))
        scene.broker_epoch = 1
        scene.answers = [
            answer(b"", 0, EpochEndOffset(epoch=1, end_offset=1), leader_epoch=2),
            answer(batch(1, 2, registration(1)), 2, leader_epoch=2),
        ]
        async with scene.running(leader_epoch=2):
            await scene.fetched(3)
            await scene.until(lambda: len(scene.published) == 1)
        assert scene.fetches == [(2, 1), (1, 1), (2, 2)]
        assert scene.published[0][0].topics.by_id == {}

    run(scenario)


def test_follower_whose_replayed_records_the_controller_disowns_stops(scene: Scene) -> None:
    """The broker has acted on records that are not in the log: nothing it says can be trusted."""

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0)), 2),
            answer(b"", 2, EpochEndOffset(epoch=1, end_offset=1)),
        ]
        async with scene.running() as (_, task):
            with pytest.raises(MetadataDivergedError):
                await asyncio.wait_for(asyncio.shield(task), 10)

    run(scenario)


def test_follower_survives_errors_that_pass(scene: Scene) -> None:
    """A driver that is starting, or that does not know of this broker's epoch yet, is asked again."""

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(b"", -1, error=ErrorCode.unknown_server_error),
            answer(b"", -1, error=ErrorCode.unknown_leader_epoch, leader_epoch=0),
            answer(batch(0, 1, registration(0)), 1),
        ]
        async with scene.running():
            await scene.fetched(4)
            await scene.until(lambda: len(scene.published) == 1)

    run(scenario)


def test_follower_flushes_before_every_fetch(scene: Scene) -> None:
    """The fetch offset is the vote for what is committed; it must not count what a crash takes away."""

    async def scenario() -> None:
        scene.log.append_as_follower(batch(0, 1, topic(0)))
        scene.answers = [answer(batch(1, 1, topic(1)), 0), answer(batch(2, 1, topic(2)), 1)]
        async with scene.running():
            await scene.fetched(3)
        assert [offset for offset, _ in scene.fetches] == [1, 2, 3]
        assert [on_disk for _, on_disk in scene.positions] == [1, 2, 3]

    run(scenario)


def test_follower_fetches_from_nobody_until_a_leader_is_known(scene: Scene) -> None:
    """Whoever is asked before has no majority, and what it has may never have counted."""

    async def scenario() -> None:
        await scene.replica.vote(vote_for(2), 0)
        async with scene.running(leader_epoch=1):
            await asyncio.sleep(0)
            assert not scene.replica.voter.follows, "epoch 1 is over since the vote"
            await scene.lead(2)
            await scene.fetched(1)
        assert scene.positions[0][0] == 2

    run(scenario)


def test_follower_drops_an_answer_that_comes_after_its_vote_for_another(scene: Scene) -> None:
    """Between question and answer the broker has promised a candidate to hear nobody older."""

    async def scenario() -> None:
        scene.on_fetch = lambda: votes.append(asyncio.ensure_future(scene.replica.vote(vote_for(2), 0)))
        scene.answers = [answer(batch(0, 1, topic(0)), 1)]
        votes: list[asyncio.Future[Any]] = []
        async with scene.running():
            await scene.fetched(1)
            scene.on_fetch = lambda: None
            assert (await votes[0]).vote_granted
            await scene.lead(2)
            await scene.fetched(2)
        assert scene.fetches == [(0, -1), (0, -1)], "the record of epoch 1 was not appended"
        assert [leader_epoch for leader_epoch, _ in scene.positions] == [1, 2]

    run(scenario)


def test_follower_goes_on_in_the_newer_epoch_that_an_answer_tells(scene: Scene, tmp_path: Path) -> None:
    """A broker that was away during the election need not be told again; what it learns it keeps."""

    async def scenario() -> None:
        scene.answers = [
            answer(batch(0, 1, topic(0)), 1, error=ErrorCode.fenced_leader_epoch, leader_epoch=4)
        ]
        async with scene.running():
            await scene.fetched(2)
        assert scene.fetches == [(0, -1), (0, -1)]
        assert [leader_epoch for leader_epoch, _ in scene.positions] == [1, 4]
        assert read_election(scene.log.directory) == Election(4, None, DRIVER)

    run(scenario)


def test_follower_fetches_on_while_an_image_is_acted_on(scene: Scene) -> None:
    """Opening thousands of logs must not hold up what a majority is waited for."""

    async def scenario() -> None:
        acted_on = asyncio.Event()

        async def publish(image: MetadataImage, delta: MetadataDelta) -> None:
            await acted_on.wait()

        scene.publish = publish  # type: ignore[method-assign]
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0)), 1),
            answer(batch(1, 1, topic(0)), 2),
            answer(batch(2, 1, topic(1)), 3),
        ]
        async with scene.running():
            await scene.fetched(4)
            assert scene.caught_up == []
            acted_on.set()
            await scene.until(lambda: scene.caught_up != [])
        assert scene.caught_up[-1] == 2, "when the last of the three fetches was sent"

    run(scenario)


def test_replica_that_lost_records_does_not_vote_until_it_has_them_again(tmp_path: Path) -> None:
    """Recovery cuts a damaged log; the next start must not take the short log for all there was."""
    whole = Scene(tmp_path)
    whole.log.append_as_follower(batch(0, 1, topic(0)) + batch(1, 1, topic(1)) + batch(2, 1, topic(2)))
    asyncio.run(whole.replica.close())
    segment = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    damaged = bytearray(segment.read_bytes())
    damaged[len(batch(0, 1, topic(0))) + 70] ^= 1
    segment.write_bytes(damaged)
    asyncio.run(Scene(tmp_path).replica.close())
    scene = Scene(tmp_path)

    async def scenario() -> None:
        assert scene.log.log_end_offset == 1
        assert not (await scene.replica.vote(vote_for(1), 0)).vote_granted
        scene.answers = [answer(batch(1, 1, topic(1)) + batch(2, 1, topic(2)), 3)]
        async with scene.running():
            await scene.fetched(2)
        assert (await scene.replica.vote(vote_for(2), 0)).vote_granted
        await scene.replica.close()
        assert not Scene(tmp_path).replica.voter.lacks_records

    run(scenario)


def vote_for(leader_epoch: int) -> VoteRequest:
    return VoteRequest(
        cluster_id="c",
        voter_id=BROKER,
        voter_directory_id=KEY.directory_id,
        candidate=VoterKey(DRIVER, UUID(int=902)),
        candidate_epoch=leader_epoch,
        log=LogPosition(leader_epoch - 1, 100),
        pre_vote=False,
    )


def test_follower_that_is_too_far_behind_goes_on_from_the_leaders_snapshot(
    scene: Scene, tmp_path: Path
) -> None:
    """The leader has let go what this broker lacks; it must miss no topic of that, and keep none."""
    snapshot = leaders_snapshot(
        tmp_path / "leader", registration(0), topic(1), *map(topic, range(3, 9)), end_offset=40, epoch=2
    )
    scene.leader_snapshot = snapshot_path(tmp_path / "leader", snapshot.snapshot_id)

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0), topic(1)), 3, leader_epoch=2),
            answer(b"", 41, leader_epoch=2, snapshot=snapshot.snapshot_id),
            answer(batch(40, 2, topic(9)), 41, leader_epoch=2),
        ]
        async with scene.running(2):
            await scene.until(lambda: len(scene.published) == 3)
            await scene.fetched(4)
        assert [image.offset for image, _ in scene.published] == [2, 39, 40]
        jumped = scene.published[1][1]
        assert jumped.deleted_topics == {UUID(int=5000): "topic-0"}
        assert jumped.created_topics == {UUID(int=5000 + number) for number in range(3, 9)}
        assert jumped.changed_brokers == set()
        assert scene.fetches[:4] == [(0, -1), (3, 1), (40, 2), (41, 2)]
        assert [flushed for _, flushed in scene.positions[:4]] == [0, 3, 40, 41]
        assert scene.pieces > 2

    run(scenario)
    assert (scene.log.log_start_offset, scene.replica.snapshots.ids) == (40, (snapshot.snapshot_id,))


def test_follower_keeps_its_log_until_the_snapshot_is_whole(scene: Scene, tmp_path: Path) -> None:
    """A download that fails is begun anew, and costs nothing that was there."""
    snapshot = leaders_snapshot(tmp_path / "leader", registration(0), end_offset=40)
    scene.leader_snapshot = path = snapshot_path(tmp_path / "leader", snapshot.snapshot_id)
    good = path.read_bytes()
    path.write_bytes(good[:150] + bytes([good[150] ^ 1]) + good[151:])

    def mend_after_the_first_time() -> None:
        if len(scene.fetches) == 3:
            assert scene.log.log_end_offset == 2
            path.write_bytes(good)

    scene.on_fetch = mend_after_the_first_time

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0)), 2),
            answer(b"", 40, snapshot=snapshot.snapshot_id),
            answer(b"", 40, snapshot=snapshot.snapshot_id),
        ]
        async with scene.running():
            await scene.until(lambda: len(scene.published) == 2)
            await scene.fetched(4)
        assert [image.offset for image, _ in scene.published] == [1, 39]
        assert scene.fetches[:4] == [(0, -1), (2, 1), (2, 1), (40, 1)]

    run(scenario)


def test_follower_gives_up_a_snapshot_when_another_leader_comes(scene: Scene, tmp_path: Path) -> None:
    """After a vote in a newer epoch nothing of an older leader goes into the log."""
    snapshot = leaders_snapshot(tmp_path / "leader", registration(0), end_offset=40)
    scene.leader_snapshot = snapshot_path(tmp_path / "leader", snapshot.snapshot_id)

    answers: list[bool] = []

    def vote_meanwhile() -> None:
        if scene.pieces == 2:
            candidate = VoterKey(DRIVER, UUID(int=9))
            ask = VoteRequest(
                cluster_id="c",
                voter_id=None,
                voter_directory_id=None,
                candidate=candidate,
                candidate_epoch=5,
                log=LogPosition(4, 99),
                pre_vote=False,
            )
            answers.append(scene.replica.voter.vote(ask, scene.replica.position, 0).vote_granted)

    scene.on_piece = vote_meanwhile

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0)), 2),
            answer(b"", 40, snapshot=snapshot.snapshot_id),
        ]
        async with scene.running():
            await scene.until(lambda: scene.pieces == 2)
            await scene.lead(5)
            await scene.fetched(3)
        assert answers == [True]
        assert scene.fetches[2] == (2, 1)
        assert scene.log.log_end_offset == 2

    run(scenario)
    assert list_snapshots(scene.log.directory) == []


def test_broker_that_restarts_begins_with_its_newest_snapshot(tmp_path: Path) -> None:
    """It replays what came after it, and publishes all of it at once."""
    scene = Scene(tmp_path)
    scene.log.append_as_follower(batch(0, 1, registration(0), topic(0)))
    image, _ = EMPTY_IMAGE.apply([registration(0), topic(0)], 1, 1)
    scene.replica.snapshots.write(MetadataSnapshot(image, None, 7))
    scene.log.append_as_follower(batch(2, 1, topic(1)))
    scene.log.close()
    scene = Scene(tmp_path)

    async def scenario() -> None:
        scene.broker_epoch = 3
        scene.answers = [answer(batch(3, 1, registration(3)), 4)]
        async with scene.running():
            await scene.until(lambda: len(scene.published) == 1)
        assert scene.fetches[0] == (3, 1)
        assert scene.high_watermarks[0] == 2
        published, everything = scene.published[0]
        assert published.topics.by_name.keys() == {"topic-0", "topic-1"}
        assert everything.created_topics == {UUID(int=5000), UUID(int=5001)}

    run(scenario)


def test_follower_writes_snapshots_of_what_is_committed(tmp_path: Path) -> None:
    """So that its next start, and whoever copies its log, need not begin at the first record."""
    scene = Scene(tmp_path, {"metadata.log.max.record.bytes.between.snapshots": "1"})

    async def scenario() -> None:
        scene.broker_epoch = 0
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0)), 2),
            answer(batch(2, 1, topic(1)), 2),
        ]
        async with scene.running():
            await scene.fetched(3)
            await scene.until(lambda: len(scene.published) == 1)
            await scene.replica.snapshot_taker.idle()

    run(scenario)
    assert scene.replica.snapshots.ids == (SnapshotId(2, 1),)
