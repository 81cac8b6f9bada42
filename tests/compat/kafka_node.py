"""One node of Apache Kafka, controller and broker at once, that tests compare a cluster of ours with."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kio.schema.metadata.v12.request import MetadataRequest

from benchmarks.clusters import free_ports
from benchmarks.java_libraries import kafka_command, run_kafka_program
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.security.sasl.mechanism import Login
from sparklog.protocol.errors import KafkaError
from tests.cluster import wait_for

CLUSTER_ID: Final = "apacheAAAAAAAAAAAAAAAA"
START_TIMEOUT_S: Final = 120.0
ASK_S: Final = 2.0


class KafkaNode:
    """Where a node listens."""

    def __init__(self, client_port: int, controller_port: int) -> None:
        self.client = ("127.0.0.1", client_port)
        self.controller = ("127.0.0.1", controller_port)

    @property
    def bootstrap_servers(self) -> str:
        """The address of clients."""
        return f"{self.client[0]}:{self.client[1]}"


@contextlib.contextmanager
def kafka_node(
    directory: Path, settings: Mapping[str, str], *, protocol: str = "PLAINTEXT", login: Login | None = None
) -> Iterator[KafkaNode]:
    """Run a node until the block ends, as it comes but for one replica of all; its clients speak `protocol`.

    Raises:
        LibrariesUnavailableError: Kafka can't be fetched.
        ClusterError: it does not answer.
    """
    node = KafkaNode(*free_ports(2))
    controller = f"{node.controller[0]}:{node.controller[1]}"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@{controller}",
        "listeners": f"{protocol}://{node.bootstrap_servers},CONTROLLER://{controller}",
        "advertised.listeners": f"{protocol}://{node.bootstrap_servers}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": protocol,
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "log.dirs": f"{directory}/logs",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **settings,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    run_kafka_program("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file))
    command = kafka_command("kafka.Kafka", str(file))
    with (directory / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: _answers(node, login), f"Kafka, see {directory}", START_TIMEOUT_S)
            yield node
        finally:
            process.kill()


def _answers(node: KafkaNode, login: Login | None) -> bool:
    request = MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    try:
        with BlockingChannel(*node.client, "test", ASK_S, login=login) as channel:
            channel.negotiate()
            return len(channel.request(request).brokers) == 1
    except KafkaError:
        return False
