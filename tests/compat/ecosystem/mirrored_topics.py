"""Topics that MirrorMaker 2 copies both ways between a cluster of ours and Apache Kafka, exactly once.

Each cluster has topics of its own, which the other one gets under another name: one of several partitions, a
compacted one, and one written in transactions of which every other is aborted. MirrorMaker 2 is killed while
it copies, and started again. Afterwards consumers of the copies see what consumers of the originals see, the
copies' configs follow, the ACL is there, and a group that changes clusters goes on where it was.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_STORED,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.clusters import free_ports
from tests.cluster import wait_for
from tests.compat.ecosystem.connect_process import ConnectProcess
from tests.compat.ecosystem.reading import committed_records
from tests.compat.librdkafka import admin_client, create_topic, produce

WAIT_S: Final = 120.0
TIMEOUT_S: Final = 30.0
PARTITIONS: Final = {"orders": 3, "states": 1, "payments": 1}
GROUP: Final = "readers"
PRINCIPAL: Final = "User:ann"
KEYS: Final = 100
"""How many keys the compacted topic has."""
A_TRANSACTION: Final = 25
RETENTION: Final = "retention.ms"


class MirroredCluster(NamedTuple):
    """A cluster, under the name by which the other one's copies of its topics begin."""

    alias: str
    bootstrap_servers: str
    replicas: int


def mirror_both_ways(
    ours: MirroredCluster, kafka: MirroredCluster, directory: Path, *, records: int
) -> dict[str, int]:
    """Have `records` and more records copied each way; return how many each topic had.

    Raises:
        AssertionError: a copy is not what its original is.
        ClusterError: something did not come to an end.
    """
    ways = [_Way(ours, kafka, records), _Way(kafka, ours, records)]
    for way in ways:
        way.begin()
    properties = _properties(ways)
    maker = ConnectProcess(
        "org.apache.kafka.connect.mirror.MirrorMaker", properties, directory, "mirror-maker"
    )
    with maker:
        for way in ways:
            way.wait_for_first_part()
        for way in ways:
            way.change()
            way.write_orders(records)
        for way in ways:
            way.wait_for_some_of_second_part()
        maker.kill()
        for way in ways:
            way.write()
        maker.start()
        return {name: count for way in ways for name, count in way.compare().items()}


