"""Members of consumer groups that speak the protocols themselves: two thousand of them fit into one process.

Each has a connection of its own, as a client has, and says what a client says: it joins, syncs or reconciles,
and sends heartbeats. It consumes nothing, so what is measured is the coordinator.
"""

import asyncio
import contextlib
import struct
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.static.primitive import i8

from sparklog.node.calling.channel import Channel
from sparklog.protocol.errors import ErrorCode, KafkaError

_SESSION: Final = timedelta(seconds=45)
_REBALANCE: Final = timedelta(seconds=60)
_NEVER_MIND: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
_PROTOCOL_NAME: Final = "range"
_POLL_S: Final = 0.05


class Member(Protocol):
    """One member of a group."""

    async def live(self, heartbeat_s: float) -> None:
        """Be a member until cancelled, with a heartbeat every `heartbeat_s` seconds at most."""

    settled_in: tuple[int, int] | None
    """The generation or epoch this member has settled in, and how many partitions it has there."""


@dataclass(slots=True)
class ClassicMember:
    """A member that joins, syncs and sends heartbeats; the leader deals the partitions out in turn."""

    channel: Channel
    group_id: str
    topic: str
    partitions: int
    changed: asyncio.Event
    settled_in: tuple[int, int] | None = None
    _member_id: str = ""
    _generation: int = -1

    async def live(self, heartbeat_s: float) -> None:
        """Be a member until cancelled."""
        while True:
            await self._settle()
            error_code = ErrorCode.none
            while error_code is ErrorCode.none or error_code in _NEVER_MIND:
                await asyncio.sleep(heartbeat_s)
                response = await self.channel.request(
                    HeartbeatRequest(
                        group_id=self.group_id,
                        generation_id=self._generation,
                        member_id=self._member_id,
                        group_instance_id=None,
                    )
                )
                error_code = response.error_code
            self.settled_in = None

    async def leave(self) -> None:
        """Leave the group."""
        member = MemberIdentity(member_id=self._member_id, group_instance_id=None, reason=None)
        await self.channel.request(LeaveGroupRequest(group_id=self.group_id, members=(member,)))

    async def _settle(self) -> None:
        while True:
            joined = await self._join()
            if joined.error_code is ErrorCode.none:
                synced = await self._sync(joined)
                if synced.error_code is ErrorCode.none:
                    (count,) = struct.unpack(">i", synced.assignment[:4])
                    self.settled_in = self._generation, count
                    self.changed.set()
                    return
            await asyncio.sleep(_POLL_S)

    async def _join(self) -> Any:
        topic = self.topic.encode()
        subscription = struct.pack(f">hih{len(topic)}si", 0, 1, len(topic), topic, -1)
        protocols = (JoinGroupRequestProtocol(name=_PROTOCOL_NAME, metadata=subscription),)
        while True:
            response = await self.channel.request(
                JoinGroupRequest(
                    group_id=self.group_id,
                    session_timeout=_SESSION,
                    rebalance_timeout=_REBALANCE,
                    member_id=self._member_id,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=protocols,
                ),
                timeout_ms=90_000,
            )
            if response.error_code is ErrorCode.unknown_member_id:
                self._member_id = ""
            else:
                self._member_id = response.member_id
                self._generation = response.generation_id
            if response.error_code is not ErrorCode.member_id_required:
                return response

    async def _sync(self, joined: Any) -> Any:
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if joined.leader == self._member_id:
            count = len(joined.members)
            assignments = tuple(
                SyncGroupRequestAssignment(
                    member_id=member.member_id,
                    assignment=struct.pack(">i", len(range(number, self.partitions, count))),
                )
                for number, member in enumerate(joined.members)
            )
        return await self.channel.request(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=assignments,
            ),
            timeout_ms=90_000,
        )


@dataclass(slots=True)
class ConsumerMember:
    """A member of the consumer protocol (KIP-848): it takes and gives up what it is told at once."""

    channel: Channel
    group_id: str
    topic: str
    changed: asyncio.Event
    settled_in: tuple[int, int] | None = None
    _member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _epoch: int = 0
    _owned: tuple[TopicPartitions, ...] = ()

    async def live(self, heartbeat_s: float) -> None:
        """Be a member until cancelled."""
        changed = True
        while True:
            joining = self._epoch == 0
            response = await self._heartbeat(everything=changed)
            changed = False
            if response.error_code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
                self._epoch, self._owned, changed = 0, (), True
                self.settled_in = None
                continue
            if response.error_code is ErrorCode.none:
                self._epoch = response.member_epoch
                if response.assignment is not None:
                    owned = tuple(
                        TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                        for each in response.assignment.topic_partitions
                    )
                    changed = owned != self._owned
                    self._owned = owned
                count = sum(len(each.partitions) for each in self._owned)
                self.settled_in = None if changed or joining else (self._epoch, count)
                self.changed.set()
            elif response.error_code not in _NEVER_MIND:
                raise KafkaError(response.error_code, f"a heartbeat was refused: {response.error_message}")
            if not changed:  # what it has given up, or taken, a client says at once
                await asyncio.sleep(heartbeat_s)

    async def leave(self) -> None:
        """Leave the group."""
        self._epoch = -1
        await self._heartbeat(everything=False)

    async def _heartbeat(self, *, everything: bool) -> Any:
        joining = self._epoch == 0
        return await self.channel.request(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self._member_id,
                member_epoch=self._epoch,
                rebalance_timeout=_REBALANCE if joining else timedelta(milliseconds=-1),
                subscribed_topic_names=(self.topic,) if joining else None,
                subscribed_topic_regex=None,
                topic_partitions=self._owned if everything else None,
            )
        )


@contextlib.asynccontextmanager
async def connections(
    bootstrap_servers: str, group_ids: Sequence[str], members: int
) -> AsyncIterator[dict[str, list[Channel]]]:
    """Return `members` connections to the coordinator of each group."""
    channels: dict[str, list[Channel]] = {}
    try:
        addresses = await coordinators(bootstrap_servers, group_ids)
        for group_id in group_ids:
            channels[group_id] = []
            for number in range(members):
                channel = await Channel.connect(*addresses[group_id], f"member-{number}")
                channels[group_id].append(channel)
                await channel.negotiate()
        yield channels
    finally:
        for each in channels.values():
            for channel in each:
                channel.close()


async def coordinators(
    bootstrap_servers: str, keys: Sequence[str], key_type: int = 0
) -> dict[str, tuple[str, int]]:
    """Return where the coordinator of each group is, or with key type 1 of each transactional id."""
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    channel = await Channel.connect(host, int(port), "members")
    try:
        await channel.negotiate()
        while True:
            request = FindCoordinatorRequest(key_type=i8(key_type), coordinator_keys=tuple(keys))
            response = await channel.request(request)
            if all(each.error_code is ErrorCode.none for each in response.coordinators):
                return {each.key: (each.host, each.port) for each in response.coordinators}
            await asyncio.sleep(_POLL_S)
    finally:
        channel.close()


async def settle(groups: Sequence[Sequence[Member]], partitions: int, changed: asyncio.Event) -> None:
    """Wait until all members of every group are settled in one generation and share all partitions.

    `changed` is what the members set when they have settled.
    """
    while not all(_is_settled(members, partitions) for members in groups):
        changed.clear()
        await changed.wait()


def _is_settled(members: Sequence[Member], partitions: int) -> bool:
    settled = [member.settled_in for member in members]
    if not all(settled) or len({each[0] for each in settled if each}) != 1:
        return False
    return sum(each[1] for each in settled if each) == partitions
