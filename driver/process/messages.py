"""The messages between driver and controller's process over their socket pair.

Each message is a frame: its length in four bytes, then JSON (`codec`). The driver sends instructions and
questions; the process sends its state, its log lines and the answers, in any order. A question has a number,
which its answer repeats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from sparklog.driver.process.machine.supervision import (
    BrokerLost,
    ShutDownBroker,
    ShutDownBrokers,
    StopController,
)
from sparklog.driver.ui.tab_source import MadePage, MadeTab, Observed
from sparklog.types import BrokerId


@dataclass(frozen=True, slots=True)
class StartController:
    """Serve; the first message. The listening sockets come as descriptors right before it."""

    configuration: Mapping[str, str] = field(repr=False)
    directory: str
    secret: str = field(repr=False)
    expected_brokers: tuple[tuple[int, str], ...]
    """Each broker's id and rack."""
    new_cluster_id: str
    first_users: tuple[bytes, ...] = field(repr=False)
    """Metadata records, as they lie in the log."""
    brokers_run: bool
    """Whether brokers of this application have had a controller before."""
    log_level: int


@dataclass(frozen=True, slots=True)
class BeginTab:
    """Note from now on what happens in the cluster, for the Log tab."""


@dataclass(frozen=True, slots=True)
class AskTab:
    """Make the tab's overview."""

    number: int
    observed: Observed


@dataclass(frozen=True, slots=True)
class AskPage:
    """Make a page of the tab."""

    number: int
    key: str


@dataclass(frozen=True, slots=True)
class AskFigures:
    """Write the metrics of all nodes."""

    number: int
    restarts: tuple[tuple[int, int], ...]
    """How often each broker was started again."""


FromDriver: TypeAlias = (
    StartController
    | ShutDownBroker
    | BrokerLost
    | ShutDownBrokers
    | StopController
    | BeginTab
    | AskTab
    | AskPage
    | AskFigures
)


@dataclass(frozen=True, slots=True)
class ControllerState:
    """How far the cluster is; sent whenever it changes."""

    cluster_id: str | None
    """None before an election is won."""
    lacks_voters: bool
    missing: str | None
    unfenced: tuple[BrokerId, ...]
    registered: tuple[BrokerId, ...]
    serves: bool
    """Whether all brokers are live and know each other, and clients are served."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The controller can't go on, and why."""

    error: str
    """The error's class, one of those that `errors` knows, or else its name."""
    arguments: tuple[str | None, ...]
    """The arguments of the class."""
    code: int | None
    """Kafka's error code, or the errno of an OSError."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A record of Python's logging."""

    name: str
    level: int
    message: str
    created_s: float
    thread: str
    path: str
    line: int
    traceback: str | None


@dataclass(frozen=True, slots=True)
class TabMade:
    """The answer to AskTab."""

    number: int
    tab: MadeTab


@dataclass(frozen=True, slots=True)
class PageMade:
    """The answer to AskPage."""

    number: int
    page: MadePage


@dataclass(frozen=True, slots=True)
class Figures:
    """The metrics of all nodes, as text."""

    for_sinks: str
    for_prometheus: str


@dataclass(frozen=True, slots=True)
class FiguresMade:
    """The answer to AskFigures."""

    number: int
    figures: Figures


@dataclass(frozen=True, slots=True)
class NotMade:
    """The question of that number has no answer; a log line says why."""

    number: int


FromChild: TypeAlias = ControllerState | Failed | LogLine | TabMade | PageMade | FiguresMade | NotMade

FROM_DRIVER: Final[Mapping[str, type[FromDriver]]] = {
    kind.__name__: kind
    for kind in (
        StartController,
        ShutDownBroker,
        BrokerLost,
        ShutDownBrokers,
        StopController,
        BeginTab,
        AskTab,
        AskPage,
        AskFigures,
    )
}
FROM_CHILD: Final[Mapping[str, type[FromChild]]] = {
    kind.__name__: kind
    for kind in (ControllerState, Failed, LogLine, TabMade, PageMade, FiguresMade, NotMade)
}
