"""Settings that distinguish one kind of coordinator from another; the runtime is common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVarTuple

from sparklog.executor.coordinators.machine.coordinator_machine import (
    CoordinatorMachine,
    CoordinatorResult,
    Now,
)
from sparklog.executor.coordinators.records.framing import RecordTypes
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import LeaderEpoch

_Event = TypeVarTuple("_Event")


class EffectOrigin(Protocol):
    """The coordinator that issued an effect, which receives its outcome."""

    @property
    def partition_index(self) -> int: ...

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Leader epoch of that partition: Kafka's coordinator epoch."""

    def decide(self, decide: Callable[[Any, *_Event, Now], CoordinatorResult], *event: *_Event) -> None:
        """Let the machine decide about the effect's outcome by a method of its class.

        A no-op once the coordinator is closed.
        """


CarryOut = Callable[[Any, EffectOrigin], None]
"""Carries out an effect of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind:
    topic: str
    records: RecordTypes
    new_machine: Callable[[int], CoordinatorMachine]
    """Makes the machine of a partition of the topic, with nothing loaded."""
    effects: Mapping[type[Any], CarryOut] = field(default_factory=dict)
    """By type: the effects of the machines, except `RunInExecutor`, which the runtime carries out."""
    write_timeout_ms: int
    """Time within which the records of a request must be committed."""
    load_buffer_bytes: int
    """Bytes of the log that one read of a load returns."""
    rest_s: float = 0.0
    """Pause of the loop after each slice of a load or of a closed partition's release.

    No loop sleeps less than a millisecond.
    """
    leads_on: bool = False
    """Whether an active coordinator stays when its partition's leader leads on in the next leader epoch.

    Not one whose leader epoch others know: markers of transactions have it.
    """
    skips_unknown_versions: bool = False
    """Whether a load passes over values of unknown versions."""
    codec: Codec = Codec.NONE
