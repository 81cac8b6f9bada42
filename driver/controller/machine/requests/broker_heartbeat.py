"""BrokerHeartbeat: a broker reports its state and wishes; the reply has its permitted state.

    registers -> fenced -> has applied its own registration -> unfenced
    unfenced -> wants to shut down, leads something -> in controlled shutdown -> leads nothing -> may go
    unfenced -> loses its executor -> in controlled shutdown -> leads nothing -> gets should_shut_down
    unfenced -> session timed out, connection refused, wants to be fenced -> fenced

The rule: a broker that leaves alone is fenced with that reply; when the whole cluster leaves, no broker is
fenced. That is how brokers distinguish the two.

Source: KIP-631.
"""

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.elections import (
    elect_unfenced,
    remove_from_failed_directories,
    remove_lost_replicas,
)
from sparklog.driver.controller.machine.fencing import becomes_fenced, enter_controlled_shutdown, fence
from sparklog.driver.controller.machine.sessions import Session
from sparklog.node.metadata.image import BrokerRegistration
from sparklog.node.metadata.schemas import BrokerRegistrationChangeRecord, MetadataRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_UNFENCE: Final = -1


def heartbeat(
    cluster: ClusterState, request: BrokerHeartbeatRequest, now_ms: int, *, stopping: bool
) -> ControllerResult:
    """Answer BrokerHeartbeat. While the whole cluster is `stopping`, every reply has should_shut_down."""
    broker_id = request.broker_id
    try:
        registration = cluster.check_broker_epoch(broker_id, request.broker_epoch)
    except KafkaError as error:
        logger.info("Refused a heartbeat: %s", error)
        return ControllerResult([], _beaten(error.error_code))
    session = cluster.sessions.renew(broker_id, registration.broker_epoch, now_ms)
    if request.current_metadata_offset >= 0:
        session.metadata_offset = max(session.metadata_offset or 0, request.current_metadata_offset)
    caught_up = request.current_metadata_offset >= registration.broker_epoch
    if stopping:
        cluster.sessions.end(broker_id)
        return ControllerResult([], _beaten(ErrorCode.none, caught_up, fenced=False, shut_down=True))

    records: list[MetadataRecord] = []
    fenced, shut_down = registration.fenced, False
    directories = registration.log_directories
    lost_all_directories = bool(directories) and set(directories) <= set(request.offline_log_dirs)
    want_fence = request.want_fence or lost_all_directories
    if lost_all_directories:
        records += remove_lost_replicas(cluster, broker_id)
        if not registration.fenced:
            logger.warning("Broker %d is fenced: it has no log directory left", broker_id)
            cluster.departure_reasons[broker_id] = "it has no log directory left"
            records.append(becomes_fenced(registration))
            fenced = True
        if len(records) >= cluster.partitions_per_decision:
            return ControllerResult(records, None, is_first_part=True)
    if registration.fenced or lost_all_directories:
        if request.want_shut_down or registration.in_controlled_shutdown:
            shut_down = True
        elif caught_up and not want_fence and not cluster.is_leaving(broker_id):
            records += _unfence(cluster, registration)
            fenced = False
    elif registration.in_controlled_shutdown:
        if session.shutdown_offset is None:
            # Another driver moved the leaders; the others may not know all of the state that it left.
            session.shutdown_offset = cluster.image.offset
        if _may_leave(cluster, registration, session):
            records += fence(cluster, registration, "its controlled shutdown is complete")
            fenced = shut_down = True
    elif want_fence or (request.want_shut_down and not cluster.topic_index.leading[broker_id]):
        reason = "it asked to leave" if request.want_shut_down else "it asked to be fenced"
        records += fence(cluster, registration, reason)
        fenced, shut_down = True, request.want_shut_down
    elif request.want_shut_down:
        cluster.departure_reasons[broker_id] = "it asked to leave"
        records += enter_controlled_shutdown(cluster, registration)
    failed = [directory for directory in directories if directory in request.offline_log_dirs]
    if failed and not records and not want_fence:
        records += remove_from_failed_directories(cluster, broker_id, failed)
        records.append(_loses_directories(registration, failed))
    if shut_down:
        logger.info("Broker %d may shut down", broker_id)
        cluster.sessions.end(broker_id)
    return ControllerResult(records, _beaten(ErrorCode.none, caught_up, fenced, shut_down))


def _unfence(cluster: ClusterState, registration: BrokerRegistration) -> list[MetadataRecord]:
    logger.info("Broker %d is unfenced: it has applied its registration", registration.broker_id)
    return [
        BrokerRegistrationChangeRecord(
            broker_id=registration.broker_id, broker_epoch=registration.broker_epoch, fenced=_UNFENCE
        ),
        *elect_unfenced(cluster, registration.broker_id),
    ]


def _may_leave(cluster: ClusterState, registration: BrokerRegistration, session: Session) -> bool:
    """Whether a broker in controlled shutdown leads nothing and all others know it."""
    broker_id = registration.broker_id
    if cluster.topic_index.leading[broker_id] or cluster.is_leaving(broker_id):
        return False
    others = [other for other in cluster.image.brokers if cluster.is_active(other)]
    return session.shutdown_offset is None or cluster.sessions.all_applied(session.shutdown_offset, others)


def _loses_directories(
    registration: BrokerRegistration, failed: Sequence[UUID]
) -> BrokerRegistrationChangeRecord:
    left = tuple(directory for directory in registration.log_directories if directory not in failed)
    logger.warning(
        "Directories %s of broker %d went offline, left are %s",
        [str(directory) for directory in failed],
        registration.broker_id,
        [str(directory) for directory in left],
    )
    return BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id, broker_epoch=registration.broker_epoch, log_dirs=left
    )


def _beaten(
    error_code: ErrorCode, caught_up: bool = False, fenced: bool = True, shut_down: bool = False
) -> BrokerHeartbeatResponse:
    return unthrottled(
        BrokerHeartbeatResponse,
        error_code=error_code,
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=shut_down,
    )
