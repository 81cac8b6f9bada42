"""What is done to a running cluster, each by name.

A fault is a function of the scene: it does the damage, waits for as long as the damage lasts, and says who
was hit. Chance comes from the scene's seed only. What one signal does to one broker's process is in
`benchmarks/faults.py`.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import psutil

from benchmarks.faults import FAULTS as SIGNALS
from benchmarks.probe import RECORD_INTERVAL_S
from tests.chaos.application import BROKERS
from tests.chaos.copying import copy_under_kills
from tests.chaos.counting import count_under_kills
from tests.chaos.disks import Disk
from tests.chaos.lost_disks import kill_everything, stop_in_order
from tests.chaos.moves import kill_driver, kill_source, kill_target, while_moved
from tests.chaos.piping import pipe_under_kills, stop_before_each
from tests.chaos.scaling import LARGER, SELDOM_S, TWICE, resize, scale_under_kills
from tests.chaos.scene import POLL_S, Scene, Strike, Struck, Tier
from tests.chaos.starving import starve
from tests.chaos.stops import STOPS_OF_COMMITS, STOPS_OF_TASKS
from tests.chaos.store_faults import fail_store
from tests.chaos.table_faults import kill_in_commits

BETWEEN_TWO_S: Final = 2.0
"""How long after one broker another may be hit."""
CONTROLLER_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, its name in tables, and what is promised."""

    description: str
    strike: Strike
    bound_s: float | None = None
    """The longest time without an acknowledgement that the 99th percentile may show."""
    weight: int = 1
    """How often it is drawn, beside the others."""
    needs_disks: bool = False
    tier: Tier = Tier.NONE
    executors: int = BROKERS
    """The number of executors that the application has; each runs one broker."""
    record_interval_s: float = RECORD_INTERVAL_S
    """The time between two records to a partition; longer where no silence is measured."""
    is_repeated: bool = False
    """Whether, when drawn, it happens to each broker in turn."""


def _one_broker(name: str, scene: Scene) -> Struck:
    processes, leaders = scene.brokers()
    victim = statistics.mode(leaders)
    return _hit(name, victim, processes[victim])


def _next_broker(name: str, scene: Scene) -> Struck:
    processes, _ = scene.brokers()
    victim = next(scene.turns)
    return _hit(name, victim, processes[victim])


def _hit(name: str, broker: int, process: psutil.Process) -> Struck:
    SIGNALS[name].strike(process)
    return Struck(f"{SIGNALS[name].description}: {broker}", frozenset({broker}), True, time.monotonic())


def _two_brokers(scene: Scene) -> Struck:
    processes, _ = scene.brokers()
    pair = scene.chance.sample(sorted(processes), 2)
    names = [scene.chance.choice(("kill", "kill-executor", "kill-daemon")) for _ in pair]
    _hit(names[0], pair[0], processes[pair[0]])
    time.sleep(scene.chance.uniform(0, BETWEEN_TWO_S))
    _hit(names[1], pair[1], processes[pair[1]])
    description = ", then ".join(
        f"{SIGNALS[name].description}: {broker}" for name, broker in zip(names, pair, strict=True)
    )
    return Struck(description, frozenset(pair), True, time.monotonic())


def _all_brokers(scene: Scene) -> Struck:
    processes, _ = scene.brokers()
    for process in processes.values():
        process.kill()
    return Struck("SIGKILL of all brokers", frozenset(processes), True, time.monotonic())


def _driver_jvm(scene: Scene) -> Struck:
    scene.application.driver_jvm().kill()
    return Struck("SIGKILL of the driver's JVM", frozenset(range(BROKERS)), True, time.monotonic())


def _driver_python(scene: Scene) -> Struck:
    scene.application.driver_python().kill()
    return Struck("SIGKILL of the driver's Python", frozenset(range(BROKERS)), True, time.monotonic())


def _controller(scene: Scene) -> Struck:
    """Kill the controller's process, and wait for the next one to answer at its address.

    Raises:
        RuntimeError: no other one answers, or a broker's process has ended meanwhile.
    """
    application = scene.application
    processes, _ = scene.brokers()
    killed = application.controller()
    assert killed is not None, "the cluster is whole"
    killed.kill()
    over_s = time.monotonic()
    while (controller := application.controller()) in (None, killed) or not application.is_answered():
        if time.monotonic() > over_s + CONTROLLER_TIMEOUT_S:
            raise RuntimeError(f"no controller answers after the one that was killed: {controller}")
        time.sleep(POLL_S)
    ended = [broker for broker, process in processes.items() if not process.is_running()]
    if ended:
        raise RuntimeError(f"brokers ended with the controller's process: {ended}")
    return Struck("SIGKILL of the controller's process", frozenset(), False, over_s)


def _freeze(scene: Scene) -> Struck:
    processes, leaders = scene.brokers()
    victim = statistics.mode(leaders)
    process = processes[victim]
    SIGNALS["freeze"].strike(process)
    frozen_s = time.monotonic()
    try:
        process.wait(scene.freeze_s)
        ending = "ended"
    except psutil.TimeoutExpired:
        ending = "continued"
    finally:
        SIGNALS["freeze"].lift(process)
    over_s = time.monotonic()
    description = f"SIGSTOP of a leader: {victim}, {ending} after {over_s - frozen_s:.1f} s"
    return Struck(description, frozenset({victim}), ending == "ended", over_s)


