"""Markers over a connection: by the metadata of the leadership, however late its subscribers hear of it."""

import asyncio
from collections.abc import Callable
from typing import Any

from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from sparklog.executor.control.broker_connections import BrokerConnections
from sparklog.executor.coordinators.machine.coordinator_machine import ProducerStamp
from sparklog.executor.coordinators.transactions.machine.events import SendMarkers
from sparklog.executor.coordinators.transactions.marker_sender import COMPLETED_AT_ONCE, MarkerSender
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage, TopicsImage
from sparklog.node.metadata.schemas import UNASSIGNED_DIRECTORY
from sparklog.node.serving.listener import Listener, Service
from sparklog.node.serving.requests import Api, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import TopicPartition


class Origin:
    """The coordinator that has markers sent."""

    partition_index = 3
    leader_epoch = 8

    def __init__(self) -> None:
        self.decides = asyncio.Event()

    def decide(self, decide: Callable[..., Any], *event: Any) -> None:
        """Hear that the transaction is complete."""
        self.decides.set()


def test_marker_is_sent_by_the_image_that_made_the_coordinator_lead() -> None:
    """A coordinator loads before all subscribers have the image: its partitions are not deleted ones."""
    partition = PartitionRegistration(
        replicas=(5,),
        directories=(UNASSIGNED_DIRECTORY,),
        isr=(5,),
        leader=5,
        leader_epoch=0,
        partition_epoch=0,
    )
    topic = TopicImage("t", UNASSIGNED_DIRECTORY, {0: partition})
    image = MetadataImage(topics=TopicsImage({"t": topic}, {topic.topic_id: topic}))
    asked: list[int] = []

    def write(request: Request) -> WriteTxnMarkersResponse:
        asked.extend(marker.coordinator_epoch for marker in request.body.markers)
        result = WritableTxnMarkerPartitionResult(partition_index=0, error_code=ErrorCode.none)
        rows = (WritableTxnMarkerTopicResult(name="t", partitions=(result,)),)
        return WriteTxnMarkersResponse(markers=(WritableTxnMarkerResult(producer_id=1, topics=rows),))

    async def scenario() -> None:
        listener = await Listener.start(
            "127.0.0.1", 0, Service(apis={ApiKey.WRITE_TXN_MARKERS: Api(1, 2, write)})
        )
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", listener.port)
        connections = BrokerConnections("test", {5: endpoint}.get, 5_000)
        sender = MarkerSender(connections, lambda: image, lambda: None)
        origin = Origin()
        markers = SendMarkers("a", ProducerStamp(1, 1), True, 2, frozenset({TopicPartition("t", 0)}))
        sender.send(markers, origin)
        assert len(sender) == 1
        async with asyncio.timeout(10):
            await origin.decides.wait()
        assert (asked, len(sender)) == ([8], 0)
        await sender.stop()
        await listener.close()

    asyncio.run(scenario())


def test_transactions_of_deleted_partitions_are_completed_in_several_turns() -> None:
    """Each completion is a batch to append; hundreds of them in one turn would keep everybody waiting."""
    completed: list[int] = []
    turns: list[int] = []

    class Counting(Origin):
        def decide(self, decide: Callable[..., Any], *event: Any) -> None:
            completed.append(len(turns))

    async def scenario() -> None:
        sender = MarkerSender(BrokerConnections("test", {}.get, 5_000), MetadataImage, lambda: None)
        origin = Counting()
        for number in range(3 * COMPLETED_AT_ONCE):
            partitions = frozenset({TopicPartition("deleted", 0)})
            sender.send(SendMarkers(str(number), ProducerStamp(number, 1), True, 2, partitions), origin)
        assert completed == []
        for turn in range(5):
            turns.append(turn)
            await asyncio.sleep(0)
        assert len(sender) == 0
        await sender.stop()

    asyncio.run(scenario())
    assert len(completed) == 3 * COMPLETED_AT_ONCE
    assert max(completed.count(turn) for turn in set(completed)) == COMPLETED_AT_ONCE
