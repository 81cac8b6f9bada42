"""A cluster that becomes larger and smaller again and again while everything it consists of is killed.

In each round the cluster grows from three racks to five and shrinks back. Each of the two steps gets two
kills at random times: of a broker, of an executor, of the driver's JVM, which starts again with the arguments
of the first start, or of the controller's process. The step is over when exactly the brokers of its size are
registered and serve.

Meanwhile the producer and the readers of the run go on; two copiers of one group copy in transactions
(`copier.py`) what is written during the steps; a pipeline, which starts beside the first of them, writes a
stream exactly once (`piping.py`), and must have come on after each round. When the time is over, the copies
and the rows are compared with their sources.

`resize` changes the size once, there and back, and kills nothing: it shows what the moves themselves cost.
"""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Final

import psutil

from benchmarks.faults import FAULTS as SIGNALS
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.cluster_size import alter_size, configured_size, members
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers
from tests.chaos.application import BROKERS
from tests.chaos.copying import COPIERS, compare
from tests.chaos.exactly_once import (
    PARTITIONS,
    ExactlyOnceError,
    Workers,
    create_topics,
    produce,
    wait_for_records,
)
from tests.chaos.piping import Piping
from tests.chaos.scene import Scene, Strike, Struck
from tests.chaos.view import broker_processes

LARGER: Final = 5
TWICE: Final = 6
SELDOM_S: Final = 0.02
"""Between two records to a partition under kills: each costs all brokers computing time."""
PART: Final = 1_000 * PARTITIONS
"""The records that are copied during each step."""
KILLS_PER_STEP: Final = 2
LATEST_S: Final = 4.0
"""The latest time of a kill after a size was accepted."""
STEP_TIMEOUT_S: Final = 240.0
ASK_TIMEOUT_MS: Final = 5_000
POLL_S: Final = 0.2
TOLD_S: Final = 0.25
SETTLED_S: Final = 3.0
"""The time without another placement of a replica after which moves are over: no partition rests as long."""


def resize(racks: int) -> Strike:
    """Return the change to so many racks and back; each is over when no replica moves any more."""

    def strike(scene: Scene) -> Struck:
        steps = []
        with _client(scene) as cluster:
            for size in (racks, BROKERS):
                began_s = time.monotonic()
                _in_time(scene, f"the size of {size} racks is accepted", partial(_is_accepted, cluster, size))
                _in_time(scene, f"the cluster has {size} racks", partial(_has, cluster, size))
                _in_time(scene, f"{size} racks are balanced", _Moves(cluster, size).are_over)
                _tell_silences(scene, began_s)
                gaps_s = scene.probe.longest_gaps_s(began_s)
                longest_s = max(gaps_s)
                steps.append(
                    f"{size} racks and balanced after {time.monotonic() - began_s:.1f} s, "
                    f"partition {gaps_s.index(longest_s)} silent for {longest_s:.2f} s"
                )
        return Struck("; ".join(steps), frozenset(), False, time.monotonic())

    return strike


def _tell_silences(scene: Scene, since_s: float) -> None:
    """Print the silences that brokers' logs may explain, by the wall clock as these."""
    wall_s = time.time() - time.monotonic()
    for partition, times_s in enumerate(scene.probe.acknowledged_s):
        for before_s, after_s in pairwise(tuple(times_s)):
            if after_s > since_s and after_s - before_s >= TOLD_S:
                began = time.strftime("%H:%M:%S", time.localtime(before_s + wall_s))
                millis = int((before_s + wall_s) % 1 * 1_000)
                print(f"partition {partition} silent for {after_s - before_s:.2f} s from {began},{millis:03}")


class _Moves:
    """The moves of replicas after a change of the size."""

    def __init__(self, cluster: ClusterClient, racks: int) -> None:
        self._cluster = cluster
        self._racks = racks
        self._placed: tuple[tuple[int, ...], ...] = ()
        self._since_s = time.monotonic()

    def are_over(self) -> bool:
        """Whether all brokers have replicas, and none has been placed elsewhere for a while."""
        placed = tuple(
            tuple(partition.replica_nodes)
            for topic in self._cluster.metadata().topics
            for partition in topic.partitions
        )
        now_s = time.monotonic()
        if placed != self._placed:
            self._placed, self._since_s = placed, now_s
        holders = {broker_id for replicas in placed for broker_id in replicas}
        return len(holders) == self._racks and now_s - self._since_s >= SETTLED_S


