"""What consumer groups cost: joining, heartbeats, commits."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final

from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from benchmarks.case import TOPICS, Case, Figure, Round
from benchmarks.clusters import ClusterUnderTest
from benchmarks.group_members import ClassicMember, ConsumerMember, connections, settle
from sparklog.node.calling.channel import Channel
from sparklog.protocol.errors import ErrorCode, KafkaError

PROTOCOLS = ("classic", "consumer")
GROUPS = 20
JOINING = 10
"""Members of each group that join at once."""
JOINING_HEARTBEAT_S = 0.1
"""Short, so that what is measured is the coordinator's time and not the members' patience."""
MANY = 100
"""Members of each group whose heartbeats are counted."""
HEARTBEAT_S = {"classic": 3.0, "consumer": 5.0}
"""Kafka's defaults."""
HEARTBEATS_S = 20.0
SETTLE_TIMEOUT_S = 120.0
COMMITS = 2_000
PARTITIONS = 100
"""One for each member, at least."""

_names = itertools.count()


@contextlib.asynccontextmanager
async def _settled(
    cluster: ClusterUnderTest, topic: str, protocol: str, members: int, heartbeat_s: float
) -> AsyncIterator[float]:
    """Have `members` join each of the groups at once; gives the seconds until all had settled."""
    group_ids = [f"benchmark-{next(_names)}" for _ in range(GROUPS)]
    changed = asyncio.Event()
    async with connections(cluster.bootstrap_servers, group_ids, members) as channels:
        groups = [
            [_member(protocol, channel, group_id, topic, changed) for channel in channels[group_id]]
            for group_id in group_ids
        ]
        everyone = [member for group in groups for member in group]
        started_s = time.monotonic()
        living = [asyncio.ensure_future(member.live(heartbeat_s)) for member in everyone]
        settling = asyncio.ensure_future(settle(groups, PARTITIONS, changed))
        try:
            await asyncio.wait(
                [settling, *living], timeout=SETTLE_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in living:
                if each.done():
                    each.result()
            if not settling.done():
                raise RuntimeError(
                    f"{cluster.name}: no peace in {protocol} groups in {SETTLE_TIMEOUT_S:.0f} s"
                )
            yield time.monotonic() - started_s
        finally:
            for task in (settling, *living):
                task.cancel()
            await asyncio.gather(settling, *living, return_exceptions=True)
        await asyncio.gather(*(member.leave() for member in everyone))


def _member(
    protocol: str, channel: Channel, group_id: str, topic: str, changed: asyncio.Event
) -> ClassicMember | ConsumerMember:
    if protocol == "classic":
        return ClassicMember(channel, group_id, topic, PARTITIONS, changed)
    return ConsumerMember(channel, group_id, topic, changed)


def join(protocol: str) -> Case:
    """Have 200 members of 20 groups join at once; the time until every group shares its partitions out."""
    name = f"{GROUPS * JOINING} members of {GROUPS} groups settle, {protocol} protocol"

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster, PARTITIONS) as topic:

            async def joined_ms() -> float:
                async with _settled(cluster, topic, protocol, JOINING, JOINING_HEARTBEAT_S) as seconds:
                    return 1000 * seconds

            yield lambda: [Figure(name, "ms", asyncio.run(joined_ms()), "<= 1.0")]

    return prepared


def heartbeats(protocol: str) -> Case:
    """Have 2,000 members send heartbeats as often as Kafka's clients do; the brokers' CPU, idling aside."""
    name = f"{GROUPS * MANY} members' heartbeats, {protocol} protocol, brokers' CPU"

    @contextlib.contextmanager
    def prepared(cluster: ClusterUnderTest) -> Iterator[Round]:
        with TOPICS.one(cluster, PARTITIONS) as topic:

            async def cpu_ms_per_s() -> float:
                idle = await _cpu_ms_per_s(cluster)
                async with _settled(cluster, topic, protocol, MANY, HEARTBEAT_S[protocol]):
                    return await _cpu_ms_per_s(cluster) - idle

            yield lambda: [Figure(name, "ms/s", asyncio.run(cpu_ms_per_s()), "ours <= 150")]

    return prepared


async def _cpu_ms_per_s(cluster: ClusterUnderTest) -> float:
    before_s = await asyncio.to_thread(cluster.brokers_cpu_s)
    await asyncio.sleep(HEARTBEATS_S)
    return 1000 * (await asyncio.to_thread(cluster.brokers_cpu_s) - before_s) / HEARTBEATS_S


@contextlib.contextmanager
def commits(cluster: ClusterUnderTest) -> Iterator[Round]:
    """Commit one offset after the other, of a group without members."""
    with TOPICS.one(cluster) as topic:

        async def latencies_ms() -> list[float]:
            group_id = f"benchmark-{next(_names)}"
            async with connections(cluster.bootstrap_servers, [group_id], 1) as channels:
                (channel,) = channels[group_id]
                await _until_known(channel, group_id, topic)
                return sorted(
                    [await _commit_ms(channel, group_id, topic, number) for number in range(COMMITS)]
                )

        def run() -> list[Figure]:
            sorted_ms = asyncio.run(latencies_ms())
            return [
                Figure("commit of an offset, p99", "ms", sorted_ms[COMMITS * 99 // 100], "<= 1.0"),
                Figure("commit of an offset, p50", "ms", sorted_ms[COMMITS // 2]),
            ]

        yield run


async def _commit_ms(channel: Channel, group_id: str, topic: str, offset: int) -> float:
    started_s = time.monotonic()
    error_code = await _commit(channel, group_id, topic, offset)
    if error_code is not ErrorCode.none:
        raise KafkaError(error_code, "the commit was refused")
    return 1000 * (time.monotonic() - started_s)


async def _until_known(channel: Channel, group_id: str, topic: str) -> None:
    """Wait until the coordinator serves the group and has heard of the topic: either may be new."""
    while (error_code := await _commit(channel, group_id, topic, 0)) is not ErrorCode.none:
        if error_code not in _PASSING:
            raise KafkaError(error_code, "the first commit was refused")
        await asyncio.sleep(0.01)


_PASSING: Final = {
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
}


async def _commit(channel: Channel, group_id: str, topic: str, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    request = OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        group_instance_id=None,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )
    response = await channel.request(request)
    return ErrorCode(response.topics[0].partitions[0].error_code)


CASES: Mapping[str, Case] = {
    **{f"groups-join-{protocol}": join(protocol) for protocol in PROTOCOLS},
    **{f"groups-heartbeats-{protocol}": heartbeats(protocol) for protocol in PROTOCOLS},
    "groups-commit": commits,
}
