"""The groups of one partition of `__consumer_offsets`: a `CoordinatorMachine`.

It holds groups of all types by id. The membership of a group's type (`membership.Membership`, one for each
protocol) decides about it; offsets are common to all.

Source: Kafka's GroupCoordinatorShard.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from sparklog.executor.coordinators.groups.machine.classic.classic_groups import ClassicGroups
from sparklog.executor.coordinators.groups.machine.classic.group import ClassicGroupState
from sparklog.executor.coordinators.groups.machine.classic.rebalance import refuse_join
from sparklog.executor.coordinators.groups.machine.consumer.consumer_groups import ConsumerGroups
from sparklog.executor.coordinators.groups.machine.expiration import (
    STEP_ITEMS,
    TombstoneBatch,
    deleted_topics_steps,
    expiration_steps,
)
from sparklog.executor.coordinators.groups.machine.group import Group, GroupType
from sparklog.executor.coordinators.groups.machine.group_metrics import GroupMetrics
from sparklog.executor.coordinators.groups.machine.groups import Groups
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Membership,
    Replay,
    SyncGroup,
)
from sparklog.executor.coordinators.groups.machine.offset_store import OffsetStore
from sparklog.executor.coordinators.groups.machine.offsets import OffsetCommit, Offsets, TopicErrors
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Token,
)
from sparklog.executor.coordinators.machine.timers import Timers
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupMetadataKey,
    OffsetCommitKey,
)
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.whole_seconds import whole_interval_after
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.key_values import KeyRun

COUNT_INTERVAL_MS: Final = 60_000

States = Mapping[tuple[GroupType, str], int]
"""Number of groups by type and state; simple groups count as empty classic ones."""


def counting_steps(
    groups: Groups, store: OffsetStore, counted: Callable[[States], None]
) -> Iterator[list[CoordinatorRecord]]:
    """Count the groups by type and state in steps, for metrics; every step yields no records.

    There may be a million simple groups, which are not iterated: their number is that of the groups with
    offsets and nothing else.
    """
    states: Counter[tuple[GroupType, str]] = Counter()
    with_offsets = 0
    for number, group_id in enumerate(groups.not_simple(), start=1):
        if number % STEP_ITEMS == 0:
            yield []
        group = groups.get(group_id)
        if group is not None:
            states[group.group_type, group.state_name] += 1
            with_offsets += store.has(group_id)
    states[GroupType.CLASSIC, ClassicGroupState.EMPTY] += max(0, store.group_count - with_offsets)
    counted(states)


ACTIONS_AT_ONCE: Final = 20
"""The most timers that run in one turn: an expired member is a batch to append."""
_PAUSE_MS: Final = 1
"""Pause between two steps of a long task, for the rest of the loop."""


class ListedGroup(NamedTuple):
    group_id: str
    group_type: GroupType
    state_name: str
    protocol_type: str


class GroupMachine:
    """Decides about the groups of one partition.

    A new protocol adds one membership in the constructor, and nothing else here.
    """

    def __init__(self, config: BrokerConfig, metrics: GroupMetrics | None = None) -> None:
        """`metrics` are the broker's; None if they are not needed."""
        self.metrics = metrics or GroupMetrics()
        self.states: States = {}
        """Number of groups at the last count."""
        self.image: MetadataImage = EMPTY_IMAGE
        self._is_loaded = False
        self._rests_until_ms = 0
        """Monotonic time before which overdue timers wait, so that other partitions get their turn."""
        store = OffsetStore()
        self.groups = Groups(store)
        self.timers = Timers()
        self.offsets = Offsets(
            self.groups, store, self.metrics, metadata_max_bytes=config.offset_metadata_max_bytes
        )
        self._min_session_timeout_ms = config.group_min_session_timeout_ms
        self._max_session_timeout_ms = config.group_max_session_timeout_ms
        self._retention_ms = config.offsets_retention_minutes * 60 * 1000
        self._retention_check_interval_ms = config.offsets_retention_check_interval_ms
        self.classic = ClassicGroups(
            self.groups,
            self.timers,
            self.metrics,
            kept=self.groups.kept,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            max_size=config.group_max_size,
        )
        self.consumer = ConsumerGroups(
            self.groups,
            self.timers,
            config,
            release=self.classic.release,
            downgraded=self.classic.converted,
        )
        memberships: tuple[Membership, ...] = (self.consumer, self.classic)
        self._memberships = {membership.group_type: membership for membership in memberships}
        self._replays: dict[type[Any], Replay] = {}
        for membership in memberships:
            self._replays.update(membership.replays)

    # ---- what the runtime calls ------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, producer: ProducerStamp | None) -> None:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(key, value, producer)  # type: ignore[arg-type]  # its type goes with the key's
        else:
            self._replays[type(key)](key, value)
            if self._is_loaded and value is not None and isinstance(key, ConsumerGroupMetadataKey):
                self.metrics.consumer_rebalances += 1  # a new group epoch

    def replay_raw(self, run: KeyRun) -> bool:
        """Apply records of a load without decoding them; return False if they must be decoded.

        A partition has millions of offsets, and entities of them would be most of a load. The caller decodes
        and `replay`s refused records; records of one key always come in their order.
        """
        return self.offsets.store.put_raw(run)

    def release(self) -> Iterator[None]:
        """Release offsets, groups and timers in slices; the machine is not used afterwards."""
        yield from self.offsets.store.release()
        yield from self.groups.release()
        yield from self.timers.release()

    def end_transaction(self, producer: ProducerStamp, committed: bool) -> None:
        self.offsets.store.end_transaction(producer.producer_id, committed=committed)

    def loaded(self, image: MetadataImage, now: Now) -> Iterable[CoordinatorResult]:
        self.image = image
        self.offsets.store.loaded()
        self.groups.knows_simple_groups = True
        for membership in self._memberships.values():
            yield from membership.loaded(image, now)
        self._is_loaded = True
        self._expire_later(now)
        self.timers.soon(self._count)

    def metadata_changed(
        self, image: MetadataImage, delta: MetadataDelta, now: Now
    ) -> Iterable[CoordinatorResult]:
        self.image = image
        if delta.deleted_topics:
            steps = deleted_topics_steps(self.offsets, delta.deleted_topics)
            self.timers.soon(partial(self._step, id(steps), steps, None))
        for membership in self._memberships.values():
            yield from membership.metadata_changed(image, delta, now)

    @property
    def next_due_ms(self) -> int | None:
        due_ms = self.timers.next_due_ms
        return due_ms if due_ms is None else max(due_ms, self._rests_until_ms)

    def tick(self, now: Now) -> Iterable[CoordinatorResult]:
        """Run timers that are due, up to a limit: thousands of sessions may expire together."""
        for _ in range(ACTIONS_AT_ONCE):
            action = self.timers.pop_due(now.monotonic_ms)
            if action is None:
                return
            decision = action(now)
            if decision is not None:
                yield decision
        self._rests_until_ms = now.monotonic_ms + _PAUSE_MS

    def append_failed(
        self, decision: CoordinatorResult, error: ErrorCode, now: Now
    ) -> CoordinatorResult | None:
        for membership in self._memberships.values():
            answer = membership.append_failed(decision, error, now)
            if answer is not None:
                return answer
        return None

    # ---- members of the classic protocol ---------------------------------------------------------------

    def join_group(self, request: JoinGroup, token: Token, now: Now) -> CoordinatorResult:
        """Let a member join; an empty group of another type is replaced."""
        if not self._min_session_timeout_ms <= request.session_timeout_ms <= self._max_session_timeout_ms:
            return refuse_join(token, ErrorCode.invalid_session_timeout, request.member_id)
        group = self.groups.get(request.group_id)
        if group is None or group.group_type is GroupType.CLASSIC:
            return self.classic.join_group(request, token, now)
        if group.group_type is not GroupType.CONSUMER:
            return refuse_join(token, ErrorCode.inconsistent_group_protocol)
        if group.is_empty:
            return self.classic.join_group(request, token, now)
        return self._membership(group).join_group(request, token, now)

    def sync_group(self, request: SyncGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._membership_of(request.group_id).sync_group(request, token, now)

    def heartbeat(self, request: Heartbeat, token: Token, now: Now) -> CoordinatorResult:
        return self._membership_of(request.group_id).heartbeat(request, token, now)

    def leave_group(self, request: LeaveGroup, token: Token, now: Now) -> CoordinatorResult:
        return self._membership_of(request.group_id).leave_group(request, token, now)

    # ---- offsets ---------------------------------------------------------------------------------------

    def commit_offsets(
        self, request: OffsetCommit, now: Now
    ) -> tuple[Sequence[CoordinatorRecord], TopicErrors]:
        """Decide about a commit; a valid one prolongs its member's session."""
        records, errors = self.offsets.commit(request, now)
        group = self.groups.get(request.group_id)
        if records and group is not None:
            self._membership(group).offsets_committed(group, request.member_id, now)
        return records, errors

    # ---- admins ----------------------------------------------------------------------------------------

    def list_groups(
        self, group_ids: Iterable[str], states: Collection[str], types: Collection[str]
    ) -> list[ListedGroup]:
        """Return the groups of these states (lower case) and types; an empty filter matches all."""
        listed = []
        for group_id in group_ids:
            group = self.groups.get(group_id)
            if group is None:
                continue
            state_name = group.state_name
            if (not states or state_name.lower() in states) and (not types or group.group_type in types):
                listed.append(ListedGroup(group_id, group.group_type, state_name, group.protocol_type or ""))
        return listed

    def delete_group(self, group_id: str) -> tuple[ErrorCode, Sequence[CoordinatorRecord], bool]:
        """Delete a group with its offsets; return False as third item if the call must be repeated.

        One batch holds a bounded number of offsets; the last one also deletes the group.
        """
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found, (), True
        error_code = group.validate_delete()
        if error_code is not ErrorCode.none:
            return error_code, (), True
        batch = TombstoneBatch()
        for record in self.offsets.tombstones(group_id):
            if batch.is_full or len(batch.records) >= STEP_ITEMS:
                return ErrorCode.none, batch.records, False
            assert isinstance(record.key, OffsetCommitKey)
            batch.add(record, group_id, record.key.topic)
            self.metrics.offset_deletions += 1
        return ErrorCode.none, (*batch.records, *group.tombstones()), True

    # ---- expiry ----------------------------------------------------------------------------------------

    def _expire_later(self, now: Now) -> None:
        self.timers.schedule("expire", now.monotonic_ms + self._retention_check_interval_ms, self._expire)

    def _expire(self, now: Now) -> CoordinatorResult | None:
        steps = self._counting(
            expiration_steps(self.groups, self.offsets, now.wall_ms, retention_ms=self._retention_ms)
        )
        return self._step("expire", steps, self._expire_later, now)

    def _counting(self, steps: Iterator[list[CoordinatorRecord]]) -> Iterator[list[CoordinatorRecord]]:
        for records in steps:
            self.metrics.offset_expirations += sum(isinstance(key, OffsetCommitKey) for key, _ in records)
            yield records

    def _count(self, now: Now) -> CoordinatorResult | None:
        steps = counting_steps(self.groups, self.offsets.store, self._counted)
        return self._step("count", steps, self._count_later, now)

    def _counted(self, states: States) -> None:
        self.states = states

    def _count_later(self, now: Now) -> None:
        # At the same time in all partitions: their coordinator wakes up once for it.
        due_ms = whole_interval_after(now.monotonic_ms, COUNT_INTERVAL_MS)
        self.timers.schedule("count", due_ms, self._count)

    def _step(
        self,
        key: Hashable,
        steps: Iterator[list[CoordinatorRecord]],
        done: Callable[[Now], None] | None,
        now: Now,
    ) -> CoordinatorResult | None:
        """Take one of many steps, and schedule the next after a pause; `done` after the last one."""
        # Scheduled first, so that an exception in this step does not end the steps.
        self.timers.schedule(key, now.monotonic_ms + _PAUSE_MS, partial(self._step, key, steps, done))
        records = next(steps, None)
        if records is None:
            self.timers.cancel(key)
            if done is not None:
                done(now)
        return CoordinatorResult(records) if records else None

    # ---- which membership ------------------------------------------------------------------------------

    def _membership(self, group: Group) -> Membership:
        return self._memberships[group.group_type]

    def _membership_of(self, group_id: str) -> Membership:
        """Return the membership of the group's type; for a missing group the classic one, which refuses."""
        group = self.groups.get(group_id)
        return self.classic if group is None else self._membership(group)
