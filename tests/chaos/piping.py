"""A pipeline that reads and writes streams exactly once while everything it consists of is killed.

A producer writes all the time, and a pipeline (`pipeline.py`), which is a Spark application of its own,
counts with state, shuffles, and writes what it counted to another topic. Killed at random are its tasks, what
Spark runs for it on the driver (the commits of batches among it), its executors and its driver; and of the
cluster brokers, those that coordinate and keep its decisions, executors and the driver. It is started again
each time, with other settings. A kill is followed by the next one when a query has come on, or, at times, at
once.

When the time is over and all is written, a reader of committed records must see what a program computes from
the source's records without any of this: each row once.
"""

import contextlib
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.faults import FAULTS as SIGNALS
from sparklog.node.metadata.partition_for import partition_for
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.names import DECISIONS_TOPIC, SinkId, SinkKind
from tests.chaos.application import BROKERS
from tests.chaos.copier import CLIENT
from tests.chaos.exactly_once import (
    SURPLUS_S,
    TELLING,
    ExactlyOnceError,
    Workers,
    broker_processes,
    create_topics,
    produce,
    read_committed,
    wait_for_records,
)
from tests.chaos.pipeline import NOTHING, QUERIES
from tests.chaos.scene import Scene, Strike, Struck
from tests.chaos.slow_tasks import ran_twice
from tests.chaos.stops import ONLY_FIRST, Stop, arm, is_armed

RECORDS_A_SECOND: Final = 100
VOCABULARY: Final = 40
LATEST_S: Final = 3.0
"""How long after the pipeline has come on a kill comes, at most."""
AT_ONCE: Final = 0.25
"""How often another kill comes before that."""
COME_ON_FIRST: Final = 0.5
COMING_ON_S: Final = 480.0
ASK_S: Final = 5.0
POLL_S: Final = 0.2


def pipe_under_kills(scene: Scene) -> Struck:
    """Have a pipeline write, kill meanwhile, and compare.

    Raises:
        ExactlyOnceError: rows are missing or there twice, or the pipeline stands still.
    """
    kills: Counter[str] = Counter()
    hit: set[int] = set()
    with Piping(scene) as piping:
        deadline_s = time.monotonic() + 60 * scene.minutes
        piping.wait_until_come_on()
        while time.monotonic() < deadline_s:
            time.sleep(scene.chance.uniform(0, LATEST_S))
            while True:
                name, brokers = _kill(scene, piping)
                kills[name] += 1
                hit |= brokers
                if scene.chance.random() > AT_ONCE:
                    break
                time.sleep(scene.chance.uniform(0, LATEST_S))
            over_s = time.monotonic()
            broker_processes(scene)
            piping.wait_until_come_on()
        rows = piping.finish()
    told = ", ".join(f"{count} x {name}" for name, count in sorted(kills.items()))
    return Struck(
        f"{kills.total()} kills under a pipeline ({told}), {piping.started()} starts, "
        f"{ran_twice(piping.place)} tasks run twice at a time: {rows:,} rows, 0 lost, 0 twice",
        frozenset(hit),
        False,
        over_s,
    )


def stop_before_each(stops: Sequence[Stop]) -> Strike:
    """Return what has somebody die before each of these steps, in an order drawn at random, and compares.

    Mostly the next one dies in what is done to get over the one before. It raises ExactlyOnceError as
    `pipe_under_kills` does; also if nobody comes to a step.
    """

    def strike(scene: Scene) -> Struck:
        shuffled = list(stops)
        scene.chance.shuffle(shuffled)
        with Piping(scene, "stop") as piping:
            piping.wait_until_come_on()
            for stop in shuffled:
                if stop.step not in ONLY_FIRST and scene.chance.random() < COME_ON_FIRST:
                    piping.wait_until_come_on()
                arm(piping.place, stop)
                piping.wait_for(lambda: not is_armed(piping.place))
                print(f"stopped: {stop.victim.value}, before {stop.step}", flush=True)
                over_s = time.monotonic()
            piping.wait_until_come_on()
            rows = piping.finish()
        told = f"{len(shuffled)} stops, one before each step: {rows:,} rows, 0 lost, 0 twice"
        return Struck(told, frozenset(), False, over_s)

    return strike