def _break_disk(name: str, damage: Callable[[Disk], None], mend: Callable[[Disk], None]) -> Strike:
    def strike(scene: Scene) -> Struck:
        processes, leaders = scene.brokers()
        victim = statistics.mode(leaders)
        disk = scene.disks[victim]
        damage(disk)
        try:
            time.sleep(scene.broken_disk_s)
        finally:
            mend(disk)
        over_s = time.monotonic()
        # A broker that has given a directory up does not take it up again: it is started anew.
        with contextlib.suppress(psutil.NoSuchProcess):
            processes[victim].terminate()
        description = f"disk {name} for {scene.broken_disk_s:g} s: {victim}"
        return Struck(description, frozenset({victim}), True, over_s)

    return strike


def _cut_power(scene: Scene) -> Struck:
    processes, leaders = scene.brokers()
    victim = statistics.mode(leaders)
    SIGNALS["kill-executor"].strike(processes[victim])
    with contextlib.suppress(psutil.NoSuchProcess):
        SIGNALS["kill"].strike(processes[victim])
    disk = scene.disks[victim]
    disk.lose_power()
    time.sleep(scene.broken_disk_s)
    disk.get_power()
    description = f"power cut for {scene.broken_disk_s:g} s: {victim}"
    return Struck(description, frozenset({victim}), True, time.monotonic())


def _signal_to_leader(name: str) -> Strike:
    return lambda scene: _one_broker(name, scene)


def _signal_in_turn(name: str) -> Strike:
    return lambda scene: _next_broker(name, scene)


FAULTS: Final[Mapping[str, Fault]] = {
    "worker": Fault("SIGKILL of a broker's worker", _signal_to_leader("kill"), bound_s=0.5, weight=4),
    "executor": Fault("SIGKILL of an executor", _signal_to_leader("kill-executor"), bound_s=1.0, weight=3),
    "daemon": Fault("SIGKILL of a Python daemon", _signal_to_leader("kill-daemon"), weight=2),
    "rolling": Fault(
        "rolling SIGTERM", _signal_in_turn("terminate"), bound_s=0.3, weight=2, is_repeated=True
    ),
    "decommission": Fault(
        "decommission of an executor", _signal_in_turn("decommission"), bound_s=0.3, weight=2
    ),
    "freeze": Fault("SIGSTOP of a leader", _freeze, bound_s=3.5),
    "two-brokers": Fault("SIGKILL of two brokers, one after the other", _two_brokers, weight=2),
    "all-brokers": Fault("SIGKILL of all brokers", _all_brokers, bound_s=15.0),
    "driver-jvm": Fault("SIGKILL of the driver's JVM", _driver_jvm, bound_s=25.0),
    "controller": Fault("SIGKILL of the controller's process", _controller, weight=2),
    "driver-python": Fault("SIGKILL of the driver's Python", _driver_python, bound_s=25.0),
    "move-target": Fault(
        "SIGKILL of a broker to which partitions are moved",
        while_moved("a broker that is being added", kill_target),
        bound_s=0.5,
    ),
    "move-source": Fault(
        "SIGKILL of a broker from which partitions are moved", while_moved("a source", kill_source)
    ),
    "move-driver": Fault(
        "SIGKILL of the driver's JVM while partitions are moved",
        while_moved("the driver's JVM", kill_driver),
        bound_s=25.0,
    ),
    "store": Fault(
        "an object store that fails, and kills", fail_store, bound_s=1.0, weight=0, tier=Tier.FAULTY_S3
    ),
    "lost-disks": Fault(
        "SIGKILL of everything, all disks gone", kill_everything, weight=0, tier=Tier.DIRECTORY
    ),
    "other-disks": Fault("orderly stop, all disks gone", stop_in_order, weight=0, tier=Tier.DIRECTORY),
    "tables": Fault(
        "kills at each step of a table's commits",
        kill_in_commits(_controller, _driver_python),
        weight=0,
        tier=Tier.TABLES,
    ),
    "starvation": Fault("no processor for the cluster", starve, weight=0),
    "copy": Fault("kills of all kinds under copiers in transactions", copy_under_kills, weight=0),
    "streams": Fault("kills under Kafka Streams, which counts words", count_under_kills, weight=0),
    "sink": Fault("kills of all kinds under a pipeline from stream to stream", pipe_under_kills, weight=0),
    "scaling": Fault(
        "kills of all kinds while the cluster becomes larger and smaller",
        scale_under_kills,
        weight=0,
        executors=LARGER,
        record_interval_s=SELDOM_S,
    ),
    "resize-5": Fault(
        "a cluster of three racks gets five, and three again",
        resize(LARGER),
        bound_s=0.5,
        weight=0,
        executors=LARGER,
    ),
    "resize-6": Fault(
        "a cluster of three racks gets six, and three again",
        resize(TWICE),
        bound_s=0.5,
        weight=0,
        executors=TWICE,
    ),
    "commit-stops": Fault(
        "a stop before each step of a sink's commit", stop_before_each(STOPS_OF_COMMITS), weight=0
    ),
    "task-stops": Fault(
        "a stop before each step of a task of a sink", stop_before_each(STOPS_OF_TASKS), weight=0
    ),
    "power-cut": Fault("power cut of a leader's machine", _cut_power, bound_s=1.0, needs_disks=True),
    "full-disk": Fault("full disk", _break_disk("full", Disk.fill, Disk.empty), needs_disks=True),
    "read-only": Fault(
        "disk turns read-only", _break_disk("read-only", Disk.fail, Disk.repair), needs_disks=True
    ),
}
