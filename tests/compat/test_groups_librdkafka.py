"""confluent-kafka in groups of the classic protocol: members that come, go, die, pause and come back."""

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, create_topic, produce

NewName = Callable[[str], str]
SESSION_TIMEOUT_MS = 3_000
"""Of members that are killed or stopped; it is waited for. Nobody else's must end on a busy machine."""


class Member:
    """A consumer of a group, and what it was told by its rebalances."""

    def __init__(self, cluster: LocalCluster, group: str, topic: str, **config: Any) -> None:
        self.revoked: list[list[int]] = []
        self.assigned: list[list[int]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **config,
            }
        )
        self._polled: list[Message] = []
        """What came while somebody else settled, and is still to be read."""
        self.consumer.subscribe(
            [topic],
            on_assign=lambda _, partitions: self._changed(self.assigned, partitions),
            on_revoke=lambda _, partitions: self._changed(self.revoked, partitions),
        )

    def _changed(self, notes: list[list[int]], partitions: Sequence[TopicPartition]) -> None:
        changed = [each.partition for each in partitions]
        notes.append(changed)
        # Whoever has them next reads them from what is committed on.
        self._polled = [each for each in self._polled if each.partition() not in changed]

    @property
    def partitions(self) -> set[int]:
        """What it has now."""
        return {each.partition for each in self.consumer.assignment()}

    def poll(self, timeout_s: float) -> None:
        """Take part in the group; a record that comes with it is read later."""
        message = self.consumer.poll(timeout_s)
        if message is not None:
            assert message.error() is None, message.error()
            self._polled.append(message)

    def read(self, count: int) -> list[bytes]:
        """Return the next values."""
        deadline = time.monotonic() + TIMEOUT_S
        while len(self._polled) < count:
            assert time.monotonic() < deadline, f"{len(self._polled)} of {count} records were read"
            self.poll(0.1)
        messages, self._polled = self._polled[:count], self._polled[count:]
        return [message.value() or b"" for message in messages]


@contextmanager
def members(
    cluster: LocalCluster, group: str, topic: str, configs: Sequence[dict[str, Any]] = ({},)
) -> Iterator[list[Member]]:
    """Yield members that share the partitions of the topic."""
    with ExitStack() as stack:
        group_members = []
        for config in configs:
            member = Member(cluster, group, topic, **config)
            stack.callback(member.consumer.close)
            group_members.append(member)
        yield group_members


def settle(*group_members: Member, partitions: int) -> None:
    """Wait until all partitions are assigned, each to one of the members, and each has some."""

    def settled() -> bool:
        for member in group_members:
            member.poll(0.05)
        owned = [partition for member in group_members for partition in member.partitions]
        return sorted(owned) == list(range(partitions)) and all(m.partitions for m in group_members)

    wait_for(settled, "the partitions shared")


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: NewName) -> str:
    """A topic of four partitions with ten records in each."""
    name = new_topic_name("grouped")
    create_topic(cluster.bootstrap_servers, name, partitions=4)
    records = [{"partition": number % 4, "value": b"%d" % number} for number in range(40)]
    produce(cluster.bootstrap_servers, name, records)
    return name


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_members_share_a_topic_and_take_over_from_one_that_leaves(
    cluster: LocalCluster, topic: str, strategy: str
) -> None:
    """Joining, rebalancing, committing and restarting, eagerly and cooperatively (KIP-429)."""
    config = {"partition.assignment.strategy": strategy}
    group = f"{topic}-group"
    with members(cluster, group, topic, [config, config]) as (first, second):
        settle(first, second, partitions=4)
        kept = first.partitions
        values = first.read(10 * len(first.partitions))
        first.consumer.commit(asynchronous=False)
        values += second.read(10 * len(second.partitions))
        second.consumer.commit(asynchronous=False)
        assert sorted(map(int, values)) == list(range(40))
        second.consumer.close()
        settle(first, partitions=4)
        revoked = {partition for partitions in first.revoked[-1:] for partition in partitions}
        if strategy == "cooperative-sticky":
            assert not kept & revoked, "what is kept is not taken away meanwhile"
    produce(cluster.bootstrap_servers, topic, [{"partition": 3, "value": b"new"}])
    with members(cluster, group, topic, [config]) as (again,):
        assert again.read(1) == [b"new"]


def test_consumer_that_dies_between_processing_and_commit_has_its_records_read_again(
    cluster: LocalCluster, topic: str
) -> None:
    """At least once: what was committed is not read again, what was not is."""
    group = f"{topic}-group"
    victim = process(cluster, group, topic, "read_all(); commit(5); print('done'); sleep()")
    assert victim.stdout is not None
    assert victim.stdout.readline() == "done\n"
    victim.kill()
    victim.wait()
    victim.stdout.close()
    with members(cluster, group, topic) as (successor,):
        values = successor.read(40 - 4 * 5)
    assert sorted(map(int, values)) == list(range(20, 40))


