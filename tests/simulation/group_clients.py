"""Clients that commit offsets to a group and read them back, and remember what they were told.

A client is of no group generation, as an administrator or a consumer that assigns its partitions itself. So
a commit that was given up may still arrive; whatever was not answered may be what is read.
"""

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.groups.machine.offsets import (
    CommittedPartition,
    OffsetCommit,
    OffsetFetch,
)
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, Now, Reply, Token
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import Offset, TopicIdPartition
from tests.simulation.clients import REQUEST_TIMEOUT_MS, RETRY_MS, ClientProcess
from tests.simulation.coordinating import AskCoordinator, Coordinated
from tests.simulation.group_events import OffsetDelete

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_COMMITTED_PARTITION: Final = 0
_API_VERSION: Final = 10
_COMMITTED: Final = 0.5
_REPEATED: Final = 0.7
_DELETED: Final = 0.15
"""How often an offset is deleted instead."""


class GroupClient:
    """Commits to one group and reads what it has committed, one request at a time."""

    def __init__(self, client: ClientProcess, group_id: str, topic: str) -> None:
        self.group_id: Final = group_id
        self.has_settled = False
        """Whether it has read its last commit when nothing more was to be written."""
        self.key: TopicIdPartition | None = None
        """Where its coordinator is."""
        self._client = client
        self._world: World = client.world
        self._topic = topic
        self._topic_id: UUID | None = None
        self._losses = 0
        self._offset: Offset = 0
        self._committed: Offset | None = None
        """What was acknowledged last."""
        self._unanswered: set[Offset | None] = set()
        self._knows = False
        """Whether anything was acknowledged since what may have been lost."""
        self._deletes = False
        self._sent = 0
        """How often what is due was sent."""
        self._is_due = False
        """Whether a commit is to be repeated until it is acknowledged."""
        self._pause_ms = client.scheduler.random.choice((20, 50, 200))
        self._go_on_later(500)

    def _go_on_later(self, within_ms: int) -> None:
        self._client.after(1 + self._client.scheduler.random.randrange(within_ms), self._go_on)

    def _go_on(self) -> None:
        if self.has_settled:
            return
        found = self._find()
        if found is None:
            self._client.refresh()
            self._go_on_later(2 * RETRY_MS)
            return
        key, leader, partition = found
        # What is not acknowledged yet is read in between, too.
        commits = self._client.scheduler.random.random() < (_REPEATED if self._is_due else _COMMITTED)
        if commits and (self._is_due or self._world.accepts_writes):
            self._commit(key, leader, partition)
        else:
            self._fetch(key, leader, partition)

    def _find(self) -> tuple[TopicIdPartition, int, int] | None:
        """Return the coordinator's partition and its broker; forget what was said of others."""
        image = self._client.image
        topic = None if image is None else image.topics.by_name.get(CONSUMER_OFFSETS_TOPIC)
        about = None if image is None else image.topics.by_name.get(self._topic)
        if topic is None or about is None:
            return None
        partition = partition_for(self.group_id, len(topic.partitions))
        registration = topic.partitions[partition]
        if registration.leader is None:
            return None
        key = TopicIdPartition(topic.topic_id, partition)
        losses = self._world.ledger(key).losses
        if (key, losses, about.topic_id) != (self.key, self._losses, self._topic_id):
            self.key, self._losses, self._topic_id = key, losses, about.topic_id
            self._begin_anew()
        return key, registration.leader, partition

    def _begin_anew(self) -> None:
        self._knows = False
        self._committed = None

    def _commit(self, key: TopicIdPartition, leader: int, partition: int) -> None:
        if not self._is_due:
            self._offset += 1
            self._is_due = True
            self._sent = 0
            self._deletes = self._client.scheduler.random.random() < _DELETED
        offset = None if self._deletes else self._offset
        self._sent += 1
        self._unanswered.add(offset)
        asked = (key, self._losses, self._topic_id)
        if offset is None:
            deletion = OffsetDelete(self.group_id, self._topic, _COMMITTED_PARTITION)
            self._ask(
                leader, partition, deletion, _delete, lambda answer: self._answered(asked, None, answer)
            )
            return
        committed = CommittedPartition(_COMMITTED_PARTITION, offset, -1, None)
        topics = ((self._topic, self._topic_id, (committed,)),)
        event = OffsetCommit(self.group_id, "", None, -1, _API_VERSION, topics)
        self._ask(
            leader, partition, event, decide_commit, lambda answer: self._answered(asked, offset, answer)
        )

    def _answered(self, asked: Any, offset: Offset | None, answer: Coordinated | None) -> None:
        if answer is None or answer.error_code is not ErrorCode.none:
            self._again()
            return
        (errors,) = answer.response
        if errors[1][0][1] is not ErrorCode.none:
            self._again()
            return
        self._is_due = False
        if self._holds(asked, answer):
            if self._sent == 1 and offset is not None:  # what was sent before may arrive yet
                self._unanswered.discard(offset)
            self._committed, self._knows = offset, True
            self._world.outcome.commits += 1
        self._learn_of(answer)
        self._go_on_later(2 * self._pause_ms)

    def _fetch(self, key: TopicIdPartition, leader: int, partition: int) -> None:
        # Who does not say which topic of the name is told of any.
        topic_id = self._client.scheduler.random.choice((None, self._topic_id))
        topics = ((self._topic, topic_id, (_COMMITTED_PARTITION,)),)
        event = OffsetFetch(self.group_id, None, -1, topics, require_stable=True)
        asked = (key, self._losses, self._topic_id)
        self._ask(leader, partition, event, decide_fetch, lambda answer: self._read(asked, answer))

    def _read(self, asked: Any, answer: Coordinated | None) -> None:
        if answer is None or answer.error_code is not ErrorCode.none:
            self._again()
            return
        error_code, topics = answer.response
        (row,) = topics[0][1]
        if error_code is not ErrorCode.none or row.error_code is not ErrorCode.none:
            self._again()
            return
        if self._holds(asked, answer):
            offset = None if row.committed is None else row.committed.offset
            if self._knows:
                possible = {self._committed, *self._unanswered}
                self._world.offset_read(self.group_id, offset, possible, asked[0])
            self.has_settled = not (self._world.accepts_writes or self._is_due)
        self._learn_of(answer)
        self._go_on_later(2 * self._pause_ms)

    def _holds(self, asked: Any, answer: Coordinated) -> bool:
        """Whether an answer says anything of what is there now."""
        key = asked[0]
        topic = self._world.metadata.image.topics.by_name.get(self._topic)
        return (
            asked == (key, self._world.ledger(key).losses, None if topic is None else topic.topic_id)
            and asked == (self.key, self._losses, self._topic_id)
            and answer.key == key
            and self._world.ledger(key).counts(answer.leader_epoch)
        )

    def _learn_of(self, answer: Coordinated) -> None:
        """Look for the coordinator again when another topic of the name has answered: no error says so."""
        if answer.key != self.key:
            self._client.refresh()

    def _ask(self, leader: int, partition: int, event: Any, decide: Any, answered: Any) -> None:
        message = AskCoordinator(CONSUMER_OFFSETS_TOPIC, partition, event, decide)
        self._client.link(leader).request(message, REQUEST_TIMEOUT_MS, answered)

    def _again(self) -> None:
        self._client.refresh()
        self._go_on_later(2 * RETRY_MS)


