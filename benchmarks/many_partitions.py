"""How a cluster of three brokers takes ten thousand partitions: creation, a lost broker, another driver.

    python -m benchmarks.many_partitions --partitions 10000

Brokers are processes of their own, the driver is a thread of this one. One CreateTopics asks for topics of a
hundred partitions with three replicas each. A broker gets SIGKILL; later, the driver and its brokers end and
another driver starts over their directories. A partition counts as led once its leader has answered
ListOffsets for it; then it is not asked again. Metadata of all is asked for on one connection; what it costs
a broker's loop is read from the operating system. With `--killed` the brokers of the first driver get SIGKILL
instead of SIGHUP.
"""

import argparse
import resource
import signal
import socket
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.metadata.v12.request import MetadataRequest

from benchmarks.listed_offsets import LATEST
from benchmarks.longest_stall import longest_stall_ms
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.codec.frames import request_encoder
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId

if TYPE_CHECKING:
    from tests.cluster import LocalCluster

PARTITIONS_PER_TOPIC: Final = 100
REPLICAS: Final = 3
TIMEOUT_S: Final = 300.0
ASK_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
LENGTH_BYTES: Final = 4
SHOWN_STALLS: Final = 3
METADATA_REQUESTS: Final = 20


class Line(NamedTuple):
    """A figure, with its bar if it has one."""

    name: str
    value: float
    unit: str
    bar: float | None = None


@dataclass(slots=True)
class Figures:
    """The figures, printed as they come."""

    lines: list[Line] = field(default_factory=list)

    def add(self, name: str, value: float, unit: str, bar: float | None = None) -> None:
        line = Line(name, value, unit, bar)
        self.lines.append(line)
        shown_bar = "" if bar is None else f"{bar:8.1f}"
        print(f"{name:60} {value:10.2f} {unit:4} {shown_bar}", flush=True)

    @contextmanager
    def timed(self, name: str, bar: float | None = None) -> Iterator[None]:
        """Time the `with` block, in seconds."""
        began_s = time.monotonic()
        yield
        self.add(name, time.monotonic() - began_s, "s", bar)

    @property
    def are_within_bars(self) -> bool:
        return all(line.bar is None or line.value <= line.bar for line in self.lines)


