"""What it costs that coordinators move: after a SIGKILL, and with a million offsets to be loaded."""

import asyncio
import contextlib
import itertools
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from benchmarks.acknowledgements import WARM_UP_S, acknowledged_ms
from benchmarks.case import RATIO, TOPICS, Case, Figure, Round
from benchmarks.clusters import BROKERS, ClusterUnderTest
from benchmarks.group_members import coordinators
from sparklog.node.calling.channel import Channel
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.errors import ErrorCode

GROUP_KEY, TRANSACTION_KEY = 0, 1
OFFSETS_PARTITIONS: Final = 50
OFFSETS: Final = 1_000_000
OFFSETS_A_COMMIT: Final = 100
COMMITS_AT_ONCE: Final = 50
BESIDE_S: Final = 20.0
"""How long acknowledgements are looked at, alone and while the partition is loaded over and over."""
TIMEOUT_S: Final = 120.0
LOAD_TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.01

_names = itertools.count()


@contextlib.contextmanager
def failover(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Kill the broker that coordinates a group and a producer; the time until both go on."""
    with TOPICS.one(cluster) as topic:
        yield lambda: _failed_over(cluster, topic)


def _failed_over(cluster: ClusterUnderTest, topic: str) -> list[Figure]:
    group_id, transactional_id = f"failover-{next(_names)}", f"failover-{next(_names)}"
    servers = cluster.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id, "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(TIMEOUT_S)
    numbers = itertools.count()

    def commit() -> None:
        consumer.commit(offsets=[TopicPartition(topic, 0, next(numbers))], asynchronous=False)

    def transact() -> None:
        producer.commit_transaction(TIMEOUT_S)

    _again_until_done(commit)
    figures = []
    for name, key_type, key, go_on in (
        ("group commits again", GROUP_KEY, group_id, commit),
        ("transaction goes on", TRANSACTION_KEY, transactional_id, transact),
    ):
        _wait_until_whole(cluster)
        producer.begin_transaction()
        producer.produce(topic, b"before", partition=0)
        producer.flush(TIMEOUT_S)
        addresses = asyncio.run(coordinators(servers, [key], key_type))
        victim = _broker_at(cluster, addresses[key])
        process = cluster.brokers()[victim]
        struck_s = time.monotonic()
        process.kill()
        _again_until_done(go_on)
        took_ms = 1000 * (time.monotonic() - struck_s)
        figures.append(Figure(f"failover of a coordinator: {name}", "ms", took_ms, "ours <= 1000"))
        if go_on is not transact:
            producer.commit_transaction(TIMEOUT_S)
        cluster.restart(victim)
    _wait_until_whole(cluster)
    consumer.close()
    return figures


def _again_until_done(work: Callable[[], None]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            work()
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(POLL_S)
        else:
            return


def _broker_at(cluster: ClusterUnderTest, address: tuple[str, int]) -> int:
    brokers = _admin(cluster).list_topics(timeout=10).brokers.values()
    return next(broker.id for broker in brokers if broker.port == address[1])


def _admin(cluster: ClusterUnderTest) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def _wait_until_whole(cluster: ClusterUnderTest) -> None:
    """Wait until every replica of every topic is in sync."""
    admin = _admin(cluster)
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(KafkaException):
            topics = admin.list_topics(timeout=2).topics
            partitions = [each for name in topics for each in topics[name].partitions.values()]
            has_both = {CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC} <= set(topics)
            if has_both and all(len(partition.isrs) == BROKERS for partition in partitions):
                return
        time.sleep(0.1)
    raise RuntimeError(f"{cluster.name}: not every replica is in sync after {TIMEOUT_S:.0f} s")


@contextlib.contextmanager
def load(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Move the leadership of a partition with a million offsets to and fro, beside a producer."""
    # Acknowledgements have a process of their own: what else this one does is not to be taken for them.
    spawning = multiprocessing.get_context("spawn")
    with (
        TOPICS.one(cluster, OFFSETS_A_COMMIT) as topic,
        TOPICS.one(cluster) as beside,
        ProcessPoolExecutor(1, spawning) as writing,
    ):
        group_ids = asyncio.run(_committed(cluster, topic))
        writing.submit(acknowledged_ms, cluster.bootstrap_servers, beside, WARM_UP_S).result()
        yield lambda: _loaded(cluster, topic, writing, beside, group_ids[0])


async def _committed(cluster: ClusterUnderTest, topic: str) -> list[str]:
    """Commit a million offsets of groups of one partition; return the groups."""
    first = f"load-{next(_names)}"
    partition = partition_for(first, OFFSETS_PARTITIONS)
    same = (f"{first}-{number}" for number in itertools.count())
    same = (group_id for group_id in same if partition_for(group_id, OFFSETS_PARTITIONS) == partition)
    group_ids = [first, *itertools.islice(same, OFFSETS // OFFSETS_A_COMMIT - 1)]
    left = group_ids
    deadline_s = time.monotonic() + LOAD_TIMEOUT_S
    while left:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{cluster.name}: {len(left)} groups have not committed")
        address = (await coordinators(cluster.bootstrap_servers, [first]))[first]
        channel = await Channel.connect(*address, "load")
        try:
            await channel.negotiate()
            while some := left[:COMMITS_AT_ONCE]:
                answers = await asyncio.gather(*(_commit(channel, group_id, topic) for group_id in some))
                if any(error_code is not ErrorCode.none for error_code in answers):
                    break  # the topic has just been created, or the coordinator has moved
                left = left[COMMITS_AT_ONCE:]
        finally:
            channel.close()
    return group_ids


async def _commit(channel: Channel, group_id: str, topic: str, offsets: int = OFFSETS_A_COMMIT) -> ErrorCode:
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=number, committed_offset=0, committed_metadata=None)
        for number in range(offsets)
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        group_instance_id=None,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )
    response = await channel.request(request)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def _loaded(
    cluster: ClusterUnderTest, topic: str, writing: Executor, beside: str, group_id: str
) -> list[Figure]:
    def acknowledged() -> list[float]:
        return writing.submit(acknowledged_ms, cluster.bootstrap_servers, beside, BESIDE_S).result()

    alone_ms = acknowledged()
    loads_ms: list[float] = []
    ends = threading.Event()

    def move() -> None:
        while not ends.is_set():
            loads_ms.append(asyncio.run(_moved_ms(cluster, topic, group_id)))

    with ThreadPoolExecutor(1) as executor:
        moving = executor.submit(move)
        try:
            meanwhile_ms = acknowledged()
        finally:
            ends.set()
        moving.result()
    p99_ms, alone_p99_ms = (statistics.quantiles(each, n=100)[98] for each in (meanwhile_ms, alone_ms))
    name = f"load of {OFFSETS:,} offsets"
    return [
        Figure(f"{name}: until its group commits", "ms", statistics.median(loads_ms), "ours <= 5000"),
        Figure(f"{name}: acknowledgements' p99, to that alone", RATIO, p99_ms / alone_p99_ms, "ours <= 2"),
        Figure(f"{name}: acknowledgements' p99 alone", "ms", alone_p99_ms),
    ]


async def _moved_ms(cluster: ClusterUnderTest, topic: str, group_id: str) -> float:
    """Have the next replica lead the group's partition; return how long the group could not commit."""
    partition = partition_for(group_id, OFFSETS_PARTITIONS)
    metadata = await asyncio.to_thread(_admin(cluster).list_topics, CONSUMER_OFFSETS_TOPIC, timeout=10)
    known = metadata.topics[CONSUMER_OFFSETS_TOPIC].partitions[partition]
    replicas = sorted(known.replicas, key=lambda broker_id: (broker_id - known.leader - 1) % BROKERS)
    host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    channel = await Channel.connect(host, int(port), "load")
    try:
        await channel.negotiate()
        reassigned: Any = ReassignablePartition(partition_index=partition, replicas=tuple(replicas))
        named = ReassignableTopic(name=CONSUMER_OFFSETS_TOPIC, partitions=(reassigned,))
        await channel.request(
            AlterPartitionReassignmentsRequest(timeout=timedelta(seconds=30), topics=(named,))
        )
        elected = TopicPartitions(topic=CONSUMER_OFFSETS_TOPIC, partitions=(partition,))
        began_s = time.monotonic()
        await channel.request(
            ElectLeadersRequest(election_type=0, topic_partitions=(elected,), timeout=timedelta(seconds=30))
        )
    finally:
        channel.close()
    leader = metadata.brokers[replicas[0]]
    channel = await Channel.connect(leader.host, leader.port, "load")
    try:
        await channel.negotiate()
        while await _commit(channel, group_id, topic, 1) is not ErrorCode.none:
            if time.monotonic() > began_s + TIMEOUT_S:
                raise RuntimeError(f"{cluster.name}: {group_id} cannot commit")
            await asyncio.sleep(POLL_S)
    finally:
        channel.close()
    return 1000 * (time.monotonic() - began_s)


CASES: Mapping[str, Case] = {"groups-failover": failover, "groups-load": load}
