"""A snapshot on its way from one replica to another, and when a replica is sent one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.fetch_snapshot.v1.request import FetchSnapshotRequest

from sparklog.node.metadata_log.machine.needed_snapshot import needed_snapshot
from sparklog.node.metadata_log.machine.snapshot_batches import DamagedSnapshotError, MetadataSnapshot
from sparklog.node.metadata_log.machine.snapshot_download import DownloadRefusedError, SnapshotDownload
from sparklog.node.metadata_log.snapshot_files import snapshot_path
from sparklog.node.metadata_log.snapshot_serving import fetch_snapshot_response
from sparklog.node.metadata_log.snapshot_store import SnapshotStore
from sparklog.node.storage.log.log import Log
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import SnapshotId
from tests.unit.sparklog.node.metadata_log.metadata_logs import append_topics, open_log, replayed

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
LEADER = 1_000_000
OLDEST = SnapshotId(100, 2)
NEWEST = SnapshotId(300, 5)


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "log_start_offset", "expected"),
    [
        pytest.param(0, None, 0, NEWEST, id="nothing yet"),
        pytest.param(99, 2, 100, NEWEST, id="below the start"),
        pytest.param(100, 2, 100, None, id="just at the start"),
        pytest.param(100, 1, 100, NEWEST, id="at the start with another history"),
        pytest.param(100, None, 100, NEWEST, id="at the start without a history"),
        pytest.param(150, 1, 100, NEWEST, id="above the start with an epoch that is gone"),
        pytest.param(150, 2, 100, None, id="above the start"),
        pytest.param(400, 9, 100, None, id="beyond the end, which is for the log to refuse"),
        pytest.param(50, 1, 0, None, id="in a log that still has everything"),
    ],
)
def test_snapshot_is_sent_where_the_log_will_not_do(
    fetch_offset: int, last_fetched_epoch: int | None, log_start_offset: int, expected: SnapshotId | None
) -> None:
    """Too many, and catching up is slow; one too few, and a replica goes on from records nobody else has."""
    found = needed_snapshot(
        fetch_offset, last_fetched_epoch, log_start_offset=log_start_offset, oldest=OLDEST, newest=NEWEST
    )
    assert found == expected


def test_no_snapshot_is_sent_where_there_is_none() -> None:
    """The log of a young cluster has everything."""
    assert needed_snapshot(0, None, log_start_offset=0, oldest=None, newest=None) is None


def machine(snapshot_id: SnapshotId, leader_epoch: int | None = 7) -> SnapshotDownload:
    return SnapshotDownload(
        snapshot_id,
        cluster_id=CLUSTER_ID,
        leader_epoch=leader_epoch,
        replica_id=2,
        directory_id=UUID(int=5),
    )


class Leader:
    """A replica with a snapshot, and what it answers; `max_bytes` is the most that it gives at once."""

    def __init__(self, directory: Path, max_bytes: int = 300) -> None:
        self.log = open_log(directory)
        self.store, _ = SnapshotStore.open(self.log.directory, lambda _: self.log)
        append_topics(self.log, range(20), leader_epoch=7)
        self.snapshot = replayed(self.log)
        self.store.write(self.snapshot)
        self.requests: list[FetchSnapshotRequest] = []
        self._max_bytes = max_bytes

    @property
    def id(self) -> SnapshotId:
        return self.snapshot.snapshot_id

    def answer(self, request: FetchSnapshotRequest) -> Any:
        """Return the answer as it arrives: with bytes in place of a stretch of a file."""
        self.requests.append(request)
        response = fetch_snapshot_response(
            replace(request, max_bytes=min(request.max_bytes, self._max_bytes)),
            self.store.region,
            cluster_id=CLUSTER_ID,
            leader_id=LEADER,
            leader_epoch=7,
        )
        if not response.topics:
            return response
        partition = response.topics[0].partitions[0]
        records: Any = partition.unaligned_records
        data = records if isinstance(records, bytes) else records.read()
        return with_partition(response, unaligned_records=data)

    async def ask(self, request: FetchSnapshotRequest) -> Any:
        return self.answer(request)


def with_partition(response: Any, **changes: Any) -> Any:
    topic = response.topics[0]
    partition = replace(topic.partitions[0], **changes)
    return replace(response, topics=(replace(topic, partitions=(partition,)),))


def asked(request: FetchSnapshotRequest, **changes: Any) -> FetchSnapshotRequest:
    topic = request.topics[0]
    partition = replace(topic.partitions[0], **changes)
    return replace(request, topics=(replace(topic, partitions=(partition,)),))


def run(
    leader: Leader,
    log: Log,
    ask: Callable[[FetchSnapshotRequest], Any] | None = None,
) -> tuple[MetadataSnapshot, SnapshotStore]:
    store, _ = SnapshotStore.open(log.directory, lambda _: log)

    async def answered(request: FetchSnapshotRequest) -> Any:
        return leader.answer(request) if ask is None else ask(request)

    snapshot = asyncio.run(store.download(machine(leader.id), answered))
    assert store.ids == ()
    store.replace_log(leader.id)
    return snapshot, store


def test_snapshot_is_downloaded_piece_by_piece(tmp_path: Path) -> None:
    """However small the pieces, the file that comes out is the file that went in."""
    leader = Leader(tmp_path / "leader")
    log = open_log(tmp_path / "broker")
    snapshot, store = run(leader, log)
    assert snapshot == leader.snapshot
    assert store.ids == (leader.id,)
    here, there = (snapshot_path(each.directory, leader.id) for each in (log, leader.log))
    assert here.read_bytes() == there.read_bytes()
    positions = [request.topics[0].partitions[0].position for request in leader.requests]
    assert positions == list(range(0, there.stat().st_size, 300))
    assert not list(log.directory.glob("*.part"))


def test_snapshot_of_one_piece_takes_one_request(tmp_path: Path) -> None:
    """The usual one fits."""
    leader = Leader(tmp_path / "leader", max_bytes=10**9)
    run(leader, open_log(tmp_path / "broker"))
    assert len(leader.requests) == 1


def test_snapshot_that_is_damaged_on_its_way_is_not_kept(tmp_path: Path) -> None:
    """Neither a network nor the other side's disk is to be trusted."""
    leader = Leader(tmp_path / "leader", max_bytes=10**9)

    def ask(request: FetchSnapshotRequest) -> Any:
        response = leader.answer(request)
        data = bytearray(response.topics[0].partitions[0].unaligned_records)
        data[len(data) // 2] ^= 1
        return with_partition(response, unaligned_records=bytes(data))

    log = open_log(tmp_path / "broker")
    with pytest.raises(DamagedSnapshotError):
        run(leader, log, ask)
    assert not list(log.directory.glob("*.checkpoint*"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"position": 10}, id="another position"),
        pytest.param({"unaligned_records": b""}, id="nothing, which would go on for ever"),
        pytest.param({"size": 100}, id="more than there is"),
        pytest.param({"snapshot_id": None}, id="another snapshot"),
    ],
)
def test_answer_that_is_not_the_next_piece_ends_the_download(tmp_path: Path, change: dict[str, Any]) -> None:
    """A file put together from what does not belong together is found out at once, and begun anew."""
    leader = Leader(tmp_path / "leader")

    def ask(request: FetchSnapshotRequest) -> Any:
        response = leader.answer(request)
        wire_id = response.topics[0].partitions[0].snapshot_id
        changed = {"snapshot_id": replace(wire_id, epoch=8)} if "snapshot_id" in change else change
        return with_partition(response, **changed)

    log = open_log(tmp_path / "broker")
    with pytest.raises(DownloadRefusedError, match="asked for snapshot"):
        run(leader, log, ask)
    assert not list(log.directory.glob("*.checkpoint*"))


