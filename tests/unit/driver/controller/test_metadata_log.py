"""The driver's copy of the metadata log with snapshots beside it, and what is answered to who needs one."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState

from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import TopicRecord
from sparklog.node.metadata_log.machine.control_records import leader_change, voters_record
from sparklog.node.metadata_log.machine.log_position import LogPosition
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.snapshot_download import SnapshotDownload
from sparklog.node.metadata_log.machine.voter_set import Voter, VoterKey, VoterSet
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID, SnapshotId
from tests.unit.sparklog.node.metadata.images import image_with_partitions

CLUSTER_ID = "c"
OURS = VoterKey(1, UUID(int=501))
VOTERS = VoterSet.of([Voter(OURS, "127.0.0.1", 9000)])
MORE_VOTERS = VOTERS.with_voter(Voter(VoterKey(2, UUID(int=502)), "127.0.0.1", 9001))
SNAPSHOT = MetadataSnapshot(image_with_partitions(40), VOTERS, 1_700_000_000_000)
"""Of everything below offset 41, in leader epoch 4."""


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    """A log that begins behind the snapshot, as if it had been copied."""
    log = MetadataLog.open(tmp_path, BrokerConfig.from_mapping({}))
    log.snapshots.write(SNAPSHOT)
    log.begin_at(SNAPSHOT)
    return log


def image_of(log: MetadataLog) -> MetadataImage:
    image = EMPTY_IMAGE if log.snapshot is None else log.snapshot.image
    for batch in log.replay():
        image, _ = replay_records(image, batch.records, batch.last_offset, batch.leader_epoch)
    return image


def lead(log: MetadataLog) -> None:
    """Begin epoch 6 with a change of the voters and a topic; the log then ends at 44."""
    log.begin_epoch(6, leader_change(1_000_000, VOTERS.keys, VOTERS.keys))
    log.append_control([voters_record(MORE_VOTERS)])
    log.append([TopicRecord(name="new", topic_id=UUID(int=9))])


def test_log_behind_a_snapshot_adds_up_to_what_the_whole_log_did(log: MetadataLog) -> None:
    """What the snapshot has, and what came after it; and the voters of either."""
    assert log.position == LogPosition(4, 41)
    assert log.voters() == VOTERS
    lead(log)
    image = image_of(log)
    assert (image.offset, image.leader_epoch) == (43, 6)
    assert image.topics.by_name.keys() == {"flights", "new"}
    assert log.voters_before(42) == VOTERS
    assert log.voters_before(44) == log.voters() == MORE_VOTERS


def test_log_is_not_truncated_below_its_snapshot(log: MetadataLog) -> None:
    """All in it was committed: a copy that parts from it there is not one to follow."""
    lead(log)
    log.truncate_to(41)
    assert log.position == LogPosition(4, 41)
    with pytest.raises(KafkaError, match="diverges at offset 40"):
        log.truncate_to(40)


class Leader:
    """The leader of epoch 6, and what it answers."""

    def __init__(self, log: MetadataLog) -> None:
        lead(log)
        self.quorum = QuorumLeader(6, VOTERS, 41, wanted_voters=(1,), fetch_timeout_ms=1_000, now_ms=0)
        self.commits: list[MetadataImage] = []
        controller = Controller(CLUSTER_ID, BrokerConfig.from_mapping({}), uuid4, image_of(log))
        commit_queue = CommitQueue(
            controller,
            log,
            later=lambda action: None,
            on_append=lambda: None,
            on_commit=self.commits.append,
            on_failure=lambda error: None,
        )
        commit_queue.submit(ControllerResult((), None), lambda reply: None)
        self.fetches = MetadataFetches(
            CLUSTER_ID, log, self.quorum, controller, commit_queue, lambda key, leader_epoch: None
        )

    @property
    def fetched(self) -> list[tuple[VoterKey, int]]:
        """How far the replicas are known to have the log."""
        return [(key, each.log_end_offset) for key, each in self.quorum.replicas.items()]

    def fetch(self, offset: int, last_epoch: int) -> Any:
        """Return what a fetch of the voter in this epoch is answered about the log, at once."""
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=6,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
            replica_directory_id=OURS.directory_id,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=OURS.node_id),
            max_wait=timedelta(),
            min_bytes=0,
            topics=(FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
            forgotten_topics_data=(),
        )

        async def answered() -> Any:
            return self.fetches.fetch(request, 0)

        return asyncio.run(answered()).responses[0].partitions[0]


@pytest.mark.parametrize(("offset", "last_epoch"), [(0, -1), (40, 4), (41, 3), (43, 3)])
def test_fetch_that_the_log_cannot_answer_is_told_the_snapshot(
    log: MetadataLog, offset: int, last_epoch: int
) -> None:
    """And what such a replica has counts for nothing."""
    leader = Leader(log)
    answer = leader.fetch(offset, last_epoch)
    assert answer.error_code is ErrorCode.none
    assert SnapshotId(answer.snapshot_id.end_offset, answer.snapshot_id.epoch) == SNAPSHOT.snapshot_id
    assert len(answer.records) == 0
    assert leader.fetched == []


@pytest.mark.parametrize(("offset", "last_epoch"), [(41, 4), (43, 6), (44, 6)])
def test_fetch_that_the_log_can_answer_is_told_no_snapshot(
    log: MetadataLog, offset: int, last_epoch: int
) -> None:
    """A replica that has the snapshot, or is just behind, goes on from the log."""
    leader = Leader(log)
    answer = leader.fetch(offset, last_epoch)
    assert (answer.snapshot_id.end_offset, answer.diverging_epoch.end_offset) == (-1, -1)
    assert bool(len(answer.records)) == (offset < 44)
    assert leader.fetched == [(OURS, offset)]


def test_fetch_of_a_majority_commits_what_it_has(log: MetadataLog) -> None:
    """The fetch shows that the voter has flushed all below its offset; decisions up to there are answered."""
    leader = Leader(log)
    leader.fetch(43, 6)
    assert (leader.quorum.high_watermark, leader.commits) == (43, [])
    leader.fetch(44, 6)
    assert leader.quorum.high_watermark == 44
    assert [image.offset for image in leader.commits] == [43]


def test_voter_that_fetches_a_snapshot_is_in_touch(log: MetadataLog) -> None:
    """A large download may take longer than the fetch timeout; the leader goes on leading meanwhile."""
    leader = Leader(log)
    assert not leader.quorum.has_majority(1_000)
    machine = SnapshotDownload(
        SNAPSHOT.snapshot_id,
        cluster_id=CLUSTER_ID,
        leader_epoch=6,
        replica_id=OURS.node_id,
        directory_id=OURS.directory_id,
    )
    answer: Any = leader.fetches.fetch_snapshot(machine.request(), 1_000)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    assert leader.quorum.has_majority(1_999)
    assert not leader.quorum.has_majority(2_000)
    assert leader.quorum.high_watermark == 0
