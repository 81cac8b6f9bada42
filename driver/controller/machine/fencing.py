"""Fencing and controlled shutdown of a broker: others take over its leaderships.

The rules:

- A fenced broker leaves ISRs and leaderships in the same batch of records; if they are very many, in the
  batches that follow (`unsettled_partitions`). No broker is unfenced or registers again before that is done.
- Brokers that are fenced together leave together, and so do those that have not left yet.

Source: KIP-631, KIP-841 (fenced brokers and the ISR).
"""

import logging
from collections.abc import Sequence
from typing import Final

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.elections import remove_from_isrs
from sparklog.node.metadata.image import BrokerRegistration
from sparklog.node.metadata.schemas import BrokerRegistrationChangeRecord, MetadataRecord

logger = logging.getLogger(__name__)

_FENCE: Final = 1
_ENTER_CONTROLLED_SHUTDOWN: Final = 1


def fence(cluster: ClusterState, registration: BrokerRegistration, reason: str) -> list[MetadataRecord]:
    """Return the records that fence an unfenced broker: out of leaderships and ISRs, and marked."""
    logger.info("Broker %d is fenced: %s", registration.broker_id, reason)
    cluster.departure_reasons[registration.broker_id] = reason
    return _fence_together(cluster, [registration])


def fence_expired(cluster: ClusterState, now_ms: int) -> list[MetadataRecord]:
    """Return the records that fence all brokers whose sessions have run out, together."""
    expired = []
    for broker_id, registration in cluster.image.brokers.items():
        session = cluster.sessions.get(broker_id)
        if registration.fenced:
            continue
        if session is None or session.broker_epoch != registration.broker_epoch:
            # A controller that has just started has heard of no broker yet.
            cluster.sessions.renew(broker_id, registration.broker_epoch, now_ms)
        elif not cluster.sessions.is_alive(broker_id, now_ms):
            cluster.sessions.end(broker_id)
            reason = f"its session expired {now_ms - session.last_contact_ms} ms after its last contact"
            logger.info("Broker %d is fenced: %s", broker_id, reason)
            cluster.departure_reasons[broker_id] = reason
            expired.append(registration)
    return _fence_together(cluster, expired) if expired else []


def begin_controlled_shutdown(
    cluster: ClusterState, registration: BrokerRegistration, reason: str
) -> list[MetadataRecord]:
    """Return the records that begin a broker's controlled shutdown without its request.

    The reply to one of its next heartbeats has should_shut_down, once it leads nothing and the others know.
    """
    session = cluster.sessions.get(registration.broker_id)
    if registration.in_controlled_shutdown or (registration.fenced and session is None):
        return []
    logger.info("Broker %d leaves: %s", registration.broker_id, reason)
    cluster.departure_reasons[registration.broker_id] = reason
    if registration.fenced:
        return [_enters_controlled_shutdown(registration)]
    return enter_controlled_shutdown(cluster, registration)


def enter_controlled_shutdown(
    cluster: ClusterState, registration: BrokerRegistration
) -> list[MetadataRecord]:
    """Return the records that take an unfenced broker's leaderships away and give it no new ones."""
    logger.info("Broker %d starts a controlled shutdown", registration.broker_id)
    return [
        _enters_controlled_shutdown(registration),
        *remove_from_isrs(cluster, (registration.broker_id,)),
    ]


def becomes_fenced(registration: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id, broker_epoch=registration.broker_epoch, fenced=_FENCE
    )


def _fence_together(
    cluster: ClusterState, registrations: Sequence[BrokerRegistration]
) -> list[MetadataRecord]:
    return [
        *remove_from_isrs(cluster, [registration.broker_id for registration in registrations]),
        *map(becomes_fenced, registrations),
    ]


def _enters_controlled_shutdown(registration: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        in_controlled_shutdown=_ENTER_CONTROLLED_SHUTDOWN,
    )
