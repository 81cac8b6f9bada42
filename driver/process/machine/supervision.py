"""The restarts of the controller's process, and the instructions that the driver repeats to the next one.

A pure machine. Its caller carries out the effects that every method returns, in their order, and reports the
life of the process: `child_leads`, `child_failed`, `child_ended`. A process that ended is started again after
a pause (`RestartAt`, then `tick`).

    starting   a process was started and does not lead yet
    serving    it leads: the driver's instructions about brokers are passed on at once
    lost       it has ended without being asked to; the next one starts at `restart_at_ms`
    ended      the driver has stopped it, or it has reported that a restart is of no use

The rules kept:

- There is one process at a time: the next one is started only when the one before it has ended.
- The shutdown of a broker is repeated to every process that leads, until a later attempt of its rack's job
  has taken its place: the process before may have ended before the decision was committed. Each of these
  instructions is idempotent.
- A process that reports its failure is not started again. One that ended without a report is, for as long as
  the application runs; only if none of the first `FAILURES_BEFORE_START_ALLOWED` has ever led, the start
  fails.
- The pauses grow with each end in a row. They stay short behind processes that have led, which could serve
  and were killed by something: until the next one leads no broker registers, and no client gets metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.protocol.types import BrokerId

BACKOFF: Final = ExponentialBackoff(first_ms=50, max_ms=5_000)
BACKOFF_AFTER_LEADING: Final = ExponentialBackoff(first_ms=50, max_ms=500)
STEADY_MS: Final = 10_000
"""The end of a process that lived this long does not belong to a series of failures."""
FAILURES_BEFORE_START_ALLOWED: Final = 3


@dataclass(frozen=True, slots=True)
class ShutDownBroker:
    """One broker shuts down while the cluster goes on."""

    broker_id: BrokerId
    reason: str


@dataclass(frozen=True, slots=True)
class BrokerLost:
    """The broker's task or executor has ended: it is probed, and fenced if its port refuses connections."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class StopInOrder:
    """All that the cluster has is copied to its object store, before its brokers leave."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class ShutDownBrokers:
    """Every heartbeat is answered with should_shut_down."""


@dataclass(frozen=True, slots=True)
class StopController:
    """Close the listeners and the log, and end."""


Instruction: TypeAlias = ShutDownBroker | BrokerLost | StopInOrder | ShutDownBrokers | StopController


@dataclass(frozen=True, slots=True)
class StartChild:
    """Start the process; the attempts are numbered from 1."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Call `tick` at that time."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Tell:
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class KillChild:
    """Kill the process: it has nothing to close."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    reason: str


Effect: TypeAlias = StartChild | RestartAt | Tell | KillChild | GiveUp


class _State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    LOST = "lost"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class _Departure:
    rack_attempt: int
    reason: str
    is_lost: bool

    def instructions(self, broker_id: BrokerId) -> list[Effect]:
        leave = Tell(ShutDownBroker(broker_id, self.reason))
        return [Tell(BrokerLost(broker_id)), leave] if self.is_lost else [leave]


class Supervision:
    def __init__(self) -> None:
        self.attempt = 0
        self.has_led = False
        self._state = _State.LOST
        self._failures = 0
        self._started_ms = 0
        self._restart_at_ms = 0
        self._stops_in_order: StopInOrder | None = None
        self._cluster_leaves = False
        self._departures: dict[BrokerId, _Departure] = {}

    @property
    def is_serving(self) -> bool:
        return self._state is _State.SERVING

    def begin(self, now_ms: int) -> list[Effect]:
        assert self.attempt == 0, "it begins once"
        return self._start(now_ms)

    def child_leads(self, rack_attempts: Mapping[BrokerId, int]) -> list[Effect]:
        """Note that the process leads; `rack_attempts` are the racks' current attempts, by broker."""
        if self._state is not _State.STARTING:
            return []
        self._state = _State.SERVING
        self.has_led = True
        self._departures = {
            broker_id: departure
            for broker_id, departure in self._departures.items()
            if rack_attempts.get(broker_id) == departure.rack_attempt
        }
        effects: list[Effect] = []
        for broker_id, departure in self._departures.items():
            effects += departure.instructions(broker_id)
        if self._stops_in_order is not None and not self._cluster_leaves:
            effects.append(Tell(self._stops_in_order))
        if self._cluster_leaves:
            effects.append(Tell(ShutDownBrokers()))
        return effects

    def child_failed(self) -> list[Effect]:
        """Note that the process has reported a failure, which a restart would not mend."""
        self._state = _State.ENDED
        return []

    def child_ended(self, how: str, now_ms: int) -> list[Effect]:
        """Note that the process has ended; `how` is a sentence."""
        if self._state is _State.ENDED:
            return []
        self._failures = 1 if now_ms - self._started_ms >= STEADY_MS else self._failures + 1
        if not self.has_led and self._failures >= FAILURES_BEFORE_START_ALLOWED:
            self._state = _State.ENDED
            return [GiveUp(how)]
        backoff = BACKOFF_AFTER_LEADING if self.is_serving else BACKOFF
        self._state = _State.LOST
        self._restart_at_ms = now_ms + backoff.pause_ms(self._failures - 1)
        return [RestartAt(self._restart_at_ms)]

    def tick(self, now_ms: int) -> list[Effect]:
        if self._state is not _State.LOST or self.attempt == 0:
            return []
        if now_ms < self._restart_at_ms:
            return [RestartAt(self._restart_at_ms)]
        return self._start(now_ms)

    def broker_leaves(
        self, broker_id: BrokerId, rack_attempt: int, reason: str, *, is_lost: bool
    ) -> list[Effect]:
        """Shut down a broker; `is_lost`: its job has failed, and Spark ends its tasks."""
        departure = self._departures[broker_id] = _Departure(rack_attempt, reason, is_lost)
        return departure.instructions(broker_id) if self.is_serving else []

    def stop_in_order(self, timeout_ms: int) -> list[Effect]:
        """Copy all that the cluster has to its object store."""
        self._stops_in_order = StopInOrder(timeout_ms)
        return [Tell(self._stops_in_order)] if self.is_serving else []

    def cluster_leaves(self) -> list[Effect]:
        """Shut down all brokers, for the end of the cluster."""
        self._cluster_leaves = True
        return [Tell(ShutDownBrokers())] if self.is_serving else []

    def stop(self) -> list[Effect]:
        before, self._state = self._state, _State.ENDED
        match before:
            case _State.SERVING:
                return [Tell(StopController())]
            case _State.STARTING:
                return [KillChild()]
        return []

    def _start(self, now_ms: int) -> list[Effect]:
        self.attempt += 1
        self._state = _State.STARTING
        self._started_ms = now_ms
        return [StartChild(self.attempt)]