def decide_commit(machine: GroupMachine, event: OffsetCommit, token: Token, now: Now) -> CoordinatorResult:
    """Decide as `sparklog.executor.coordinators.groups.api.offset_commit` has it decided."""
    if any(topic_id not in machine.image.topics.by_id for _, topic_id, _ in event.topics):
        errors = [
            (topic, [(each.partition, ErrorCode.unknown_topic_id) for each in partitions])
            for topic, _, partitions in event.topics
        ]
        return CoordinatorResult(replies=(Reply(token, errors),))
    records, errors = machine.commit_offsets(event, now)
    return CoordinatorResult(records, (Reply(token, errors),))


def _delete(machine: GroupMachine, event: OffsetDelete, token: Token, now: Now) -> CoordinatorResult:
    error_code, records, errors = machine.offsets.delete(event.group_id, [(event.topic, [event.partition])])
    if error_code is ErrorCode.group_id_not_found:
        errors = [(event.topic, [(event.partition, ErrorCode.none)])]
    return CoordinatorResult(records, (Reply(token, errors),))


def decide_fetch(machine: GroupMachine, event: OffsetFetch, token: Token, now: Now) -> CoordinatorResult:
    """Decide as `sparklog.executor.coordinators.groups.api.offset_fetch` has it decided."""
    return CoordinatorResult(replies=(Reply(token, machine.offsets.fetch(event)),))
