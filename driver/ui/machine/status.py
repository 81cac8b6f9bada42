"""The status of the cluster at one moment, for all views.

Bounded plain values: lists are cut at the bounds of `status_maker`, and give the total. A value that was not
measured is None.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TimestampMs


class BrokerAvailability(StrEnum):
    MISSING = "not registered"
    FENCED = "fenced"
    SERVING = "in service"
    LEAVING = "leaving"


class Trouble(StrEnum):
    """The trouble of a partition; the worst first."""

    OFFLINE = "offline"
    """It has no leader."""
    UNDER_MIN_ISR = "under min.insync.replicas"
    """It accepts no record with acks=all."""
    UNDER_REPLICATED = "under-replicated"
    """Not all of its replicas are in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterStatus:
    """A replica of the metadata log; `is_voter` whether it counts for a majority."""

    node_id: BrokerId
    is_voter: bool
    log_end_offset: Offset | None
    lag: int | None
    """Records of the leader's log that it has not fetched."""
    last_fetch_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    node_id: BrokerId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    log_end_offset: Offset
    has_majority: bool
    voters: tuple[VoterStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTask:
    executor_id: str
    host: str
    stage_id: int
    logs: tuple[tuple[str, str], ...] = ()
    """The executor's own logs: name and URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStatusMetrics:
    """The rate of an API's requests, and the 99th percentile of their time."""

    api: str
    requests_per_s: float
    p99_ms: float | None
    throttle_ms_per_s: float = 0.0
    """The throttle time of all clients together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatusMetrics:
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    records_in_per_s: float | None = None
    requests: tuple[ApiStatusMetrics, ...] = ()
    log_size_bytes: int | None = None
    free_bytes: int | None = None
    loop_lag_ms: float | None = None
    groups: int | None = None
    """The groups that it coordinates, by its last count."""
    groups_moving: int | None = None
    """The rebalancing ones of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    node_id: BrokerId
    state: BrokerAvailability
    rack: str
    listener: str | None
    """`host:port` that is advertised to clients."""
    broker_epoch: BrokerEpoch | None
    restarts: int
    task: BrokerTask | None
    partitions_led: int
    partitions_held: int
    partitions_in_sync: int
    figures: BrokerStatusMetrics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTrouble:
    topic: str
    partition: int
    trouble: Trouble
    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    eligible: tuple[BrokerId, ...]
    """Replicas outside the ISR that have every committed record (KIP-966)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsStatus:
    """The numbers of all partitions, and the names of the first ones in trouble, the worst first."""

    count: int
    offline: int
    under_min_isr: int
    under_replicated: int
    troubled: tuple[PartitionTrouble, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    name: str
    partitions: int
    replicas: int
    """The most replicas of any of its partitions."""
    offline: int
    under_min_isr: int
    under_replicated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic:
    """A topic's sums over the leaders of its partitions."""

    name: str
    local_bytes: int
    tiered_bytes: int
    copy_lag_bytes: int
    copy_lag_records: int
    """Offsets, which may have gaps."""
    copy_lag_ms: int
    reads_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierErrorStatus:
    topic: str
    partition: int
    error: str
    kind: str
    """One of `TierErrorKind`."""
    for_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    tiered_bytes: int
    partitions_awaiting_manifest: int
    topic_count: int
    topics: tuple[TieredTopic, ...]
    """Topics with the largest lag of copies."""
    errors: tuple[TierErrorStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """A source of a streaming query; `lag` is in records, if the source reports its latest offset."""

    description: str
    lag: int | None
    input_rows_per_s: float | None
    processed_rows_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """A streaming query of this application, by its last progress."""

    name: str | None
    run_id: str
    batch_id: int
    timestamp: str
    batch_duration_ms: int | None
    sources: tuple[SourceStatus, ...]
    sink: str
    failure: str | None = None
    """The reason of its end; None while it runs, and "" when it was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    at_ms: TimestampMs
    kind: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    taken_ms: TimestampMs
    cluster_id: str
    bootstrap_servers: str
    missing: str | None
    """The voters or brokers without which no decision is possible; None while none is missing."""
    controller: ControllerStatus | None
    brokers: tuple[BrokerStatus, ...]
    partitions: PartitionsStatus
    topic_count: int
    topics: tuple[TopicSummary, ...]
    """The first of them by name."""
    queries: tuple[QueryStatus, ...]
    events: tuple[Event, ...]
    """The newest first."""
    tier: TierStatus | None = None
    """None of a cluster without one."""


def as_json(value: Any) -> Any:
    """Return data for `json.dumps` from a status, or a part of one; keys are the fields' names.

    >>> as_json((Event(at_ms=7, kind="fenced", subject="broker 1", reason="silent"),))
    [{'at_ms': 7, 'kind': 'fenced', 'subject': 'broker 1', 'reason': 'silent'}]
    """
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return value
