"""The metadata quorum over real sockets and files: what a majority has survives the driver."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from sparklog.driver.controller.errors import DeposedError
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.metadata.metadata_replica import MetadataReplica
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.calling.channel import Channel
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.metrics import controller as controller_metrics
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId
from tests.application_secret import SECRET
from tests.unit.driver.controller.conversation import CLUSTER_ID, creatable, heartbeat, registration
from tests.unit.driver.controller.voters import Disk, Voters

DEADLINE_S = 20.0
BROKERS = [ExpectedBroker(node_id, f"rack-{node_id}") for node_id in range(3)]


@contextmanager
def controller(directory: Path, brokers: Sequence[ExpectedBroker] = BROKERS) -> Iterator[ControllerServer]:
    """A controller of some brokers, with an empty directory; who is registered need not send heartbeats."""
    config = BrokerConfig.from_mapping(
        {"controller.quorum.fetch.timeout.ms": "1000", "broker.session.timeout.ms": "60000"},
        racks=len(brokers),
    )
    server = ControllerServer(
        config, directory, secret=SECRET, expected_brokers=brokers, new_cluster_id=CLUSTER_ID
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


def wait_for(condition: Callable[[], Any]) -> None:
    """Return as soon as the condition holds; fail after a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


def leads(server: ControllerServer) -> bool:
    return server.image.offset is not None


def port_of(server: ControllerServer) -> int:
    return int(server.bootstrap_servers.rpartition(":")[2])


def connect(server: ControllerServer) -> BlockingChannel:
    return BlockingChannel("127.0.0.1", port_of(server), "test", timeout_s=DEADLINE_S, login=SECRET.login)


def create_topic(server: ControllerServer, name: str) -> None:
    """Create a topic on a broker that stays; return when that is committed.

    The broker's connection ends here, and the controller then looks whether its listener still answers. So it
    is given one that does, the controller's own: it would be fenced at some time later, and the topic's
    partition lose its leader.
    """
    with connect(server) as channel:
        reply = channel.request(registration(0, port=port_of(server)))
        assert reply.error_code is ErrorCode.none
        beat = channel.request(heartbeat(0, reply.broker_epoch, reply.broker_epoch))
        assert (beat.error_code, beat.is_fenced) == (ErrorCode.none, False)
        reply = channel.request(CreateTopicsRequest(topics=(creatable(name, 1, 1),)))
        assert reply.topics[0].error_code is ErrorCode.none


@pytest.fixture
def disks(tmp_path: Path) -> Sequence[Disk]:
    """The disks of three voters."""
    return [Disk(tmp_path / f"voter-{node_id}") for node_id in range(3)]


