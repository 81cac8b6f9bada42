"""What faults act upon, and what they say they did."""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

import psutil

from benchmarks.probe import Probe
from tests.chaos.application import BROKERS, Application
from tests.chaos.disks import Disk
from tests.chaos.ledger import Ledger
from tests.chaos.reading import Reader
from tests.chaos.store_proxy import FaultyS3
from tests.chaos.view import View, broker_processes

SIGHT_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.05


class TierError(Exception):
    """The tier of a cluster did not do what is promised."""


class Tier(Enum):
    """Where the cluster of a run has its tier."""

    NONE = "none"
    FAULTY_S3 = "an S3 server that can be made to fail"
    DIRECTORY = "a directory"
    TABLES = "a directory, in which topics are tables"


@dataclass(frozen=True, slots=True)
class Struck:
    """What a fault did."""

    description: str
    brokers: frozenset[int]
    """Who was hit."""
    is_replaced: bool
    """Whether these brokers are other processes afterwards."""
    over_s: float
    """When the damage ended, on the monotonic clock; how long a broker takes to be back counts from here."""


@dataclass(slots=True)
class Scene:
    """What faults act upon."""

    application: Application
    view: View
    chance: random.Random
    disks: Mapping[int, Disk]
    freeze_s: float
    """How long a frozen process is frozen, unless somebody ends it."""
    broken_disk_s: float
    """How long a disk stays full, read-only or without power."""
    minutes: float
    """How long what lasts by itself is to last."""
    ledger: Ledger
    store: FaultyS3 | None
    """Where the cluster has its tier."""
    probe: Probe
    reader: Reader
    turns: Iterator[int] = field(default_factory=lambda: itertools.cycle(range(BROKERS)))
    """Whose turn it is to be stopped, rolling."""

    def brokers(
        self, timeout_s: float = SIGHT_TIMEOUT_S
    ) -> tuple[dict[int, psutil.Process], tuple[int, ...]]:
        """Return the brokers' processes and the leaders of all partitions, when all brokers are there."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            sight = self.view.look()
            processes = broker_processes(sight)
            if len(processes) == BROKERS and sight.leaders:
                return processes, sight.leaders
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"not all brokers are there: {sight}")
            time.sleep(POLL_S)


Strike: TypeAlias = Callable[[Scene], Struck]
