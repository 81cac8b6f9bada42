"""Figures of the controller while brokers come and go in a large cluster.

    python -m benchmarks.balancing --brokers 100 --partitions 200000

The production controller decides; its brokers are simulated: they send heartbeats, and copy what they are
assigned within 0.3 s. One is lost and not replaced in time, and another one, or the same, is added later.
With --loads brokers push metrics as well: ten of them have nearly all large partitions and nearly all
traffic, so replicas and leaderships move for these, too. Reading a broker's metrics is a step as well.

For each event it prints how long it took in simulated time, the decisions and bytes of metadata, the moved
replicas and the longest step. A step is a decision with its batch and its replay, which is what the
controller's loop does at once.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID, uuid4

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest

from benchmarks.simulated_brokers import CLUSTER_ID, registration
from sparklog.driver.controller.load_reports import measured_loads
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.placement import Load, UsableBroker, place
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.garbage import freezing_survivors, without_collections
from sparklog.node.metadata.framing import encode_record
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import MetadataRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from sparklog.node.metrics import server, storage
from sparklog.node.metrics.names import MetricName
from sparklog.protocol.records.builder import SimpleRecord, build_batch
from sparklog.protocol.types import BrokerEpoch, BrokerId, TopicIdPartition

LEADER_EPOCH: Final = 1
RACKS: Final = 10
PARTITIONS_PER_TOPIC: Final = 100
REPLICAS: Final = 3
_LISTED: Final = 100
"""As brokers report, in `log_metrics` and `partition_traffic`."""
REPLACE_AFTER_MS: Final = 10_000
TICK_MS: Final = 100
TICKS_PER_SECOND: Final = 1_000 // TICK_MS
COPY_MS: Final = 300
_QUIET_MS: Final = 5_000
LONGEST_EVENT_MS: Final = 2 * 3_600_000
BAR_MS: Final = 20.0
_BUSY_BROKERS: Final = 10
_LARGE_EVERY: Final = 20
"""One in so many of the partitions that these lead at first is large."""
_GIB: Final = 1 << 30
_DISK_BYTES: Final = 600 * _GIB
_SMALL_BYTES: Final = 60 * _GIB
"""The logs of all small partitions on a broker."""
_LARGE_BYTES: Final = _GIB
_LARGE_RATES: Final = (1 << 20, 2 << 20)
_OTHER_METRICS: Final = 3_000
"""Metrics of a broker beside those that are looked for."""
_READ_EVERY_MS: Final = 10_000


@dataclass(slots=True)
class Figures:
    """Work of the controller since an event."""

    decisions: int = 0
    records: int = 0
    metadata_bytes: int = 0
    moved: int = 0
    steps: list[tuple[float, float, str]] = field(default_factory=list)
    """CPU and wall time of each step in ms, and what it was."""


def empty_cluster(brokers: int, config: BrokerConfig) -> MetadataImage:
    """Return the image of a cluster without topics."""
    simulation = _Simulation(Controller(CLUSTER_ID, config, uuid4))
    for broker_id in range(brokers):
        simulation.start(broker_id)
    return simulation.controller.image


def with_partitions(image: MetadataImage, count: int) -> MetadataImage:
    """Return the image with partitions, placed as CreateTopics does."""
    brokers = [UsableBroker(each.broker_id, each.rack, False) for each in image.brokers.values()]
    load = Load()
    for _ in range(count // PARTITIONS_PER_TOPIC):
        topic_id = uuid4()
        records: list[MetadataRecord] = [TopicRecord(name=f"t-{topic_id}", topic_id=topic_id)]
        placed = place(brokers, PARTITIONS_PER_TOPIC, REPLICAS, load)
        records += [
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                removing_replicas=(),
                adding_replicas=(),
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=tuple(_directory(each) for each in replicas),
            )
            for number, replicas in enumerate(placed)
        ]
        image, _ = replay_records(image, records, image.end_offset + len(records) - 1, LEADER_EPOCH)
    return image


def _directory(broker_id: BrokerId) -> UUID:
    return UUID(int=1_000 + broker_id)


class _Loads:
    """The metrics of brokers' disks and leaders, as these push them."""

    def __init__(self, image: MetadataImage) -> None:
        self._names = {each.topic_id: each.name for each in image.topics.by_id.values()}
        self._large: list[TopicIdPartition] = []
        led: Counter[BrokerId] = Counter()
        for key, partition in image.topics.partitions():
            leader = partition.replicas[0]
            if leader < _BUSY_BROKERS and led[leader] % _LARGE_EVERY == 0:
                self._large.append(key)
            led[leader] += 1
        self._others = {
            server.BYTES_OUT.of(topic=f"topic-{number}"): float(number) for number in range(_OTHER_METRICS)
        }

    def metrics(self, broker_id: BrokerId, image: MetadataImage) -> dict[MetricName, float]:
        values, led, held = dict(self._others), 0, 0
        for key in self._large:
            partition = image.topics.partition(*key)
            if partition is None or broker_id not in partition.replicas:
                continue
            tags = {"topic": self._names[key.topic_id], "partition": str(key.partition)}
            held += 1
            if held <= _LISTED:
                values[storage.LOG_SIZE.of(**tags)] = _LARGE_BYTES
            if partition.leader == broker_id:
                led += 1
                if led <= _LISTED:
                    values[server.LEADER_BYTES_IN.of(**tags)] = _LARGE_RATES[0]
                    values[server.LEADER_BYTES_OUT.of(**tags)] = _LARGE_RATES[1]
        values[server.LEADER_BYTES_IN.of()] = led * _LARGE_RATES[0]
        values[server.LEADER_BYTES_OUT.of()] = led * _LARGE_RATES[1]
        directory = {"logDirectory": "/data"}
        used = _SMALL_BYTES + held * _LARGE_BYTES
        values[storage.DIRECTORY_LOGS.of(**directory)] = used
        values[storage.DIRECTORY_FREE.of(**directory)] = _DISK_BYTES - used
        values[storage.DIRECTORY_FILE_SYSTEM.of(**directory)] = broker_id
        return values

    def uses(self, image: MetadataImage) -> str:
        """Return the least and the most that a broker has, in GiB of large replicas and MiB/s of bytes in."""
        held: Counter[BrokerId] = Counter(dict.fromkeys(image.brokers, 0))
        led = held.copy()
        for key in self._large:
            partition = image.topics.partition(*key)
            assert partition is not None
            held.update(partition.replicas)
            led[partition.replicas[0]] += 1
        return (
            f"{min(held.values())}-{max(held.values())} GiB, {min(led.values())}-{max(led.values())} MiB/s in"
        )


