"""The consumer groups of a partition: the `Membership` of the protocol of KIP-848."""

from collections.abc import Callable, Iterable, MutableMapping
from typing import Final

from kio.schema.consumer_group_describe.v1.response import DescribedGroup

from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup
from sparklog.executor.coordinators.groups.machine.consumer.classic_members import ClassicMembers
from sparklog.executor.coordinators.groups.machine.consumer.description import described_group
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.group_context import GroupContext
from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import (
    ConsumerGroupHeartbeat,
    Heartbeats,
)
from sparklog.executor.coordinators.groups.machine.consumer.leaving import Downgraded
from sparklog.executor.coordinators.groups.machine.consumer.replay import ConsumerReplay
from sparklog.executor.coordinators.groups.machine.group import Group, GroupType
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Outcome, Token
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode


class ConsumerGroups:
    group_type: Final = GroupType.CONSUMER

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        timers: Timers,
        config: BrokerConfig,
        *,
        release: Callable[[ClassicGroup, Now, Outcome], None],
        downgraded: Downgraded,
    ) -> None:
        """`groups` are all of the partition; the last two are the classic protocol's (`conversion`)."""
        self._groups = groups
        self._context = GroupContext(groups, timers, config, downgraded)
        self._replay = ConsumerReplay(groups, self._context.executor.forget)
        self.replays = self._replay.replays
        self._classic_members = ClassicMembers(self._context)
        self._heartbeats = Heartbeats(self._context, release)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, token: Token, now: Now
    ) -> CoordinatorResult:
        return self._heartbeats.heartbeat(request, token, now)

    def join_group(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._classic_members.join_group(request, token, now)

    def sync_group(self, request: SyncGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._classic_members.sync_group(request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> CoordinatorResult:
        return self._classic_members.heartbeat(request, token, now)

    def leave_group(self, request: LeaveGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._classic_members.leave_group(request, token, now)

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        self._context.settings.image = image
        self._context.topics_created_at = image.end_offset
        for group_id in self._replay.group_ids:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._context.leaving.begin_sessions(group, now)
        return ()

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        """Let groups check their changed topics at the next heartbeat of a member."""
        self._context.settings.image = image
        if delta.created_topics:
            self._context.topics_created_at = image.end_offset
        self._context.hashes.forget(delta.deleted_topics)
        changed = map(image.topics.by_id.get, delta.changed_topics)
        names = [topic.name for topic in changed if topic is not None]  # else deleted since
        for name in (*names, *delta.deleted_topics.values()):
            for group_id in self._replay.subscribers[name]:
                group = self._groups.get(group_id)
                if isinstance(group, ConsumerGroup):
                    group.checked_in_epoch = None
        return ()

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        """Forget effects that will not run, and restart sessions of members that were not removed."""
        self._context.executor.abandon(decision.effects)
        self._context.leaving.append_failed(decision, now)
        return None

    def offsets_committed(self, group: Group, member_id: str, now: Now) -> None:
        """Do nothing: only heartbeats prolong a session here, as in Kafka."""

    def describe(self, group_id: str) -> DescribedGroup:
        return described_group(group_id, self._groups, self._context.settings)
