"""What tells one kind of coordinator from another; all else is the runtime's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparklog.executor.coordinators.machine.decision import CoordinatorMachine, Decision, Now
from sparklog.executor.coordinators.records.framing import RecordTypes
from sparklog.protocol.records.codecs import Codec
from sparklog.protocol.types import LeaderEpoch


class EffectOrigin(Protocol):
    """The coordinator that an effect comes from; its outcome goes back there."""

    @property
    def partition_index(self) -> int:
        """The partition of the internal topic."""

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Of that partition: Kafka's coordinator epoch."""

    def decide(self, decide: Callable[[Any, Now], Decision | None]) -> None:
        """Have the machine decide about what came of the effect; nothing happens once that is closed."""


CarryOut = Callable[[Any, EffectOrigin], None]
"""Carries out an effect of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKind:
    """One kind of coordinator."""

    topic: str
    records: RecordTypes
    new_machine: Callable[[int], CoordinatorMachine]
    """Makes the machine of a partition of the topic, with nothing loaded."""
    effects: Mapping[type[Any], CarryOut] = field(default_factory=dict)
    """By their types: the effects of the machines, but for `Beside`, which is the runtime's."""
    write_timeout_ms: int
    """How long a request waits for what was appended to be committed."""
    load_buffer_bytes: int
    """How much of the log is read at a time in a load."""
    rest_s: float = 0.0
    """How long the loop is left to others after each slice of a load, or of what a closed partition lets
    go of; no loop sleeps less than a millisecond."""
    skips_unknown_versions: bool = False
    """Whether a load passes over values of versions that are not known."""
    codec: Codec = Codec.NONE
