"""How long it takes until every partition of a dead broker has its new leader, where that is.

    python -m benchmarks.elections --partitions 10000

One broker leads so many partitions, each with three replicas, and dies. The driver's part (decide about all
of them, make a batch of it, take it in) runs in this process; the other brokers are processes of their own
with real logs, each of which writes the batch to its disk, decodes and applies it, and leads and follows what
it says. The batch goes to them over pipes; what the network and the quorum's second fetch cost is not in it.
Several rounds, each with a broker that leads everything again; medians, and of the brokers the slowest.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple, Self
from uuid import UUID, uuid4

from kio.schema.broker_heartbeat.v2 import BrokerHeartbeatRequest
from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.create_topics.v7.request import CreatableReplicaAssignment, CreatableTopic

from benchmarks.simulated_brokers import CLUSTER_ID, registration
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.executor.fetching.suspected_brokers import BrokerSuspicions
from sparklog.executor.replicas import ClusterMembership, ControllerRequests, Replicas
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.framing import decode_record, encode_record
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord, PartitionChangeRecord
from sparklog.node.storage import Log, LogDirectory, MetaProperties
from sparklog.protocol.records.batch import read_header
from sparklog.protocol.records.builder import SimpleRecord, build_batch, read_records
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC, BrokerId

DEAD: Final[BrokerId] = 0
LEADER_EPOCH: Final = 1
FILES_A_LOG: Final = 3
SPARE_FILES: Final = 500
READY_TIMEOUT_S: Final = 600.0
ANSWER_TIMEOUT_S: Final = 60.0
EVERYTHING: Final = "from the death to the last new leader"
BAR_MS: Final = 1_000


class Cost(NamedTuple):
    """What something took, in milliseconds; on a busy machine only the second means something."""

    wall_ms: float
    cpu_ms: float


class Watch:
    """Says what each lap cost this process."""

    def __init__(self) -> None:
        self.laps: dict[str, Cost] = {}
        self._since = (time.perf_counter(), time.process_time())

    def lap(self, name: str) -> None:
        """End a lap, and begin the next; laps of one name are added up."""
        now = (time.perf_counter(), time.process_time())
        before = self.laps.get(name, Cost(0, 0))
        passed = (1_000 * (end - start) for start, end in zip(self._since, now, strict=True))
        self.laps[name] = Cost(*map(sum, zip(before, passed, strict=True)))
        self._since = now


@dataclass(slots=True)
class Driver:
    """The controller, and what a shell around it would do."""

    config: BrokerConfig
    controller: Controller = field(init=False)
    round_number: int = 0

    def __post_init__(self) -> None:
        self.controller = Controller(CLUSTER_ID, self.config, uuid4)

    def take(self, decision: ControllerResult) -> bytes:
        """Return what was decided as a batch, and take it in."""
        batch = self.batch(decision.records)
        self.replay(decision.records)
        return batch

    def batch(self, records: Iterable[MetadataRecord]) -> bytes:
        """Return the records as the next batch of the log."""
        values = [SimpleRecord(value=encode_record(record), timestamp_ms=1) for record in records]
        return build_batch(values, base_offset=self.controller.image.end_offset, leader_epoch=LEADER_EPOCH)

    def replay(self, records: Sequence[MetadataRecord]) -> None:
        """Take the records in."""
        last_offset = self.controller.image.end_offset + len(records) - 1
        self.controller.replay(records, last_offset, LEADER_EPOCH)

    def lead_everything_again(self) -> bytes:
        """Give every partition back to its preferred leader, with all replicas in sync; return the batch."""
        records = [
            PartitionChangeRecord(
                topic_id=topic.topic_id,
                partition_id=number,
                leader=partition.preferred_leader,
                isr=partition.replicas,
            )
            for topic in self.controller.image.topics.by_id.values()
            for number, partition in topic.partitions.items()
        ]
        return self.take(ControllerResult(list(records), None))

    def start(self, broker_id: BrokerId) -> list[bytes]:
        """Let a broker register and be unfenced; return the batches of that."""
        self.round_number += 1
        registered = self.controller.handle(
            registration(broker_id, f"rack-{broker_id}", UUID(int=1_000 + broker_id)),
            self.round_number,
        )
        batch = self.take(registered)
        unfenced = self.controller.handle(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=registered.reply.broker_epoch,
                current_metadata_offset=self.controller.image.end_offset,
                want_fence=False,
                want_shut_down=False,
            ),
            self.round_number,
        )
        return [batch, self.take(unfenced)]

    def create_topic(self, assignments: Sequence[tuple[BrokerId, ...]]) -> bytes:
        """Create the topic; return the batch."""
        topic = CreatableTopic(
            name=f"elections-{self.round_number}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
                for number, replicas in enumerate(assignments)
            ),
            configs=(),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=1), validate_only=False)
        decision = self.controller.handle(request, self.round_number)
        assert decision.records, decision.reply
        return self.take(decision)


class _NoIsrProposals:
    def propose(self, *_: object) -> None:
        """Nobody joins or leaves an ISR while this is measured."""


class Survivor:
    """A broker's replicas over a directory of their own, and its copy of the metadata log."""

    def __init__(self, broker_id: BrokerId, directory: Path, config: BrokerConfig) -> None:
        loop = asyncio.get_running_loop()
        self._directory = LogDirectory.open(directory)
        self._directory.format(MetaProperties(CLUSTER_ID, broker_id, uuid4()))
        self._metadata_log = Log.open(
            directory / f"{CLUSTER_METADATA_TOPIC}-0", config.metadata_log_config(), now_ms=1
        )
        self._image: MetadataImage = EMPTY_IMAGE
        self.replicas = Replicas(
            ClusterMembership(broker_id=broker_id, broker_epoch=lambda: 1),
            ControllerRequests(isr_proposer=_NoIsrProposals()),
            [self._directory],
            config,
            BrokerSuspicions(loop),
        )

    async def take(self, batch: bytes) -> dict[str, Cost]:
        """Write, decode and apply a batch; return what each cost."""
        watch = Watch()
        self._metadata_log.append_as_follower(batch, 0)
        self._metadata_log.flush()
        watch.lap("broker: write and fsync")
        header = read_header(batch)
        records = [decode_record(record.value or b"") for record in read_records(batch, header)]
        watch.lap("broker: decode")
        self._image, delta = replay_records(self._image, records, header.last_offset, LEADER_EPOCH)
        watch.lap("broker: apply")
        for subscriber in self.replicas.subscribers:
            await subscriber.apply(self._image, delta)
        watch.lap("broker: lead and follow")
        return watch.laps

    async def close(self) -> None:
        """Close the logs and give up the directory."""
        await self.replicas.shutdown()
        self._metadata_log.close(clean=False)
        self._directory.close()


