"""A broker's life as the controller sees it: registered, fenced, unfenced, shutting down, gone.

    registers -> fenced -> has applied its own registration -> unfenced
    unfenced -> wants to shut down, leads something -> in controlled shutdown -> leads nothing -> may go
    unfenced -> its executor is to go -> in controlled shutdown -> leads nothing -> is told to go
    unfenced -> session timed out, connection refused, wants to be fenced -> fenced

The rules this module keeps:

- A broker epoch names one registration; it is the offset of its record. What comes with an older one is
  refused with STALE_BROKER_EPOCH.
- A new incarnation starts fenced and out of every ISR, whatever the one before it was.
- A broker id with a live session belongs to one incarnation; another one is refused until the session ends,
  unless it has a directory of the first, which only one process at a time can have.
- Whoever becomes fenced leaves ISRs and leaderships in the same batch of records; if they are very many, in
  the batches that follow (`unsettled_partitions`). Nobody is unfenced or registers anew before that is done.
- A broker that is to go alone is fenced when it is told so; when the whole cluster goes, nobody is. That is
  how brokers know which of the two it is.

Source: KIP-631, KIP-841 (fenced brokers and the ISR), KIP-903.
"""

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse

from driver.controller.machine.cluster_state import ClusterState
from driver.controller.machine.decision import Decision
from driver.controller.machine.elections import (
    elect_unfenced,
    remove_from_isrs,
    remove_lost_replicas,
    settle,
)
from driver.controller.machine.sessions import Session
from sparklog.endpoints import SecurityProtocol
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata.image import BrokerRegistration
from sparklog.metadata.schemas import (
    METADATA_VERSION_FEATURE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    RegisterBrokerRecord,
)
from sparklog.types import BrokerEpoch, BrokerId
from sparklog.wire.throttling import unthrottled

__all__ = ["begin_controlled_shutdown", "fence", "fence_expired", "go_on", "heartbeat", "register"]

logger = logging.getLogger(__name__)

_RESERVED_DIRECTORY_IDS: Final = 100
"""Directory ids below it have a meaning of their own (KIP-858)."""
_FENCE: Final = 1
_UNFENCE: Final = -1
_ENTER_CONTROLLED_SHUTDOWN: Final = 1


def register(cluster: ClusterState, request: BrokerRegistrationRequest, now_ms: int) -> Decision:
    """Answer BrokerRegistration."""
    broker_id = request.broker_id
    try:
        _check_registration(cluster, request, now_ms)
    except KafkaError as error:
        logger.info("Refused the registration of broker %d: %s", broker_id, error)
        return Decision([], _registered(error.error_code))
    existing = cluster.image.brokers.get(broker_id)
    records: list[MetadataRecord] = []
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record = _registration_record(
            request, existing.broker_epoch, existing.fenced, existing.in_controlled_shutdown
        )
    else:
        if existing is not None:
            records += _previous_incarnation_ends(cluster, existing, request.previous_broker_epoch)
            if len(records) == cluster.partitions_per_decision:
                # There may be more of them, and it must not come back into an ISR by never having left it.
                return Decision([*records, _becomes_fenced(existing)], None, is_first_part=True)
        record = _registration_record(request, cluster.next_offset + len(records))
    records.append(record)
    cluster.sessions.renew(broker_id, record.broker_epoch, now_ms)
    logger.info(
        "Broker %d registered with broker epoch %d, rack %s, listeners %s",
        broker_id,
        record.broker_epoch,
        record.rack,
        ", ".join(f"{endpoint.name}://{endpoint.host}:{endpoint.port}" for endpoint in record.end_points),
    )
    return Decision(records, _registered(ErrorCode.none, record.broker_epoch))


