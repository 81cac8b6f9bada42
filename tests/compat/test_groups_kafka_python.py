"""kafka-python 3 in groups, and its command line for groups: somebody else's code takes the place of ours."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.base import MemberState
from kafka.structs import OffsetAndMetadata

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import create_topic, produce
from tests.compat.test_kafka_python import command_line

NewName = Callable[[str], str]
HEARTBEAT_MS: Final = 300


def member(cluster: LocalCluster, group: str, topic: str, **config: Any) -> KafkaConsumer:
    """Return a consumer of a group."""
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=30_000,  # who leaves says so: nobody here is waited for
        heartbeat_interval_ms=HEARTBEAT_MS,
        **config,
    )
    # As a leader it may assign nothing, and leave it at that, if it has not heard of the topic yet.
    wait_for(lambda: consumer.partitions_for_topic(topic), "the topic known")
    consumer.subscribe([topic])
    return consumer


def values(consumer: KafkaConsumer, count: int) -> list[int]:
    """Return the next values.

    Whoever has not joined yet does so within one call of `poll`, for what `share` says.
    """
    found: list[int] = []

    def read() -> bool:
        for records in consumer.poll(timeout_ms=5_000).values():
            found.extend(int(record.value) for record in records)
        return len(found) >= count

    wait_for(read, f"{count} records")
    return found


def share(*consumers: KafkaConsumer) -> None:
    """Return when each has a partition, and no heartbeat of some tells of another generation.

    They poll side by side, and long: kafka-python 3.0.12 joins again if a join is answered between two calls
    of `poll`, so two that are polled in turn, or in short pieces, may rebalance for ever.
    """
    ends = threading.Event()

    def poll(consumer: KafkaConsumer) -> None:
        while not ends.is_set():
            consumer.poll(timeout_ms=1_500)

    settled: list[tuple[int | None, float]] = [(None, 0.0)]

    def have_settled() -> bool:
        groups = [consumer.group_metadata() for consumer in consumers]
        is_shared = (
            all(len(consumer.assignment()) == 1 for consumer in consumers)
            and len({group.generation_id for group in groups}) == 1
            and all(group.state == MemberState.STABLE for group in groups)
        )
        generation_id = groups[0].generation_id if is_shared else None
        if generation_id != settled[0][0]:
            settled[0] = generation_id, time.monotonic()
        return is_shared and time.monotonic() - settled[0][1] > 3 * HEARTBEAT_MS / 1000

    with ThreadPoolExecutor(len(consumers)) as threads:
        polling = [threads.submit(poll, consumer) for consumer in consumers]
        try:
            wait_for(have_settled, "a partition each")
        finally:
            ends.set()
    for each in polling:
        each.result()


@pytest.fixture
def topic(cluster: LocalCluster, new_topic_name: NewName) -> str:
    """A topic of two partitions with ten records in each."""
    name = new_topic_name("grouped")
    create_topic(cluster.bootstrap_servers, name, partitions=2)
    records = [{"partition": number % 2, "value": b"%d" % number} for number in range(20)]
    produce(cluster.bootstrap_servers, name, records)
    return name


def test_kafka_python_shares_commits_and_goes_on_where_it_was(cluster: LocalCluster, topic: str) -> None:
    """A client that shares no code with librdkafka, and assigns in its own way."""
    group = f"{topic}-group"
    first = member(cluster, group, topic)
    assert sorted(values(first, 20)) == list(range(20))
    first.commit()
    second = member(cluster, group, topic)

    share(first, second)
    first.close()
    second.close()
    produce(cluster.bootstrap_servers, topic, [{"partition": 0, "value": b"20"}])
    again = member(cluster, group, topic)
    assert values(again, 1) == [20]
    assert again.committed(TopicPartition(topic, 1)) == 10
    again.close()


def test_kafka_python_static_member_that_restarts_has_its_place_and_the_generation_stays(
    cluster: LocalCluster, topic: str
) -> None:
    """Consumers that are deployed anew one by one never stop the others (KIP-345)."""
    group = f"{topic}-group"
    stays = member(cluster, group, topic, group_instance_id="stays")
    assert sorted(values(stays, 20)) == list(range(20))  # it leads: who restarts then deals out nothing
    restarts = member(cluster, group, topic, group_instance_id="restarts")

    share(stays, restarts)
    had, generation_id = restarts.assignment(), stays.group_metadata().generation_id
    restarts.close()
    restarts = member(cluster, group, topic, group_instance_id="restarts")
    share(stays, restarts)
    assert restarts.assignment() == had
    assert restarts.group_metadata().generation_id == stays.group_metadata().generation_id == generation_id
    restarts.close()
    stays.close()


def test_kafka_python_copies_in_transactions_and_does_again_what_it_aborts(
    cluster: LocalCluster, topic: str, new_topic_name: NewName
) -> None:
    """Records and the group's offsets are one, in this client's own transaction manager, too."""
    target = new_topic_name("copied")
    create_topic(cluster.bootstrap_servers, target)
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=f"{topic}-copiers", enable_auto_commit=False
    )
    consumer.assign([partition])
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=target)
    producer.init_transactions()
    for round_number in range(3):
        begin = consumer.committed(partition) or 0
        consumer.seek(partition, begin)
        copied = values(consumer, 5)[:5]
        producer.begin_transaction()
        for value in copied:
            producer.send(target, b"%d" % value)
        offsets = {partition: OffsetAndMetadata(begin + 5, "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{topic}-copiers")
        if round_number == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer.close()
    reader = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    reader.assign([TopicPartition(target, 0)])
    assert values(reader, 10) == list(range(0, 20, 2))
    reader.close()


def test_command_line_lists_describes_resets_and_deletes_groups(cluster: LocalCluster, topic: str) -> None:
    """There is no kafka-consumer-groups.sh here."""
    group = f"{topic}-group"
    consumer = member(cluster, group, topic)
    values(consumer, 20)
    consumer.commit()
    consumer.close()
    assert group in command_line(cluster, "groups", "list")
    described = json.loads(command_line(cluster, "groups", "describe", "-g", group))
    assert described[group]["group_state"] == "Empty"
    # Without partitions it takes the group's name for one.
    both = ("-p", f"{topic}:0", "-p", f"{topic}:1")
    command_line(cluster, "groups", "reset-offsets", "-g", group, "--to-offset", "3", *both)
    reader = member(cluster, group, topic)
    assert sorted(values(reader, 14)) == list(range(6, 20))
    reader.close()
    command_line(cluster, "groups", "delete", "-g", group)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    assert admin.list_group_offsets(group)[group] == {}
    admin.close()