def test_member_that_pauses_beyond_its_session_timeout_cannot_commit_any_more(
    cluster: LocalCluster, topic: str
) -> None:
    """Its successor may have gone further: the late commit would set it back."""
    group = f"{topic}-group"
    sleeper = process(cluster, group, topic, "read_all(); print('done'); wait(); print(commit(3)); sleep()")
    assert sleeper.stdout is not None
    assert sleeper.stdin is not None
    assert sleeper.stdout.readline() == "done\n"
    sleeper.send_signal(signal.SIGSTOP)
    try:
        with members(cluster, group, topic) as (successor,):
            settle(successor, partitions=4)
            successor.read(40)
            successor.consumer.commit(asynchronous=False)
            sleeper.send_signal(signal.SIGCONT)
            sleeper.stdin.write("go\n")
            sleeper.stdin.flush()
            assert sleeper.stdout.readline() in (
                "UNKNOWN_MEMBER_ID\n",
                "ILLEGAL_GENERATION\n",
                "REBALANCE_IN_PROGRESS\n",
            )
            committed = successor.consumer.committed(
                [TopicPartition(topic, partition) for partition in range(4)], timeout=TIMEOUT_S
            )
            assert [each.offset for each in committed] == [10] * 4
    finally:
        sleeper.kill()
        sleeper.wait()
        sleeper.stdout.close()
        sleeper.stdin.close()


def test_static_member_that_restarts_in_time_is_noticed_by_nobody(cluster: LocalCluster, topic: str) -> None:
    """A deployment bounces its consumers one after the other, and none stops reading (KIP-345)."""
    group = f"{topic}-group"
    with members(cluster, group, topic, [{"group.instance.id": name} for name in "ab"]) as (a, b):
        settle(a, b, partitions=4)
        a.read(10 * len(a.partitions))
        had, rebalances = b.partitions, len(a.assigned)
        b.consumer.close()  # a static member leaves its place open
        again = Member(cluster, group, topic, **{"group.instance.id": "b"})
        try:
            settle(a, again, partitions=4)
            assert again.partitions == had
            assert len(a.assigned) == rebalances
            twin = Member(cluster, group, topic, **{"group.instance.id": "b"})
            try:
                settle(a, twin, partitions=4)
                with pytest.raises(KafkaException, match=r"(?i)fenced"):
                    for _ in range(100):
                        message = again.consumer.poll(0.1)
                        if message is not None and message.error() is not None:
                            raise KafkaException(message.error())
            finally:
                twin.consumer.close()
        finally:
            again.consumer.close()


def test_groups_are_listed_described_altered_and_deleted_by_an_admin(
    cluster: LocalCluster, topic: str
) -> None:
    """What every dashboard and every reset of offsets does."""
    group = f"{topic}-group"
    admin = admin_client(cluster.bootstrap_servers)
    with members(cluster, group, topic) as (member,):
        settle(member, partitions=4)
        member.read(40)
        member.consumer.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.state.name == "STABLE"
        (shown,) = described.members
        assert {each.partition for each in shown.assignment.topic_partitions} == {0, 1, 2, 3}
        assert admin.delete_consumer_groups([group])[group].exception(TIMEOUT_S) is not None
    wait_for(
        lambda: admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).state.name == "EMPTY",
        "the group empty",
    )
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert (group, "EMPTY") in {(each.group_id, each.state.name) for each in listed}
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    assert group not in {each.group_id for each in listed}


_PROGRAM = """
import sys, time
from confluent_kafka import Consumer, KafkaException, TopicPartition

consumer = Consumer({{
    "bootstrap.servers": {bootstrap!r}, "group.id": {group!r}, "session.timeout.ms": {session_timeout_ms},
    "heartbeat.interval.ms": 200, "auto.offset.reset": "earliest", "enable.auto.commit": False,
}})
consumer.subscribe([{topic!r}])


def read_all():
    count = 0
    while count < 40:
        count += len(consumer.consume(40, timeout=0.1))


def commit(offset):
    try:
        consumer.commit(
            offsets=[TopicPartition({topic!r}, partition, offset) for partition in range(4)],
            asynchronous=False,
        )
    except KafkaException as error:
        return error.args[0].name().lstrip("_")


def wait():
    sys.stdin.readline()


def sleep():
    sys.stdout.flush()
    time.sleep(60)


sys.stdout.reconfigure(line_buffering=True)
{actions}
"""


def process(cluster: LocalCluster, group: str, topic: str, actions: str) -> subprocess.Popen[str]:
    """Start a member in a process of its own, which can be killed and stopped."""
    program = textwrap.dedent(_PROGRAM).format(
        bootstrap=cluster.bootstrap_servers,
        group=group,
        topic=topic,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        actions=actions,
    )
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
