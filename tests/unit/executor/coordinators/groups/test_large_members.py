"""Assignments and metadata of tens of megabytes, through a broker's listener: answered as by Kafka, and gone.

A generation of a group is one record of `__consumer_offsets`, so what its members and their leader say has to
fit into that topic's max.message.bytes. Before that is found out it is a request like any other, which may be
as large as a frame: `socket.request.max.bytes`.
"""

import asyncio
import contextlib
import gc
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v3.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v4.request import SyncGroupRequest, SyncGroupRequestAssignment

from sparklog.node.calling.channel import Channel
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.amplification.measures import traced_memory
from tests.unit.executor.one_broker import one_broker

GROUP: Final = "g"
LARGE_BYTES: Final = 40 << 20
LITTLE_BYTES: Final = 20 << 20
"""What a loop keeps of buffers for what it receives next, 16 MiB at most, and what a broker comes to hold."""
MAX_FRAME_BYTES: Final = 104_857_600
"""socket.request.max.bytes"""
NOT_ASSIGNED: Final = (
    (ErrorCode.unknown_server_error, b""),  # it waited for the leader
    (ErrorCode.rebalance_in_progress, b""),  # or asked after it
)
DEADLINE_S: Final = 60.0
CONFIG: Final = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "30000",  # counting memory holds up the loop that keeps the lease
}


class Member:
    """A member of the classic protocol on a connection of its own."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.member_id = ""
        self.generation = -1

    async def join(self, metadata: bytes = b"") -> None:
        """Join, again or for the first time; return when the group has its next generation."""
        for _ in range(2):
            answer = await self.channel.request(
                JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout=timedelta(seconds=30),
                    rebalance_timeout=timedelta(seconds=30),
                    member_id=self.member_id,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
                )
            )
            self.member_id, self.generation = answer.member_id, answer.generation_id
            if answer.error_code is not ErrorCode.member_id_required:
                break
        assert answer.error_code is ErrorCode.none

    async def sync(self, assignments: dict[str, bytes] | None = None) -> tuple[ErrorCode, bytes]:
        """Say, as the leader, or ask what is assigned."""
        answer = await self.channel.request(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
                assignments=tuple(
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ),
            )
        )
        return answer.error_code, answer.assignment

    async def heartbeat(self) -> ErrorCode:
        answer = await self.channel.request(
            HeartbeatRequest(
                group_id=GROUP,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
            )
        )
        return answer.error_code  # type: ignore[no-any-return]

    async def until_told(self, error_code: ErrorCode) -> None:
        while await self.heartbeat() is not error_code:  # noqa: ASYNC110  (it is the broker's to change)
            await asyncio.sleep(0.005)

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=None)
        answer = await self.channel.request(LeaveGroupRequest(group_id=GROUP, members=(identity,)))
        assert answer.error_code is ErrorCode.none


@asynccontextmanager
async def members(directory: Path, count: int) -> AsyncIterator[list[Member]]:
    """Run a broker; yield members that have not joined yet. Memory is counted from here on."""
    async with asyncio.timeout(DEADLINE_S), one_broker(directory, CONFIG) as (_, broker):
        address = broker.endpoints[0].host, broker.endpoints[0].port
        channels = [await Channel.connect(*address, f"member-{number}") for number in range(count)]
        try:
            await channels[0].request(FindCoordinatorRequest(key=GROUP, key_type=0))  # makes the topic
            group = [Member(channel) for channel in channels]
            await group[0].until_told(ErrorCode.unknown_member_id)
            with traced_memory():
                yield group
        finally:
            for channel in channels:
                channel.close()


def held_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_assignment_of_tens_of_megabytes_is_refused_and_the_group_goes_on(tmp_path: Path) -> None:
    """Whoever leads a group may be mad. A generation that can't be written has to be agreed upon anew."""

    async def scenario() -> None:
        async with members(tmp_path, 2) as (leader, other):
            await leader.join()
            assert await leader.sync({leader.member_id: b"all"}) == (ErrorCode.none, b"all")
            before = held_bytes()
            joining = asyncio.create_task(other.join())
            await leader.until_told(ErrorCode.rebalance_in_progress)
            await leader.join()
            await joining
            waiting = asyncio.create_task(other.sync())
            refused = await leader.sync({other.member_id: bytes(LARGE_BYTES), leader.member_id: b"rest"})
            assert refused == (ErrorCode.unknown_server_error, b"")
            assert await waiting in NOT_ASSIGNED
            assert held_bytes() - before < LITTLE_BYTES
            assert await other.heartbeat() is ErrorCode.rebalance_in_progress
            await asyncio.gather(leader.join(), other.join())
            share = {leader.member_id: b"one", other.member_id: b"other"}
            answers = tuple(await asyncio.gather(leader.sync(share), other.sync(share)))
            assert answers == ((ErrorCode.none, b"one"), (ErrorCode.none, b"other"))
            assert [await each.heartbeat() for each in (leader, other)] == [ErrorCode.none] * 2

    asyncio.run(scenario())


def test_metadata_of_tens_of_megabytes_costs_its_group_no_more_than_until_it_leaves(tmp_path: Path) -> None:
    """The others read it, as the leader has to assign by it; no generation with it can be written."""

    async def scenario() -> None:
        async with members(tmp_path, 2) as (leader, large):
            await leader.join()
            assert await leader.sync({leader.member_id: b"all"}) == (ErrorCode.none, b"all")
            before = held_bytes()
            joining = asyncio.create_task(large.join(bytes(LARGE_BYTES)))
            await leader.until_told(ErrorCode.rebalance_in_progress)
            await leader.join()
            await joining
            assert held_bytes() - before > LARGE_BYTES
            waiting = asyncio.create_task(large.sync())
            refused = await leader.sync({large.member_id: b"all"})
            assert refused == (ErrorCode.unknown_server_error, b"")
            assert await waiting in NOT_ASSIGNED
            await large.leave()
            await leader.join()
            assert await leader.sync({leader.member_id: b"again"}) == (ErrorCode.none, b"again")
            assert held_bytes() - before < LITTLE_BYTES

    asyncio.run(scenario())


def test_assignment_of_a_hundred_megabytes_closes_the_connection_before_it_is_read(tmp_path: Path) -> None:
    """With what is around it it is longer than a frame may be; its length alone says so."""

    async def scenario() -> None:
        async with members(tmp_path, 1) as (member,):
            await member.join()
            assert await member.sync({member.member_id: b"all"}) == (ErrorCode.none, b"all")
            before = held_bytes()
            host, _, port = member.channel.peer.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            header = struct.pack(">ihhihx", MAX_FRAME_BYTES + 60, ApiKey.SYNC_GROUP, 4, 1, -1)
            writer.write(header + bytes(1 << 20))
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            assert held_bytes() - before < LITTLE_BYTES
            assert await member.heartbeat() is ErrorCode.none

    asyncio.run(scenario())
