"""A broker's real logs, read through the DataFrame source: what is written, told of them, and shown."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

from sparklog.executor.api.metadata import MetadataHandler
from sparklog.executor.partitions.replica import Replica
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.serving.listener import Listener, ListenerIdentity, Service
from sparklog.node.serving.requests import Api, Request, Response
from sparklog.node.storage.producers.transaction_markers import EndTransactionMarker
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.records.batch import read_header
from sparklog.spark_versions import ReadAllAvailable
from sparklog.user.dataframe.schemas import record_schema
from sparklog.user.dataframe.stream_reader import SparklogStreamReader
from tests.unit.executor.brokers import Brokers
from tests.unit.executor.requests import batch

SCHEMA = record_schema(include_headers=False)
TIMEOUT_S = 50.0


class ToldMetadata:
    """Tells clients of topics."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._image = brokers.image
        self._handler = MetadataHandler(
            lambda: self._image,
            cluster_id="c",
            node_id=0,
            suspicions=brokers.brokers[0].suspicions,
            auto_topic_creation=None,
        )
        self.behind: list[MetadataImage] = []
        """What the next answers tell instead, as a broker's that is behind."""
        self.asked = 0
        """How often it was asked."""

    def handle(self, request: Request) -> Awaitable[Response]:
        self.asked += 1
        self._image = self.behind.pop(0) if self.behind else self._brokers.image
        return self._handler.handle(request)


@asynccontextmanager
async def told_of(brokers: Brokers) -> AsyncIterator[tuple[ToldMetadata, dict[str, str]]]:
    """Have somebody tell of topics; yield whom, and the options that name where."""
    metadata = ToldMetadata(brokers)
    table = {
        **brokers.brokers[0].apis,
        ApiKey.METADATA: Api(*CLIENT_VERSIONS[ApiKey.METADATA], metadata.handle),
    }
    listener = await Listener.start("127.0.0.1", 0, Service(apis=table), ListenerIdentity(name="PLAINTEXT"))
    try:
        yield metadata, {"kafka.bootstrap.servers": f"127.0.0.1:{listener.port}"}
    finally:
        await listener.close()


@asynccontextmanager
async def options_of(brokers: Brokers, **options: str) -> AsyncIterator[dict[str, str]]:
    """Have somebody tell of topics; yield the options of a read of topic t."""
    async with told_of(brokers) as (_, where):
        yield {
            "subscribe": "t",
            **where,
            **{name.replace("__", "."): value for name, value in options.items()},
        }


def append(replica: Replica, *values: bytes) -> None:
    """Append records, one a batch."""
    for value in values:
        records = batch(value=value)
        replica.require_leader()
        replica.append(records, read_header(records), 0, 0, None)


def write(replica: Replica, producer_id: int, value: bytes, sequence: int = 0) -> None:
    """Append a record of a transaction."""
    records = batch(
        value=value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    verification = replica.log.producers.begin_verification(
        producer_id, 0, sequence, 0, supports_epoch_bump=True
    )
    replica.require_leader()
    replica.append(records, read_header(records), 0, 0, None, verification)


def end(replica: Replica, producer_id: int, *, committed: bool) -> None:
    """End a transaction."""
    replica.require_leader()
    replica.append_marker(EndTransactionMarker(producer_id, 1, committed, 0, 2), 0, 0, None)


def values(reader: Any, *bounds: Any) -> list[bytes]:
    """Return what a plan shows."""
    return [
        value
        for partition in reader.partitions(*bounds)
        for arrow in reader.read(partition)
        for value in arrow.column("value").to_pylist()
    ]


class Query:
    """Takes a stream's micro-batches, as Spark does, from a position on."""

    def __init__(self, options: dict[str, str], position: dict[str, Any]) -> None:
        self.reader = SparklogStreamReader(options, None, SCHEMA)
        self.position = position
        self.shown: list[bytes] = []

    async def micro_batch(self) -> None:
        latest = await asyncio.to_thread(self.reader.latestOffset, self.position, ReadAllAvailable())
        if latest != self.position:  # Spark makes no batch else
            self.shown += await asyncio.to_thread(values, self.reader, self.position, latest)
            self.position = latest

    async def read_to(self, position: dict[str, Any]) -> list[bytes]:
        """Return what was shown since the last call when the query has come to that position."""
        async with asyncio.timeout(TIMEOUT_S):
            while self.position != position:
                await self.micro_batch()
        shown, self.shown = self.shown, []
        return shown

    async def stop(self) -> None:
        await asyncio.to_thread(self.reader.stop)
