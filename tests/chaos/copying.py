"""A topic that is copied exactly once while brokers, an executor, a copier and the driver are killed.

Two copiers of one group (`copier.py`) copy 100,000 records in transactions of at most 750. The records come
in parts, one before each kill, so that there is always something under way. When all are copied, the target
must hold for whoever reads committed records what the source holds: in each partition the same records in
the same order, each once.

A copier that has ended is started again, as a supervisor would do it: one is killed, and others may end
themselves when their client hangs.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

from benchmarks.faults import FAULTS as SIGNALS
from tests.chaos.application import BROKERS
from tests.chaos.exactly_once import (
    PARTITIONS,
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
from tests.chaos.scene import Scene, Struck

RECORDS: Final = 100_000
COPIERS: Final = 2
LATEST_S: Final = 1.5
"""How long after a part of the records a kill comes, at most."""


def copy_under_kills(scene: Scene) -> Struck:
    """Have records copied, kill meanwhile, and compare.

    Raises:
        ExactlyOnceError: the copy lacks records, has some twice, in another order, or others.
    """
    servers = scene.application.bootstrap_servers
    name = f"copied-{scene.chance.randrange(10**9)}"
    source, target = f"{name}-from", f"{name}-to"
    create_topics(servers, source, target)
    kills: list[Kill] = [_kill_broker, _kill_executor, _kill_driver, _kill_copier]
    scene.chance.shuffle(kills)
    # Whole rounds of the partitions: each part goes on where the one before has ended.
    part = RECORDS // (len(kills) + 1) // PARTITIONS * PARTITIONS
    hit: set[int] = set()
    command = [sys.executable, "-m", "tests.chaos.copier", servers, source, target]
    with Workers([[*command, f"{name}-copier-{number}"] for number in range(COPIERS)]) as copiers:
        for number, kill in enumerate(kills):
            _produce(servers, source, range(number * part, (number + 1) * part))
            time.sleep(scene.chance.uniform(0, LATEST_S))
            hit |= kill(scene, copiers)
            over_s = time.monotonic()
            broker_processes(scene)
            copiers.start_missing()
        _produce(servers, source, range(len(kills) * part, RECORDS))
        wait_for_records(servers, target, RECORDS, copiers)
    compare(servers, target, RECORDS)
    return Struck("kills of all kinds under copiers in transactions", frozenset(hit), False, over_s)


Kill = Callable[[Scene, Workers], set[int]]


def _kill_broker(scene: Scene, copiers: Workers) -> set[int]:
    return _strike("kill", scene)


def _kill_executor(scene: Scene, copiers: Workers) -> set[int]:
    return _strike("kill-executor", scene)


def _strike(name: str, scene: Scene) -> set[int]:
    processes = broker_processes(scene)
    broker = scene.chance.choice(sorted(processes))
    SIGNALS[name].strike(processes[broker])
    return {broker}


def _kill_driver(scene: Scene, copiers: Workers) -> set[int]:
    scene.application.driver_jvm().kill()
    return set(range(BROKERS))


def _kill_copier(scene: Scene, copiers: Workers) -> set[int]:
    copiers.kill(scene.chance.randrange(COPIERS))
    return set()


def _produce(bootstrap_servers: str, topic: str, numbers: range) -> None:
    produce(bootstrap_servers, topic, (b"%d" % number for number in numbers))


def compare(bootstrap_servers: str, target: str, records: int) -> None:
    """Compare a copy with the numbers below `records`, which were written in turn to each partition.

    Raises:
        ExactlyOnceError: it lacks some, has some twice, in another order, or others.
    """
    copied: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for messages in read_committed(bootstrap_servers, target, patience_s=SURPLUS_S):
        for message in messages:
            copied[message.partition() or 0].append(message.value() or b"")
    for partition, found in enumerate(copied):
        wanted = [b"%d" % number for number in range(partition, records, PARTITIONS)]
        if wanted != found:
            pairs = enumerate(zip(wanted, found, strict=False))
            shorter = min(len(wanted), len(found))
            at = next((index for index, (one, other) in pairs if one != other), shorter)
            raise ExactlyOnceError(
                f"{target}-{partition} has {len(found)} records and not {len(wanted)}, "
                f"{len(set(found))} of them different; from record {at} on it has "
                f"{found[at : at + TELLING]}, not {wanted[at : at + TELLING]}"
            )
