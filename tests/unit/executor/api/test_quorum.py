"""The CONTROLLER listener over a real socket, as a candidate and a leader use it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.begin_quorum_epoch.v1 import request as begin
from kio.schema.describe_quorum.v2 import request as describe
from kio.schema.end_quorum_epoch.v1 import request as end
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.list_offsets.v11 import request as list_offsets
from kio.schema.vote.v2 import request as vote

from sparklog.executor.api.quorum import QuorumHandlers
from sparklog.executor.metadata.machine.quorum_voter import ElectionState
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.executor.metadata.quorum_state_file import QUORUM_STATE, read_election
from sparklog.executor.partitions.log_end import log_end
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.calling.channel import Channel
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.framing import encode_record
from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import FeatureLevelRecord
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.snapshot_download import SnapshotDownload
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.storage import ForeignDirectoryError, Log
from sparklog.node.storage.log_config import LogConfig
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID

DRIVER = 1_000_000
OURS = VoterKey(2, UUID(int=500))
CANDIDATE = VoterKey(DRIVER, UUID(int=901))
LATEST = -1


def batch(base_offset: int, leader_epoch: int, count: int = 1) -> bytes:
    records = [SimpleRecord(value=encode_record(FeatureLevelRecord(name="gone", feature_level=0)))] * count
    return build_batch(records, base_offset=base_offset, leader_epoch=leader_epoch)


class Scene:
    """One broker's replica behind its listener, and a connection to it."""

    def __init__(self, directory: Path, cluster_id: str | None = "c") -> None:
        self.formatted: list[str] = []
        self.replica = MetadataReplica.open(
            directory,
            BrokerConfig.from_mapping({}),
            key=OURS,
            cluster_id=cluster_id,
            fetch_timeout_ms=2_000,
            format_directories=self.formatted.append,
            now_ms=0,
        )
        self.channel: Channel

    @property
    def on_disk(self) -> ElectionState | None:
        """What the voter would know after a crash."""
        return read_election(self.replica.log.directory)

    async def vote(self, leader_epoch: int, last_epoch: int = 9, end_offset: int = 0, **other: Any) -> Any:
        """Ask for the vote; return what the answer says of the partition."""
        partition = {
            "partition_index": 0,
            "replica_epoch": leader_epoch,
            "replica_id": CANDIDATE.node_id,
            "replica_directory_id": CANDIDATE.directory_id,
            "voter_directory_id": OURS.directory_id,
            "last_offset_epoch": min(last_epoch, leader_epoch - 1),
            "last_offset": end_offset,
            "pre_vote": False,
        }
        topic = vote.TopicData(
            topic_name=CLUSTER_METADATA_TOPIC, partitions=(vote.PartitionData(**{**partition, **other}),)
        )
        response = await self.channel.request(
            vote.VoteRequest(cluster_id="c", voter_id=OURS.node_id, topics=(topic,))
        )
        assert response.error_code is ErrorCode.none
        return response.topics[0].partitions[0]

    async def begin(self, leader_epoch: int, cluster_id: str = "c") -> Any:
        """Say that the driver leads an epoch."""
        partition = begin.PartitionData(
            partition_index=0,
            voter_directory_id=OURS.directory_id,
            leader_id=DRIVER,
            leader_epoch=leader_epoch,
        )
        topic = begin.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,))
        return await self.channel.request(
            begin.BeginQuorumEpochRequest(
                cluster_id=cluster_id, voter_id=OURS.node_id, topics=(topic,), leader_endpoints=()
            )
        )

    async def fetch(self, offset: int, last_epoch: int, leader_epoch: int = -1) -> Any:
        """Fetch from the copy; return what the answer says of the partition."""
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
        )
        response = await self.channel.request(
            FetchRequest(
                max_wait=timedelta(seconds=10),
                min_bytes=1,
                topics=(FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
                forgotten_topics_data=(),
            )
        )
        return response.responses[0].partitions[0]

    async def log_end(self, timestamp: int = LATEST, topic: str = CLUSTER_METADATA_TOPIC) -> Any:
        """Ask where the copy ends."""
        asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        response = await self.channel.request(
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=(list_offsets.ListOffsetsTopic(name=topic, partitions=(asked,)),),
                timeout=timedelta(),
            )
        )
        return response.topics[0].partitions[0]


