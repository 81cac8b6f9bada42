"""Rows of tiered topics are those that brokers give, whatever part of them comes from the object store."""

import asyncio
import functools
import json
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import StructType

from sparklog.executor.api.describe import DescribeHandlers
from sparklog.executor.tiering.remote_log_manager import REQUESTS_AT_A_TIME
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.schemas import (
    NO_LEADER,
    BrokerEndpoint,
    ConfigRecord,
    RegisterBrokerRecord,
    ResourceType,
)
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.node.responses.descriptions import Descriptions
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Handler
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.columns import COLUMN_TYPES
from sparklog.protocol.records.encode import encode_batches
from sparklog.protocol.types import BrokerId, TopicPartition
from sparklog.spark_versions import ReadMaxRows
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.planning import OffsetRange
from sparklog.user.dataframe.range_reader import OffsetRangePartition
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.remote.history_planner import HistoryPlanner
from sparklog.user.dataframe.remote.store_thread import close_stores
from sparklog.user.dataframe.resolution import resolve_partitions
from sparklog.user.dataframe.schemas import record_schema
from sparklog.user.dataframe.stream_reader import SparklogStreamReader
from tests.unit.executor.brokers import Brokers, until
from tests.unit.executor.requests import batch, delete_records, produce
from tests.unit.executor.requests import rows as answered
from tests.unit.executor.tiering.tiered_brokers import bucket_of, manifest_of, tiered_brokers
from tests.unit.sparklog.user.dataframe.reading import end, options_of, write

ALL: Final = record_schema(include_headers=True)
SHORT: Final = {"internal.segment.bytes": "30000", "local.retention.bytes": "30000"}
ALL_TIMES: Final = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
FIRST_STEPS, LAST_STEPS = 60, 10
"""Writes before and after the beginning of the log leaves the disk."""


class Both(NamedTuple):
    """The rows of a read through brokers, and of one with its history from the store."""

    brokers: pa.Table
    union: pa.Table
    from_store: int
    """How many offsets came from the store."""


class Cluster(NamedTuple):
    brokers: Brokers
    topic_id: UUID
    bucket: Path
    options: dict[str, str]

    async def produce(self, records: bytes) -> None:
        channel = await self.brokers.connect(0)
        (row,) = answered(await channel.request(produce(self.topic_id, records)))
        assert row.error_code is ErrorCode.none

    async def until_copied(self, *, is_cut: bool) -> None:
        """Return when all is in the store, and, if `is_cut`, the beginning not on the disk any more."""
        log = self.brokers.replica(0, self.topic_id).log

        def is_done() -> bool:
            manifest = manifest_of(self.brokers, 0, self.topic_id)
            is_copied = manifest is not None and manifest.end_offset == log.log_end_offset
            return is_copied and (log.local_log_start_offset > 0 or not is_cut)

        await until(is_done, "the log is copied")

    async def elect_without_its_manifest(self, elections: int = 1) -> Callable[[], None]:
        """Let the leader begin leader epochs; return the function that lets it read its manifest.

        From the second one on it does not serve before.
        """
        tier = self.brokers.brokers[0].replicas.remote_log
        assert tier is not None
        requests = tier._services.requests
        taken = AsyncExitStack()
        for _ in range(REQUESTS_AT_A_TIME):
            await taken.enter_async_context(requests.turn(self.brokers.replica(0, self.topic_id)))
        for _ in range(elections):
            await self.brokers.elect(self.topic_id, 0, leader=0, isr=[0])
        assert self.brokers.replica(0, self.topic_id).awaits_tier

        giving_back: set[asyncio.Task[None]] = set()

        def let_it_read() -> None:
            giving_back.add(asyncio.create_task(taken.aclose()))

        return let_it_read

    async def keep_what_is_on_the_disk(self) -> None:
        """Let no more go: readers of uncommitted records see on the disk what the store does not have."""
        await self.brokers.commit(
            ConfigRecord(
                resource_type=ResourceType.TOPIC, resource_name="t", name="local.retention.bytes", value="-1"
            )
        )

    def remote(self, **given: str) -> dict[str, str]:
        """Return the options of a read that knows the store."""
        named = {name.replace("__", "."): value for name, value in given.items()}
        return {**self.options, "sparklog.remote.uri": self.bucket.as_uri(), **named}


Planned = Callable[[], Coroutine[Any, Any, set[str]]]
Test = Callable[..., Coroutine[Any, Any, None]]


def in_a_loop(test: Test) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


