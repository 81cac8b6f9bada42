"""What the replicas of one broker have in common: who it is, who hears of them, and whom they ask."""

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
    """The broker around its replicas."""

    broker_id: BrokerId
    broker_epoch: Callable[[], BrokerEpoch | None]
    replica_lag_time_max_ms: int
    now_ms: Callable[[], int]
    """The monotonic time in milliseconds."""
    listeners: Sequence[RoleListener[_Replica]]
    """In the order in which they are told."""
    propose_isr: Callable[[_Replica, ProposeIsr], None]
    """Send a proposal to the controller; report with `Replica.isr_proposal_answered`."""
    load_producers: Callable[[_Replica], None]
    """Have `replica.log.loading` run beside the loop; report with `Replica.producers_loaded`."""
    log_failed: Callable[[_Replica, BaseException], None]
    log_damaged: Callable[[_Replica], None]
    """Others in sync have what this log has not: one of them is to lead."""
    traffic: BrokerTraffic = field(default_factory=BrokerTraffic)
    """Where it is counted what goes in and out."""
