"""BrokerRegistration: one broker id, one incarnation, one broker epoch.

The rules:

- A broker epoch names one registration; it is the offset of its record. Requests with an older one are
  refused with STALE_BROKER_EPOCH.
- A new incarnation starts fenced and out of every ISR, regardless of the previous one's state. If it leaves
  very many ISRs, it registers with the last of them.
- A broker id with a live session belongs to one incarnation; another one is refused until the session ends,
  unless it has a directory of the first, which only one process at a time can have.

Source: KIP-631, KIP-841 (fenced brokers and the ISR), KIP-903.
"""

import logging
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.broker_registration.v4.response import BrokerRegistrationResponse

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.elections import remove_from_isrs, remove_lost_replicas
from sparklog.driver.controller.machine.fencing import becomes_fenced
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.metadata.image import BrokerRegistration
from sparklog.node.metadata.schemas import (
    METADATA_VERSION_FEATURE,
    BrokerEndpoint,
    BrokerFeature,
    MetadataRecord,
    RegisterBrokerRecord,
)
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId

logger = logging.getLogger(__name__)

_RESERVED_DIRECTORY_IDS: Final = 100
"""Directory ids below it have a meaning of their own (KIP-858)."""


def register(cluster: ClusterState, request: BrokerRegistrationRequest, now_ms: int) -> ControllerResult:
    broker_id = request.broker_id
    try:
        _check_registration(cluster, request, now_ms)
    except KafkaError as error:
        logger.info("Refused the registration of broker %d: %s", broker_id, error)
        return ControllerResult([], _registered(error.error_code))
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
                return ControllerResult([*records, becomes_fenced(existing)], None, is_first_part=True)
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
    return ControllerResult(records, _registered(ErrorCode.none, record.broker_epoch))


def _check_registration(cluster: ClusterState, request: BrokerRegistrationRequest, now_ms: int) -> None:
    existing = cluster.image.brokers.get(request.broker_id)
    if request.cluster_id != cluster.cluster_id:
        raise KafkaError(
            ErrorCode.inconsistent_cluster_id,
            f"it belongs to cluster {request.cluster_id}, this is {cluster.cluster_id}",
        )
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    # A directory's lock goes with the process that held it: a process that has the directory is the last.
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


def _registered(error_code: ErrorCode, broker_epoch: BrokerEpoch = -1) -> BrokerRegistrationResponse:
    return unthrottled(BrokerRegistrationResponse, error_code=error_code, broker_epoch=broker_epoch)