def heartbeat(
    cluster: ClusterState, request: BrokerHeartbeatRequest, now_ms: int, *, stopping: bool
) -> Decision:
    """Answer BrokerHeartbeat. While the whole cluster is `stopping`, every broker is told to go at once."""
    broker_id = request.broker_id
    try:
        registration = cluster.check_broker_epoch(broker_id, request.broker_epoch)
    except KafkaError as error:
        logger.info("Refused a heartbeat: %s", error)
        return Decision([], _beaten(error.error_code))
    session = cluster.sessions.renew(broker_id, registration.broker_epoch, now_ms)
    if request.current_metadata_offset >= 0:
        session.metadata_offset = max(session.metadata_offset or 0, request.current_metadata_offset)
    caught_up = request.current_metadata_offset >= registration.broker_epoch
    if stopping:
        cluster.sessions.end(broker_id)
        return Decision([], _beaten(ErrorCode.none, caught_up, fenced=False, shut_down=True))

    records: list[MetadataRecord] = []
    lost: list[MetadataRecord] = []
    fenced, shut_down = registration.fenced, False
    directories = registration.log_directories
    lost_all_directories = bool(directories) and set(directories) <= set(request.offline_log_dirs)
    want_fence = request.want_fence or lost_all_directories
    if registration.fenced:
        if request.want_shut_down or registration.in_controlled_shutdown:
            shut_down = True
        elif caught_up and not want_fence and not cluster.is_leaving(broker_id):
            records += _unfence(cluster, registration)
            fenced = False
    elif registration.in_controlled_shutdown:
        if _may_leave(cluster, registration, session):
            records += fence(cluster, registration, "its controlled shutdown is complete")
            fenced = shut_down = True
    elif want_fence or (request.want_shut_down and not cluster.topic_index.leading[broker_id]):
        if lost_all_directories:
            lost = remove_lost_replicas(cluster, broker_id)
            records += [*lost, _becomes_fenced(registration)]
        else:
            records += fence(cluster, registration, "it asked to leave")
        fenced, shut_down = True, request.want_shut_down
    elif request.want_shut_down:
        records += _start_controlled_shutdown(cluster, registration, session)
    failed = [directory for directory in directories if directory in request.offline_log_dirs]
    if failed and not records and not want_fence:
        lost = remove_lost_replicas(cluster, broker_id, failed)
        records += [*lost, _loses_directories(registration, failed)]
    if len(lost) == cluster.partitions_per_decision:
        # There may be more of them, and the image says no more where they were once the rest is said.
        return Decision(lost, None, is_first_part=True)
    if shut_down:
        logger.info("Broker %d may shut down", broker_id)
        cluster.sessions.end(broker_id)
    return Decision(records, _beaten(ErrorCode.none, caught_up, fenced, shut_down))


def fence(cluster: ClusterState, registration: BrokerRegistration, reason: str) -> list[MetadataRecord]:
    """Return the records that fence an unfenced broker: out of leaderships and ISRs, and marked."""
    logger.info("Broker %d is fenced: %s", registration.broker_id, reason)
    return _fence_together(cluster, [registration])


def begin_controlled_shutdown(
    cluster: ClusterState, registration: BrokerRegistration, reason: str
) -> list[MetadataRecord]:
    """Return the records that begin a broker's controlled shutdown without its asking.

    The answer to one of its next heartbeats tells it to go, once it leads nothing and the others know.
    """
    session = cluster.sessions.get(registration.broker_id)
    if registration.in_controlled_shutdown or (registration.fenced and session is None):
        return []
    logger.info("Broker %d is to leave: %s", registration.broker_id, reason)
    if registration.fenced:
        return [_enters_controlled_shutdown(registration)]
    return _start_controlled_shutdown(cluster, registration, session)


def _fence_together(
    cluster: ClusterState, registrations: Sequence[BrokerRegistration]
) -> list[MetadataRecord]:
    return [
        *remove_from_isrs(cluster, [registration.broker_id for registration in registrations]),
        *map(_becomes_fenced, registrations),
    ]


def _becomes_fenced(registration: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id, broker_epoch=registration.broker_epoch, fenced=_FENCE
    )


def fence_expired(cluster: ClusterState, now_ms: int) -> list[MetadataRecord]:
    """Return the records that fence all brokers whose sessions have run out, together."""
    expired = []
    for broker_id, registration in cluster.image.brokers.items():
        session = cluster.sessions.get(broker_id)
        if registration.fenced:
            continue
        if session is None or session.broker_epoch != registration.broker_epoch:
            # A controller that has just started has heard of nobody yet.
            cluster.sessions.renew(broker_id, registration.broker_epoch, now_ms)
        elif not cluster.sessions.is_alive(broker_id, now_ms):
            cluster.sessions.end(broker_id)
            silent_ms = now_ms - session.last_contact_ms
            logger.info("Broker %d is fenced: nothing was heard of it for %d ms", broker_id, silent_ms)
            expired.append(registration)
    return _fence_together(cluster, expired) if expired else []


