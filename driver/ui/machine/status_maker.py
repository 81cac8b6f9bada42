"""Makes a `Status` of an observation: the committed image, the quorum, racks, brokers' metrics, queries.

Its input is complete; nothing here waits. Unchanged parts are not examined again, so that an idle cluster of
10,000 partitions costs as little as one of ten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.driver.ui.machine.events import EventLog
from sparklog.driver.ui.machine.status import (
    BrokerAvailability,
    BrokerStatus,
    BrokerStatusMetrics,
    BrokerTask,
    ControllerStatus,
    QueryStatus,
    Status,
    TierStatus,
)
from sparklog.driver.ui.machine.topic_health import BrokerLoad, TopicHealth
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId, TimestampMs

MAX_LISTED_TOPICS: Final = 20
"""The topics named in the overview; the topics have pages of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlace:
    """The driver's view of a broker: its rack, its attempts, its task."""

    node_id: BrokerId
    rack: str
    attempt: int
    task: BrokerTask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    taken_ms: TimestampMs
    cluster_id: str
    bootstrap_servers: str
    missing: str | None
    image: MetadataImage
    controller: ControllerStatus | None
    places: Sequence[BrokerPlace]
    metrics: Mapping[BrokerId, BrokerStatusMetrics]
    queries: tuple[QueryStatus, ...]
    tier: TierStatus | None = None


def make_status(observation: Observation, health: TopicHealth, events: EventLog) -> Status:
    """Return the cluster's status; `health` and `events` have processed the observation's image."""
    image = observation.image
    return Status(
        taken_ms=observation.taken_ms,
        cluster_id=observation.cluster_id,
        bootstrap_servers=observation.bootstrap_servers,
        missing=observation.missing,
        controller=observation.controller,
        brokers=tuple(
            _broker(place, image, health.loads, observation.metrics.get(place.node_id))
            for place in observation.places
        ),
        partitions=health.partitions,
        topic_count=len(health.names),
        topics=health.summaries(0, MAX_LISTED_TOPICS),
        queries=observation.queries,
        events=events.events,
        tier=observation.tier,
    )


def _broker(
    place: BrokerPlace,
    image: MetadataImage,
    loads: Mapping[BrokerId, BrokerLoad],
    metrics: BrokerStatusMetrics | None,
) -> BrokerStatus:
    registration = image.brokers.get(place.node_id)
    load = loads.get(place.node_id, BrokerLoad())
    if registration is None:
        state = BrokerAvailability.MISSING
    elif registration.fenced:
        state = BrokerAvailability.FENCED
    else:
        state = (
            BrokerAvailability.LEAVING if registration.in_controlled_shutdown else BrokerAvailability.SERVING
        )
    listener = registration.listeners[0] if registration is not None and registration.listeners else None
    return BrokerStatus(
        node_id=place.node_id,
        state=state,
        rack=place.rack,
        listener=None if listener is None else f"{listener.host}:{listener.port}",
        broker_epoch=None if registration is None else registration.broker_epoch,
        restarts=max(0, place.attempt - 1),
        task=place.task,
        partitions_led=load.led,
        partitions_held=load.held,
        partitions_in_sync=load.in_sync,
        figures=metrics,
    )