@pytest.fixture(autouse=True)
def stores_close() -> Iterator[None]:
    """Close the stores that this process has opened in place of Spark's workers."""
    yield
    close_stores()


@asynccontextmanager
async def tiered_topic(directory: Path, **config: str) -> AsyncIterator[Cluster]:
    """Yield a topic t of one partition, of whose log little stays on the disk."""
    async with tiered_brokers(directory) as brokers:
        named = {name.replace("__", "."): value for name, value in config.items()}
        topic_id = await brokers.create_topic("t", [(0,)], {**SHORT, **named})
        async with describing(brokers), options_of(brokers) as options:
            yield Cluster(brokers, topic_id, bucket_of(directory), options)


@asynccontextmanager
async def describing(brokers: Brokers) -> AsyncIterator[None]:
    """Have the broker describe topics, too, at another address."""

    def image() -> MetadataImage:
        return brokers.image

    broker, config = brokers.brokers[0], brokers.config
    topics = DescribeHandlers(image, cluster_id="test", node_id=0, config=config)
    handlers: dict[ApiKey, Handler] = {
        **Descriptions(image, config).handlers(),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.topic_partitions,
    }
    described = {key: Api(*CLIENT_VERSIONS[key], handler) for key, handler in handlers.items()}
    service = Service(apis={**broker.apis, **described})
    listener = await Listener.start("127.0.0.1", 0, service, ListenerIdentity(name="PLAINTEXT"))
    address = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=listener.port, security_protocol=0)
    await brokers.commit(
        RegisterBrokerRecord(
            broker_id=0,
            incarnation_id=uuid4(),
            broker_epoch=broker.broker_epoch,
            end_points=(address,),
            rack="rack-0",
            fenced=False,
        )
    )
    try:
        yield
    finally:
        await listener.close()


def plan(
    given: dict[str, str], schema: StructType = ALL
) -> tuple[SparklogReader, list[OffsetRangePartition]]:
    reader = SparklogReader(ReadOptions.parse(given, None), schema)
    return reader, [each for each in reader.partitions() if isinstance(each, OffsetRangePartition)]


def rows(reader: SparklogReader, tasks: list[OffsetRangePartition]) -> pa.Table:
    batches = [batch for task in tasks for batch in reader.read(task)]
    return pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([])).combine_chunks()


def both(cluster: Cluster, schema: StructType = ALL, **given: str) -> Both:
    union = plan(cluster.remote(**given), schema)
    histories = [task.history for task in union[1] if task.history is not None]
    return Both(
        rows(*plan(cluster.remote(**given, remoteRead="false"), schema)),
        rows(*union),
        sum(each.end_offset - each.start_offset for each in histories),
    )


def difference(one: pa.Table, other: pa.Table) -> str:
    """Return what differs in the first rows that are not the same; empty for none."""
    if one == other:
        return ""
    if one.num_rows != other.num_rows:
        missing, surplus = (
            sorted({*more.column("offset").to_pylist()} - {*less.column("offset").to_pylist()})
            for more, less in ((other, one), (one, other))
        )
        return f"without the offsets {missing}, and with {surplus}"
    for number, (row, expected) in enumerate(zip(one.to_pylist(), other.to_pylist(), strict=True)):
        for name in row:
            if row[name] != expected[name]:
                return f"row {number}: {name} is {row[name]!r}, not {expected[name]!r}"
    return f"{one.schema}, not {other.schema}"


def random_bytes(chance: random.Random, most: int) -> bytes | None:
    kind = chance.random()
    return None if kind < 0.2 else b"" if kind < 0.3 else chance.randbytes(chance.randint(1, most))


def random_records(chance: random.Random) -> bytes:
    """Return one batch of random records."""
    count = chance.randint(1, 40)
    wide = 500 if chance.random() < 0.2 else 50
    headers = [
        None
        if chance.random() < 0.6
        else [{"key": f"k{number}", "value": random_bytes(chance, 20)} for number in range(3)]
        for _ in range(count)
    ]
    times = [chance.choice((-1, 1)) * chance.randint(0, 2**42) * 1_000 for _ in range(count)]
    (encoded,) = encode_batches(
        key=pa.array([random_bytes(chance, 20) for _ in range(count)], pa.binary()),
        value=pa.array([random_bytes(chance, wide) for _ in range(count)], pa.binary()),
        headers=pa.array(headers, COLUMN_TYPES["headers"]),
        timestamp=pa.array(times, COLUMN_TYPES["timestamp"]),
        default_timestamp_ms=0,
        batch_size_bytes=10_000_000,
    )
    return bytes(encoded.data)


