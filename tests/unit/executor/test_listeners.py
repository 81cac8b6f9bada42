"""Several listeners: whoever comes by one of them is told the addresses of that one, and of no other."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.request import PartitionData as QuorumPartition
from kio.schema.describe_quorum.v2.request import TopicData as QuorumTopic
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v13.request import MetadataRequest

from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.sasl.mechanism import Login
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.config import parse_bootstrap_servers
from tests.certificates import Authority, server_keys
from tests.unit.executor.one_broker import DEADLINE_S, one_broker

METADATA = MetadataRequest(
    topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
)
CLUSTER = DescribeClusterRequest(
    include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
)
COORDINATOR = FindCoordinatorRequest(key_type=0, coordinator_keys=("a group",))


async def told(port: int, cluster_credentials: ClusterCredentials = NO_CREDENTIALS) -> set[tuple[str, int]]:
    """Return every address that whoever listens at `port` tells."""
    channel = await Channel.connect(
        "127.0.0.1", port, "test", login=cluster_credentials.login, tls=cluster_credentials.tls
    )
    try:
        answers: list[Any] = [await channel.request(METADATA), await channel.request(CLUSTER)]
        addresses = {(broker.host, broker.port) for answer in answers for broker in answer.brokers}
        while True:
            (found,) = (await channel.request(COORDINATOR)).coordinators
            if found.error_code is ErrorCode.none:
                return addresses | {(found.host, found.port)}
            await asyncio.sleep(0.01)  # its topic is being made
    finally:
        channel.close()


def test_client_is_told_the_addresses_of_the_listener_that_it_came_by(tmp_path: Path) -> None:
    """Those of another network, or of another protocol, are of no use to it."""
    given = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "advertised.listeners": "IN://127.0.0.1:0,OUT://localhost:0",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "controller.quorum.bootstrap.servers": "127.0.0.1:0,OUT://127.0.0.1:0",
    }

    async def scenario() -> None:
        async with one_broker(tmp_path, given) as (controller, broker), asyncio.timeout(20):
            inside, outside = broker.endpoints
            assert (inside.name, inside.host) == ("IN", "127.0.0.1")
            assert (outside.name, outside.host) == ("OUT", "localhost")
            assert controller.image.brokers[0].listeners == broker.endpoints
            driver = controller.bootstrap_servers_by_listener
            assert driver["IN"] == controller.bootstrap_servers != driver["OUT"]
            for endpoint in broker.endpoints:
                for port in (endpoint.port, int(driver[endpoint.name].rpartition(":")[2])):
                    assert await told(port) == {(endpoint.host, endpoint.port)}

    asyncio.run(scenario())


@pytest.mark.parametrize("shows_own", [True, False])
def test_driver_and_brokers_speak_tls_to_each_other_whatever_their_certificates_say(
    tmp_path: Path, shows_own: bool
) -> None:
    """A broker is wherever Spark puts it: no certificate of a user's could name it. The brokers' own listener
    needs none at all; and whoever asks for a user's certificate lets those of the inside in."""
    authority = Authority()
    given = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        "ssl.client.auth": "required",
    }
    if shows_own:
        given |= server_keys(authority.certify("elsewhere", hosts=["elsewhere.example"]), tmp_path)

    async def scenario() -> None:
        async with one_broker(tmp_path, given) as (controller, broker), asyncio.timeout(20):
            (endpoint,) = broker.endpoints
            assert endpoint.security_protocol is SecurityProtocol.SSL
            assert controller.image.brokers[0].listeners == broker.endpoints
            secret = controller.secret
            for port in (endpoint.port, int(controller.bootstrap_servers.rpartition(":")[2])):
                with pytest.raises((KafkaError, OSError)):
                    await told(port)
                assert await told(port, ClusterCredentials.to(SecurityProtocol.SSL, secret)) == {
                    (endpoint.host, endpoint.port)
                }

    asyncio.run(scenario())


def test_driver_and_brokers_find_each_other_by_addresses_of_ipv6(tmp_path: Path) -> None:
    """They stand in brackets in configurations and in what clients are given, and nowhere else."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    given = {"listeners": "PLAINTEXT://[::1]:0", "controller.quorum.bootstrap.servers": "[::1]:0"}

    async def scenario() -> None:
        async with one_broker(tmp_path, given) as (controller, broker):
            assert controller.bootstrap_servers.startswith("[::1]:")
            (address,) = parse_bootstrap_servers(controller.bootstrap_servers)
            (endpoint,) = broker.endpoints
            channel = await Channel.connect(*address, "test")
            (told,) = (await channel.request(METADATA)).brokers
            assert (told.host, told.port) == (endpoint.host, endpoint.port) == ("::1", endpoint.port)
            channel.close()

    asyncio.run(scenario())


def test_listener_of_the_quorum_is_closed_to_who_has_not_logged_in(tmp_path: Path) -> None:
    """Everything there is for driver and brokers; a stranger could have it keep requests of 100 MiB."""
    partition = QuorumPartition(partition_index=0)
    question = DescribeQuorumRequest(
        topics=(QuorumTopic(topic_name="__cluster_metadata", partitions=(partition,)),)
    )

    async def asked(port: int, login: Login | None) -> Any:
        channel = await Channel.connect("127.0.0.1", port, "test", login=login)
        try:
            return await channel.request(question)
        finally:
            channel.close()

    async def scenario() -> None:
        async with one_broker(tmp_path, {}) as (controller, _):
            asking = asyncio.to_thread(controller.ask, lambda active: active.quorum.voters.voters, DEADLINE_S)
            (voter,) = await asking or ()
            told = await asked(voter.port, controller.secret.login)
            assert told.error_code is ErrorCode.none
            with pytest.raises(KafkaError, match="closed the connection"):
                await asked(voter.port, None)
            reader, writer = await asyncio.open_connection("127.0.0.1", voter.port)
            writer.write((1 << 20).to_bytes(4, "big"))
            assert await reader.read() == b""  # closed for the announcement
            writer.close()

    asyncio.run(scenario())
