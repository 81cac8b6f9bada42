"""A broker's copy of the metadata log: what is fetched, kept, replayed and published."""

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.fetch.v18.response import (
    EpochEndOffset,
)

from sparklog.executor.metadata.machine.quorum_voter import ElectionState, MetadataDivergedError, VoteRequest
from sparklog.executor.metadata.publisher import REPLAY_CHUNK_BYTES
from sparklog.executor.metadata.quorum_state_file import read_election
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import FeatureLevelRecord
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.metadata.metadata_scene import (
    BROKER,
    DRIVER,
    KEY,
    Scene,
    answer,
    batch,
    registration,
    run,
    topic,
)
from tests.unit.sparklog.node.storage.calls import calls_of

DEADLINE_S = 20


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_follower_publishes_nothing_before_its_own_registration(scene: Scene) -> None:
    """An older image may call this broker leader by virtue of a process that is dead."""

    async def scenario() -> None:
        scene.broker_epoch = 4
        scene.answers = [
            answer(batch(0, 1, registration(0), topic(0), topic(1)), 3),
            answer(batch(3, 1, FeatureLevelRecord(name="gone", feature_level=0), registration(4)), 5),
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
        scene.log.append_as_follower(batch(0, 1, registration(0), topic(0)), 0)
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
        scene.log.append_as_follower(batch(0, 1, registration(0)), 0)
        scene.log.append_as_follower(batch(1, 1, topic(0)), 0)
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
        scene.log.append_as_follower(batch(0, 1, topic(0)), 0)
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
        assert read_election(scene.log.directory) == ElectionState(4, None, DRIVER)

    run(scenario)


def test_follower_fetches_on_while_an_image_is_acted_on(scene: Scene) -> None:
    """Opening thousands of logs must not hold up what a majority is waited for."""

    async def scenario() -> None:
        acted_on = asyncio.Event()

        async def apply(image: MetadataImage, delta: MetadataDelta) -> None:
            await acted_on.wait()

        scene.apply = apply  # type: ignore[method-assign]
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
    whole.log.append_as_follower(batch(0, 1, topic(0)) + batch(1, 1, topic(1)) + batch(2, 1, topic(2)), 0)
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


def test_election_that_nobody_waits_for_any_more_does_not_take_the_place_of_a_newer_one(scene: Scene) -> None:
    """A connection that closes takes its request with it; the thread that writes for it goes on."""
    writing, may_go_on = threading.Event(), threading.Event()

    def hold_the_first(path: str, _: object) -> None:
        if path.endswith("quorum-state.tmp") and not writing.is_set():
            writing.set()
            may_go_on.wait(DEADLINE_S)

    async def scenario() -> None:
        first = asyncio.create_task(scene.lead(1))
        await asyncio.to_thread(writing.wait, DEADLINE_S)
        first.cancel()
        second = asyncio.create_task(scene.lead(2))
        done, _ = await asyncio.wait({second}, timeout=0.2)
        assert (done, len(synced)) == (set(), 1)
        may_go_on.set()
        await asyncio.wait_for(second, DEADLINE_S)

    with calls_of("fsync", hold_the_first) as synced:
        run(scenario)
    election = read_election(scene.log.directory)
    assert election is not None
    assert election.leader_epoch == 2


def test_many_records_are_replayed_in_pieces_between_which_others_have_their_turn(scene: Scene) -> None:
    """Those of ten thousand partitions held a broker's heartbeats for 0.3 s."""
    published_between: set[int] = set()

    async def look() -> None:
        while True:
            published_between.add(len(scene.published))
            await asyncio.sleep(0)

    async def scenario() -> None:
        scene.broker_epoch = 0
        topics = [topic(number) for number in range(4_000)]
        batches = [batch(1 + start, 1, *topics[start : start + 100]) for start in range(0, 4_000, 100)]
        assert sum(map(len, batches)) > 2 * REPLAY_CHUNK_BYTES
        scene.answers = [answer(batch(0, 1, registration(0)), 1), answer(b"".join(batches), 4_001)]
        looking = asyncio.create_task(look())
        async with scene.running():
            await scene.until(lambda: bool(scene.published) and scene.published[-1][0].offset == 4_000)
        looking.cancel()
        assert published_between >= {1, 2, 3}

    run(scenario)