def run(scene: Scene, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run the scenario while the scene's listener serves."""

    async def main() -> None:
        handlers = QuorumHandlers(scene.replica, partial(log_end, PartitionTable("PLAINTEXT")))
        listener = await Listener.start("127.0.0.1", 0, Service(apis=handlers.table()))
        handlers.endpoint = Endpoint("CONTROLLER", "127.0.0.1", listener.port)
        scene.channel = await Channel.connect("127.0.0.1", listener.port, "driver")
        try:
            await scenario()
        finally:
            scene.channel.close()
            await listener.close()
            await scene.replica.close()

    asyncio.run(main())


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_vote_is_on_disk_when_its_answer_arrives(scene: Scene) -> None:
    """A voter killed right after its answer must not vote again in that epoch."""

    async def scenario() -> None:
        answer = await scene.vote(3)
        assert (answer.error_code, answer.vote_granted, answer.leader_epoch) == (ErrorCode.none, True, 3)
        assert scene.on_disk == ElectionState(3, CANDIDATE)
        other = await scene.vote(3, replica_directory_id=UUID(int=902))
        assert not other.vote_granted

    run(scene, scenario)


def test_vote_that_is_refused_takes_the_epoch_over_on_disk(scene: Scene) -> None:
    """The refusal, too, says that this voter is in the new epoch."""

    async def scenario() -> None:
        scene.replica.log.append_as_follower(batch(0, 2, count=5), 0)
        assert not (await scene.vote(3, last_epoch=2, end_offset=4)).vote_granted
        assert scene.on_disk == ElectionState(3)
        fenced = await scene.vote(2)
        assert (fenced.error_code, fenced.leader_epoch) == (ErrorCode.fenced_leader_epoch, 3)

    run(scene, scenario)


def test_vote_that_the_disk_does_not_take_is_not_answered(scene: Scene) -> None:
    """An answer would be a promise that a crash breaks."""

    async def scenario() -> None:
        (scene.replica.log.directory / f"{QUORUM_STATE}.tmp").mkdir()
        with pytest.raises(KafkaError) as caught:
            await scene.vote(3)
        assert caught.value.error_code is ErrorCode.network_exception
        assert scene.on_disk is None

    run(scene, scenario)


def test_pre_vote_writes_nothing(scene: Scene) -> None:
    """Asking how a vote would end is free."""

    async def scenario() -> None:
        assert (await scene.vote(3, pre_vote=True)).vote_granted
        assert scene.on_disk is None

    run(scene, scenario)


def test_blank_broker_is_formatted_before_its_vote_is_told(tmp_path: Path) -> None:
    """From then on its directories belong to that cluster, whoever comes."""
    scene = Scene(tmp_path, cluster_id=None)

    async def scenario() -> None:
        assert (await scene.vote(1, pre_vote=True)).vote_granted
        assert scene.formatted == []
        assert (await scene.vote(1)).vote_granted
        assert scene.formatted == ["c"]
        assert scene.replica.cluster_id == "c"
        assert (await scene.begin(1, cluster_id="d")).error_code is ErrorCode.inconsistent_cluster_id

    run(scene, scenario)


def test_replica_with_a_log_but_without_an_identity_is_refused(tmp_path: Path) -> None:
    """It may be any cluster's; as a blank one it would help to form another over it."""
    scene = Scene(tmp_path)

    async def scenario() -> None:
        scene.replica.log.append_as_follower(batch(0, 1), 0)

    run(scene, scenario)
    with pytest.raises(ForeignDirectoryError, match=r"no meta\.properties"):
        Scene(tmp_path, cluster_id=None)


def test_leader_is_on_disk_when_it_is_told_so_and_an_older_one_refused(scene: Scene) -> None:
    """A restarted voter knows that its epoch has a leader; an old driver learns of the new one."""

    async def scenario() -> None:
        assert (await scene.begin(4)).topics[0].partitions[0].error_code is ErrorCode.none
        assert scene.on_disk == ElectionState(4, None, DRIVER)
        refused = (await scene.begin(3)).topics[0].partitions[0]
        assert (refused.error_code, refused.leader_epoch, refused.leader_id) == (
            ErrorCode.fenced_leader_epoch,
            4,
            DRIVER,
        )

    run(scene, scenario)


def test_leader_may_resign(scene: Scene) -> None:
    """The next driver need not wait."""

    async def scenario() -> None:
        partition = end.PartitionData(
            partition_index=0, leader_id=DRIVER, leader_epoch=4, preferred_candidates=()
        )
        topic = end.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,))
        response = await scene.channel.request(
            end.EndQuorumEpochRequest(cluster_id="c", topics=(topic,), leader_endpoints=())
        )
        assert response.topics[0].partitions[0].leader_epoch == 4

    run(scene, scenario)


