"""AlterUserScramCredentials: the passwords of users. `sparklog.node.security` verifies them.

A user is changed once in a request, or not at all; the other changes are made nevertheless. Clients send the
salted password: only the keys derived from it are kept.

Source: Kafka's ScramControlManager, for behaviour, error codes and messages; KIP-554.
"""

import logging
from typing import Final, TypeAlias

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import MetadataRecord, RemoveUserScramCredentialRecord
from sparklog.node.metadata.scram_records import ScramKey, scram_credential_record, scram_key
from sparklog.node.security.sasl.scram import MIN_ITERATIONS, ScramCredential
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

MAX_ITERATIONS: Final = 16_384
"""For new credentials: a client computes so many each time that it connects."""

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    cluster: ClusterState, request: AlterUserScramCredentialsRequest
) -> ControllerResult:
    changes: dict[str, list[_Change]] = {}
    for change in (*request.deletions, *request.upsertions):
        changes.setdefault(change.name, []).append(change)
    records: list[MetadataRecord] = []
    results = []
    for user, (change, *others) in changes.items():
        error_code, message = ErrorCode.none, None
        try:
            if others:
                raise KafkaError(
                    ErrorCode.duplicate_resource,
                    "A user credential cannot be altered twice in the same request",
                )
            records.append(_record(cluster, change))
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        results.append(
            AlterUserScramCredentialsResult(user=user, error_code=error_code, error_message=message)
        )
    return ControllerResult(records, unthrottled(AlterUserScramCredentialsResponse, results=tuple(results)))


def _record(cluster: ClusterState, change: _Change) -> MetadataRecord:
    """Return the record of a change.

    Raises:
        KafkaError: UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND.
    """
    if not change.name:
        raise KafkaError(ErrorCode.unacceptable_credential, "Username must not be empty")
    try:
        key = scram_key(change.name, change.mechanism)
    except ValueError as error:
        raise KafkaError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism") from error
    if isinstance(change, ScramCredentialDeletion):
        if key not in cluster.image.scram_credentials:
            raise KafkaError(
                ErrorCode.resource_not_found, "Attempt to delete a user credential that does not exist"
            )
        logger.info("The %s credential of user %r is removed", key[1], change.name)
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    return _upsertion(key, change)


def _upsertion(key: ScramKey, change: ScramCredentialUpsertion) -> MetadataRecord:
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.unacceptable_credential, "Too many iterations")
    if not change.salted_password:
        # Java's Mac takes no empty key, and Kafka answers with its exception.
        raise KafkaError(ErrorCode.unknown_server_error, "Empty key")
    user, mechanism = key
    logger.info("The %s credential of user %r is set", mechanism, user)
    credential = ScramCredential.of_salted_password(
        mechanism, change.salted_password, change.iterations, change.salt
    )
    return scram_credential_record(key, credential)
