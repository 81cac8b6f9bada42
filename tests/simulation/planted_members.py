"""Bugs of groups with members that the simulator must find; see `planted`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sparklog.executor.coordinators.groups.machine.classic import classic_groups
from sparklog.executor.coordinators.groups.machine.classic.classic_groups import ClassicGroups
from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroup
from sparklog.executor.coordinators.groups.machine.consumer.consumer_groups import ConsumerGroups
from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import Heartbeats
from sparklog.executor.coordinators.groups.machine.consumer.leaving import Leaving, MemberTimeouts
from sparklog.executor.coordinators.groups.machine.consumer.member import NO_PARTITIONS, ConsumerMember
from sparklog.executor.coordinators.groups.machine.consumer.reconciliation import _Step
from sparklog.executor.coordinators.groups.machine.groups import Groups
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.errors import ErrorCode
from tests.simulation.coordinating import MEMBER_SEEDS, Coordinating
from tests.simulation.planted_bug import PlantedBug, Replacement


def _lease_ignored() -> Sequence[Replacement]:
    return [Replacement(Coordinating, "suspended", lambda self, replica: None)]


def _loaded_with(change: Any) -> Sequence[Replacement]:
    """Have each member of consumer groups be another one after a load."""
    loaded = ConsumerGroups.loaded

    def load_changed(self: ConsumerGroups, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        for group_id in self._replay.group_ids:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                for member in tuple(group.members.values()):
                    group.put_member(change(member))
        return loaded(self, image, now)

    return [Replacement(ConsumerGroups, "loaded", load_changed)]


def _epoch_falls_on_load() -> Sequence[Replacement]:
    def before(member: ConsumerMember) -> ConsumerMember:
        return replace(member, member_epoch=max(member.member_epoch - 1, min(member.member_epoch, 1)))

    return _loaded_with(before)


def _revocation_forgotten_on_load() -> Sequence[Replacement]:
    return _loaded_with(lambda member: replace(member, partitions_pending_revocation=NO_PARTITIONS))


def _given_away_unrevoked() -> Sequence[Replacement]:
    return [Replacement(_Step, "still_owns", lambda self, partitions: False)]


def _given_to_two() -> Sequence[Replacement]:
    return [Replacement(_Step, "_is_free", lambda self, topic_id, partition: True)]


def _sessions_not_begun_on_load() -> Sequence[Replacement]:
    return [
        Replacement(Leaving, "begin_sessions", lambda self, group, now: None),
        Replacement(ClassicGroups, "_begin_sessions", lambda self, group, now: None),
    ]


def _generation_reused() -> Sequence[Replacement]:
    load = classic_groups.loaded_group

    def load_one_earlier(group_id: str, value: Any) -> ClassicGroup:
        group = load(group_id, value)
        group.generation = max(group.generation - 1, 0)
        return group

    return [Replacement(classic_groups, "loaded_group", load_one_earlier)]


def _static_fence_missing() -> Sequence[Replacement]:
    validate = ClassicGroup.validate_offset_commit

    def take_from_instance(
        self: ClassicGroup, member_id: str, instance_id: str | None, *rest: Any, **said: Any
    ) -> Any:
        holder = self.static_member_ids.get(instance_id or "")
        return validate(self, member_id if holder is None else holder, instance_id, *rest, **said)

    return [Replacement(ClassicGroup, "validate_offset_commit", take_from_instance)]


def _late_commit_taken() -> Sequence[Replacement]:
    def take(self: Any, *said: Any, **more: Any) -> ErrorCode:
        return ErrorCode.none

    return [
        Replacement(ClassicGroup, "validate_offset_commit", take),
        Replacement(ConsumerGroup, "validate_offset_commit", take),
    ]


def _joins_not_awaited() -> Sequence[Replacement]:
    return [
        Replacement(ClassicGroup, "all_members_joined", property(lambda self: self.awaiting_join_count > 0))
    ]


def _session_too_short() -> Sequence[Replacement]:
    prolong = MemberTimeouts.prolong

    def prolong_by_less(
        self: MemberTimeouts, group_id: str, member_id: str, timeout_ms: int, now: Now
    ) -> None:
        prolong(self, group_id, member_id, timeout_ms // 3, now)

    return [Replacement(MemberTimeouts, "prolong", prolong_by_less)]


def _lost_on_the_way_back() -> Sequence[Replacement]:
    return [Replacement(Groups, "kept", lambda self, group_id: self.get(group_id))]


def _member_tombstone_skipped() -> Sequence[Replacement]:
    return [Replacement(ConsumerGroup, "remove_member", lambda self, member_id: None)]


def _former_epoch_sent() -> Sequence[Replacement]:
    heartbeat = Heartbeats.heartbeat

    def tell_the_one_before(self: Heartbeats, request: Any, token: Any, now: Now) -> CoordinatorResult:
        decision = heartbeat(self, request, token, now)
        replies = [
            reply._replace(response=replace(reply.response, member_epoch=reply.response.member_epoch - 1))
            if request.member_epoch > 1 and reply.response.error_code is ErrorCode.none
            else reply
            for reply in decision.replies
        ]
        return decision._replace(replies=replies)

    return [Replacement(Heartbeats, "heartbeat", tell_the_one_before)]


_bug = partial(PlantedBug, seeds=MEMBER_SEEDS)

MEMBER_BUGS: Final = {
    "lease-ignored-by-coordinator": _bug(
        "a coordinator goes on when the lease of its broker is out", _lease_ignored
    ),
    "member-epoch-falls-on-load": _bug("a load leaves members an epoch behind", _epoch_falls_on_load),
    "revocation-forgotten-on-load": _bug(
        "a load forgets what members have not given up yet", _revocation_forgotten_on_load
    ),
    "given-away-unrevoked": _bug(
        "a partition is another's before its owner says that it has given it up", _given_away_unrevoked
    ),
    "given-to-two": _bug("a partition is given to a member while another has it", _given_to_two),
    "sessions-not-begun-on-load": _bug(
        "a member that dies before its coordinator does is a member for ever", _sessions_not_begun_on_load
    ),
    "generation-reused": _bug("a new coordinator begins a generation that there was", _generation_reused),
    "static-fence-missing": _bug(
        "who has lost his instance id to another process may still commit", _static_fence_missing
    ),
    "epoch-of-before-told": _bug("a member is told the epoch before its own", _former_epoch_sent),
    "late-commit-taken": _bug("who is no member any more may still commit", _late_commit_taken),
    "joins-not-awaited": _bug("a rebalance does not wait for members to join again", _joins_not_awaited),
    "session-too-short": _bug("a member is removed while its session lasts", _session_too_short),
    "lost-on-the-way-back": _bug(
        "a group with offsets that goes back to the classic protocol is forgotten", _lost_on_the_way_back
    ),
    "member-tombstone-skipped": _bug("a member that has left is there still", _member_tombstone_skipped),
}