class _Way:
    """The topics of one cluster, and their copies on the other."""

    def __init__(self, source: MirroredCluster, target: MirroredCluster, records: int) -> None:
        """`records` is how many `orders` has at the end."""
        self.source = source
        self.target = target
        # An admin client that nothing holds takes its requests with it.
        self._source_admin = admin_client(source.bootstrap_servers)
        self._target_admin = admin_client(target.bootstrap_servers)
        self._records = records
        self._written = 0
        self._first_part = 0

    def copy(self, topic: str) -> str:
        """Return the name of a topic's copy."""
        return f"{self.source.alias}.{topic}"

    def begin(self) -> None:
        """Make topics and an ACL, write the first part, and have the group read it."""
        servers, replicas = self.source.bootstrap_servers, self.source.replicas
        configs: Mapping[str, dict[str, str]] = {
            "orders": {"max.message.bytes": "2000000"},
            "states": {"cleanup.policy": "compact"},
        }
        for topic, partitions in PARTITIONS.items():
            create_topic(servers, topic, partitions, replicas, configs.get(topic))
        (created,) = self._source_admin.create_acls([_acl("orders")]).values()
        created.result(TIMEOUT_S)
        self.write_orders(self._records // 2)
        self.write()
        self._first_part = self._written
        self._commit_end()

    def write_orders(self, end: int) -> None:
        """Write the records of `orders` up to number `end`."""
        numbers = range(self._written, end)
        produce(
            self.source.bootstrap_servers,
            "orders",
            [
                {"key": f"{number}", "value": f"order {number}", "partition": number % PARTITIONS["orders"]}
                | {"headers": [("number", b"%d" % number)]}
                for number in numbers
            ],
        )
        self._written = numbers.stop

    def write(self) -> None:
        """Write a part of what the other topics have: a quarter as much, some of it deletes."""
        count = self._records // 8
        states = [
            {"key": f"{number % KEYS}", "value": None if number % 7 == 0 else f"state {number}"}
            for number in range(count)
        ]
        produce(self.source.bootstrap_servers, "states", states)
        producer = Producer(
            {"bootstrap.servers": self.source.bootstrap_servers, "transactional.id": "payments"}
        )
        producer.init_transactions(TIMEOUT_S)
        for first in range(0, count, A_TRANSACTION):
            committed = first // A_TRANSACTION % 2 == 0
            producer.begin_transaction()
            for number in range(first, first + A_TRANSACTION):
                producer.produce("payments", f"{'paid' if committed else 'never'} {number}")
            if committed:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)

    def _commit_end(self) -> None:
        """Have the group's offsets be where the first part ends."""
        parts = committed_records(self.source.bootstrap_servers, "orders", PARTITIONS["orders"])
        offsets = [
            TopicPartition("orders", partition, _offset(part[-1]) + 1) for partition, part in enumerate(parts)
        ]
        consumer = Consumer({"bootstrap.servers": self.source.bootstrap_servers, "group.id": GROUP})
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            consumer.close()

    def wait_for_first_part(self) -> None:
        """Return when orders' first part, its configs, its ACL and the group's offsets are over there."""
        self._until(lambda: self._copied("orders") >= self._first_part, "the first part")

        def has_acl() -> bool:
            name = self.copy("orders")
            wanted = AclBindingFilter(
                ResourceType.TOPIC,
                name,
                ResourcePatternType.LITERAL,
                None,
                None,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )
            found = self._target_admin.describe_acls(wanted).result(TIMEOUT_S)
            return bool(found == [_acl(name)])

        self._until(has_acl, "the ACL")

        def has_offsets() -> bool:
            # MirrorMaker writes where a record's copy is after the transaction that has the record. A task
            # that ends between the two never does: the offset of a resting group would not be translated.
            self.write_orders(self._written + PARTITIONS["orders"])
            self._commit_end()
            group = ConsumerGroupTopicPartitions(GROUP)
            (future,) = self._target_admin.list_consumer_group_offsets([group]).values()
            offsets = future.result(TIMEOUT_S).topic_partitions
            there = {each.partition for each in offsets if each.topic == self.copy("orders")}
            return there == set(range(PARTITIONS["orders"]))

        self._until(has_offsets, "the group's offsets")
        self._first_part = self._written

    def change(self) -> None:
        """Set another retention of the original."""
        entry = ConfigEntry(RETENTION, "86400000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
        (changed,) = self._source_admin.incremental_alter_configs([resource]).values()
        changed.result(TIMEOUT_S)

    def wait_for_some_of_second_part(self) -> None:
        """Return when the copy of orders has more than the first part."""
        self._until(lambda: self._copied("orders") > self._first_part, "the second part's first records")

    def compare(self) -> dict[str, int]:
        """Compare all topics with their copies; return how many records each has."""
        counts = {}
        for topic, partitions in PARTITIONS.items():
            wanted = _contents(committed_records(self.source.bootstrap_servers, topic, partitions))
            counts[self.copy(topic)] = count = sum(map(len, wanted))
            self._until(partial(self._has_copied, topic, count), f"all of {topic}")
            found = _contents(committed_records(self.target.bootstrap_servers, self.copy(topic), partitions))
            assert found == wanted, f"{self.copy(topic)} differs from its original"
        self._until(lambda: self._config("orders", RETENTION) == "86400000", "the changed config")
        assert self._config("orders", "max.message.bytes") == "2000000"
        assert self._config("states", "cleanup.policy") == "compact"
        new = committed_records(
            self.target.bootstrap_servers,
            self.copy("orders"),
            PARTITIONS["orders"],
            group_id=GROUP,
            offset=OFFSET_STORED,
        )
        # An offset is translated by the newest pair of offsets that is known, so some records may come again.
        numbers = sorted(int(message.key() or b"") for partition in new for message in partition)
        assert set(range(self._first_part, self._written)) <= set(numbers), "the group leaves records out"
        assert len(set(numbers)) == len(numbers) < self._written, "the group begins again"
        return counts

    def _has_copied(self, topic: str, count: int) -> bool:
        return self._copied(topic) >= count

    def _copied(self, topic: str) -> int:
        """Return how many records the copy of a topic has; none while there is no copy."""
        try:
            records = committed_records(self.target.bootstrap_servers, self.copy(topic), PARTITIONS[topic])
        except (KafkaException, AssertionError):
            return 0
        return sum(map(len, records))

    def _config(self, topic: str, key: str) -> str | None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.copy(topic))
        (future,) = self._target_admin.describe_configs([resource]).values()
        value: str | None = future.result(TIMEOUT_S)[key].value
        return value

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, f"{self.source.alias} to {self.target.alias}: {what}", WAIT_S)


def _properties(ways: list[_Way]) -> dict[str, str]:
    properties = {
        "clusters": ",".join(way.source.alias for way in ways),
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        "topics": ",".join(PARTITIONS),
        "groups": GROUP,
        "tasks.max": "2",
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",
        **{
            f"{what}.interval.seconds": "1"
            for what in (
                *("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls"),
                *("emit.checkpoints", "sync.group.offsets"),
            )
        },
    }
    for way in ways:
        source, target = way.source, way.target
        properties |= {
            f"{source.alias}.{key}": value
            for key, value in {
                "bootstrap.servers": source.bootstrap_servers,
                "exactly.once.source.support": "enabled",
                "plugin.discovery": "service_load",
                "consumer.isolation.level": "read_committed",
                "session.timeout.ms": "3000",
                "heartbeat.interval.ms": "500",
                "scheduled.rebalance.max.delay.ms": "0",
                "config.storage.replication.factor": str(source.replicas),
                "offset.storage.replication.factor": str(source.replicas),
                "offset.storage.partitions": "5",
                "status.storage.replication.factor": str(source.replicas),
            }.items()
        }
        properties |= {
            f"{source.alias}->{target.alias}.{key}": value
            for key, value in {
                "enabled": "true",
                "replication.factor": str(target.replicas),
                "checkpoints.topic.replication.factor": str(target.replicas),
                "heartbeats.topic.replication.factor": str(target.replicas),
                "offset-syncs.topic.replication.factor": str(source.replicas),
            }.items()
        }
    return properties


def _acl(topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        PRINCIPAL,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def _contents(partitions: list[list[Message]]) -> list[list[tuple[object, ...]]]:
    """Return what a copy has in common with its original."""
    return [
        [(message.key(), message.value(), message.headers(), message.timestamp()) for message in partition]
        for partition in partitions
    ]


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
