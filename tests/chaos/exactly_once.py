"""What judges of exactly once have in common: topics, processes that work, and what they have committed."""

import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.chaos.application import BROKERS
from tests.chaos.copier import CLIENT
from tests.chaos.scene import Scene

PARTITIONS: Final = 6
TIMEOUT_S: Final = 180.0
"""After so long without anything new there will not be anything."""
END_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.5
AT_ONCE: Final = 100_000
SURPLUS_S: Final = 5.0
"""How long nothing more must come when all is there."""
TELLING: Final = 3


class ExactlyOnceError(Exception):
    """What was written is not what it should be; says where it differs."""


class Workers:
    """Processes that are started again when they end, as a supervisor would do it.

    Each ends when its standard input does. The order for the caller: enter; `start_missing` as often as there
    is time; leave, which has them end.
    """

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start them."""
        self.processes = [self._start(command) for command in self._commands]
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Have them end."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self, number: int) -> None:
        """SIGKILL one of them."""
        self.processes[number].kill()
        self.processes[number].wait()

    def start_missing(self) -> None:
        """Start those again that have ended."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                print(f"worker {number} has ended with status {process.returncode}", flush=True)
                assert process.stdin is not None
                process.stdin.close()
                self.processes[number] = self._start(self._commands[number])

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, stdin=subprocess.PIPE)


def broker_processes(scene: Scene) -> dict[int, psutil.Process]:
    """Return the brokers' processes as soon as all are there: the last kill may still be felt.

    Raises:
        RuntimeError: not all came back.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return scene.brokers()[0]
        except RuntimeError:
            if time.monotonic() > deadline_s:
                raise


def create_topics(bootstrap_servers: str, *topics: str) -> None:
    """Create topics of PARTITIONS partitions, whose records all replicas but one have at least."""
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap_servers})
    config = {"min.insync.replicas": str(BROKERS - 1)}
    created = admin.create_topics([NewTopic(topic, PARTITIONS, BROKERS, config=config) for topic in topics])
    for each in created.values():
        each.result(END_TIMEOUT_S)


def produce(bootstrap_servers: str, topic: str, values: Iterable[bytes]) -> None:
    """Write the values in order, in turn to each of the partitions; the first goes to the first.

    Raises:
        ExactlyOnceError: they were not all acknowledged.
    """
    failed: list[str] = []
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    if failed or left:
        raise ExactlyOnceError(
            f"{len(failed) + left} records of {topic} could not be written: {failed[:TELLING]}"
        )


def wait_for_records(bootstrap_servers: str, topic: str, count: int, workers: Workers) -> None:
    """Wait until that many records are there that are committed, or no more come: comparing says which."""
    found = 0
    for messages in read_committed(bootstrap_servers, topic, patience_s=TIMEOUT_S):
        workers.start_missing()
        found += len(messages)
        if found >= count:
            return


def read_committed(bootstrap_servers: str, topic: str, *, patience_s: float) -> Iterator[list[Message]]:
    """Yield what is committed, at times nothing, until nothing has come for `patience_s`."""
    consumer = Consumer(
        {
            **CLIENT,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos-comparison",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        last_s = time.monotonic()
        while time.monotonic() < last_s + patience_s:
            messages = [each for each in consumer.consume(AT_ONCE, POLL_S) if each.error() is None]
            if messages:
                last_s = time.monotonic()
            yield messages
    finally:
        consumer.close()
