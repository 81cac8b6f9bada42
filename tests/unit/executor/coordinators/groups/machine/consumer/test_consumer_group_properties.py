"""Whatever members do, and whatever is lost: one owner, epochs that never fall, and in the end all is read.

Clients do as Kafka's do: they stop reading what they are told to give up before they report it, and begin to
read when they are told. In between, answers are lost, clients are slow, killed and come back, topics grow,
appends fail, big assignments take their time, and coordinators take over from each other.
"""

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.coordinators.groups.machine.consumer.group import ConsumerGroup
from sparklog.executor.coordinators.groups.machine.consumer.member import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from sparklog.executor.coordinators.groups.machine.group_machine import GroupMachine
from sparklog.executor.coordinators.records.consumer_offsets import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMetadataKey,
)
from sparklog.protocol.errors import ErrorCode
from tests.examples import examples
from tests.unit.executor.coordinators.groups.consumer_conversation import (
    ConsumerConversation,
    Partitions,
    id_of,
    partitions_of,
)
from tests.unit.executor.coordinators.groups.group_conversation import GROUP

SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"names": ("t",)},
    {"names": ("t", "u")},
    {"names": ("u", "v")},
    {"names": (), "subscribed_topic_regex": "[tu]"},
    {"names": ("v",), "subscribed_topic_regex": ".*"},
)


FENCED = (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found)


class Client:
    """One consumer: what it reads, and what it has been told to read."""

    def __init__(self, member_id: str, instance_id: str | None, subscription: dict[str, Any]) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription = subscription
        self.epoch = 0
        self.reads: Partitions = {}
        self.told: Partitions = {}
        self.reported: Partitions = {}
        self.says_everything = True

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.says_everything or self.reads != self.reported:
            fields["owned"] = self.reported = self.reads
        if self.says_everything:
            fields |= {
                "rebalance_timeout_ms": 30_000,
                "names": self.subscription["names"],
                "subscribed_topic_regex": self.subscription.get("subscribed_topic_regex", ""),
            }
        return fields

    def hear(self, answer: Any) -> None:
        error = getattr(answer, "error_code", None)
        if error is ErrorCode.none:
            self.epoch = answer.member_epoch
            self.says_everything = False
            if answer.assignment is not None:
                self.told = partitions_of(answer.assignment)
        elif error in FENCED:
            self.begin_anew()
        else:
            self.hear_nothing()

    def hear_nothing(self) -> None:
        """It does not know what became of what it said, so it says everything, and begins nothing new."""
        self.told, self.says_everything = self.reads, True

    def begin_anew(self) -> None:
        self.epoch, self.reads, self.told, self.says_everything = 0, {}, {}, True


