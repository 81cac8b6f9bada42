"""CreateAcls and DeleteAcls. `sparklog.node.acls` enforces the ACLs.

Each requested ACL is created or has an error of its own; an ACL that exists counts as created. All filters
of a decision (`parts`) are compared with the ACLs from before it, so several filters may match the same ACL,
which is removed once.

Source: Kafka's AclApis and AclControlManager, for behaviour, error codes and messages.
"""

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kio.schema.create_acls.v3.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse
from kio.schema.delete_acls.v3.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v3.response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.acls.acl import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from sparklog.node.acls.filter import AclFilter
from sparklog.node.acls.numbers import known, known_filter
from sparklog.node.apis.acls import DELETE_ACLS
from sparklog.node.metadata.acl_records import acl_record
from sparklog.node.metadata.schemas import MetadataRecord, RemoveAccessControlEntryRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_REMOVED: Final = 10_000
"""The most ACLs that one decision removes (QuorumController.MAX_RECORDS_PER_USER_OP)."""


def create_acls(
    cluster: ClusterState, request: CreateAclsRequest, new_acl_id: Callable[[], UUID]
) -> ControllerResult:
    """Answer CreateAcls. `new_acl_id` must never return an id twice."""
    there = set(cluster.image.acls.values())
    records: list[MetadataRecord] = []
    results = []
    for creation in request.creations:
        error_code, message = ErrorCode.none, None
        try:
            _check_enabled(cluster)
            acl = _created(creation)
            if acl not in there:
                there.add(acl)
                records.append(acl_record(new_acl_id(), acl))
                logger.info("%s is added", acl)
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        results.append(AclCreationResult(error_code=error_code, error_message=message))
    return ControllerResult(records, unthrottled(CreateAclsResponse, results=tuple(results)))


def delete_acls(cluster: ClusterState, request: DeleteAclsRequest) -> ControllerResult:
    removed: dict[UUID, None] = {}
    results = []
    for asked in request.filters:
        error_code, message = ErrorCode.none, None
        matching: list[Acl] = []
        try:
            _check_enabled(cluster)
            wanted = _filter(asked)
            for acl_id, acl in cluster.image.acls.items():
                if wanted.matches(acl):
                    matching.append(acl)
                    removed[acl_id] = None
            if len(removed) > MAX_REMOVED:
                most = f"Cannot remove more than {MAX_REMOVED} acls in a single delete operation."
                return ControllerResult([], DELETE_ACLS.refused(request, _invalid(most)))
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        results.append(
            DeleteAclsFilterResult(
                error_code=error_code, error_message=message, matching_acls=tuple(map(_removed, matching))
            )
        )
    for acl_id in removed:
        logger.info("%s is removed", cluster.image.acls[acl_id])
    records: list[MetadataRecord] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
    return ControllerResult(records, unthrottled(DeleteAclsResponse, filter_results=tuple(results)))


def _check_enabled(cluster: ClusterState) -> None:
    if cluster.config.authorizer is None:
        raise KafkaError(ErrorCode.security_disabled, "No Authorizer is configured.")


def _created(creation: AclCreation) -> Acl:
    """Return the ACL of a creation.

    Raises:
        KafkaError: INVALID_REQUEST: no such ACL is possible.
    """
    acl = Acl(
        resource_type=known(AclResourceType, creation.resource_type),
        pattern_type=known(PatternType, creation.resource_pattern_type),
        resource_name=creation.resource_name,
        principal=creation.principal,
        host=creation.host,
        operation=known(AclOperation, creation.operation),
        permission_type=known(AclPermissionType, creation.permission_type),
    )
    if acl.resource_type is AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission_type.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal "
            "type from the principal name)"
        )
    return acl


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    return known_filter(
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _removed(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(error_code=ErrorCode.none, error_message=None, **acl._asdict())


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