class _Simulation:
    """A controller with simulated brokers and time."""

    def __init__(self, controller: Controller, loads: _Loads | None = None) -> None:
        self.controller = controller
        self.now_ms = 0
        self.figures = Figures()
        brokers = controller.image.brokers
        self._epochs: dict[BrokerId, BrokerEpoch] = {each: brokers[each].broker_epoch for each in brokers}
        self._copying: dict[TopicIdPartition, int] = {}
        """The partitions with new replicas, and when these have copied the log."""
        self._loads = loads
        self._read_ms: dict[BrokerId, int] = {}
        self._take(controller.bootstrap())

    def start(self, broker_id: BrokerId) -> None:
        request = registration(broker_id, f"rack-{broker_id % RACKS}", _directory(broker_id))
        self._epochs[broker_id] = self._handle(request).broker_epoch
        self._heartbeat(broker_id)

    def lose(self, broker_id: BrokerId) -> None:
        epoch = self._epochs.pop(broker_id)
        self._step("BrokerGone", lambda: self.controller.broker_gone(broker_id, epoch))
        self._decide()

    def settle(self, at_least_ms: int) -> int:
        """Let time pass until nothing moves; return how long that took in ms."""
        began_ms = last_change_ms = self.now_ms
        while self.now_ms < max(began_ms + at_least_ms, last_change_ms + _QUIET_MS):
            records = self.figures.records
            self._second()
            if self.figures.records != records:
                last_change_ms = self.now_ms
            assert self.now_ms - began_ms < LONGEST_EVENT_MS, "the cluster is never balanced"
        return last_change_ms - began_ms

    def held(self) -> Counter[BrokerId]:
        topics = self.controller.image.topics.by_id.values()
        return Counter(
            each for topic in topics for partition in topic.partitions.values() for each in partition.replicas
        )

    def _second(self) -> None:
        for broker_id in self._epochs:
            self._heartbeat(broker_id)
        for _ in range(TICKS_PER_SECOND):
            self.now_ms += TICK_MS
            self._read_loads()
            self._decide()
            self._copy()

    def _decide(self) -> None:
        while True:
            decision = self._step("tick", lambda: self.controller.tick(self.now_ms))
            if not decision.records and self.controller.is_settled:
                break

    def _read_loads(self) -> None:
        """Read the metrics of one broker, as the controller does at each tick."""
        due = [each for each in self._epochs if self.now_ms - self._read_ms.get(each, 0) >= _READ_EVERY_MS]
        if self._loads is None or not due:
            return
        broker_id = min(due, key=lambda each: self._read_ms.get(each, 0))
        self._read_ms[broker_id] = self.now_ms
        values = self._loads.metrics(broker_id, self.controller.image)

        def read() -> ControllerResult:
            disks, traffic = measured_loads(values, self.now_ms)
            assert disks is not None
            self.controller.disks_reported(broker_id, disks)
            self.controller.traffic_reported(broker_id, traffic)
            return ControllerResult([], None)

        self._step("loads", read)

    def _heartbeat(self, broker_id: BrokerId) -> None:
        self._handle(
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=self._epochs[broker_id],
                current_metadata_offset=self.controller.image.offset,
                want_fence=False,
                want_shut_down=False,
            )
        )

    def _copy(self) -> None:
        """Let each leader propose the replicas that have copied the log, in one request."""
        done: defaultdict[BrokerId, defaultdict[UUID, list[PartitionData]]]
        done = defaultdict(lambda: defaultdict(list))
        image = self.controller.image
        for key in [key for key, due_ms in self._copying.items() if self.now_ms >= due_ms]:
            del self._copying[key]
            partition = image.topics.partition(*key)
            assert partition is not None
            if partition.leader is None or not partition.is_reassigning:
                continue
            isr = [each for each in partition.replicas if each in self._epochs]
            done[partition.leader][key.topic_id].append(
                PartitionData(
                    partition_index=key.partition,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    leader_recovery_state=0,
                    new_isr_with_epochs=tuple(
                        BrokerState(broker_id=each, broker_epoch=self._epochs[each]) for each in isr
                    ),
                )
            )
        for leader, topics in done.items():
            self._handle(
                AlterPartitionRequest(
                    broker_id=leader,
                    broker_epoch=self._epochs[leader],
                    topics=tuple(
                        TopicData(topic_id=topic_id, partitions=tuple(partitions))
                        for topic_id, partitions in topics.items()
                    ),
                )
            )

    def _handle(self, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        while True:
            decision = self._step(name, lambda: self.controller.handle(request, self.now_ms))
            if not decision.is_first_part:
                return decision.reply

    def _step(self, name: str, decide: Callable[[], ControllerResult]) -> ControllerResult:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        with without_collections() as uncollected:  # as in `CommitQueue` and `ActiveController`
            decision = decide()
            size = self._take(decision)
            uncollected.lasting_count = len(decision.records)
        cpu_ms, wall_ms = 1_000 * (time.process_time() - cpu_s), 1_000 * (time.perf_counter() - wall_s)
        figures = self.figures
        step = f"{name}, {len(decision.records)} records"
        figures.steps.append((cpu_ms, wall_ms, step))
        figures.decisions += bool(decision.records)
        figures.records += len(decision.records)
        figures.metadata_bytes += size
        for record in decision.records:
            if isinstance(record, PartitionChangeRecord) and record.adding_replicas:
                key = TopicIdPartition(record.topic_id, record.partition_id)
                figures.moved += 1
                self._copying[key] = self.now_ms + COPY_MS
        return decision

    def _take(self, decision: ControllerResult) -> int:
        """Append a decision to no log; return the size of its batch."""
        if not decision.records:
            return 0
        values = [SimpleRecord(value=encode_record(each), timestamp_ms=1) for each in decision.records]
        end_offset = self.controller.image.end_offset
        batch = build_batch(values, base_offset=end_offset, leader_epoch=LEADER_EPOCH)
        self.controller.replay(decision.records, end_offset + len(decision.records) - 1, LEADER_EPOCH)
        return len(batch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a step took longer than the bar, in CPU time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balancing", description=__doc__)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--loads", action="store_true", help="brokers report disks and traffic")
    options = parser.parse_args(arguments)
    balanced = {"sparklog.balance.enable": "always"} if options.loads else {}
    config = BrokerConfig.from_mapping({"sparklog.replace.after.ms": str(REPLACE_AFTER_MS), **balanced})
    image = with_partitions(empty_cluster(options.brokers, config), options.partitions)
    began_s = time.perf_counter()
    loads = _Loads(image) if options.loads else None
    simulation = _Simulation(Controller(CLUSTER_ID, config, uuid4, image), loads)
    print(f"{options.brokers} brokers, {options.partitions:,} partitions with {REPLICAS} replicas each")
    print(f"the controller takes over in {time.perf_counter() - began_s:.1f} s")
    longest_ms = 0.0
    print(
        f"{'event':24} {'until balanced':>14} {'moved':>7} {'decisions':>9} {'records':>8} {'metadata':>9}"
        f" {'longest step, CPU (wall)':>26} {'':24} {'held':>13}"
    )
    with freezing_survivors():
        for name, happens, at_least_ms in (
            ("taken over", lambda: None, 420_000 if options.loads else 220_000),
            ("a broker is lost", lambda: simulation.lose(0), 2 * REPLACE_AFTER_MS),
            ("a broker is added", lambda: simulation.start(0), 300_000 if options.loads else 90_000),
        ):
            simulation.figures = figures = Figures()
            happens()
            took_ms = simulation.settle(at_least_ms)
            held = simulation.held().values()
            cpu_ms, wall_ms, step = max(figures.steps)
            longest_ms = max(longest_ms, cpu_ms)
            uses = "" if loads is None else f"  {loads.uses(simulation.controller.image)}"
            print(
                f"{name:24} {took_ms / 1_000:12.0f} s {figures.moved:7,} {figures.decisions:9,}"
                f" {figures.records:8,} {figures.metadata_bytes / 1e6:6.2f} MB"
                f" {cpu_ms:15.1f} ms ({wall_ms:5.1f}) {step:24} {min(held):6,}-{max(held):,}{uses}",
                flush=True,
            )
    return int(longest_ms > BAR_MS)


if __name__ == "__main__":
    sys.exit(main())