def test_log_end_of_a_copy_is_its_last_epoch_and_its_length(scene: Scene) -> None:
    """By these the driver finds the longest copy."""

    async def scenario() -> None:
        empty = await scene.log_end()
        assert (empty.offset, empty.leader_epoch) == (0, 0)
        scene.replica.log.append_as_follower(batch(0, 1, count=3) + batch(3, 4, count=2), 0)
        full = await scene.log_end()
        assert (full.offset, full.leader_epoch) == (5, 4)
        assert (await scene.log_end(timestamp=0)).error_code is ErrorCode.invalid_request
        assert (await scene.log_end(topic="t")).error_code is ErrorCode.unknown_topic_or_partition

    run(scene, scenario)


def test_copy_is_served_to_its_end_at_once(scene: Scene) -> None:
    """What is not committed yet may be the only copy of what a majority had."""

    async def scenario() -> None:
        scene.replica.log.append_as_follower(batch(0, 1, count=3) + batch(3, 4, count=2), 0)
        assert bytes((await scene.fetch(0, -1)).records) == batch(0, 1, count=3) + batch(3, 4, count=2)
        at_end = await scene.fetch(5, 4)
        assert (at_end.error_code, len(at_end.records or b"")) == (ErrorCode.none, 0)

    run(scene, scenario)


def test_copy_tells_a_reader_where_their_logs_part(scene: Scene) -> None:
    """A candidate with another tail cuts it and takes this one."""

    async def scenario() -> None:
        scene.replica.log.append_as_follower(batch(0, 1, count=3) + batch(3, 4, count=2), 0)
        parted = await scene.fetch(8, 3)
        assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (1, 3)
        assert (await scene.fetch(9, 5)).error_code is ErrorCode.offset_out_of_range
        assert (await scene.fetch(0, -1, leader_epoch=7)).error_code is ErrorCode.unknown_leader_epoch
        await scene.begin(4)
        assert (await scene.fetch(0, -1, leader_epoch=3)).error_code is ErrorCode.fenced_leader_epoch

    run(scene, scenario)


def test_describe_quorum_says_what_the_broker_knows(scene: Scene) -> None:
    """An operator sees whom a broker follows, and how far its copy reaches."""

    async def scenario() -> None:
        await scene.begin(4)
        scene.replica.log.append_as_follower(batch(0, 4, count=3), 0)
        asked = describe.TopicData(
            topic_name=CLUSTER_METADATA_TOPIC, partitions=(describe.PartitionData(partition_index=0),)
        )
        response = await scene.channel.request(describe.DescribeQuorumRequest(topics=(asked,)))
        partition = response.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (DRIVER, 4, -1)
        assert partition.observers[0].log_end_offset == 3
        assert response.nodes[0].listeners[0].name == "CONTROLLER"

    run(scene, scenario)


def test_copy_that_begins_behind_a_snapshot_is_served_with_it(scene: Scene, tmp_path: Path) -> None:
    """A candidate with an empty disk gets the snapshot, file and all, and then the log from its end on."""
    image, _ = replay_records(EMPTY_IMAGE, [FeatureLevelRecord(name="gone", feature_level=0)], 2, 1)
    snapshot = MetadataSnapshot(image, None, 7)

    async def scenario() -> None:
        replica = scene.replica
        replica.log.append_as_follower(batch(0, 1, count=3), 0)
        replica.snapshots.write(snapshot)
        replica.snapshots.replace_log(snapshot.snapshot_id)
        replica.log.append_as_follower(batch(3, 4, count=2), 0)
        answered = await scene.fetch(0, -1)
        assert (answered.snapshot_id.end_offset, answered.snapshot_id.epoch) == (3, 1)
        assert len(answered.records or b"") == 0
        copy = tmp_path / "copy-0"
        store, _ = SnapshotStore.open(copy, lambda _: Log.open(copy, LogConfig(), now_ms=0))
        machine = SnapshotDownload(
            snapshot.snapshot_id, cluster_id="c", leader_epoch=None, replica_id=DRIVER, directory_id=None
        )
        assert await store.download(machine, scene.channel.request) == snapshot
        behind = await scene.fetch(3, 1)
        assert (behind.snapshot_id.end_offset, bytes(behind.records)) == (-1, batch(3, 4, count=2))
        assert (await scene.log_end()).offset == 5

    run(scene, scenario)
