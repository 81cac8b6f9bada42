"""Snapshots of the metadata log on a broker: fetched from the leader, begun with, and written."""

from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executor.metadata.machine.quorum_voter import VoteRequest
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot, encode_snapshot
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_files import PartialSnapshot, list_snapshots, snapshot_path
from sparklog.protocol.types import SnapshotId
from tests.unit.executor.metadata.metadata_scene import DRIVER, Scene, answer, batch, registration, run, topic


def leaders_snapshot(
    directory: Path, *records: MetadataRecord, end_offset: int, epoch: int = 1
) -> MetadataSnapshot:
    """Write a snapshot of what the records make, as the leader has it; return it."""
    directory.mkdir(exist_ok=True)
    image, _ = replay_records(EMPTY_IMAGE, records, end_offset - 1, epoch)
    snapshot = MetadataSnapshot(image, None, 1_700_000_000_000)
    with PartialSnapshot(directory, snapshot.snapshot_id) as partial:
        for each in encode_snapshot(snapshot):
            partial.append(each)
        partial.finish()
    return snapshot


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


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
    scene.log.append_as_follower(batch(0, 1, registration(0), topic(0)), 0)
    image, _ = replay_records(EMPTY_IMAGE, [registration(0), topic(0)], 1, 1)
    scene.replica.snapshots.write(MetadataSnapshot(image, None, 7))
    scene.log.append_as_follower(batch(2, 1, topic(1)), 0)
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
