"""A machine of groups without a log: what it decides is appended to a list, replayed and answered at once.

`GroupConversation` does what the runtime does, in its order, with a clock that is set by hand. `restart`
makes a new machine of the records, as the next coordinator does.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.membership import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from sparklog.executor.coordinators.groups.machine.offsets import (
    CommittedPartition,
    OffsetCommit,
    OffsetFetch,
)
from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    ProducerStamp,
    Reply,
)
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.protocol.errors import ErrorCode

GROUP = "group"


def consumer_metadata(*topics: str) -> bytes:
    """Return the subscription of a consumer of the classic protocol."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


CONSUMER_METADATA = consumer_metadata("topic")


class GroupConversation:
    """One machine, its log, and the answers that were given, by token."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, **keys: str) -> None:
        self.config = BrokerConfig.from_mapping(
            {name.replace("_", "."): value for name, value in keys.items()}
        )
        self.image = image
        self.now_ms = 1_000_000
        self.log: list[tuple[CoordinatorRecord, ProducerStamp | None] | tuple[ProducerStamp, bool]] = []
        self.answers: dict[Any, Any] = {}
        self.append_error: ErrorCode | None = None
        """What the next append fails with."""
        self.machine = GroupMachine(self.config)
        self.carry_out(self.machine.loaded(image, self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, 1_700_000_000_000 + self.now_ms)

    @property
    def records(self) -> list[CoordinatorRecord]:
        """The records in the log."""
        return [entry[0] for entry in self.log if isinstance(entry[0], CoordinatorRecord)]

    def restart(self) -> None:
        """Have another coordinator take over, with what is in the log."""
        self.machine = GroupMachine(self.config)
        for entry in self.log:
            if isinstance(entry[0], CoordinatorRecord):
                self.machine.replay(entry[0], entry[1])  # type: ignore[arg-type]
            else:
                self.machine.end_transaction(entry[0], entry[1])  # type: ignore[arg-type]
        self.carry_out(self.machine.loaded(self.image, self.now))
        self._tick()

    def submit(self, decide: Callable[[GroupMachine, Any, Now], CoordinatorResult], token: Any) -> Any:
        """Have a request decided; return its answer, None while it waits."""
        self.carry_out([decide(self.machine, token, self.now)])
        self._tick()
        return self.answers.get(token)

    def end_transaction(self, producer: ProducerStamp, *, committed: bool) -> None:
        self.log.append((producer, committed))
        self.machine.end_transaction(producer, committed)

    def pass_time(self, passed_ms: int) -> None:
        """Let time pass, and all that is due in it happen when it is due."""
        end_ms = self.now_ms + passed_ms
        while self.machine.next_due_ms is not None and self.machine.next_due_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.machine.next_due_ms)
            self._tick()
        self.now_ms = end_ms

    def carry_out(self, decisions: Iterable[CoordinatorResult]) -> None:
        for decision in decisions:
            if decision.records and self.append_error is not None:
                error, self.append_error = self.append_error, None
                for token, response in decision.replies:
                    self._answer(token, (error, type(response)))
                answer = self.machine.append_failed(decision, error, self.now)
                if answer is not None:
                    assert not answer.records
                    self.carry_out([answer])
                continue
            for record in decision.records:
                self.log.append((record, decision.producer))
                self.machine.replay(record, decision.producer)
            for token, response in decision.replies:
                self._answer(token, response)

    def _answer(self, token: Any, response: Any) -> None:
        assert token not in self.answers, f"{token} is answered twice"
        self.answers[token] = response

    def _tick(self) -> None:
        while self.machine.next_due_ms is not None and self.machine.next_due_ms <= self.now_ms:
            self.carry_out(self.machine.tick(self.now))

    # ---- members of the classic protocol ---------------------------------------------------------------

    def join(
        self,
        token: Any,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        new_member_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", CONSUMER_METADATA),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        needs_known_member_id: bool = True,
        can_skip_assignment: bool = True,
    ) -> Any:
        """Send JoinGroup; a member without an id would be called `<token>-id`."""
        request = JoinGroup(
            group_id,
            member_id,
            instance,
            "client",
            "/127.0.0.1",
            protocol_type,
            protocols,
            session_timeout_ms,
            rebalance_timeout_ms,
            f"{token}-id" if new_member_id is None else new_member_id,
            needs_known_member_id,
            can_skip_assignment,
        )
        return self.submit(lambda machine, token, now: machine.join_group(request, token, now), token)

    def sync(
        self,
        token: Any,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        protocol_name: str | None = "range",
    ) -> Any:
        request = SyncGroup(
            group_id,
            member_id,
            instance,
            generation,
            "consumer",
            protocol_name,
            tuple((assignments or {}).items()),
        )
        return self.submit(lambda machine, token, now: machine.sync_group(request, token, now), token)

    def heartbeat(
        self,
        token: Any,
        member_id: str,
        generation: int,
        *,
        instance: str | None = None,
        group_id: str = GROUP,
    ) -> ErrorCode:
        request = Heartbeat(group_id, member_id, instance, generation)
        error: ErrorCode = self.submit(
            lambda machine, token, now: machine.heartbeat(request, token, now), token
        ).error_code
        return error

    def leave(self, token: Any, *members: tuple[str, str | None], group_id: str = GROUP) -> Any:
        request = LeaveGroup(group_id, tuple(LeavingMember(*member) for member in members))
        return self.submit(lambda machine, token, now: machine.leave_group(request, token, now), token)

    def commit(
        self,
        token: Any,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        group_id: str = GROUP,
        instance: str | None = None,
        topic: str = "topic",
        partition: int = 0,
        **fields: Any,
    ) -> ErrorCode:
        """Commit one offset; return what its partition is answered."""
        row = CommittedPartition(partition, offset, -1, fields.pop("metadata", ""))
        topic_id = fields.pop("topic_id", None)
        producer = fields.pop("producer", None)
        api_version = fields.pop("api_version", 9)
        request = OffsetCommit(
            group_id, member_id, instance, generation, api_version, ((topic, topic_id, (row,)),), **fields
        )

        def decide(machine: GroupMachine, token: Any, now: Now) -> CoordinatorResult:
            if producer is None:
                records, errors = machine.commit_offsets(request, now)
            else:
                records, errors = machine.offsets.commit_in_transaction(request, now)
            ((_, ((_, error_code),)),) = errors
            return CoordinatorResult(records, (Reply(token, error_code),), producer=producer)

        error: ErrorCode = self.submit(decide, token)
        return error

    def fetch(self, partition: int = 0, *, group_id: str = GROUP, topic: str = "topic", **fields: Any) -> Any:
        """Return what is committed for a partition, or the error."""
        request = OffsetFetch(
            group_id,
            fields.get("member_id"),
            fields.get("member_epoch", -1),
            ((topic, fields.get("topic_id"), (partition,)),),
            fields.get("require_stable", False),
        )
        error_code, topics = self.machine.offsets.fetch(request)
        if error_code is not ErrorCode.none:
            return error_code
        row = topics[0][1][0]
        if row.error_code is not ErrorCode.none:
            return row.error_code
        return None if row.committed is None else row.committed.offset

    def settle(self, *tokens: str, **keys: Any) -> tuple[int, list[str]]:
        """Have new dynamic members join and be assigned their names; return generation and their ids."""
        ids = [self.join(f"{token}?", **keys).member_id for token in tokens]
        for token, member_id in zip(tokens, ids, strict=True):
            self.join(token, member_id, **keys)
        self.pass_time(6_000)  # the first three seconds are prolonged, once, when more than one comes
        return self.assign(*tokens), ids

    def assign(self, *tokens: str, group_id: str = GROUP) -> int:
        """Have those who were told of a generation ask for their assignments, the leader last."""
        joined = {token: self.answers[token] for token in tokens}
        generation: int = next(iter(joined.values())).generation_id
        for token, response in sorted(joined.items(), key=lambda item: item[1].leader == item[1].member_id):
            assert response.generation_id == generation, response
            self.sync(
                (token, "sync"),
                response.member_id,
                generation,
                {member.member_id: f"for {member.member_id}".encode() for member in response.members},
                group_id=group_id,
            )
        return generation