def test_answer_with_another_size_than_before_ends_the_download(tmp_path: Path) -> None:
    """The other side wrote the file again meanwhile."""
    leader = Leader(tmp_path / "leader")
    step = machine(leader.id)
    step.answered(leader.answer(step.request()))
    with pytest.raises(DownloadRefusedError, match="bytes, and"):
        step.answered(with_partition(leader.answer(step.request()), size=10**6))


def test_snapshot_that_was_removed_is_not_found(tmp_path: Path) -> None:
    """The download is begun anew, with the snapshot there is then."""
    leader = Leader(tmp_path / "leader")
    leader.store.remove([leader.id])
    with pytest.raises(DownloadRefusedError) as refused:
        run(leader, open_log(tmp_path / "broker"))
    assert refused.value.error_code is ErrorCode.snapshot_not_found


@pytest.mark.parametrize(
    ("current_leader_epoch", "expected"),
    [(6, ErrorCode.fenced_leader_epoch), (8, ErrorCode.unknown_leader_epoch), (-1, ErrorCode.none)],
)
def test_request_in_another_epoch_is_refused_with_the_present_one(
    tmp_path: Path, current_leader_epoch: int, expected: ErrorCode
) -> None:
    """Nobody follows a leader that is none any more; a candidate, which names no epoch, may read."""
    leader = Leader(tmp_path)
    step = machine(leader.id, None if current_leader_epoch < 0 else current_leader_epoch)
    response = leader.answer(step.request())
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.current_leader.leader_epoch) == (expected, 7)
    if expected is not ErrorCode.none:
        with pytest.raises(DownloadRefusedError) as refused:
            step.answered(response)
        assert (refused.value.error_code, refused.value.leader_epoch) == (expected, 7)


@pytest.mark.parametrize("position", [-1, 10**9])
def test_request_for_a_position_outside_the_file_is_refused(tmp_path: Path, position: int) -> None:
    """The end is outside: who asks there has everything."""
    leader = Leader(tmp_path)
    size_bytes = snapshot_path(leader.log.directory, leader.id).stat().st_size
    for outside in (position, size_bytes):
        request = asked(machine(leader.id).request(), position=outside)
        partition = leader.answer(request).topics[0].partitions[0]
        assert partition.error_code is ErrorCode.position_out_of_range


def test_request_that_is_not_about_this_clusters_metadata_is_refused(tmp_path: Path) -> None:
    """Whoever asks for something else gets an error of its own kind."""
    leader = Leader(tmp_path)
    request = machine(leader.id).request()
    topic = request.topics[0]
    answers = [
        leader.answer(replace(request, cluster_id="another")).error_code,
        leader.answer(replace(request, topics=())).error_code,
        leader.answer(replace(request, topics=(topic, topic))).error_code,
        leader.answer(replace(request, max_bytes=0)).error_code,
        leader.answer(asked(request, partition=1)).topics[0].partitions[0].error_code,
        leader.answer(replace(request, topics=(replace(topic, name="flights"),)))
        .topics[0]
        .partitions[0]
        .error_code,
    ]
    assert answers == [
        ErrorCode.inconsistent_cluster_id,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.invalid_request,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]


def test_disk_that_fails_under_a_request_is_no_answer(tmp_path: Path) -> None:
    """Whoever serves decides what becomes of a broken disk."""

    def find(_: SnapshotId) -> None:
        raise KafkaError(ErrorCode.kafka_storage_error, "Input/output error")

    request = machine(NEWEST).request()
    with pytest.raises(KafkaError):
        fetch_snapshot_response(request, find, cluster_id=CLUSTER_ID, leader_id=None, leader_epoch=7)