def go_on(cluster: ClusterState) -> list[MetadataRecord]:
    """Return the records that settle the next partitions, of those that brokers' new states concern."""
    leaving = [
        session
        for broker_id, registration in cluster.image.brokers.items()
        if registration.in_controlled_shutdown
        and cluster.is_leaving(broker_id)
        and (session := cluster.sessions.get(broker_id)) is not None
    ]
    records = settle(cluster)
    for session in leaving if records else ():
        session.shutdown_offset = cluster.next_offset + len(records) - 1
    return records


def _start_controlled_shutdown(
    cluster: ClusterState, registration: BrokerRegistration, session: Session | None
) -> list[MetadataRecord]:
    """Return the records that take an unfenced broker's leaderships away and give it no new ones."""
    logger.info("Broker %d starts a controlled shutdown", registration.broker_id)
    records: list[MetadataRecord] = [
        _enters_controlled_shutdown(registration),
        *remove_from_isrs(cluster, (registration.broker_id,)),
    ]
    if session is not None:
        session.shutdown_offset = cluster.next_offset + len(records) - 1
    return records


def _enters_controlled_shutdown(registration: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        in_controlled_shutdown=_ENTER_CONTROLLED_SHUTDOWN,
    )


def _check_registration(cluster: ClusterState, request: BrokerRegistrationRequest, now_ms: int) -> None:
    existing = cluster.image.brokers.get(request.broker_id)
    if request.cluster_id != cluster.cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"it belongs to cluster {request.cluster_id}, this is {cluster.cluster_id}",
        )
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    # A directory's lock goes with the process that held it, so who has the directory has outlived the other.
    has_its_directory = existing is not None and not set(existing.log_directories).isdisjoint(
        request.log_dirs
    )
    may_replace = same_incarnation or has_its_directory
    if not may_replace and cluster.sessions.is_alive(request.broker_id, now_ms):
        raise KafkaError(
            ErrorCode.duplicate_broker_registration,
            "another process is registered under this broker id and alive; if it has just been replaced, "
            "this passes when its session ends",
        )
    if request.broker_id < 0 or request.incarnation_id is None or not request.listeners:
        raise _invalid("broker id, incarnation id and at least one listener are needed")
    protocols = {protocol.value for protocol in SecurityProtocol}
    for listener in request.listeners:
        if listener.security_protocol not in protocols:
            raise _invalid(
                f"listener {listener.name} has unknown security protocol {listener.security_protocol}"
            )
    _check_directories(cluster, request.broker_id, request.log_dirs)
    _check_features(cluster, request)


def _registration_record(
    request: BrokerRegistrationRequest,
    broker_epoch: BrokerEpoch,
    fenced: bool = True,
    in_controlled_shutdown: bool = False,
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=tuple(
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ),
        features=tuple(
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ),
        rack=request.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs),
    )


def _check_directories(
    cluster: ClusterState, broker_id: BrokerId, directories: Sequence[UUID | None]
) -> None:
    if not directories:
        raise _invalid("it names no log directory")
    if len(set(directories)) != len(directories):
        raise _invalid("it names a log directory twice")
    for directory in directories:
        if directory is None or directory.int < _RESERVED_DIRECTORY_IDS:
            raise _invalid(f"log directory id {directory} is reserved")
        for other_id, other in cluster.image.brokers.items():
            if other_id != broker_id and directory in other.log_directories:
                raise _invalid(f"log directory {directory} is broker {other_id}'s")


def _check_features(cluster: ClusterState, request: BrokerRegistrationRequest) -> None:
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    if METADATA_VERSION_FEATURE not in supported:
        raise _invalid(f"it does not say which {METADATA_VERSION_FEATURE} it supports")
    for name, level in cluster.image.features.items():
        lowest, highest = supported.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.unsupported_version,
                f"the cluster uses {name} {level}, the broker supports {lowest} to {highest}",
            )


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_registration, problem)


def _previous_incarnation_ends(
    cluster: ClusterState, existing: BrokerRegistration, previous_broker_epoch: BrokerEpoch
) -> list[MetadataRecord]:
    clean = previous_broker_epoch == existing.broker_epoch
    if clean or not cluster.has_eligible_leader_replicas:
        return remove_from_isrs(cluster, (existing.broker_id,))
    return remove_lost_replicas(cluster, existing.broker_id)


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
    """Note directories that have newly failed."""
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


def _registered(error_code: ErrorCode, broker_epoch: BrokerEpoch = -1) -> BrokerRegistrationResponse:
    return unthrottled(BrokerRegistrationResponse, error_code=error_code, broker_epoch=broker_epoch)


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