def _survive(broker_id: BrokerId, directory: str, pipe: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(broker_id, Path(directory), pipe))


async def _serve(broker_id: BrokerId, directory: Path, pipe: Connection) -> None:
    survivor = Survivor(broker_id, directory, BrokerConfig.from_mapping({}))
    await survivor.replicas.start()
    loop = asyncio.get_running_loop()
    while True:
        batch = await loop.run_in_executor(None, pipe.recv_bytes)
        if not batch:
            break
        figures = await survivor.take(batch)
        pipe.send((figures, survivor.replicas.table.leader_count))
    await survivor.close()


class Survivors:
    """The other brokers, each in a process of its own; to be used in a `with` block."""

    def __init__(self, broker_ids: Iterable[BrokerId], directory: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for broker_id in broker_ids:
            ours, theirs = context.Pipe()
            place = str(directory / f"broker-{broker_id}")
            process = context.Process(target=_survive, args=(broker_id, place, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def send(self, batch: bytes) -> None:
        """Give every one of them a batch."""
        for pipe in self._pipes:
            pipe.send_bytes(batch)

    def answers(self, timeout_s: float) -> list[tuple[dict[str, Cost], int]]:
        """Return what the batch cost each of them, and how many partitions each leads.

        Raises:
            TimeoutError: one of them did not answer.
        """
        for pipe in self._pipes:
            if not pipe.poll(timeout_s):
                raise TimeoutError(f"a broker did not answer for {timeout_s:.0f} s")
        return [pipe.recv() for pipe in self._pipes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send_bytes(b"")
        for process in self._processes:
            process.join(ANSWER_TIMEOUT_S)


def _elections(partitions: int, brokers: int, rounds: int, directory: Path) -> dict[str, list[Cost]]:
    driver = Driver(BrokerConfig.from_mapping({"min.insync.replicas": "2"}))
    others = range(1, brokers)
    figures: dict[str, list[Cost]] = {}
    with Survivors(others, directory) as survivors:
        batches = [driver.take(driver.controller.bootstrap())]
        for broker_id in range(brokers):
            batches += driver.start(broker_id)
        assignments = [
            (DEAD, others[number % len(others)], others[(number + 1) % len(others)])
            for number in range(partitions)
        ]
        batches.append(driver.create_topic(assignments))
        for _ in range(rounds):
            for batch in batches:
                survivors.send(batch)
                survivors.answers(READY_TIMEOUT_S)
            for name, cost in _one_round(driver, survivors, partitions).items():
                figures.setdefault(name, []).append(cost)
            batches = [*driver.start(DEAD), driver.lead_everything_again()]
    return figures


def _one_round(driver: Driver, survivors: Survivors, partitions: int) -> dict[str, Cost]:
    whole, watch = Watch(), Watch()
    decision = driver.controller.broker_gone(DEAD, driver.controller.image.brokers[DEAD].broker_epoch)
    watch.lap("driver: decide")
    parts = 0
    while True:
        parts += 1
        batch = driver.batch(decision.records)
        watch.lap("driver: encode")
        survivors.send(batch)
        driver.replay(decision.records)
        watch.lap("driver: send and take in")
        if driver.controller.is_settled:
            break
        decision = driver.controller.tick(driver.round_number)
        watch.lap("driver: decide")
    answers = [answer for _ in range(parts) for answer in survivors.answers(ANSWER_TIMEOUT_S)]
    whole.lap(EVERYTHING)
    last = answers[-(len(answers) // parts) :]
    assert sum(led for _, led in last) == partitions, "every partition has a leader that knows it"
    costs = dict(watch.laps)
    for name in answers[0][0]:
        of_each = [[laps[name] for laps, _ in answers[number :: len(last)]] for number in range(len(last))]
        costs[name] = max(Cost(*map(sum, zip(*costs_of_one, strict=True))) for costs_of_one in of_each)
    brokers_cpu_ms = sum(cost.cpu_ms for laps, _ in answers for cost in laps.values())
    costs[EVERYTHING] = Cost(whole.laps[EVERYTHING].wall_ms, whole.laps[EVERYTHING].cpu_ms + brokers_cpu_ms)
    return costs


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return whether it was fast enough."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elections", description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000, help="how many the dead broker leads")
    parser.add_argument("--brokers", type=int, default=5, help="how many there were")
    parser.add_argument("--rounds", type=int, default=5, help="how many times it dies")
    options = parser.parse_args(arguments)
    needed = FILES_A_LOG * (2 * options.partitions // (options.brokers - 1) + 1) + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY,) and hard < needed:
        parser.error(f"a broker needs {needed} open files, {hard} are allowed: take more brokers")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    with tempfile.TemporaryDirectory(prefix="sparklog-elections-") as directory:
        figures = _elections(options.partitions, options.brokers, options.rounds, Path(directory))
    print(f"{options.partitions:,} partitions, {options.brokers - 1} brokers left, {options.rounds} rounds")
    print(f"{'':40} {'median':>8} {'most':>8} {'CPU, median':>12}  ms")
    for name, costs in figures.items():
        wall_ms = [cost.wall_ms for cost in costs]
        cpu_ms = statistics.median(cost.cpu_ms for cost in costs)
        print(f"{name:40} {statistics.median(wall_ms):8.0f} {max(wall_ms):8.0f} {cpu_ms:12.0f}")
    return int(statistics.median(cost.wall_ms for cost in figures[EVERYTHING]) > BAR_MS)


if __name__ == "__main__":
    sys.exit(main())
