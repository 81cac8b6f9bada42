"""A `GroupConversation` with members of the consumer protocol, changing topics, and work beside the loop."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.heartbeats import ConsumerGroupHeartbeat
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult, RunInExecutor
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage, TopicsImage
from sparklog.node.metadata.schemas import ResourceType
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.coordinators.groups.group_conversation import GROUP, GroupConversation

Partitions = dict[str, set[int]]
PARTITION = PartitionRegistration(
    replicas=(0,), directories=(None,), isr=(0,), leader=0, leader_epoch=0, partition_epoch=0
)


def topic_image(name: str, partition_count: int, topic_id: UUID) -> TopicImage:
    return TopicImage(name, topic_id, dict.fromkeys(range(partition_count), PARTITION))


def image_of(topics: Mapping[str, int], offset: int = 0, **fields: Any) -> MetadataImage:
    """Return an image with topics of so many partitions, whose ids are made of their names."""
    images = [topic_image(name, count, id_of(name)) for name, count in topics.items()]
    return MetadataImage(
        offset=offset,
        topics=TopicsImage(
            {topic.name: topic for topic in images}, {topic.topic_id: topic for topic in images}
        ),
        **fields,
    )


def id_of(name: str, generation: int = 0) -> UUID:
    return UUID(int=int.from_bytes(name.encode()) * 100 + generation)


class ConsumerConversation(GroupConversation):
    """See the module. A member keeps what it is told, as a client does, and reports it."""

    def __init__(self, topics: Mapping[str, int] | None = None, **keys: str) -> None:
        self.waiting: list[RunInExecutor] = []
        """What is being done beside the loop, while `runs_at_once` is False."""
        self.runs_at_once = True
        self._tokens = 0
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        super().__init__(image_of({"t": 4} if topics is None else topics), **keys)

    def carry_out(self, decisions: Iterable[CoordinatorResult]) -> None:
        for decision in decisions:
            failing = self.append_error if decision.records else None
            super().carry_out((decision,))
            if failing is None:
                self.waiting += decision.effects
        if self.runs_at_once:
            self.finish_in_executor()

    def finish_in_executor(self) -> None:
        """Have what is done beside the loop come to its end."""
        waiting, self.waiting = self.waiting, []
        for effect in waiting:
            self.carry_out([effect.then(effect.function(), self.now)])

    def restart(self) -> None:
        self.waiting = []
        super().restart()

    def change_topics(self, topics: Mapping[str, int]) -> None:
        """Have these topics from now on."""
        before = self.image
        after = image_of(topics, offset=(before.offset or 0) + 1, configs=before.configs)
        created = after.topics.by_id.keys() - before.topics.by_id.keys()
        grown = {
            topic_id
            for topic_id, topic in after.topics.by_id.items()
            if topic_id in before.topics.by_id
            and len(topic.partitions) != len(before.topics.by_id[topic_id].partitions)
        }
        gone = before.topics.by_id.keys() - after.topics.by_id.keys()
        self._change_image(
            after,
            MetadataDelta(
                changed_topics={topic_id: frozenset() for topic_id in created | grown},
                created_topics=created,
                deleted_topics={topic_id: before.topics.by_id[topic_id].name for topic_id in gone},
            ),
        )

    def configure_group(self, **configs: str) -> None:
        """Give the group a configuration of its own."""
        self._configure((ResourceType.GROUP, GROUP), configs)

    def configure_brokers(self, **configs: str) -> None:
        """Tell all brokers something while they run."""
        self._configure((ResourceType.BROKER, ""), configs)

    def _configure(self, resource: tuple[int, str], configs: Mapping[str, str]) -> None:
        written = {name.replace("_", "."): value for name, value in configs.items()}
        image = replace(
            self.image, offset=(self.image.offset or 0) + 1, configs={**self.image.configs, resource: written}
        )
        self._change_image(image, MetadataDelta(changed_configs=frozenset({resource})))

    def _change_image(self, image: MetadataImage, delta: MetadataDelta) -> None:
        self.image = image
        self.carry_out(self.machine.metadata_changed(image, delta, self.now))

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    # ---- members ---------------------------------------------------------------------------------------

    def send(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Send one heartbeat; return its answer."""
        self._tokens += 1
        owned = fields.pop("owned", None)
        names = fields.pop("names", None)
        request = ConsumerGroupHeartbeat(
            fields.pop("group_id", GROUP),
            member_id,
            epoch,
            fields.pop("client_id", "client"),
            "/127.0.0.1",
            fields.pop("api_version", 1),
            fields.pop("new_member_id", "made-up"),
            subscribed_topic_names=None if names is None else frozenset(names),
            owned_partitions=None if owned is None else {id_of(topic): owned[topic] for topic in owned},
            **fields,
        )
        token = ("consumer", self._tokens)
        return self.submit(
            lambda machine, token, now: machine.consumer.consumer_group_heartbeat(request, token, now), token
        )

    def enter(self, member_id: str, *names: str, **fields: Any) -> Any:
        """Have a member join, subscribed to topics (`t` if there is no regular expression), and remember."""
        fields.setdefault("rebalance_timeout_ms", 60_000)
        if "subscribed_topic_regex" not in fields or names:
            fields["names"] = names or ("t",)
        self.owned[member_id] = {}
        return self.remember(member_id, self.send(member_id, 0, owned={}, **fields))

    def beat(self, member_id: str, **fields: Any) -> Any:
        """Have a member report what it owns, and take what it is told."""
        fields.setdefault("owned", self.owned[member_id])
        return self.remember(member_id, self.send(member_id, self.epochs[member_id], **fields))

    def remember(self, member_id: str, response: Any) -> Any:
        if getattr(response, "error_code", None) is ErrorCode.none:  # else refused, or not even appended
            self.epochs[member_id] = response.member_epoch
            if response.assignment is not None:
                self.owned[member_id] = partitions_of(response.assignment)
        return response

    def settle_members(self, *member_ids: str, rounds: int = 6) -> dict[str, Partitions]:
        """Have members send heartbeats, a second apart, until nothing changes; return what they own."""
        for _ in range(rounds):
            self.pass_time(1_100)
            for member_id in member_ids:
                self.beat(member_id)
        return {member_id: self.owned[member_id] for member_id in member_ids}


def partitions_of(assignment: Any) -> Partitions:
    names = {id_of(name): name for name in ("t", "u", "v", "w", "ta", "tb")}
    return {names[one.topic_id]: set(one.partitions) for one in assignment.topic_partitions}
