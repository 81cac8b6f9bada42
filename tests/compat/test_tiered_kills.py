"""Kills between any two steps of copy, manifest and deletion lose nothing and double nothing."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer, TopicPartition

from sparklog.node.remote_log.machine.manifest import Manifest
from sparklog.node.remote_log.machine.manifest_changes import named_objects
from sparklog.node.remote_log.object_store import ObjectMissingError
from sparklog.node.remote_log.opened_store import open_store
from sparklog.node.remote_log.stored_manifest import read_manifest
from tests.cluster import LocalCluster, wait_for
from tests.compat.librdkafka import TIMEOUT_S, consume, create_topic
from tests.compat.tiering import CONFIG
from tests.s3_server import BUCKET, S3Server, Tripwire, s3_server

STEPS: Final = {
    "segment": ("PUT", "/segments/t-"),
    "producers": ("PUT", "/producers/{topic_id}/"),
    "manifest": ("PUT", "/manifests/{topic_id}/"),
    "deletion of a producers' state": ("DELETE", "/producers/{topic_id}/"),
    "deletion of merged segments": ("DELETE", "/segments/t-"),
}


@pytest.fixture(scope="module")
def tripwire() -> Tripwire:
    return Tripwire()


@pytest.fixture(scope="module")
def server(tripwire: Tripwire) -> Iterator[S3Server]:
    with s3_server(tripwire=tripwire) as server:
        # The threads of obstore, which stay, are started before a test counts threads.
        assert manifest_in(server, "none", uuid4()) is None
        yield server


def config_of(server: S3Server, prefix: str, **more: str) -> dict[str, str]:
    options = {f"sparklog.remote.option.{name}": value for name, value in server.options.items()}
    return {
        **CONFIG,
        "sparklog.remote.uri": f"s3://{BUCKET}/{prefix}",
        "sparklog.remote.max.lag.ms": "200",
        "sparklog.remote.metadata.lag.ms": "100",
        **options,
        **more,
    }


class Written:
    """The values of partition 0 of "t", by an idempotent producer; each is acknowledged in order."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self._produced = 0

    def write(self, producer: Producer) -> None:
        producer.produce("t", b"%d" % self._produced, on_delivery=self._delivered)
        self._produced += 1
        producer.poll(0.01)

    def flush(self, producer: Producer) -> None:
        assert producer.flush(60) == 0
        assert self.acknowledged == self._produced

    def _delivered(self, error: object, _: object) -> None:
        self.acknowledged += error is None


def write_until_tripped(cluster: LocalCluster, tripwire: Tripwire, written: Written) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})

    def is_tripped() -> bool:
        written.write(producer)
        return not tripwire.is_armed

    wait_for(is_tripped, "the request is made", 60)
    return producer


def manifest_in(server: S3Server, prefix: str, topic_id: UUID) -> Manifest | None:
    """Return the manifest of "t"; each object that it names is checked to be there."""

    async def asked() -> Manifest | None:
        store = open_store(f"s3://{BUCKET}/{prefix}", server.options)
        try:
            manifest, _ = await read_manifest(store, topic_id, 0)
            for name in named_objects(manifest):
                await store.get(name)
            return manifest
        except ObjectMissingError:
            return None
        finally:
            await store.close()

    return asyncio.run(asked())


def wait_for_copy(server: S3Server, prefix: str, topic_id: UUID, end_offset: int) -> Manifest:
    def copied() -> Manifest | None:
        manifest = manifest_in(server, prefix, topic_id)
        return manifest if manifest is not None and manifest.end_offset >= end_offset else None

    return wait_for(copied, f"everything below {end_offset} is copied", TIMEOUT_S)


def values_of(cluster: LocalCluster, count: int) -> list[int]:
    read = consume(cluster.bootstrap_servers, [TopicPartition("t", 0, 0)], count)
    assert [message.offset() for message in read] == list(range(count))
    return [int(message.value() or b"") for message in read]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_leader_killed_between_any_two_steps_loses_and_doubles_nothing(
    server: S3Server, tripwire: Tripwire
) -> None:
    """A step may have happened, or not, and the next leader goes on from what the store has."""
    prefix, written = uuid4().hex, Written()
    with LocalCluster(config=config_of(server, prefix)) as cluster:
        create_topic(cluster.bootstrap_servers, "t")
        topic_id = cluster.image.topics.by_name["t"].topic_id
        for method, path in STEPS.values():
            for after in (False, True):
                killed: list[int] = []

                def kill(killed: list[int] = killed) -> None:
                    leader = cluster.leader("t")
                    assert leader is not None
                    killed.append(leader)
                    os.kill(cluster.process_id(leader), signal.SIGKILL)

                tripwire.arm(method, path.format(topic_id=topic_id), kill, after=after)
                written.flush(write_until_tripped(cluster, tripwire, written))
                cluster.wait_for_exit(killed[0])
                cluster.restart(killed[0])
        manifest = wait_for_copy(server, prefix, topic_id, written.acknowledged)
        assert manifest.end_offset == sum(segment.record_count for segment in manifest.segments)
        assert values_of(cluster, written.acknowledged) == list(range(written.acknowledged))


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_application_killed_between_any_two_steps_goes_on_where_its_manifest_ends(
    server: S3Server, tripwire: Tripwire, tmp_path: Path, step: str, after: bool
) -> None:
    """Driver, brokers and disks are gone: what the manifest has is there once, and nothing else is."""
    prefix, written = uuid4().hex, Written()
    config = config_of(server, prefix, **{"min.insync.replicas": "1"})
    method, path = STEPS[step]
    disks = tmp_path / "disks"
    disks.mkdir()
    with LocalCluster(1, config, directory=disks) as cluster:
        create_topic(cluster.bootstrap_servers, "t", replication_factor=1)
        topic_id = cluster.image.topics.by_name["t"].topic_id
        first = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        written.write(first)
        written.flush(first)
        wait_for_copy(server, prefix, topic_id, 1)

        def kill() -> None:
            os.kill(cluster.process_id(0), signal.SIGKILL)

        tripwire.arm(method, path.format(topic_id=topic_id), kill, after=after)
        producer = write_until_tripped(cluster, tripwire, written)
        producer.purge()
        cluster.wait_for_exit(0)
    shutil.rmtree(disks)
    disks.mkdir()
    manifest = manifest_in(server, prefix, topic_id)
    assert manifest is not None
    end_offset = manifest.end_offset
    with LocalCluster(1, config, directory=disks) as cluster:
        again = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        again.produce("t", b"%d" % end_offset)
        assert again.flush(60) == 0
        assert values_of(cluster, end_offset + 1) == list(range(end_offset + 1))
        wait_for_copy(server, prefix, topic_id, end_offset + 1)