class Piping:
    """A producer, the pipeline, and what it has come to; a context manager."""

    def __init__(self, scene: Scene, *arguments: str) -> None:
        """`arguments` are the pipeline's, beyond those that it needs."""
        self.servers = scene.application.bootstrap_servers
        name = f"piped-{scene.chance.randrange(10**9)}"
        self.source, self.target = f"{name}-from", f"{name}-to"
        self.place = scene.application.data_directory.parent / name
        self._feeder = Feeder(self.servers, self.source, scene.chance.randrange(10**9))
        self._command = [sys.executable, "-m", "tests.chaos.pipeline", self.servers, self.source, self.target]
        self._command += [str(self.place), str(scene.chance.randrange(10**9)), *arguments]

    def __enter__(self) -> Self:
        """Start them."""
        create_topics(self.servers, self.source, self.target)
        with contextlib.ExitStack() as stack:
            self.workers = stack.enter_context(Workers([self._command]))
            stack.enter_context(self._feeder)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End them."""
        self._stack.__exit__(exception_type, exception, traceback)

    def wait_until_come_on(self) -> None:
        """Wait until one of the queries has done a batch since now.

        Raises:
            ExactlyOnceError: none does; or the pipeline says what must never be said.
        """
        before = self._progress()
        # Who was just started has done nothing yet.
        self.wait_for(
            lambda: any(now not in (was, NOTHING) for was, now in zip(before, self._progress(), strict=True))
        )

    def wait_for(self, has_come: Callable[[], bool]) -> None:
        """Wait until something has come to be.

        Raises:
            ExactlyOnceError: it does not; or the pipeline says what must never be said.
        """
        deadline_s = time.monotonic() + COMING_ON_S
        while not has_come():
            self.check()
            self.workers.start_missing()
            if time.monotonic() > deadline_s:
                raise ExactlyOnceError(f"the pipeline stands still: {self._progress()} in {self.place}")
            time.sleep(POLL_S)

    def check(self) -> None:
        """Return if the pipeline says nothing that must never be said.

        Raises:
            ExactlyOnceError: it does; or its records could not be written.
        """
        self._feeder.check()
        with contextlib.suppress(FileNotFoundError):
            raise ExactlyOnceError((self.place / "broken").read_text())

    def finish(self) -> int:
        """Have all written, and compare; return how many rows there are.

        Raises:
            ExactlyOnceError: they are not what they should be; or something is left open.
        """
        self._feeder.stop()
        wanted = wanted_rows(self._feeder.values)
        wait_for_records(self.servers, self.target, wanted.total(), self.workers)
        self.workers.__exit__(None, None, None)
        self.check()
        _compare(self.servers, self.target, wanted)
        config = ClientConfig(bootstrap_servers=parse_bootstrap_servers(self.servers))
        with ClusterClient(config) as cluster:
            left = [each.transactional_id for each in SinkClient(cluster).open_transactions()]
        if left:
            raise ExactlyOnceError(f"{len(left)} transactions are left open: {left[:TELLING]}")
        return wanted.total()

    def sinks(self) -> Iterator[SinkId]:
        """Yield what the pipeline has begun to write as."""
        for query in QUERIES:
            with contextlib.suppress(FileNotFoundError, ValueError):
                written = json.loads((self.place / f"checkpoint-{query}" / "metadata").read_text())
                yield SinkId(SinkKind.QUERY, written["id"])

    def started(self) -> int:
        """Return how often the pipeline was started."""
        return len((self.place / "starts").read_text().splitlines())

    def driver(self) -> psutil.Process:
        """Return the pipeline's own process, which has started a JVM."""
        return psutil.Process(self.workers.processes[0].pid)

    def _progress(self) -> list[str]:
        try:
            return (self.place / "progress").read_text().split("\n")
        except FileNotFoundError:
            return [NOTHING] * len(QUERIES)


class Feeder:
    """Writes records until it is stopped, and knows which."""

    def __init__(self, bootstrap_servers: str, topic: str, seed: int) -> None:
        self.values: list[bytes] = []
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def stop(self) -> None:
        """Return when all records are acknowledged.

        Raises:
            ExactlyOnceError: they are not.
        """
        self._stopping.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            produce(self._bootstrap_servers, self._topic, self._paced())
        except (ExactlyOnceError, KafkaException, BufferError) as failure:
            self._failure = failure

    def _paced(self) -> Iterator[bytes]:
        while not self._stopping.wait(1 / RECORDS_A_SECOND):
            value = b"%d:word-%d" % (len(self.values), self._chance.randrange(VOCABULARY))
            self.values.append(value)
            yield value


def wanted_rows(values: Sequence[bytes]) -> Counter[tuple[bytes, bytes]]:
    """Return the keys and values that the pipeline has to write of the source's."""
    words = Counter(value.partition(b":")[2] for value in values)
    counted = (b"%s:%d" % (word, count) for word, total in words.items() for count in range(1, total + 1))
    return Counter([*((b"counted", value) for value in counted), *((b"copied", value) for value in values)])


def complaint_of(found: Counter[tuple[bytes, bytes]], wanted: Counter[tuple[bytes, bytes]]) -> str | None:
    """Return what is wrong with the rows that were found; None if nothing is."""
    lost, surplus = wanted - found, found - wanted
    if not lost and not surplus:
        return None
    return (
        f"{found.total()} rows and not {wanted.total()}: {lost.total()} are missing, such as "
        f"{sorted(lost)[:TELLING]}, {surplus.total()} too many, such as {sorted(surplus)[:TELLING]}"
    )