def _create(cluster: "LocalCluster", partitions: int) -> None:
    topics = tuple(
        CreatableTopic(
            name=f"many-{number:03d}",
            num_partitions=min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC),
            replication_factor=REPLICAS,
            assignments=(),
            configs=(),
        )
        for number in range(-(-partitions // PARTITIONS_PER_TOPIC))
    )
    request = CreateTopicsRequest(
        topics=topics, timeout=timedelta(seconds=ASK_TIMEOUT_S), validate_only=False
    )
    with _connected(cluster, 0) as channel:
        answers = channel.request(request).topics
    refused = [answer for answer in answers if answer.error_code is not ErrorCode.none]
    if refused:
        raise RuntimeError(f"{len(refused)} topics were not created: {refused[0]}")


@contextmanager
def _connected(cluster: "LocalCluster", broker_id: BrokerId) -> Iterator[BlockingChannel]:
    with BlockingChannel(*cluster.address(broker_id), "benchmark", timeout_s=ASK_TIMEOUT_S) as channel:
        yield channel


def _leaders(image: MetadataImage) -> Mapping[BrokerId | None, Mapping[str, Sequence[int]]]:
    """Return the partitions of each leader, by topic."""
    led: defaultdict[BrokerId | None, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic in image.topics.by_id.values():
        for number, partition in topic.partitions.items():
            led[partition.leader][topic.name].append(number)
    return led


def _are_all_led(image: MetadataImage, partitions: int) -> bool:
    live = {each.broker_id for each in image.brokers.values() if not each.fenced}
    return image.topics.partition_count == partitions and _leaders(image).keys() <= live


class _Serving:
    """The partitions whose leaders have answered for them; the others are asked for again, a topic at a time.

    A leader is not asked for more while it has refused one: the questions would cost it more than its work.
    """

    def __init__(self, cluster: "LocalCluster") -> None:
        self._cluster = cluster
        self._served: set[tuple[BrokerId, str]] = set()
        """The leaders that have answered for all of their partitions of a topic."""

    def all_do(self) -> bool:
        for leader, topics in _leaders(self._cluster.image).items():
            if leader is None:
                return False
            unknown = {
                name: numbers for name, numbers in topics.items() if (leader, name) not in self._served
            }
            if not unknown:
                continue
            try:
                with _connected(self._cluster, leader) as channel:
                    for name in unknown:
                        if not _answers(channel, name, topics[name]):
                            return False
                        self._served.add((leader, name))
            except KafkaError:
                return False
        return True


def _answers(channel: BlockingChannel, topic: str, numbers: Sequence[int]) -> bool:
    """Whether a leader answers for these partitions of a topic."""
    asked = tuple(ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in numbers)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=(ListOffsetsTopic(name=topic, partitions=asked),),
        timeout=timedelta(seconds=ASK_TIMEOUT_S),
    )
    (answered,) = channel.request(request).topics
    return all(each.error_code is ErrorCode.none for each in answered.partitions)


def _are_in_sync(image: MetadataImage) -> bool:
    return all(len(partition.isr) == REPLICAS for _, partition in image.topics.partitions())


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not within {TIMEOUT_S:.0f} s: {what}")
        time.sleep(POLL_S)


def _loop_cpu_ms(process_id: int) -> float:
    """Return the CPU time of a process's main thread."""
    return int(Path(f"/proc/{process_id}/task/{process_id}/schedstat").read_text().split()[0]) / 1e6


def _metadata(cluster: "LocalCluster", figures: Figures) -> None:
    """Ask one broker for the metadata of all, first after a change of the image, then again."""
    process_id = cluster.process_id(0)
    request = MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    frame = b"".join(bytes(chunk) for chunk in request_encoder("benchmark")(request, 0))
    spent_ms, took_ms = [], []
    with socket.create_connection(cluster.address(0), ASK_TIMEOUT_S) as connected:
        stream = connected.makefile("rb")
        for _ in range(METADATA_REQUESTS):
            before_ms, began_s = _loop_cpu_ms(process_id), time.monotonic()
            connected.sendall(frame)
            size = int.from_bytes(stream.read(LENGTH_BYTES), "big")
            assert len(stream.read(size)) == size, "it is not read: the broker's loop alone counts"
            spent_ms.append(_loop_cpu_ms(process_id) - before_ms)
            took_ms.append(1_000 * (time.monotonic() - began_s))
    figures.add("Metadata of all: CPU of the loop, the first, in turns of 2 ms", spent_ms[0], "ms")
    figures.add(
        "Metadata of all: CPU of the loop, each further one", statistics.median(spent_ms[1:]), "ms", 20
    )
    figures.add("Metadata of all: until a further one is there", statistics.median(took_ms[1:]), "ms")


def _cpu_s(cluster: "LocalCluster") -> float:
    """Return the CPU time of the brokers that run and of this process, with the driver in it."""
    brokers = sum(sum(psutil.Process(each).cpu_times()[:2]) for each in cluster.process_ids())
    return brokers + time.process_time()


def _resident_mib(cluster: "LocalCluster") -> float:
    statuses = (Path(f"/proc/{each}/statm").read_text().split() for each in cluster.process_ids())
    return max(int(status[1]) for status in statuses) * resource.getpagesize() / 2**20


def _idle_percent(cluster: "LocalCluster", seconds: float = 10.0) -> float:
    """Return the CPU that the busiest broker takes without load, in per cent of a core."""
    before_ms = {each: _loop_cpu_ms(each) for each in cluster.process_ids()}
    time.sleep(seconds)
    return max(_loop_cpu_ms(each) - spent_ms for each, spent_ms in before_ms.items()) / (10 * seconds)


def _measure(cluster: "LocalCluster", figures: Figures, partitions: int, ended_by: signal.Signals) -> None:
    began_s, before_s = time.monotonic(), _cpu_s(cluster)
    _create(cluster, partitions)
    figures.add("created: CreateTopics answered", time.monotonic() - began_s, "s")
    _wait_for(lambda: _are_all_led(cluster.image, partitions), "every partition has a leader")
    _wait_for(_Serving(cluster).all_do, "every leader serves")
    figures.add("created: until every leader serves", time.monotonic() - began_s, "s", 5)
    figures.add("created: CPU of all brokers and the driver", _cpu_s(cluster) - before_s, "s")
    _wait_for(lambda: _are_in_sync(cluster.image), "all replicas are in sync")
    figures.add("largest broker, resident", _resident_mib(cluster), "MiB")
    figures.add("idle: loop of the busiest broker", _idle_percent(cluster), "% ")
    _metadata(cluster, figures)

    led = sum(map(len, _leaders(cluster.image)[0].values()))
    print(f"broker 0 dies, the leader of {led:,} partitions")
    began_s = time.monotonic()
    cluster.kill(0)
    _wait_for(lambda: _are_all_led(cluster.image, partitions), "every partition has another leader")
    figures.add("a broker dies: until all are led by others", time.monotonic() - began_s, "s", 1)
    _wait_for(_Serving(cluster).all_do, "every leader serves")
    figures.add("a broker dies: until every new leader serves", time.monotonic() - began_s, "s")
    with figures.timed("it starts again: until it is unfenced"):
        cluster.restart(0)
    with figures.timed("and then until it is in every ISR"):
        _wait_for(lambda: _are_in_sync(cluster.image), "all replicas are in sync")

    with figures.timed(f"the driver and its brokers end by {ended_by.name}"):
        cluster.begin_new_controller(ended_by)
    began_s, before_s = time.monotonic(), time.process_time()
    for broker_id in cluster.broker_ids:
        cluster.launch(broker_id)
    cluster.wait_until_unfenced(*cluster.broker_ids)
    figures.add("driver starts again: until all brokers are unfenced", time.monotonic() - began_s, "s")
    serving = _Serving(cluster)
    _wait_for(lambda: _are_all_led(cluster.image, partitions) and serving.all_do(), "every leader serves")
    figures.add("driver starts again: until every leader serves", time.monotonic() - began_s, "s", 15)
    figures.add("driver starts again: CPU of all brokers and the driver", _cpu_s(cluster) - before_s, "s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if a figure misses its bar."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.many_partitions",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--killed", action="store_true", help="SIGKILL ends the first driver's brokers")
    options = parser.parse_args(arguments)
    # Not above: each broker's process imports this module, and would load a controller for nothing.
    from tests.cluster import LocalCluster

    print(f"{options.partitions:,} partitions with {REPLICAS} replicas on {options.brokers} brokers")
    print(f"{'':60} {'':10} {'':4} {'bar':>8}")
    figures = Figures()
    with freezing_survivors(), LocalCluster(brokers=options.brokers, freezes_survivors=True) as cluster:
        _measure(cluster, figures, options.partitions, signal.SIGKILL if options.killed else signal.SIGHUP)
        lines = [
            line
            for broker_id in cluster.broker_ids
            for line in cluster.log_path(broker_id).read_text(errors="replace").splitlines()
        ]
    print(f"longest stall of a broker's loop: {longest_stall_ms(lines)} ms")
    logged = [line for line in lines if longest_stall_ms([line])]
    for line in sorted(logged, key=lambda line: -longest_stall_ms([line]))[:SHOWN_STALLS]:
        print(line)
    return int(not figures.are_within_bars)


if __name__ == "__main__":
    sys.exit(main())