def test_new_driver_with_a_majority_of_the_disks_serves_what_was_there(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """Any two of three disks have everything that was ever answered."""
    with controller(tmp_path / "first") as server, Voters(port_of(server), dict(enumerate(disks))):
        wait_for(lambda: leads(server))
        create_topic(server, "flights")
        before = server.image
    with (
        controller(tmp_path / "second") as server,
        Voters(port_of(server), {0: disks[0], 2: disks[2]}),
    ):
        wait_for(lambda: leads(server))
        assert server.cluster_id == CLUSTER_ID
        assert server.image.leader_epoch > before.leader_epoch
        assert server.image.topics == before.topics


def test_new_driver_without_a_majority_of_the_disks_waits_and_names_the_missing(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """Brokers with new, empty directories are no majority: what they do not know would be lost."""
    with controller(tmp_path / "first") as server, Voters(port_of(server), dict(enumerate(disks))):
        wait_for(lambda: leads(server))
        create_topic(server, "flights")
    empty = {node_id: Disk(tmp_path / f"empty-{node_id}") for node_id in (1, 2)}
    with controller(tmp_path / "second") as server:
        with Voters(port_of(server), {0: disks[0], **empty}):
            wait_for(lambda: server.lacks_voters)
            assert server.missing is not None
            assert "needs 1 more of its voters' directories" in server.missing
            for node_id in (1, 2):
                assert (
                    f"broker {node_id}, last on host 127.0.0.1 (directory id {disks[node_id].directory_id})"
                    in server.missing
                )
            assert server.cluster_id is None
        with Voters(port_of(server), {0: disks[0], 1: disks[1]}):
            wait_for(lambda: leads(server))
            assert "flights" in server.image.topics.by_name


def test_empty_disk_becomes_a_voter_again_once_it_has_caught_up(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """A cluster that loses a disk must be able to lose another one later."""
    with controller(tmp_path / "first") as server, Voters(port_of(server), dict(enumerate(disks))):
        wait_for(lambda: leads(server))
        create_topic(server, "flights")
    replaced = Disk(tmp_path / "replaced")
    with (
        controller(tmp_path / "second") as server,
        Voters(port_of(server), {0: disks[0], 1: disks[1], 2: replaced}),
    ):
        wait_for(lambda: leads(server))
        wait_for(lambda: replaced.directory_id in voting_directories(server))
        with connect(server) as channel:
            # In force at once, it is committed with what follows.
            channel.request(retention_of("flights", "77"))
    with controller(tmp_path / "third") as server, Voters(port_of(server), {1: disks[1], 2: replaced}):
        wait_for(lambda: leads(server))
        assert "flights" in server.image.topics.by_name


def voting_directories(server: ControllerServer) -> set[Any]:
    """Return the directories of the voters, by DescribeQuorum."""
    topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
    with connect(server) as channel:
        answer = channel.request(DescribeQuorumRequest(topics=(topic,)))
    partition = answer.topics[0].partitions[0]
    assert partition.leader_epoch == server.image.leader_epoch
    return {voter.replica_directory_id for voter in partition.current_voters}


def test_cluster_that_shrinks_twice_gives_up_the_votes_of_those_that_leave(tmp_path: Path) -> None:
    """Brokers of the start that have left are waited for no more: that would keep the votes of others."""
    brokers = [ExpectedBroker(node_id, f"rack-{node_id}") for node_id in range(5)]
    disks = {node_id: Disk(tmp_path / f"voter-{node_id}") for node_id in range(5)}
    with controller(tmp_path / "first", brokers) as server, Voters(port_of(server), disks) as all_voters:
        wait_for(lambda: leads(server))
        with connect(server) as channel:
            for node_id, _ in brokers:
                assert channel.request(registration(node_id)).error_code is ErrorCode.none
            assert server.resize(SizeChange(racks=3), DEADLINE_S) is None
            wait_for(lambda: server.drained == {3, 4})
            all_voters.stop()
            with Voters(port_of(server), {node_id: disks[node_id] for node_id in range(3)}):
                for node_id in (3, 4):
                    reply = channel.request(UnregisterBrokerRequest(broker_id=node_id))
                    assert reply.error_code is ErrorCode.none
                assert server.resize(SizeChange(racks=1), DEADLINE_S) is None
                wait_for(lambda: server.drained == {1, 2})


class SlowVoters(Voters):
    """Voters that fetch nothing before they are told to."""

    def __init__(self, port: int, disks: Mapping[BrokerId, Disk]) -> None:
        super().__init__(port, disks)
        self.may_fetch = threading.Event()

    async def _fetch_once(self, replica: MetadataReplica, key: VoterKey, channel: Channel) -> None:
        await asyncio.to_thread(self.may_fetch.wait, DEADLINE_S)
        await super()._fetch_once(replica, key, channel)


def test_new_driver_tells_nobody_what_there_is_before_a_majority_has_the_beginning_of_its_epoch(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """It knew of no topic then, and producers that were told so gave up the records that waited."""
    with controller(tmp_path / "first") as server, Voters(port_of(server), dict(enumerate(disks))):
        wait_for(lambda: leads(server))
        create_topic(server, "flights")
    question = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    with (
        controller(tmp_path / "second") as server,
        SlowVoters(port_of(server), dict(enumerate(disks))) as voters,
    ):
        wait_for(lambda: is_elected(server))
        with connect(server) as channel:
            channel.send(question)
            with connect(server) as impatient:
                impatient.send(question)
                with pytest.raises(KafkaError):
                    impatient.receive(timeout_s=0.3)
            voters.may_fetch.set()
            assert [topic.name for topic in channel.receive().topics] == ["flights"]


def is_elected(server: ControllerServer) -> bool:
    """Whether it leads the quorum, which it says before anything is committed."""
    topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
    try:
        with connect(server) as channel:
            return channel.request(DescribeQuorumRequest(topics=(topic,))).error_code is ErrorCode.none
    except KafkaError:
        return False


def test_change_without_a_majority_is_not_answered_and_then_committed_by_it(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """What one disk has may be lost with it."""
    with controller(tmp_path / "first") as server:
        with Voters(port_of(server), dict(enumerate(disks))):
            wait_for(lambda: leads(server))
            create_topic(server, "before")
        with Voters(port_of(server), {0: disks[0]}), connect(server) as channel:
            channel.send(retention_of("before", "77"))
            with pytest.raises(KafkaError):
                channel.receive(timeout_s=0.5)
            assert server.image.topic_configs("before") == {}
            wait_for(lambda: server.missing is not None)
        with Voters(port_of(server), {0: disks[0], 1: disks[1]}):
            wait_for(lambda: server.image.topic_configs("before") == {"retention.ms": "77"})


def retention_of(topic: str, retention_ms: str) -> Any:
    """Return a change of a topic's configuration."""
    config = AlterableConfig(name="retention.ms", config_operation=0, value=retention_ms)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=(config,))
    return IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def test_old_driver_that_wakes_up_is_deposed_by_a_voter_of_the_new_one(
    disks: Sequence[Disk], tmp_path: Path
) -> None:
    """Two drivers at once must not both change anything."""
    with controller(tmp_path / "first") as old:
        with Voters(port_of(old), dict(enumerate(disks))):
            wait_for(lambda: leads(old))
        with controller(tmp_path / "second") as new, Voters(port_of(new), {1: disks[1], 2: disks[2]}):
            wait_for(lambda: leads(new))
            create_topic(new, "of-the-new-one")
        with Voters(port_of(old), dict(enumerate(disks))):
            wait_for(lambda: old.failure is not None)
    assert isinstance(old.failure, DeposedError)
    assert "of-the-new-one" not in old.image.topics.by_name
    errors = old.broker_metrics.latest()[CONTROLLER_ID].values[controller_metrics.METADATA_ERRORS.of()]
    assert errors == 0  # the metadata are well, and another driver's