def scale_under_kills(scene: Scene) -> Struck:
    """Scale up and down until the time is over, kill meanwhile, and compare.

    Raises:
        RuntimeError: a size is not reached.
        ExactlyOnceError: the copies or the rows are not what they should be.
    """
    servers = scene.application.bootstrap_servers
    name = f"scaled-{scene.chance.randrange(10**9)}"
    source, target = f"{name}-from", f"{name}-to"
    create_topics(servers, source, target)
    kills: Counter[str] = Counter()
    rounds = written = 0
    command = [sys.executable, "-m", "tests.chaos.copier", servers, source, target]
    copier_commands = [[*command, f"{name}-copier-{number}"] for number in range(COPIERS)]
    with (
        Piping(scene) as piping,
        Workers(copier_commands) as copiers,
        ThreadPoolExecutor(max_workers=1) as writer,
    ):
        deadline_s = time.monotonic() + 60 * scene.minutes
        while time.monotonic() < deadline_s:
            began_s = time.monotonic()
            for racks in (LARGER, BROKERS):
                writing = writer.submit(_write, servers, source, range(written, written + PART))
                written += PART
                kills.update(_scale_under_kills(scene, racks))
                writing.result()
                piping.check()
                piping.workers.start_missing()
                copiers.start_missing()
            scaled_s = time.monotonic()
            piping.wait_until_come_on()
            rounds += 1
            print(
                f"round {rounds}: scaled in {scaled_s - began_s:.1f} s, "
                f"the pipeline has come on {time.monotonic() - scaled_s:.1f} s later; {dict(kills)}",
                flush=True,
            )
        over_s = time.monotonic()
        wait_for_records(servers, target, written, copiers)
        compare(servers, target, written)
        copied_s = time.monotonic()
        rows = piping.finish()
        print(
            f"copies compared in {copied_s - over_s:.1f} s, rows in {time.monotonic() - copied_s:.1f} s",
            flush=True,
        )
    told = ", ".join(f"{count} x {kill}" for kill, count in sorted(kills.items()))
    return Struck(
        f"{rounds} times to {LARGER} racks and back under kills ({told}): {written:,} records copied, "
        f"{rows:,} rows written, 0 lost, 0 twice",
        frozenset(),
        False,
        over_s,
    )


def _write(bootstrap_servers: str, topic: str, numbers: range) -> None:
    produce(bootstrap_servers, topic, (b"%d" % number for number in numbers))


def _scale_under_kills(scene: Scene, racks: int) -> Sequence[str]:
    """Scale to a number of racks, kill at random times, and wait for the size; return the kills' names.

    Raises:
        RuntimeError: the size is not reached.
    """
    names = scene.chance.sample(sorted(KILLS), KILLS_PER_STEP)
    times_s = sorted(scene.chance.uniform(0, LATEST_S) for _ in names)
    with _client(scene) as cluster:
        began_s = time.monotonic()
        _in_time(scene, f"the size of {racks} racks is accepted", lambda: _is_accepted(cluster, racks))
        accepted_s = time.monotonic()
        for name, at_s in zip(names, times_s, strict=True):
            time.sleep(max(0.0, accepted_s + at_s - time.monotonic()))
            KILLS[name](scene)
        killed_s = time.monotonic()
        _in_time(scene, f"the cluster has {racks} racks", lambda: _has(cluster, racks))
    print(
        f"{racks} racks: accepted after {accepted_s - began_s:.1f} s, killed within "
        f"{killed_s - accepted_s:.1f} s: {', '.join(names)}; there {time.monotonic() - killed_s:.1f} s later",
        flush=True,
    )
    return names


def _client(scene: Scene) -> ClusterClient:
    return ClusterClient(
        ClientConfig(
            bootstrap_servers=parse_bootstrap_servers(scene.application.bootstrap_servers),
            api_timeout_ms=ASK_TIMEOUT_MS,
        )
    )


def _in_time(scene: Scene, what: str, look: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + STEP_TIMEOUT_S
    reason = "not so"
    while True:
        try:
            if look():
                return
        except KafkaError as error:  # the broker that was asked has just been killed
            reason = str(error)
        scene.application.check()
        if time.monotonic() > deadline_s:
            raise RuntimeError(
                f"{what}: {reason} after {STEP_TIMEOUT_S:.0f} s\n{scene.application.log_tail()}"
            )
        time.sleep(POLL_S)


def _is_accepted(cluster: ClusterClient, racks: int) -> bool:
    alter_size(cluster, SizeChange(racks=racks))
    return True


def _has(cluster: ClusterClient, racks: int) -> bool:
    now = members(cluster)
    configured = configured_size(cluster)
    if configured.racks != racks:
        raise ExactlyOnceError(f"the size was {racks} racks, and is {configured.racks} now")
    return now.racks.keys() == set(range(racks)) and not now.fenced


def _kill_broker(scene: Scene) -> None:
    _strike("kill", scene)


def _kill_executor(scene: Scene) -> None:
    _strike("kill-executor", scene)


def _strike(signal: str, scene: Scene) -> None:
    """Kill one of the present brokers; it may be about to leave, or have just come."""
    deadline_s = time.monotonic() + STEP_TIMEOUT_S
    while not (processes := broker_processes(scene.view.look())):
        if time.monotonic() > deadline_s:
            raise RuntimeError("no broker is there")
        time.sleep(POLL_S)
    with contextlib.suppress(psutil.NoSuchProcess):
        SIGNALS[signal].strike(processes[scene.chance.choice(sorted(processes))])


def _kill_driver(scene: Scene) -> None:
    _when_it_is_there(scene, "the driver", scene.application.driver_jvm)


def _kill_controller(scene: Scene) -> None:
    _when_it_is_there(scene, "the controller's process", scene.application.controller)


def _when_it_is_there(scene: Scene, what: str, find: Callable[[], psutil.Process | None]) -> None:
    """Kill a process as soon as there is one: the kill before may have ended it."""
    deadline_s = time.monotonic() + STEP_TIMEOUT_S
    while time.monotonic() < deadline_s:
        scene.application.check()
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):  # its parent has just begun, or ended
            process = find()
            if process is not None and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                return
        time.sleep(POLL_S)
    raise RuntimeError(f"{what} is not there")


KILLS: Final[Mapping[str, Callable[[Scene], None]]] = {
    "broker": _kill_broker,
    "executor": _kill_executor,
    "driver": _kill_driver,
    "controller": _kill_controller,
}