class Story:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.talk = ConsumerConversation({"t": 3, "u": 2, "v": 1})
        self.clients: list[Client] = []
        self.topics = {"t": 3, "u": 2, "v": 1}
        self.made = 0
        self.epochs: Counter[str] = Counter()
        self.looked_at = 0

    def step(self) -> None:
        steps = (
            (self.come, 2),
            (self.beat, 12),
            (self.obey, 8),
            (self.subscribe, 1),
            (self.leave, 1),
            (self.be_killed, 1),
            (self.come_back, 2),
            (self.grow, 1),
            (self.wait, 6),
            (self.fail_an_append, 1),
            (self.take_over, 1),
            (self.switch_executor, 2),
        )
        action = self.random.choices([one for one, _ in steps], [weight for _, weight in steps])[0]
        action()
        self.check()

    def pick(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    def come(self) -> None:
        if len(self.clients) < 5:
            self.made += 1
            instance = f"i{self.made}" if self.random.random() < 0.3 else None
            self.clients.append(Client(f"m{self.made}", instance, self.random.choice(SUBSCRIPTIONS)))

    def beat(self) -> None:
        client = self.pick()
        if client is not None:
            if client.epoch == 0:
                client.begin_anew()
            answer = self.talk.send(client.member_id, client.epoch, **client.fields())
            if self.random.random() < 0.85:
                client.hear(answer)
            else:
                client.hear_nothing()

    def obey(self) -> None:
        client = self.pick()
        if client is not None:
            client.reads = client.told

    def subscribe(self) -> None:
        client = self.pick()
        if client is not None:
            client.subscription, client.says_everything = self.random.choice(SUBSCRIPTIONS), True

    def leave(self) -> None:
        client = self.pick()
        if client is not None:
            self.clients.remove(client)
            self.talk.send(client.member_id, -1, instance_id=client.instance_id)

    def be_killed(self) -> None:
        client = self.pick()
        if client is not None:
            self.clients.remove(client)

    def come_back(self) -> None:
        """A static member goes, and is back under another id, at once or not at all."""
        client = self.pick()
        if client is not None and client.instance_id is not None and client.epoch > 0:
            answer = self.talk.send(client.member_id, -2, instance_id=client.instance_id)
            if getattr(answer, "error_code", None) is ErrorCode.none:
                self.clients.remove(client)
                if self.random.random() < 0.8:
                    self.made += 1
                    self.clients.append(Client(f"m{self.made}", client.instance_id, client.subscription))

    def grow(self) -> None:
        topic = self.random.choice(["t", "u", "v", "w"])
        self.topics[topic] = min(self.topics.get(topic, 0) + 1, 8)
        self.talk.change_topics(self.topics)

    def wait(self) -> None:
        self.talk.pass_time(self.random.choice([100, 1_000, 1_000, 4_000, 11_000]))

    def fail_an_append(self) -> None:
        self.talk.append_error = ErrorCode.not_enough_replicas

    def take_over(self) -> None:
        self.talk.append_error = None
        self.talk.restart()

    def switch_executor(self) -> None:
        self.talk.runs_at_once = not self.talk.runs_at_once
        if self.talk.runs_at_once:
            self.talk.finish_in_executor()

    # ---- what always holds -----------------------------------------------------------------------------

    def check(self) -> None:
        group = self.talk.machine.groups.get(GROUP)
        self.check_epochs()
        again = GroupMachine(self.talk.config)
        for record in self.talk.records:
            again.replay(record, None)
        assert durable(again.groups.get(GROUP)) == durable(group)
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[Any, int], str] = {}
        for member in group.members.values():
            for owned in (member.assigned_partitions, member.partitions_pending_revocation):
                for topic_id, numbers in owned.items():
                    for number in numbers:
                        assert owners.setdefault((topic_id, number), member.member_id) == member.member_id
        assert owners == {
            (topic_id, number): member_id
            for topic_id, numbers in group.owners.items()
            for number, member_id in numbers.items()
        }
        for client in self.clients:
            if client.member_id in group.members:
                for topic, numbers in client.reads.items():
                    for number in numbers:
                        owner = owners.get((id_of(topic), number))
                        assert owner == client.member_id, f"{client.member_id} reads {topic}-{number}"

    def check_epochs(self) -> None:
        records = self.talk.records
        for key, value in records[self.looked_at :]:
            if isinstance(key, ConsumerGroupMetadataKey):
                epoch, who = (0, "") if value is None else (value.epoch, "")  # type: ignore[union-attr]
            elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
                who = key.member_id
                epoch = 0 if value is None else value.member_epoch  # type: ignore[union-attr]
            else:
                continue
            if value is None or epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                del self.epochs[who]
            else:
                assert epoch >= self.epochs[who] or epoch == 0, f"{who or 'the group'} falls to {epoch}"
                self.epochs[who] = epoch
        self.looked_at = len(records)

    def calm_down(self) -> None:
        """From now on nothing fails and nobody is slow: who is dead is found dead, and all else is read."""
        self.talk.append_error = None
        self.talk.runs_at_once = True
        self.talk.finish_in_executor()
        for _ in range(60):
            self.talk.pass_time(1_100)
            for client in self.clients:
                client.hear(self.talk.send(client.member_id, client.epoch, **client.fields()))
                client.reads = client.told
            self.check()

    def check_that_all_is_read(self) -> None:
        read = Counter(
            (topic, number)
            for client in self.clients
            for topic, numbers in client.reads.items()
            for number in numbers
        )
        subscribed = set()
        for client in self.clients:
            regex = client.subscription.get("subscribed_topic_regex")
            subscribed.update(client.subscription["names"])
            subscribed.update({None: set(), "[tu]": {"t", "u"}, ".*": set(self.topics)}[regex])
        assert read == Counter(
            (topic, number) for topic in subscribed for number in range(self.topics.get(topic, 0))
        )


def durable(group: Any) -> Any:
    """Return what the records have made of a group; of one that is no consumer group, nothing."""
    if not isinstance(group, ConsumerGroup):
        return None
    return {
        name: getattr(group, name)
        for name in (
            "group_epoch",
            "metadata_hash",
            "assignment_epoch",
            "assignment_timestamp_ms",
            "members",
            "static_member_ids",
            "targets",
            "owners",
            "resolved",
            "regex_subscribers",
            "topic_subscriptions",
            "classic_member_count",
        )
    }


@examples(20)
@given(seed=st.integers(0, 2**32))
def test_consumer_group_any_story_keeps_its_rules_and_ends_with_all_read(seed: int) -> None:
    """A partition that two read at a time is processed twice, and one that nobody reads never."""
    story = Story(Random(seed))
    for _ in range(80):
        story.step()
    story.calm_down()
    story.check_that_all_is_read()
