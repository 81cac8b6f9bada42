"""The services that the replicas of one broker share: its id, its listeners, and calls to other parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sparklog.executor.partitions.machine.events import ProposeIsr
from sparklog.executor.partitions.role_listener import RoleListener
from sparklog.executor.partitions.traffic import BrokerTraffic
from sparklog.protocol.types import BrokerEpoch, BrokerId

_Replica = TypeVar("_Replica")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaHost(Generic[_Replica]):
    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    replica_lag_time_max_ms: int
    now_ms: Callable[[], int]
    """The monotonic time in milliseconds."""
    listeners: Sequence[RoleListener[_Replica]]
    """In the order of their calls."""
    propose_isr: Callable[[_Replica, ProposeIsr], None]
    """Send a proposal to the controller; report with `Replica.isr_proposal_answered`."""
    load_producers: Callable[[_Replica], None]
    """Run `replica.log.loading` in a thread; report with `Replica.producers_loaded`."""
    log_failed: Callable[[_Replica, BaseException], None]
    log_damaged: Callable[[_Replica], None]
    """Report that an in-sync replica with the records missing here must lead."""
    begins_at_tiered_end: Callable[[], bool] = lambda: False
    """follower.fetch.last.tiered.offset.enable, which may change."""
    traffic: BrokerTraffic = field(default_factory=BrokerTraffic)
    """The counts of records in and out."""