async def generate(cluster: Cluster, chance: random.Random, steps: int) -> None:
    """Write random records, and transactions among them, of which some are aborted."""
    replica = cluster.brokers.replica(0, cluster.topic_id)
    for _ in range(steps):
        if chance.random() < 0.5:
            await cluster.produce(random_records(chance))
            continue
        producer_id = chance.getrandbits(40)
        for sequence in range(chance.randint(1, 4)):
            write(replica, producer_id, chance.randbytes(chance.randint(0, 2_000)), sequence)
            if chance.random() < 0.3:
                await cluster.produce(random_records(chance))
        end(replica, producer_id, committed=chance.random() < 0.5)


@pytest.mark.parametrize("seed", range(3))
@in_a_loop
async def test_union_read_of_a_generated_topic_gives_the_rows_that_brokers_give(
    tmp_path: Path, seed: int
) -> None:
    """A query must not notice what comes from where; at the ends of tasks and at the seam neither."""
    chance = random.Random(seed)
    kind = "LogAppendTime" if seed % 2 else "CreateTime"
    async with tiered_topic(tmp_path, **ALL_TIMES, message__timestamp__type=kind) as cluster:
        await generate(cluster, chance, FIRST_STEPS)
        await cluster.until_copied(is_cut=True)
        await cluster.keep_what_is_on_the_disk()
        await generate(cluster, chance, LAST_STEPS)
        end_offset = cluster.brokers.replica(0, cluster.topic_id).log.log_end_offset

        def compare() -> None:
            read = both(cluster)
            assert difference(read.union, read.brokers) == ""
            assert read.from_store > 0
            # Of aborted records readers of uncommitted ones see those that happen to be on the disk.
            uncommitted = both(cluster, kafka__isolation__level="read_uncommitted")
            assert uncommitted.from_store > 0
            for found in (uncommitted.union, uncommitted.brokers):
                is_committed = pc.is_in(found.column("offset"), read.union.column("offset").combine_chunks())
                assert difference(found.filter(is_committed).combine_chunks(), read.union) == ""
            for names in (["offset"], ["topic", "partition"], ["headers", "key"], ["timestamp", "value"]):
                first = chance.randrange(end_offset)
                part = both(
                    cluster,
                    StructType([ALL[name] for name in names]),
                    startingOffsets=json.dumps({"t": {"0": first}}),
                    endingOffsets=json.dumps({"t": {"0": chance.randint(first + 1, end_offset)}}),
                    maxRecordsPerPartition=str(chance.randint(10, 300)),
                )
                assert difference(part.union, part.brokers) == ""

        await asyncio.to_thread(compare)


@in_a_loop
async def test_stream_with_limits_gives_the_rows_that_brokers_give(tmp_path: Path) -> None:
    """Micro-batches go from the store to brokers, and each record is in one of them."""
    async with tiered_topic(tmp_path, **ALL_TIMES) as cluster:
        await generate(cluster, random.Random(7), FIRST_STEPS)
        await cluster.until_copied(is_cut=True)
        await cluster.keep_what_is_on_the_disk()
        await generate(cluster, random.Random(8), LAST_STEPS)

        def read() -> tuple[list[bool], pa.Table]:
            given = cluster.remote(startingOffsets="earliest", maxOffsetsPerTrigger="100")
            stream = SparklogStreamReader(given, None, ALL)
            batches: list[Any] = []
            from_store: list[bool] = []
            position = stream.initialOffset()
            while (latest := stream.latestOffset(position, ReadMaxRows(100))) != position:
                for task in stream.partitions(position, latest):
                    assert isinstance(task, OffsetRangePartition)
                    batches += stream.read(task)
                    from_store.append(task.history is not None)
                position = latest
            stream.stop()
            return from_store, pa.Table.from_batches(batches).combine_chunks()

        from_store, found = await asyncio.to_thread(read)
        assert from_store[0]
        assert found == await asyncio.to_thread(lambda: rows(*plan(cluster.remote(remoteRead="false"))))


@in_a_loop
async def test_query_whose_objects_go_reads_on_through_brokers(tmp_path: Path) -> None:
    """Retention and merging delete objects under queries that were planned before."""
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        for _ in range(20):
            await cluster.produce(batch(5, bytes(1_000)))
        await cluster.until_copied(is_cut=False)

        def read() -> tuple[pa.Table, pa.Table]:
            reader, tasks = plan(cluster.remote())
            assert [task.history is not None for task in tasks] == [True]
            for path in sorted(cluster.bucket.glob("segments/t-*/0/*.parquet"))[1:]:
                path.unlink()
            return rows(reader, tasks), rows(*plan(cluster.remote(remoteRead="false")))

        union, brokers = await asyncio.to_thread(read)
        assert union == brokers
        assert union.num_rows == 100


