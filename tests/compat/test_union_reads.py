"""DataFrames read the history of a tiered topic from the object store: the same rows as through brokers."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer as Librdkafka

from sparklog.node.clocks import wall_clock_ms
from sparklog.protocol.records.columns import COLUMN_TYPES
from sparklog.protocol.records.encode import encode_batches
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ProducerConfig
from sparklog.user.client.producer import Producer
from sparklog.user.dataframe.options import ReadOptions
from sparklog.user.dataframe.range_reader import OffsetRangePartition
from sparklog.user.dataframe.reader import SparklogReader
from sparklog.user.dataframe.remote.store_thread import close_stores
from sparklog.user.dataframe.schemas import record_schema
from tests.cluster import LocalCluster
from tests.compat.librdkafka import TIMEOUT_S, create_topic
from tests.compat.tiering import LOCAL_FEW, tiered_config, wait_for_copy, wait_for_local_start

SEEDS = [1, 2]
STEPS = 40
ALL = record_schema(include_headers=True)


class Both(NamedTuple):
    """The rows of a read through brokers, and of the union read with what it had from the store."""

    brokers: pa.Table
    union: pa.Table
    from_store: int
    """Offsets of the ranges that were planned from the store."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def stores_close() -> Iterator[None]:
    """Close the stores that this process has opened in place of Spark's workers."""
    yield
    close_stores()


def options(cluster: LocalCluster, topic: str, **given: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **named}


def plan(given: dict[str, str], schema: Any = ALL) -> tuple[SparklogReader, list[OffsetRangePartition]]:
    reader = SparklogReader(ReadOptions.parse(given, None), schema)
    return reader, [each for each in reader.partitions() if isinstance(each, OffsetRangePartition)]


def rows(reader: SparklogReader, partitions: list[OffsetRangePartition]) -> pa.Table:
    batches = [batch for each in partitions for batch in reader.read(each)]
    return pa.Table.from_batches(batches, batches[0].schema).combine_chunks()


def both(cluster: LocalCluster, store: Path, topic: str, schema: Any = ALL, **given: str) -> Both:
    through_brokers = plan(options(cluster, topic, remoteRead="false", **given), schema)
    union = plan(options(cluster, topic, sparklog__remote__uri=store.as_uri(), **given), schema)
    histories = [each.history for each in union[1] if each.history is not None]
    assert not any(each.history for each in through_brokers[1])
    return Both(
        rows(*through_brokers), rows(*union), sum(each.end_offset - each.start_offset for each in histories)
    )


def random_bytes(chance: random.Random, most: int) -> bytes | None:
    kind = chance.random()
    return None if kind < 0.2 else b"" if kind < 0.3 else chance.randbytes(chance.randint(1, most))


def random_rows(chance: random.Random, count: int) -> dict[str, pa.Array]:
    wide = 60_000 if chance.random() < 0.2 else 300
    headers = [
        None
        if chance.random() < 0.6
        else [{"key": f"k{number}", "value": random_bytes(chance, 20)} for number in range(3)]
        for _ in range(count)
    ]
    times = [chance.choice((-1, 1)) * chance.randint(0, 2**42) * 1_000 for _ in range(count)]
    return {
        "key": pa.array([random_bytes(chance, 20) for _ in range(count)], pa.binary()),
        "value": pa.array([random_bytes(chance, wide) for _ in range(count)], pa.binary()),
        "headers": pa.array(headers, COLUMN_TYPES["headers"]),
        "timestamp": pa.array(times, COLUMN_TYPES["timestamp"]),
    }


def generate(cluster: LocalCluster, topic: str, chance: random.Random) -> None:
    """Write random records, some in transactions, of which some are aborted."""
    transactional = Librdkafka({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic})
    transactional.init_transactions(TIMEOUT_S)
    client = ReadOptions.parse(options(cluster, topic), None).client
    with ClusterClient(client) as brokers:
        producer = Producer(brokers, ProducerConfig(idempotent=False))
        for _ in range(STEPS):
            count = chance.randint(1, 200)
            if chance.random() < 0.6:
                producer.partition_count(topic)
                batches = encode_batches(
                    **random_rows(chance, count),
                    default_timestamp_ms=wall_clock_ms(),
                    batch_size_bytes=65_536,
                )
                for batch in batches:
                    producer.send(TopicPartition(topic, 0), bytes(batch.data), batch.record_count)
                producer.flush()
                continue
            transactional.begin_transaction()
            for _ in range(count):
                transactional.produce(topic, random_bytes(chance, 5_000), random_bytes(chance, 20))
            transactional.flush(TIMEOUT_S)
            if chance.random() < 0.5:
                transactional.commit_transaction(TIMEOUT_S)
            else:
                transactional.abort_transaction(TIMEOUT_S)


def end_of(cluster: LocalCluster, topic: str) -> int:
    _, partitions = plan(options(cluster, topic, remoteRead="false", startingOffsets="earliest"))
    return partitions[-1].offset_range.end_offset


@pytest.fixture(scope="module", params=SEEDS)
def topic(cluster: LocalCluster, store: Path, request: pytest.FixtureRequest) -> str:
    """A topic whose beginning only the store has; every second one has the brokers' timestamps."""
    chance, name = random.Random(request.param), f"generated-{request.param}"
    timestamps = "LogAppendTime" if request.param % 2 else "CreateTime"
    config = {
        **LOCAL_FEW,
        "retention.ms": "-1",
        "message.timestamp.type": timestamps,
        "message.timestamp.after.max.ms": str(2**63 - 1),
    }
    create_topic(cluster.bootstrap_servers, name, config=config)
    generate(cluster, name, chance)
    wait_for_copy(cluster, store, name, end_of(cluster, name))
    wait_for_local_start(cluster, name, 1)
    generate(cluster, name, chance)
    both(cluster, store, name)  # Parquet's library keeps a thread from its first read on
    close_stores()
    return name


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_union_read_of_a_generated_topic_gives_the_rows_that_brokers_give(
    cluster: LocalCluster, store: Path, topic: str, isolation_level: str
) -> None:
    """A query must not notice which of its rows come from the store, and which from brokers."""
    read = both(cluster, store, topic, kafka__isolation__level=isolation_level)
    assert read.union == read.brokers
    assert read.from_store > 0
