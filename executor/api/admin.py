"""Admin requests that change the cluster: forwarded to the controller, which alone decides.

`FORWARDED_APIS` are those. What the broker answers itself is only that the controller could not be reached:
REQUEST_TIMED_OUT for every thing asked for, which Kafka's clients take for "try again". The change may have
been made all the same. Where the controller refuses the broker itself, it is UNKNOWN_SERVER_ERROR, as in
Kafka.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.schema.alter_client_quotas.v1 import AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.response import EntityData, EntryData
from kio.schema.alter_configs.v2 import AlterConfigsResponse
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse
from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsResponse
from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsResponse
from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResult
from kio.schema.create_acls.v3 import CreateAclsResponse
from kio.schema.create_acls.v3.response import AclCreationResult
from kio.schema.create_partitions.v3 import CreatePartitionsResponse
from kio.schema.create_partitions.v3.response import CreatePartitionsTopicResult
from kio.schema.create_topics.v7 import CreateTopicsResponse
from kio.schema.create_topics.v7.response import CreatableTopicResult
from kio.schema.delete_acls.v3 import DeleteAclsResponse
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult
from kio.schema.delete_topics.v6 import DeleteTopicsResponse
from kio.schema.delete_topics.v6.response import DeletableTopicResult
from kio.schema.describe_quorum.v2 import DescribeQuorumResponse
from kio.schema.elect_leaders.v2 import ElectLeadersResponse
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsResponse
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse as IncrementalAlterConfigsResourceResponse,
)
from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsResponse
from kio.schema.unregister_broker.v0 import UnregisterBrokerResponse
from kio.schema.update_features.v2 import UpdateFeaturesResponse

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executor.control.forwarding import Forwarder
from sparklog.wire.apis import ApiKey
from sparklog.wire.requests import Request, Response
from sparklog.wire.throttling import unthrottled
from sparklog.wire.versions import upgrade


class AdminHandlers:
    """The handlers of the requests in `FORWARDED_APIS`."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder

    async def handle(self, request: Request) -> Response:
        """Forward the request as it is.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: the controller has not answered. UNKNOWN_SERVER_ERROR: it does not
                take what this broker forwards.
        """
        return await self._forwarder.forward(request)


def refuse_forwarded(request: Request, error: KafkaError) -> Response:
    """Return the answer that refuses everything in a request of `FORWARDED_APIS`."""
    return _REFUSALS[request.api_key](upgrade(request.body), error.error_code, error.message)


def _refuse_create_topics(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        CreateTopicsResponse,
        topics=tuple(
            CreatableTopicResult(
                name=topic.name, topic_id=None, error_code=error_code, error_message=message, configs=None
            )
            for topic in body.topics
        ),
    )


def _refuse_delete_topics(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        DeleteTopicsResponse,
        responses=tuple(
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error_code, error_message=message
            )
            for topic in body.topics
        ),
    )


def _refuse_create_partitions(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        CreatePartitionsResponse,
        results=tuple(
            CreatePartitionsTopicResult(name=topic.name, error_code=error_code, error_message=message)
            for topic in body.topics
        ),
    )


def _refuse_alter_configs(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        AlterConfigsResponse,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ),
    )


def _refuse_incremental_alter_configs(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        IncrementalAlterConfigsResponse,
        responses=tuple(
            IncrementalAlterConfigsResourceResponse(
                error_code=error_code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in body.resources
        ),
    )


def _refuse_elect_leaders(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(ElectLeadersResponse, error_code=error_code, replica_election_results=())


def _refuse_alter_scram_credentials(body: Any, error_code: ErrorCode, message: str) -> Any:
    users = dict.fromkeys(change.name for change in (*body.deletions, *body.upsertions))
    return unthrottled(
        AlterUserScramCredentialsResponse,
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=error_code, error_message=message)
            for user in users
        ),
    )


def _refuse_alter_client_quotas(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        AlterClientQuotasResponse,
        entries=tuple(
            EntryData(
                error_code=error_code,
                error_message=message,
                entity=tuple(
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
            )
            for entry in body.entries
        ),
    )


def _refuse_create_acls(body: Any, error_code: ErrorCode, message: str) -> Any:
    refused = AclCreationResult(error_code=error_code, error_message=message)
    return unthrottled(CreateAclsResponse, results=(refused,) * len(body.creations))


def _refuse_delete_acls(body: Any, error_code: ErrorCode, message: str) -> Any:
    refused = DeleteAclsFilterResult(error_code=error_code, error_message=message, matching_acls=())
    return unthrottled(DeleteAclsResponse, filter_results=(refused,) * len(body.filters))


def _refuse_alter_reassignments(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        AlterPartitionReassignmentsResponse, error_code=error_code, error_message=message, responses=()
    )


def _refuse_list_reassignments(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(
        ListPartitionReassignmentsResponse, error_code=error_code, error_message=message, topics=()
    )


def _refuse_describe_quorum(body: Any, error_code: ErrorCode, message: str) -> Any:
    return DescribeQuorumResponse(error_code=error_code, error_message=message, topics=(), nodes=())


def _refuse_update_features(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(UpdateFeaturesResponse, error_code=error_code, error_message=message)


def _refuse_unregister_broker(body: Any, error_code: ErrorCode, message: str) -> Any:
    return unthrottled(UnregisterBrokerResponse, error_code=error_code, error_message=message)


_REFUSALS: Final[Mapping[ApiKey, Callable[[Any, ErrorCode, str], Any]]] = {
    ApiKey.CREATE_TOPICS: _refuse_create_topics,
    ApiKey.DELETE_TOPICS: _refuse_delete_topics,
    ApiKey.CREATE_PARTITIONS: _refuse_create_partitions,
    ApiKey.ALTER_CONFIGS: _refuse_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _refuse_incremental_alter_configs,
    ApiKey.ELECT_LEADERS: _refuse_elect_leaders,
    ApiKey.ALTER_CLIENT_QUOTAS: _refuse_alter_client_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _refuse_alter_scram_credentials,
    ApiKey.CREATE_ACLS: _refuse_create_acls,
    ApiKey.DELETE_ACLS: _refuse_delete_acls,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _refuse_alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _refuse_list_reassignments,
    ApiKey.DESCRIBE_QUORUM: _refuse_describe_quorum,
    ApiKey.UPDATE_FEATURES: _refuse_update_features,
    ApiKey.UNREGISTER_BROKER: _refuse_unregister_broker,
}

FORWARDED_APIS: Final = frozenset(_REFUSALS)
"""What the controller decides."""
