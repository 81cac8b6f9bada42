"""A tiered cluster under faults: leaders killed while they copy, an object store that is away for a while."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, ElectionType, Producer, TopicPartition

from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, admin_client, consume, create_topic
from tests.compat.tiering import (
    LOCAL_FEW,
    leader_local_start,
    local_start,
    manifest_of,
    tiered_config,
    wait_for_copy,
    wait_for_local_start,
)

AHEAD = 2000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A link to the store's directory, so that a test can take it away at once, amid whatever is written."""
    (tmp_path / "directory").mkdir()
    store = tmp_path / "bucket"
    store.symlink_to("directory")
    return store


def point_to(store: Path, target: str) -> None:
    """Let the store be what has that name beside it, in one step that no writer gets between."""
    link = store.with_name("link")
    link.symlink_to(target)
    link.replace(store)


@pytest.fixture
def cluster(store: Path) -> Iterator[LocalCluster]:
    with LocalCluster(config=tiered_config(store)) as cluster:
        yield cluster


class Writer:
    """Writes numbered records of 1 KB, in order and exactly once, up to `AHEAD` more than a test waits for.

    Records are on their way when the test goes on, and a failover of seconds adds no tens of thousands.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged = 0
        self._waited_for = 0
        self.failures: list[Any] = []
        self._topic = topic
        self._over = Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self._thread = Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        self._waited_for = count
        wait_for(lambda: self.acknowledged >= count, f"{count} records are acknowledged", TIMEOUT_S)

    def stop(self) -> int:
        """Return the number of acknowledged records, which are all that were written."""
        self._over.set()
        self._thread.join()
        assert not self._producer.flush(TIMEOUT_S)
        assert not self.failures
        return self.acknowledged

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            if number < self._waited_for + AHEAD:
                self._producer.produce(
                    self._topic, b"%08d" % number + bytes(1000), on_delivery=self._delivered
                )
                number += 1
            else:
                time.sleep(0.001)
            self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error)


def assert_all_there(cluster: LocalCluster, topic: str, count: int) -> None:
    read = consume(cluster.bootstrap_servers, [TopicPartition(topic, 0, OFFSET_BEGINNING)], count)
    numbers = [int(value[:8]) for message in read if (value := message.value()) is not None]
    assert numbers == list(range(count))


def test_leader_killed_amid_copying_loses_and_doubles_nothing(cluster: LocalCluster, store: Path) -> None:
    """The next leader goes on where the manifest ends, with orphans of the dead one beside it."""
    create_topic(cluster.bootstrap_servers, "t", config=LOCAL_FEW)
    writer = Writer(cluster.bootstrap_servers, "t")
    killed: list[int] = []
    for count in (3000, 6000):
        writer.wait_for(count)
        leader = cluster.leader("t")
        assert leader is not None
        killed.append(leader)
        cluster.kill(leader)
        wait_for(lambda: cluster.leader("t") not in (None, killed[-1]), "another broker leads", TIMEOUT_S)
        cluster.restart(leader)
    writer.wait_for(9000)
    count = writer.stop()
    manifest = wait_for_copy(cluster, store, "t", count)
    assert manifest.leader_epoch >= 2
    assert sum(segment.record_count for segment in manifest.segments) == count
    assert all((store / segment.name).stat().st_size == segment.size_bytes for segment in manifest.segments)
    wait_for(
        lambda: leader_local_start(cluster, "t") > count // 3, "the leader's disk is relieved", TIMEOUT_S
    )
    assert_all_there(cluster, "t", count)


@pytest.mark.long
def test_store_that_is_away_for_a_while_costs_disk_and_no_records(cluster: LocalCluster, store: Path) -> None:
    """Producers notice nothing, no disk drops what is nowhere else, and copies catch up by themselves."""
    create_topic(cluster.bootstrap_servers, "t", config=LOCAL_FEW)
    writer = Writer(cluster.bootstrap_servers, "t")
    writer.wait_for(3000)
    wait_for_copy(cluster, store, "t", 2000)
    directory = store.resolve()
    store.with_name("file").touch()
    point_to(store, "file")
    before = writer.acknowledged
    writer.wait_for(before + 6000)
    count = writer.stop()
    named = manifest_of(cluster, directory, "t")
    assert named is not None
    assert named.end_offset < count
    assert leader_local_start(cluster, "t") <= named.end_offset
    point_to(store, directory.name)
    wait_for_copy(cluster, store, "t", count)
    wait_for(lambda: leader_local_start(cluster, "t") > named.end_offset, "disks are relieved", TIMEOUT_S)
    assert_all_there(cluster, "t", count)


@pytest.mark.long
def test_broker_with_an_empty_disk_is_in_sync_again_by_the_end_of_the_log_alone(
    cluster: LocalCluster, store: Path
) -> None:
    """A replaced broker that copied a topic of terabytes would be out of its ISR for days."""
    create_topic(cluster.bootstrap_servers, "t", config=LOCAL_FEW)
    writer = Writer(cluster.bootstrap_servers, "t")
    writer.wait_for(8000)
    count = writer.stop()
    wait_for_copy(cluster, store, "t", count)
    wait_for_local_start(cluster, "t", count // 3)
    replaced = cluster.leader("t")
    assert replaced is not None
    cluster.kill(replaced)
    shutil.rmtree(cluster.broker_directory(replaced))
    cluster.restart(replaced)
    wait_for(lambda: replaced in cluster.in_sync("t"), "it is in sync again", TIMEOUT_S)
    assert local_start(cluster, replaced, "t") > count // 3
    # Then it leads, reads below its own log from the tier, and takes what follows.
    admin = admin_client(cluster.bootstrap_servers)
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", 0)]).result(TIMEOUT_S)
    wait_for(lambda: cluster.leader("t") == replaced, "it leads", TIMEOUT_S)
    writer = Writer(cluster.bootstrap_servers, "t")
    writer.wait_for(100)
    more = writer.stop()
    read = consume(cluster.bootstrap_servers, [TopicPartition("t", 0, OFFSET_BEGINNING)], count + more)
    assert [message.offset() for message in read] == list(range(count + more))
