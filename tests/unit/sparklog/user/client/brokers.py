"""Three brokers on loopback that know who leads, note who is asked, and refuse what they do not lead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.describe_topic_partitions.v0 import response as partitions_described
from kio.schema.end_txn.v5 import response as ended
from kio.schema.fetch.v16 import response as fetched
from kio.schema.find_coordinator.v4 import response as coordinators
from kio.schema.list_offsets.v7 import response as listed
from kio.schema.metadata.v11 import response as metadata
from kio.schema.produce.v10 import response as produced

from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Deferred, Features, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.types import BrokerId, TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig
from sparklog.user.client.offsets import SpecialOffset
from sparklog.user.client.topics import Leader
from tests.unit.sparklog.node.serving.serving import run

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = UUID(int=1)
_FEATURES = Features(supported={}, finalized={"transaction.version": 2}, finalized_epoch=0)
Result = TypeVar("Result")


class Brokers:
    """Three brokers; the last one is the address that clients are given."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.leaders: dict[TopicPartition, Leader] = {FIRST: Leader(0, 1), SECOND: Leader(1, 1)}
        """Who leads, and what a refusal names."""
        self.believed: dict[TopicPartition, Leader] | None = None
        """What the metadata says instead, while it is behind."""
        self.told_ids: list[UUID] = [TOPIC_ID]
        """The topics' id in the answers to come; the last one stays."""
        self.records: bytes | None = None
        """What a leader answers a fetch with; None leaves it without an answer."""
        self.hosts: dict[BrokerId, str] = {}
        """The advertised hosts that are not this one."""
        self.follower_records: dict[BrokerId, bytes] = {}
        """Answers of followers to a fetch; other brokers refuse."""
        self.silent_followers: set[BrokerId] = set()
        """Followers that leave a fetch without an answer."""
        self.end_offset = 0
        """Where logs end, which begin at 0."""
        self.refusing_offsets: set[BrokerId] = set()
        """Who can't list offsets."""
        self.away: set[BrokerId] = set()
        """Whom the metadata leaves out."""
        self.asked: list[BrokerId] = []
        """Who was asked for metadata,"""
        self.asked_for: list[set[str | None]] = []
        """and for that of which topics."""
        self.questions_at_once = 1
        """So many questions for coordinators have to be there before any is answered."""
        self._questions: list[tuple[Any, Deferred]] = []
        self.fetched: list[BrokerId] = []
        """Who was asked for records."""
        self.produced: list[BrokerId] = []
        """Who was sent records."""
        self.largest_batch_bytes: int | None = None
        """What a batch may have; of all others, these are what was appended."""
        self.appended: list[bytes] = []
        self._sequences: dict[int, int] = {}

    async def listen(self, closing: AsyncExitStack) -> None:
        self._loop = asyncio.get_running_loop()
        for broker_id in range(3):
            listener = await Listener.start(
                "127.0.0.1",
                0,
                Service(apis=self.apis(broker_id), features=lambda: _FEATURES),
                ListenerIdentity(name=f"broker-{broker_id}"),
            )
            closing.push_async_callback(listener.close)
            self.listeners.append(listener)

    def apis(self, broker_id: BrokerId) -> dict[ApiKey, Api]:
        """Return what a broker answers."""
        apis = {
            ApiKey.METADATA: Api(11, 11, self._metadata(broker_id)),
            ApiKey.FETCH: Api(16, 16, self._fetch(broker_id)),
            ApiKey.PRODUCE: Api(10, 10, self._produce(broker_id)),
            ApiKey.LIST_OFFSETS: Api(7, 7, partial(self._list_offsets, broker_id)),
            ApiKey.FIND_COORDINATOR: Api(4, 4, self._find_coordinator),
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: Api(0, 0, self._describe_partitions),
        }
        if broker_id == 0:
            apis[ApiKey.END_TXN] = Api(5, 5, self._end_transaction)
        return apis

    def client(
        self,
        *,
        request_timeout_ms: int = 5_000,
        retry_backoff_ms: int = 20,
        of_this_application: bool = False,
    ) -> ClusterClient:
        """Return a client that was given the last broker's address."""
        address = ("127.0.0.1", self.listeners[-1].port)
        return ClusterClient(
            ClientConfig(
                bootstrap_servers=(address,),
                of_this_application=of_this_application,
                request_timeout_ms=request_timeout_ms,
                retry_backoff_ms=retry_backoff_ms,
                retry_backoff_max_ms=max(retry_backoff_ms, 1_000),
            )
        )

    def die(self, broker_id: BrokerId) -> None:
        """End a broker's connections and refuse new ones; to be called from the client's thread."""
        asyncio.run_coroutine_threadsafe(self.listeners[broker_id].close(), self._loop).result()

    def asked_since(self) -> list[BrokerId]:
        asked, self.asked = self.asked, []
        return asked

    def _endpoints(self, node_type: type[Any]) -> tuple[Any, ...]:
        return tuple(
            node_type(
                node_id=node_id,
                host=self.hosts.get(node_id, "127.0.0.1"),
                port=listener.port,
                rack=f"rack-{node_id}",
            )
            for node_id, listener in enumerate(self.listeners)
            if node_id not in self.away
        )

    def _metadata(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(request: Request) -> metadata.MetadataResponse:
            self.asked.append(broker_id)
            self.asked_for.append({topic.name for topic in request.body.topics})
            topic_id = self.told_ids.pop(0) if len(self.told_ids) > 1 else self.told_ids[0]
            return metadata.MetadataResponse(
                throttle_time=timedelta(0),
                brokers=self._endpoints(metadata.MetadataResponseBroker),
                cluster_id="c",
                controller_id=0,
                topics=tuple(self._described(topic.name, topic_id) for topic in request.body.topics),
            )

        return answer

    def _described(self, name: str, topic_id: UUID) -> metadata.MetadataResponseTopic:
        leaders = {
            partition: leader
            for (topic, partition), leader in (self.believed or self.leaders).items()
            if topic == name
        }
        return metadata.MetadataResponseTopic(
            error_code=ErrorCode.none if leaders else ErrorCode.unknown_topic_or_partition,
            name=name,
            topic_id=topic_id,
            is_internal=False,
            partitions=tuple(
                metadata.MetadataResponsePartition(
                    error_code=ErrorCode.none,
                    partition_index=partition,
                    leader_id=leader.broker_id,
                    leader_epoch=leader.leader_epoch,
                    replica_nodes=(0, 1, 2),
                    isr_nodes=(0, 1, 2),
                    offline_replicas=(),
                )
                for partition, leader in leaders.items()
            ),
        )

    def _describe_partitions(self, request: Request) -> partitions_described.DescribeTopicPartitionsResponse:
        """Tell of one partition a page, whatever the limit."""
        (topic,) = request.body.topics
        leaders = {
            each.partition: leader for each, leader in self.leaders.items() if each.topic == topic.name
        }
        first = 0 if request.body.cursor is None else request.body.cursor.partition_index
        following = partitions_described.Cursor(topic_name=topic.name, partition_index=first + 1)
        return partitions_described.DescribeTopicPartitionsResponse(
            throttle_time=timedelta(0),
            topics=(
                partitions_described.DescribeTopicPartitionsResponseTopic(
                    error_code=ErrorCode.none if leaders else ErrorCode.unknown_topic_or_partition,
                    name=topic.name,
                    topic_id=TOPIC_ID if leaders else None,
                    partitions=tuple(
                        partitions_described.DescribeTopicPartitionsResponsePartition(
                            error_code=ErrorCode.none,
                            partition_index=partition,
                            leader_id=leader.broker_id,
                            leader_epoch=leader.leader_epoch,
                        )
                        for partition, leader in leaders.items()
                        if partition == first
                    ),
                ),
            ),
            next_cursor=following if first + 1 < len(leaders) else None,
        )

    def _find_coordinator(self, request: Request) -> Deferred:
        answer = Deferred()
        self._questions.append((request.body, answer))
        if len(self._questions) >= self.questions_at_once:
            asked, self._questions = self._questions, []
            asyncio.get_running_loop().call_soon(self._tell_coordinators, asked)
        return answer

    def _tell_coordinators(self, asked: list[tuple[Any, Deferred]]) -> None:
        for body, answer in asked:
            answer.complete(self._coordinators(body))

    def _coordinators(self, body: Any) -> coordinators.FindCoordinatorResponse:
        return coordinators.FindCoordinatorResponse(
            throttle_time=timedelta(0),
            coordinators=tuple(
                coordinators.Coordinator(
                    key=key,
                    node_id=0,
                    host="127.0.0.1",
                    port=self.listeners[0].port,
                    error_code=ErrorCode.none,
                    error_message=None,
                )
                for key in body.coordinator_keys
            ),
        )

    def _end_transaction(self, request: Request) -> ended.EndTxnResponse:
        return ended.EndTxnResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode.none,
            producer_id=request.body.producer_id,
            producer_epoch=request.body.producer_epoch + 1,
        )

    def _list_offsets(self, broker_id: BrokerId, request: Request) -> listed.ListOffsetsResponse:
        refused = broker_id in self.refusing_offsets
        return listed.ListOffsetsResponse(
            throttle_time=timedelta(0),
            topics=tuple(
                listed.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        listed.ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            error_code=ErrorCode.unknown_server_error if refused else ErrorCode.none,
                            offset=self.end_offset if partition.timestamp == SpecialOffset.LATEST else 0,
                        )
                        for partition in topic.partitions
                    ),
                )
                for topic in request.body.topics
            ),
        )

    def _produce(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(request: Request) -> produced.ProduceResponse:
            self.produced.append(broker_id)
            return produced.ProduceResponse(
                responses=tuple(
                    produced.TopicProduceResponse(
                        name=topic.name,
                        partition_responses=tuple(
                            produced.PartitionProduceResponse(
                                index=data.index,
                                base_offset=0,
                                record_errors=(),
                                **self._appended(broker_id, data),
                            )
                            for data in topic.partition_data
                        ),
                    )
                    for topic in request.body.topic_data
                ),
                throttle_time=timedelta(0),
                node_endpoints=self._endpoints(produced.NodeEndpoint),
            )

        return answer

    def _appended(self, broker_id: BrokerId, data: Any) -> dict[str, Any]:
        verdict = self._verdict(broker_id, data.index, produced.LeaderIdAndEpoch)
        if verdict["error_code"] is not ErrorCode.none:
            return verdict
        if self.largest_batch_bytes is not None:
            if len(data.records) > self.largest_batch_bytes:
                return {"error_code": ErrorCode.message_too_large}
            following = self._sequences.setdefault(data.index, 0)
            header = read_header(data.records)
            if header.base_sequence != following:
                return {"error_code": ErrorCode.out_of_order_sequence_number}
            self._sequences[data.index] += header.record_count
            self.appended.append(bytes(data.records))
        return verdict

    def _fetch(self, broker_id: BrokerId) -> Callable[[Request], Any]:
        def answer(request: Request) -> fetched.FetchResponse | Deferred:
            self.fetched.append(broker_id)
            partitions = [each.partition for topic in request.body.topics for each in topic.partitions]
            verdicts = [self._verdict(broker_id, each, fetched.LeaderIdAndEpoch) for each in partitions]
            served = self.records
            if broker_id in self.follower_records:
                served = self.follower_records[broker_id]
                verdicts = [{"error_code": ErrorCode.none} for _ in partitions]
            if broker_id in self.silent_followers:
                return Deferred()
            if served is None and all(each["error_code"] is ErrorCode.none for each in verdicts):
                return Deferred()
            return fetched.FetchResponse(
                throttle_time=timedelta(0),
                error_code=ErrorCode.none,
                responses=(
                    fetched.FetchableTopicResponse(
                        topic_id=TOPIC_ID,
                        partitions=tuple(
                            fetched.PartitionData(
                                partition_index=partition,
                                high_watermark=0,
                                aborted_transactions=None,
                                records=served if verdict["error_code"] is ErrorCode.none else b"",
                                **verdict,
                            )
                            for partition, verdict in zip(partitions, verdicts, strict=True)
                        ),
                    ),
                ),
                node_endpoints=self._endpoints(fetched.NodeEndpoint),
            )

        return answer

    def _verdict(self, broker_id: BrokerId, partition: int, leader_type: type[Any]) -> dict[str, Any]:
        leader = self.leaders[TopicPartition("t", partition)]
        if leader.broker_id == broker_id:
            return {"error_code": ErrorCode.none}
        return {
            "error_code": ErrorCode.not_leader_or_follower,
            "current_leader": leader_type(leader_id=leader.broker_id, leader_epoch=leader.leader_epoch),
        }


@asynccontextmanager
async def three_brokers(brokers: Brokers | None = None) -> AsyncIterator[Brokers]:
    async with AsyncExitStack() as closing:
        brokers = brokers or Brokers()
        await brokers.listen(closing)
        yield brokers


def with_brokers(use: Callable[[Brokers], None], brokers: Brokers | None = None) -> None:
    """Run `use` beside three brokers, in a thread of its own, as a client blocks."""

    async def scenario() -> None:
        async with three_brokers(brokers) as listening:
            await asyncio.to_thread(use, listening)

    run(scenario())


def with_client(use: Callable[[Brokers, ClusterClient], None]) -> None:
    """Run `use` beside three brokers with a client of theirs."""

    def use_both(brokers: Brokers) -> None:
        with brokers.client() as client:
            use(brokers, client)

    with_brokers(use_both)
