"""librdkafka's consumers of the consumer protocol (KIP-848): joins, rebalances, changes of protocol."""

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaException, TopicPartition  # type: ignore[attr-defined]
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import admin_client, create_topic, produce

TIMEOUT_S = 20.0
PARTITIONS = 4
MATCHING = "matching"
# Heartbeats and sessions of milliseconds, so that a rebalance takes less than a second.
CONFIG = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
}
KILLED = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "group.protocol": "consumer"})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("assigned", flush=True)
"""


@pytest.fixture(scope="module")
def groups_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=3, config=CONFIG) as running:
        # A coordinator that hears of a topic after it looked for matching ones looks again after ten seconds.
        create_topic(running.bootstrap_servers, MATCHING, PARTITIONS)
        yield running


@pytest.fixture
def topic(groups_cluster: LocalCluster, new_topic_name: Callable[[str], str]) -> str:
    name = new_topic_name("shared")
    create_topic(groups_cluster.bootstrap_servers, name, PARTITIONS)
    return name


class Members:
    """Consumers of one group, polled in turn as an application would."""

    numbers = itertools.count()

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.group_id = f"group-{next(self.numbers)}"
        self.consumers: dict[str, Consumer] = {}
        self.rebalances: dict[str, int] = {}
        self.values: list[bytes] = []

    def join(self, name: str, topic: str, *, classic: bool = False, **config: Any) -> None:
        protocol: dict[str, Any] = (
            {
                "group.protocol": "classic",
                # Its sticky assignor puts user data into assignments, which Kafka takes for a custom one's.
                "partition.assignment.strategy": "range",
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 100,
            }
            if classic
            else {"group.protocol": "consumer"}
        )
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": self.group_id,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **protocol,
                **config,
            }
        )
        self.rebalances[name] = 0

        def rebalanced(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            self.rebalances[name] += 1

        consumer.subscribe([topic], on_assign=rebalanced, on_revoke=rebalanced)
        self.consumers[name] = consumer

    def leave(self, name: str) -> None:
        self.consumers.pop(name).close()

    def shares(self) -> dict[str, list[int]]:
        return {
            name: sorted(one.partition for one in consumer.assignment())
            for name, consumer in self.consumers.items()
        }

    def poll_until(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not look():
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT_S} s, but {self.shares()}"
            self.poll()

    def poll(self) -> None:
        for consumer in self.consumers.values():
            message = consumer.poll(0.02)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def settle(self, *sizes: int) -> None:
        """Poll until all partitions are shared, this many each, by each alone."""

        def settled() -> bool:
            shares = list(self.shares().values())
            return sorted(chain(*shares)) == [*range(PARTITIONS)] and sorted(map(len, shares)) == [*sizes]

        self.poll_until(settled, f"shared {sizes}")


@contextmanager
def members(cluster: LocalCluster) -> Iterator[Members]:
    group = Members(cluster)
    with ExitStack() as closing:
        closing.callback(lambda: [group.leave(name) for name in tuple(group.consumers)])
        yield group


def roll(cluster: LocalCluster, *topics: str) -> None:
    """Stop and start one broker after the other, each when all replicas are in sync."""

    def whole() -> bool:
        found = [cluster.image.topics.by_name[topic].partitions for topic in topics]
        return all(
            len(each.isr) == len(each.replicas) for partitions in found for each in partitions.values()
        )

    for broker_id in cluster.broker_ids:
        assert cluster.stop_broker(broker_id) == 0
        cluster.restart(broker_id)
        wait_for(whole, "every replica in sync")


def group_types(cluster: LocalCluster, group_ids: Sequence[str]) -> dict[str, ConsumerGroupType]:
    admin = admin_client(cluster.bootstrap_servers)
    found = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not found.errors
    return {group.group_id: group.type for group in found.valid if group.group_id in group_ids}


def test_members_join_leave_and_are_killed_and_the_others_share_what_they_had(
    groups_cluster: LocalCluster, topic: str
) -> None:
    produce(
        groups_cluster.bootstrap_servers, topic, [{"value": b"%d" % n, "partition": n % 4} for n in range(8)]
    )
    with members(groups_cluster) as group:
        group.join("a", topic)
        group.settle(4)
        group.join("b", topic)
        group.settle(2, 2)
        group.poll_until(lambda: len(group.values) >= 8, "all read")
        assert group_types(groups_cluster, [group.group_id]) == {group.group_id: ConsumerGroupType.CONSUMER}
        admin = admin_client(groups_cluster.bootstrap_servers)
        described = admin.describe_consumer_groups([group.group_id])[group.group_id].result(TIMEOUT_S)
        assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2]

        arguments = [groups_cluster.bootstrap_servers, group.group_id, topic]
        killed = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], stdout=subprocess.PIPE)
        try:
            group.poll_until(lambda: sum(map(len, group.shares().values())) == 3, "a third member has one")
        finally:
            killed.send_signal(signal.SIGKILL)
            killed.communicate()
        group.settle(2, 2)
        group.leave("b")
        group.settle(4)


def test_commit_of_a_member_is_where_its_successor_goes_on(groups_cluster: LocalCluster, topic: str) -> None:
    produce(groups_cluster.bootstrap_servers, topic, [{"value": b"%d" % n, "partition": 0} for n in range(6)])
    with members(groups_cluster) as group:
        group.join("a", topic)
        group.poll_until(lambda: len(group.values) >= 4, "four read")
        group.consumers["a"].commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        group.leave("a")
        group.values.clear()
        group.join("b", topic)
        group.poll_until(lambda: len(group.values) >= 2, "the rest read")
        assert group.values == [b"4", b"5"]


def test_static_member_restarts_and_nobody_notices(groups_cluster: LocalCluster, topic: str) -> None:
    with members(groups_cluster) as group:
        group.join("a", topic, **{"group.instance.id": "i-a"})
        group.join("b", topic, **{"group.instance.id": "i-b"})
        group.settle(2, 2)
        had, rebalances = group.shares()["a"], group.rebalances["b"]

        group.leave("a")
        group.join("a", topic, **{"group.instance.id": "i-a"})
        group.settle(2, 2)

        assert (group.shares()["a"], group.rebalances["b"]) == (had, rebalances)


def test_regular_expression_is_the_coordinators_to_resolve(groups_cluster: LocalCluster) -> None:
    """librdkafka sends it as it is, and asks for no list of all topics."""
    with members(groups_cluster) as group:
        group.join("a", "^match.*")
        group.settle(4)
        assert {one.topic for one in group.consumers["a"].assignment()} == {MATCHING}


def test_group_changes_its_protocol_and_back_while_its_members_live(
    groups_cluster: LocalCluster, topic: str
) -> None:
    with members(groups_cluster) as group:
        group.join("a", topic, classic=True)
        group.join("b", topic, classic=True)
        group.settle(2, 2)
        assert group_types(groups_cluster, [group.group_id]) == {group.group_id: ConsumerGroupType.CLASSIC}

        group.join("c", topic)
        group.settle(1, 1, 2)
        assert group_types(groups_cluster, [group.group_id]) == {group.group_id: ConsumerGroupType.CONSUMER}
        group.leave("a")
        group.settle(2, 2)

        group.leave("c")
        group.settle(4)
        assert group_types(groups_cluster, [group.group_id]) == {group.group_id: ConsumerGroupType.CLASSIC}


def test_rolling_restart_of_all_brokers_is_no_rebalance_to_groups_of_either_protocol(
    groups_cluster: LocalCluster, topic: str
) -> None:
    """An upgrade of the brokers: coordinators move again and again, and whoever beats is a member still."""
    with members(groups_cluster) as classic, members(groups_cluster) as consumer:
        # As long as a user's: what a busy machine needs for a restart says nothing here.
        _set_session_timeout(groups_cluster, consumer.group_id, 45_000)
        for name in ("a", "b"):
            classic.join(name, topic, classic=True, **{"session.timeout.ms": 45_000})
            consumer.join(name, topic)
        classic.settle(2, 2)
        consumer.settle(2, 2)
        before = [(group.shares(), dict(group.rebalances)) for group in (classic, consumer)]
        with ThreadPoolExecutor(1) as beside:
            rolled = beside.submit(roll, groups_cluster, topic, CONSUMER_OFFSETS_TOPIC)
            while not rolled.done():
                for group in (classic, consumer):
                    group.poll()
            rolled.result()
        for group in (classic, consumer):
            group.values.clear()
        records = [{"value": b"%d" % n, "partition": n} for n in range(PARTITIONS)]
        produce(groups_cluster.bootstrap_servers, topic, records)
        for group in (classic, consumer):
            group.poll_until(lambda group=group: len(group.values) == PARTITIONS, "what is new read")  # type: ignore[misc]
            for member in group.consumers.values():
                member.commit(asynchronous=False)  # refused in another generation, or epoch
        assert [(group.shares(), group.rebalances) for group in (classic, consumer)] == before


def test_group_of_either_protocol_commits_again_when_its_coordinator_was_killed_and_stays_as_it_is(
    groups_cluster: LocalCluster, topic: str
) -> None:
    """The next coordinator knows its members from the log: whoever had to join anew would stop reading."""
    with members(groups_cluster) as classic, members(groups_cluster) as consumer:
        _set_session_timeout(groups_cluster, consumer.group_id, 45_000)
        classic.join("a", topic, classic=True, **{"session.timeout.ms": 45_000})
        consumer.join("a", topic)
        for group in (classic, consumer):
            group.settle(PARTITIONS)
        before = [(group.shares(), dict(group.rebalances)) for group in (classic, consumer)]
        count = len(groups_cluster.image.topics.by_name[CONSUMER_OFFSETS_TOPIC].partitions)
        killed = groups_cluster.leader(CONSUMER_OFFSETS_TOPIC, partition_for(classic.group_id, count))
        assert killed is not None
        groups_cluster.kill(killed)
        for offset, group in enumerate((classic, consumer)):
            offsets = [TopicPartition(topic, 0, offset)]

            def commits(group: Members = group, offsets: list[TopicPartition] = offsets) -> bool:
                try:
                    group.consumers["a"].commit(offsets=offsets, asynchronous=False)
                except KafkaException:  # refused for good, to a member that is none any more
                    return False
                return True

            group.poll_until(commits, "a commit is taken")
        groups_cluster.restart(killed)
        assert [(group.shares(), group.rebalances) for group in (classic, consumer)] == before


def _set_session_timeout(cluster: LocalCluster, group_id: str, session_timeout_ms: int) -> None:
    entry = ConfigEntry(
        "consumer.session.timeout.ms", str(session_timeout_ms), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = admin_client(cluster.bootstrap_servers)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(TIMEOUT_S)
