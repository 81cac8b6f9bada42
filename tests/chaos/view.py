"""The cluster as a client sees it: who leads, who is in sync, which process is which broker."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ASK_TIMEOUT_S: Final = 2.0
CREATE_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sight:
    """One answer to a question for metadata."""

    ports: Mapping[int, int]
    """Where each broker listens."""
    leaders: tuple[int, ...]
    """Each partition's; -1 for none."""
    isr_sizes: tuple[int, ...]


NOTHING: Final = Sight({}, (), ())
"""What is seen while nobody answers."""


class View:
    """A client that asks for the metadata of one topic."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, replicas: int) -> None:
        self.topic: Final = topic
        self._partitions = partitions
        self._replicas = replicas
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 500}
        )

    def create_topic(self, config: Mapping[str, str]) -> None:
        """Create the topic; a record in it is acknowledged by all replicas but one at least."""
        topic = NewTopic(
            self.topic,
            self._partitions,
            self._replicas,
            config={"min.insync.replicas": str(self._replicas - 1), **config},
        )
        self._admin.create_topics([topic])[self.topic].result(CREATE_TIMEOUT_S)

    def look(self) -> Sight:
        """Ask, and return `NOTHING` if nobody answers in time."""
        try:
            metadata = self._admin.list_topics(self.topic, timeout=ASK_TIMEOUT_S)
        except KafkaException:  # asked of a broker that is just being killed, or of none
            return NOTHING
        partitions = [partition for _, partition in sorted(metadata.topics[self.topic].partitions.items())]
        return Sight(
            ports={broker.id: broker.port for broker in metadata.brokers.values()},
            leaders=tuple(partition.leader for partition in partitions),
            isr_sizes=tuple(len(partition.isrs) for partition in partitions),
        )

    def is_whole(self, sight: Sight) -> bool:
        """Whether every replica of every partition is in sync."""
        return sight.isr_sizes == (self._replicas,) * self._partitions and -1 not in sight.leaders


def broker_processes(sight: Sight) -> dict[int, psutil.Process]:
    """Return the processes that listen where the brokers do, by broker id."""
    listening = {
        connection.laddr.port: connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    found = {}
    for broker, port in sorted(sight.ports.items()):
        if listening.get(port) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
                found[broker] = psutil.Process(listening[port])
    return found
