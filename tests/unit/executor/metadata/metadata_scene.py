"""A broker's copy of the metadata log against a scripted leader, and what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from kio.schema.fetch.v18.response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kio.schema.fetch.v18.response import SnapshotId as WireSnapshotId

from sparklog.executor.loop.concurrency import until_first_ends
from sparklog.executor.metadata.follower import MetadataFollower
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.executor.metadata.publisher import MetadataPublisher
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.framing import encode_record
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import BrokerEndpoint, MetadataRecord, RegisterBrokerRecord, TopicRecord
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metadata_log.snapshot_serving import fetch_snapshot_response
from sparklog.node.serving.requests import Deferred, Request
from sparklog.node.storage.file_region import FileRegion, LogFile
from sparklog.node.storage.machine.recovery_rules import PreviousStop
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID, SnapshotId
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

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
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
                broker_epoch=lambda: self.broker_epoch,
                on_caught_up=self.caught_up.append,
            )
            publisher.subscribe(self)
            follower = MetadataFollower(
                self.replica,
                link,
                broker_epoch=lambda: self.broker_epoch,
                on_fetched=publisher.fetched,
                on_replaced=publisher.replaced,
                now_ms=lambda: len(self.fetches),
                request_timeout_ms=2_000,
                fetch_timeout_ms=2_000,
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


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    asyncio.run(main())
