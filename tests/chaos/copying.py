"""A topic that is copied exactly once while brokers, an executor, a copier and the driver are killed.

Two copiers of one group (`copier.py`) copy 100,000 records in transactions of at most 750. The records come
in parts, one before each kill, so that there is always something under way. When all are copied, the target
must hold for whoever reads committed records what the source holds: in each partition the same records in
the same order, each once.

A copier that has ended is started again, as a supervisor would do it: one is killed, and others may end
themselves when their client hangs.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.faults import FAULTS as SIGNALS
from tests.chaos.application import BROKERS
from tests.chaos.copier import CLIENT
from tests.chaos.scene import Scene, Struck

RECORDS: Final = 100_000
PARTITIONS: Final = 6
COPIERS: Final = 2
LATEST_S: Final = 1.5
"""How long after a part of the records a kill comes, at most."""
COPY_TIMEOUT_S: Final = 180.0
END_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.5
SURPLUS_S: Final = 5.0
"""How long nothing more must come when all is copied and the copiers have ended."""
TELLING: Final = 3


class CopyError(Exception):
    """The copy is not what was copied; says where it differs."""


def copy_under_kills(scene: Scene) -> Struck:
    """Have records copied, kill meanwhile, and compare.

    Raises:
        CopyError: the copy lacks records, has some twice, in another order, or others.
    """
    servers = scene.application.bootstrap_servers
    name = f"copied-{scene.chance.randrange(10**9)}"
    source, target = f"{name}-from", f"{name}-to"
    _create(servers, (source, target))
    kills: list[Kill] = [_kill_broker, _kill_executor, _kill_driver, _kill_copier]
    scene.chance.shuffle(kills)
    part = RECORDS // (len(kills) + 1)
    hit: set[int] = set()
    with Copiers(servers, name) as copiers:
        for number, kill in enumerate(kills):
            _produce(servers, source, range(number * part, (number + 1) * part))
            time.sleep(scene.chance.uniform(0, LATEST_S))
            hit |= kill(scene, copiers)
            over_s = time.monotonic()
            _brokers(scene)
            copiers.start_missing()
        _produce(servers, source, range(len(kills) * part, RECORDS))
        _wait_until_copied(servers, target, copiers)
    _compare(servers, target)
    return Struck("kills of all kinds under copiers in transactions", frozenset(hit), False, over_s)


class Copiers:
    """The processes that copy, each under a transactional id of its own."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self._commands = [
            [
                sys.executable,
                "-m",
                "tests.chaos.copier",
                bootstrap_servers,
                f"{name}-from",
                f"{name}-to",
                own_id,
            ]
            for own_id in (f"{name}-copier-{number}" for number in range(COPIERS))
        ]

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

    def start_missing(self) -> None:
        """Start those again that have ended."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                print(f"copier {number} has ended with status {process.returncode}", flush=True)
                assert process.stdin is not None
                process.stdin.close()
                self.processes[number] = self._start(self._commands[number])

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(command, stdin=subprocess.PIPE)


Kill = Callable[[Scene, Copiers], set[int]]


def _kill_broker(scene: Scene, copiers: Copiers) -> set[int]:
    processes = _brokers(scene)
    broker = scene.chance.choice(sorted(processes))
    SIGNALS["kill"].strike(processes[broker])
    return {broker}


def _kill_executor(scene: Scene, copiers: Copiers) -> set[int]:
    processes = _brokers(scene)
    broker = scene.chance.choice(sorted(processes))
    SIGNALS["kill-executor"].strike(processes[broker])
    return {broker}


def _kill_driver(scene: Scene, copiers: Copiers) -> set[int]:
    scene.application.driver_jvm().kill()
    return set(range(BROKERS))


def _kill_copier(scene: Scene, copiers: Copiers) -> set[int]:
    victim = scene.chance.choice(copiers.processes)
    victim.kill()
    victim.wait()
    return set()


def _brokers(scene: Scene) -> dict[int, psutil.Process]:
    """Return the brokers' processes as soon as all are there: the last kill may still be felt."""
    deadline_s = time.monotonic() + COPY_TIMEOUT_S
    while True:
        try:
            return scene.brokers()[0]
        except RuntimeError:
            if time.monotonic() > deadline_s:
                raise


def _create(bootstrap_servers: str, topics: Sequence[str]) -> None:
    admin = AdminClient({**CLIENT, "bootstrap.servers": bootstrap_servers})
    config = {"min.insync.replicas": str(BROKERS - 1)}
    created = admin.create_topics([NewTopic(topic, PARTITIONS, BROKERS, config=config) for topic in topics])
    for each in created.values():
        each.result(END_TIMEOUT_S)


def _produce(bootstrap_servers: str, topic: str, numbers: range) -> None:
    """Write the numbers in order, spread over the partitions."""
    failed: list[str] = []
    producer = Producer({**CLIENT, "bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    for number in numbers:
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
        producer.poll(0)
    left = producer.flush(COPY_TIMEOUT_S)
    if failed or left:
        raise CopyError(f"{len(failed) + left} records of {topic} could not be written: {failed[:TELLING]}")


def _wait_until_copied(bootstrap_servers: str, target: str, copiers: Copiers) -> None:
    """Wait until as many records are there as there must be, or no more come; comparing says which."""
    count = 0
    for values in _read(bootstrap_servers, target, patience_s=COPY_TIMEOUT_S):
        copiers.start_missing()
        count += len(values)
        if count >= RECORDS:
            return


def _compare(bootstrap_servers: str, target: str) -> None:
    copied: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for values in _read(bootstrap_servers, target, patience_s=SURPLUS_S):
        for partition, value in values:
            copied[partition].append(value)
    for partition, found in enumerate(copied):
        wanted = [b"%d" % number for number in range(partition, RECORDS, PARTITIONS)]
        if wanted != found:
            pairs = enumerate(zip(wanted, found, strict=False))
            shorter = min(len(wanted), len(found))
            at = next((index for index, (one, other) in pairs if one != other), shorter)
            raise CopyError(
                f"{target}-{partition} has {len(found)} records and not {len(wanted)}, "
                f"{len(set(found))} of them different; from record {at} on it has "
                f"{found[at : at + TELLING]}, not {wanted[at : at + TELLING]}"
            )


def _read(bootstrap_servers: str, topic: str, *, patience_s: float) -> Iterator[list[tuple[int, bytes]]]:
    """Yield partitions and values of what is committed, at times none, until none come for `patience_s`."""
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
            messages = [each for each in consumer.consume(RECORDS, POLL_S) if each.error() is None]
            if messages:
                last_s = time.monotonic()
            yield [(each.partition() or 0, each.value() or b"") for each in messages]
    finally:
        consumer.close()
