"""The messages between the driver and the controller's process over their socket pair.

Each message is a frame: its length in four bytes, then JSON (`codec`). The driver sends instructions and
queries; the process sends its state, its log lines and the answers, in any order. An answer repeats the
number of its query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, get_args

from sparklog.driver.process.machine.supervision import (
    BrokerLost,
    ShutDownBroker,
    ShutDownBrokers,
    StopController,
    StopInOrder,
)
from sparklog.driver.ui.tab_source import MadePage, MadeTab, Observed
from sparklog.protocol.types import BrokerEpoch, BrokerId


@dataclass(frozen=True, slots=True)
class StartController:
    """Serve; the first message. The listening sockets come as descriptors right before it."""

    configuration: Mapping[str, str] = field(repr=False)
    directory: str
    secret: str = field(repr=False)
    expected_brokers: tuple[tuple[int, str], ...]
    """Each broker's id and rack."""
    new_cluster_id: str
    initial_scram_users: tuple[bytes, ...] = field(repr=False)
    """Encoded metadata records."""
    brokers_run: bool
    """Whether brokers of this application have had a controller before."""
    log_level: int


@dataclass(frozen=True, slots=True)
class BeginTab:
    """Start to record events of the cluster for the Log tab."""


@dataclass(frozen=True, slots=True)
class AskTab:
    number: int
    observed: Observed


@dataclass(frozen=True, slots=True)
class AskPage:
    number: int
    key: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the numbers of the cluster's size that are not None."""

    number: int
    racks: int | None
    brokers_per_rack: int | None


@dataclass(frozen=True, slots=True)
class AskMetrics:
    number: int
    restarts: tuple[tuple[int, int], ...]
    """The number of restarts of each broker."""


FromDriver: TypeAlias = (
    StartController
    | ShutDownBroker
    | BrokerLost
    | StopInOrder
    | ShutDownBrokers
    | StopController
    | BeginTab
    | AskTab
    | AskPage
    | AskMetrics
    | Resize
)


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The state of the cluster; sent after every change."""

    cluster_id: str | None
    """None before an election is won."""
    lacks_voters: bool
    missing_voters: tuple[BrokerId, ...]
    """The voters without which no election can be won; also brokers that are beyond those of the start."""
    missing: str | None
    unfenced: tuple[BrokerId, ...]
    registered: tuple[BrokerId, ...]
    serves: bool
    """Whether all brokers are unfenced and know each other, and clients are served."""
    owner_epoch: int | None
    """Epoch of the owner of the store's prefix; None before the ownership is taken, and without a tier."""
    is_copied: bool
    """Whether an orderly stop has come to its end: all is copied, or its time is over."""
    racks: int | None
    """The configured number of racks; None before this controller has committed anything."""
    brokers_per_rack: int | None
    surplus: tuple[tuple[BrokerId, int], ...]
    """The brokers beyond that size, with the number of replicas that are still on each."""
    drained: tuple[BrokerId, ...]
    """Those that may end: without replicas, and without a vote."""
    may_restart: bool
    """Whether a broker that stays may start again: all replicas and voters are in sync."""
    broker_epochs: tuple[tuple[BrokerId, BrokerEpoch], ...]
    """The epoch of each broker's registration."""


@dataclass(frozen=True, slots=True)
class Failed:
    error: str
    """The name of the error's class; `errors` knows some classes."""
    arguments: tuple[str | None, ...]
    code: int | None
    """Kafka's error code, or the errno of an OSError."""


@dataclass(frozen=True, slots=True)
class LogLine:
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
    number: int
    tab: MadeTab


@dataclass(frozen=True, slots=True)
class PageMade:
    number: int
    page: MadePage


@dataclass(frozen=True, slots=True)
class Resized:
    number: int
    refusal: str | None
    """None if the cluster has the size now."""


@dataclass(frozen=True, slots=True)
class WrittenMetrics:
    for_sinks: str
    for_prometheus: str


@dataclass(frozen=True, slots=True)
class MetricsMade:
    number: int
    metrics: WrittenMetrics


@dataclass(frozen=True, slots=True)
class NotMade:
    """The query of that number failed; a log line gives the error."""

    number: int


FromChild: TypeAlias = (
    ControllerState | Failed | LogLine | TabMade | PageMade | MetricsMade | Resized | NotMade
)

FROM_DRIVER: Final[Mapping[str, type[FromDriver]]] = {each.__name__: each for each in get_args(FromDriver)}
FROM_CHILD: Final[Mapping[str, type[FromChild]]] = {each.__name__: each for each in get_args(FromChild)}