@in_a_loop
async def test_query_reads_all_through_brokers_if_the_store_does_not_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The store only makes a query faster; without it the log says why it is slow."""
    no_directory = tmp_path / "file"
    no_directory.touch()
    async with tiered_topic(tmp_path) as cluster:
        await cluster.produce(batch(5))
        await cluster.until_copied(is_cut=False)
        given = {**cluster.remote(), "sparklog.remote.uri": no_directory.as_uri()}
        reader, tasks = await asyncio.to_thread(plan, given)
        assert [task.history for task in tasks] == [None]
        assert (await asyncio.to_thread(rows, reader, tasks)).num_rows == 5
        assert "read through brokers" in caplog.text


def planned_seams(
    cluster: Cluster, now_ms: Callable[[], int] = lambda: 0
) -> Callable[[int, int], Coroutine[Any, Any, int | None]]:
    """Return a function that plans ranges with one planner, and returns the end of each one's history."""
    given = ReadOptions.parse(cluster.remote(), None)
    assert given.store is not None
    planner = HistoryPlanner(given.store, read_committed=True, now_ms=now_ms)
    partition = TopicPartition("t", 0)

    def seam(start: int, end: int) -> int | None:
        with ClusterClient(given.client) as client:
            topic_ids = resolve_partitions(client, given.topics)
            found = planner.plan(client, [OffsetRange(partition, start, end)], topic_ids).get(partition)
        return None if found is None else found.end_offset

    return lambda start, end: asyncio.to_thread(seam, start, end)


@in_a_loop
async def test_planner_reads_no_deleted_record_from_the_store(tmp_path: Path) -> None:
    """A history that is kept, and a manifest that lags, have what DeleteRecords has deleted."""
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        await cluster.produce(batch(10))
        await cluster.until_copied(is_cut=False)
        manifest = cluster.bucket / manifest_name(cluster.topic_id, 0)
        before = manifest.read_bytes()
        kept, planned_later = planned_seams(cluster), planned_seams(cluster)
        assert await kept(0, 10) == 10
        channel = await cluster.brokers.connect(0)
        (row,) = answered(await channel.request(delete_records("t", 5)))
        assert row.error_code is ErrorCode.none
        assert await kept(0, 10) is None
        assert await kept(5, 10) == 10
        await until(lambda: manifest.read_bytes() != before, "the manifest has the log start")
        manifest.write_bytes(before)
        assert await planned_later(5, 10) == 10
        assert await planned_later(4, 10) is None


@in_a_loop
async def test_planner_of_a_stream_asks_again_only_after_a_while(tmp_path: Path) -> None:
    """At the tip a micro-batch costs no request of the store; behind it one manifest serves many."""
    now_ms = 0
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        seam = planned_seams(cluster, lambda: now_ms)
        assert await seam(0, 10) is None
        await cluster.produce(batch(10))
        await cluster.until_copied(is_cut=False)
        assert await seam(0, 10) is None, "it was at the end of the tier a moment ago"
        now_ms += 60_000
        assert await seam(0, 4) == 4
        (cluster.bucket / manifest_name(cluster.topic_id, 0)).unlink()
        assert await seam(4, 10) == 10, "the manifest that was read before has it"
        now_ms += 60_000
        assert await seam(4, 10) is None


@in_a_loop
async def test_manifest_that_cannot_be_read_leaves_the_other_partitions_in_the_store(tmp_path: Path) -> None:
    """One damaged object must not make a whole query slow, nor a stream for longer than it is damaged."""
    now_ms = 0
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        other = cluster._replace(topic_id=await cluster.brokers.create_topic("u", [(0,)], SHORT))
        for each in (cluster, other):
            await each.produce(batch(10))
            await each.until_copied(is_cut=False)
        manifest = cluster.bucket / manifest_name(cluster.topic_id, 0)
        encoded = manifest.read_bytes()
        manifest.write_bytes(b"damaged")
        _, tasks = await asyncio.to_thread(plan, cluster.remote(subscribe="t,u"))
        assert {task.offset_range.topic_partition.topic: task.history is not None for task in tasks} == {
            "t": False,
            "u": True,
        }
        seam = planned_seams(cluster, lambda: now_ms)
        assert await seam(0, 10) is None
        manifest.write_bytes(encoded)
        now_ms += 1_001
        assert await seam(0, 10) == 10