def _compare(bootstrap_servers: str, target: str, wanted: Counter[tuple[bytes, bytes]]) -> None:
    found = Counter(
        (message.key() or b"", message.value() or b"")
        for messages in read_committed(bootstrap_servers, target, patience_s=SURPLUS_S)
        for message in messages
    )
    complaint = complaint_of(found, wanted)
    if complaint is not None:
        raise ExactlyOnceError(f"{target} has {complaint}")


# What may be killed. Each returns the brokers that it hit, or None where there was nothing to kill.

Kill = Callable[[Scene, Piping], set[int] | None]


def _kill(scene: Scene, piping: Piping) -> tuple[str, set[int]]:
    while True:
        (name,) = scene.chance.choices(list(KILLS), [each.weight for each in KILLS.values()])
        with contextlib.suppress(psutil.NoSuchProcess):
            hit = KILLS[name].strike(scene, piping)
            if hit is not None:
                print(f"killed: {name}", flush=True)
                return name, hit
        piping.workers.start_missing()
        time.sleep(POLL_S)


def _task(scene: Scene, piping: Piping) -> set[int] | None:
    return _one_of(scene, [task for executor in _executors(piping) for task in _workers(executor)])


def _driver_side_worker(scene: Scene, piping: Piping) -> set[int] | None:
    """Sources that plan, and sinks that commit: Spark has processes for them beside the driver."""
    jvm = _jvm(piping)
    return None if jvm is None else _one_of(scene, _workers(jvm))


def _executor(scene: Scene, piping: Piping) -> set[int] | None:
    return _one_of(scene, _executors(piping))


def _driver_jvm(scene: Scene, piping: Piping) -> set[int] | None:
    jvm = _jvm(piping)
    return None if jvm is None else _one_of(scene, [jvm])


def _driver_python(scene: Scene, piping: Piping) -> set[int] | None:
    return _one_of(scene, [piping.driver()])


def _broker(scene: Scene, piping: Piping) -> set[int] | None:
    broker, process = scene.chance.choice(sorted(broker_processes(scene).items()))
    process.kill()
    return {broker}


def _cluster_executor(scene: Scene, piping: Piping) -> set[int] | None:
    broker, process = scene.chance.choice(sorted(broker_processes(scene).items()))
    SIGNALS["kill-executor"].strike(process)
    return {broker}


def _cluster_driver(scene: Scene, piping: Piping) -> set[int] | None:
    scene.application.driver_jvm().kill()
    return set(range(BROKERS))


def _coordinator(topic: str, key_of: Callable[[SinkId], str]) -> Kill:
    """Return what kills the leader of a sink's partition of an internal topic."""

    def strike(scene: Scene, piping: Piping) -> set[int] | None:
        sinks, processes = list(piping.sinks()), broker_processes(scene)
        if not sinks:
            return None
        try:
            admin = AdminClient({**CLIENT, "bootstrap.servers": piping.servers, "log_level": 0})
            partitions = admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions
        except KafkaException:
            return None
        if not partitions:
            return None
        leader = partitions[partition_for(key_of(scene.chance.choice(sinks)), len(partitions))].leader
        if leader not in processes:
            return None
        processes[leader].kill()
        return {leader}

    return strike


class KillOf(NamedTuple):
    """How one of the parts is killed, and how often beside the others."""

    strike: Kill
    weight: int


KILLS: Final[Mapping[str, KillOf]] = {
    "a task": KillOf(_task, 4),
    "what plans and commits": KillOf(_driver_side_worker, 4),
    "an executor": KillOf(_executor, 2),
    "the driver's JVM": KillOf(_driver_jvm, 3),
    "the driver's Python": KillOf(_driver_python, 1),
    "a broker": KillOf(_broker, 2),
    "the transactions' coordinator": KillOf(
        _coordinator("__transaction_state", lambda sink: sink.decider_id), 2
    ),
    "the group's coordinator": KillOf(_coordinator("__consumer_offsets", lambda sink: sink.decider_id), 2),
    "the leader of decisions": KillOf(_coordinator(DECISIONS_TOPIC, lambda sink: sink.text), 2),
    "a broker's executor": KillOf(_cluster_executor, 1),
    "the cluster's driver": KillOf(_cluster_driver, 1),
}


def _one_of(scene: Scene, victims: Sequence[psutil.Process]) -> set[int] | None:
    if not victims:
        return None
    scene.chance.choice(victims).kill()
    return set()


def _jvm(piping: Piping) -> psutil.Process | None:
    return next((child for child in piping.driver().children() if _is(child, "java")), None)


def _executors(piping: Piping) -> list[psutil.Process]:
    jvm = _jvm(piping)
    children = [] if jvm is None else jvm.children()
    return [child for child in children if _is(child, "CoarseGrainedExecutorBackend")]


def _workers(jvm: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes that a JVM has tasks, or parts of a query, done by."""
    daemons = [child for child in jvm.children() if _is(child, "daemon")]
    return [worker for daemon in daemons for worker in daemon.children()]


def _is(process: psutil.Process, what: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return any(what in argument for argument in process.cmdline())
    return False
