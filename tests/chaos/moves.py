"""Partitions that are being moved when something is killed.

With three brokers and three replicas there is nowhere to move to. So the leader of each partition is taken
out of its replicas first, which moves the leadership and deletes a log; then it is asked back, and has to
copy everything. What is killed is killed while it does.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.request import ReassignablePartition, ReassignableTopic
from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsRequest

from benchmarks.faults import FAULTS as SIGNALS
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import ErrorCode
from tests.chaos.application import BROKERS
from tests.chaos.scene import Scene, Strike, Struck

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05
LATEST_S: Final = 0.3
"""How long after the copying has been asked for the signal comes."""


def while_moved(who: str, kill: Callable[[Scene, Sequence[int], Sequence[int]], frozenset[int]]) -> Strike:
    """Return the fault that kills while all partitions are copied.

    `kill` is given who leads each partition, and who is being added to it, and returns who was hit.
    """

    def strike(scene: Scene) -> Struck:
        _, former = scene.brokers()
        _reassign(scene, [[each for each in range(BROKERS) if each != leader] for leader in former])
        _wait_until_moved(scene)
        leaders = _leaders_without(scene, former)
        _reassign(
            scene, [[leader, *(each for each in range(BROKERS) if each != leader)] for leader in former]
        )
        time.sleep(scene.chance.uniform(0, LATEST_S))
        hit = kill(scene, leaders, former)
        description = f"SIGKILL of {who} while all partitions are moved: {sorted(hit)}"
        return Struck(description, hit, True, time.monotonic())

    return strike


def kill_target(scene: Scene, leaders: Sequence[int], adding: Sequence[int]) -> frozenset[int]:
    """End the broker that is being added to most partitions."""
    return _kill_broker(scene, statistics.mode(adding))


def kill_source(scene: Scene, leaders: Sequence[int], adding: Sequence[int]) -> frozenset[int]:
    """End the broker that most partitions are copied from."""
    return _kill_broker(scene, statistics.mode(leaders))


def kill_driver(scene: Scene, leaders: Sequence[int], adding: Sequence[int]) -> frozenset[int]:
    """End the driver, and with it all brokers."""
    scene.application.driver_jvm().kill()
    return frozenset(range(BROKERS))


def _kill_broker(scene: Scene, broker: int) -> frozenset[int]:
    processes, _ = scene.brokers()
    SIGNALS["kill"].strike(processes[broker])
    return frozenset({broker})


def _leaders_without(scene: Scene, former: Sequence[int]) -> tuple[int, ...]:
    """Return who leads once nobody does who did."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        _, leaders = scene.brokers()
        if all(leader not in (-1, before) for leader, before in zip(leaders, former, strict=True)):
            return leaders
        assert time.monotonic() < deadline_s, f"{former} were not removed, {leaders} lead"
        time.sleep(POLL_S)


def _reassign(scene: Scene, targets: Sequence[Sequence[int]]) -> None:
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=tuple(target))
        for number, target in enumerate(targets)
    )
    response = _ask(
        scene,
        AlterPartitionReassignmentsRequest(
            timeout=timedelta(seconds=TIMEOUT_S),
            topics=(ReassignableTopic(name=scene.view.topic, partitions=partitions),),
        ),
    )
    errors = {each.error_code for topic in response.responses for each in topic.partitions}
    assert errors == {ErrorCode.none}, response


def _wait_until_moved(scene: Scene) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while (under_way := _ask(scene, ListPartitionReassignmentsRequest(topics=None))).topics:
        assert time.monotonic() < deadline_s, under_way
        time.sleep(POLL_S)


def _ask(scene: Scene, request: Any) -> Any:
    host, _, port = scene.application.bootstrap_servers.rpartition(":")
    channel = BlockingChannel(host, int(port), "chaos", TIMEOUT_S)
    try:
        return channel.request(request)
    finally:
        channel.close()