@pytest.mark.parametrize("elections", [1, 2], ids=["that serves", "that does not serve yet"])
@in_a_loop
async def test_planner_waits_for_a_leader_that_does_not_know_its_tier_yet(
    tmp_path: Path, elections: int
) -> None:
    """A query that is planned just after an election would be read through brokers as a whole."""
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        await cluster.produce(batch(10))
        await cluster.until_copied(is_cut=False)
        let_it_read = await cluster.elect_without_its_manifest(elections)
        asyncio.get_running_loop().call_later(0.3, let_it_read)
        assert await planned_seams(cluster)(0, 10) == 10


@asynccontextmanager
async def planned_beside(directory: Path, leader: BrokerId) -> AsyncIterator[tuple[Cluster, Planned]]:
    """Yield topics t and u that are in the store, u under this leader, and a function that plans both.

    It returns the topics whose histories are known. Broker 1 listens nowhere.
    """
    async with tiered_topic(directory, local__retention__bytes="-1") as cluster:
        other = cluster._replace(topic_id=await cluster.brokers.create_topic("u", [(0,)], SHORT))
        for each in (cluster, other):
            await each.produce(batch(10))
            await each.until_copied(is_cut=False)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        gone = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)
        await cluster.brokers.commit(
            RegisterBrokerRecord(
                broker_id=1,
                incarnation_id=uuid4(),
                broker_epoch=1_000,
                end_points=(gone,),
                rack="rack-1",
                fenced=False,
            )
        )
        given = ReadOptions.parse(cluster.remote(subscribe="t,u"), None)
        assert given.store is not None
        planner = HistoryPlanner(given.store, read_committed=True)
        partitions = [TopicPartition("t", 0), TopicPartition("u", 0)]
        with ClusterClient(given.client) as client:
            topic_ids = await asyncio.to_thread(resolve_partitions, client, given.topics)
            await cluster.brokers.elect(other.topic_id, 0, leader=leader, isr=[0])
            for each in partitions:
                client.forget_leader(each)
            ranges = [OffsetRange(each, 0, 10) for each in partitions]

            async def planned() -> set[str]:
                found = await asyncio.to_thread(planner.plan, client, ranges, topic_ids)
                return {each.topic for each in found}

            yield other, planned


@in_a_loop
async def test_partition_without_a_leader_leaves_the_others_in_the_store(tmp_path: Path) -> None:
    """A plan just after a failover would be read through brokers as a whole."""
    async with planned_beside(tmp_path, NO_LEADER) as (_, planned):
        assert await planned() == {"t"}


@pytest.mark.parametrize("leader", [NO_LEADER, 1], ids=["without a leader", "whose leader does not answer"])
@in_a_loop
async def test_unknown_partition_is_planned_once_a_broker_leads_it(tmp_path: Path, leader: int) -> None:
    """An election takes less time than a range through brokers."""
    async with planned_beside(tmp_path, leader) as (other, planned):
        election = other.brokers.elect(other.topic_id, 0, leader=0, isr=[0])
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, lambda: loop.create_task(election))
        assert await planned() == {"t", "u"}


@in_a_loop
async def test_planner_of_a_stream_waits_once_for_a_leader_that_does_not_know_its_tier(
    tmp_path: Path,
) -> None:
    """In an outage of the store batches go on through brokers, and come back to the store after it."""
    now_ms = 0
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        await cluster.produce(batch(10))
        await cluster.until_copied(is_cut=False)
        let_it_read = await cluster.elect_without_its_manifest()
        seam = planned_seams(cluster, lambda: now_ms)
        assert await seam(0, 10) is None
        let_it_read()
        await cluster.until_copied(is_cut=False)
        now_ms += 1_001
        assert await seam(0, 10) == 10


@in_a_loop
async def test_planner_asks_again_in_a_new_leader_epoch(tmp_path: Path) -> None:
    """The next leader's answer differs from the last one's, which may have known no manifest yet."""
    async with tiered_topic(tmp_path, local__retention__bytes="-1") as cluster:
        seam = planned_seams(cluster)
        assert await seam(0, 10) is None
        await cluster.produce(batch(10))
        await cluster.until_copied(is_cut=False)
        assert await seam(0, 10) is None
        await cluster.brokers.elect(cluster.topic_id, 0, leader=0, isr=[0])
        await cluster.until_copied(is_cut=False)
        assert await seam(0, 10) == 10
