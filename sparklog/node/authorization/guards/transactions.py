"""Guards of requests about transactions and producer ids."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.authorization.guards.guard import (
    Answer,
    answer_of,
    completed,
    denial,
    divided,
    filled,
    item_type,
    with_rows,
)
from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.node.serving.requests import Handler, Refusal, Request, Response
from sparklog.protocol.codec.apis import response_type
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode

_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID
_READ: Final = AclOperation.READ
_WRITE: Final = AclOperation.WRITE
_DESCRIBE: Final = AclOperation.DESCRIBE
_FAILED: Final = ErrorCode.transactional_id_authorization_failed
_FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4


def init_producer_id(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """Require WRITE on the transactional id; without one WRITE on any topic or IDEMPOTENT_WRITE (KIP-679)."""
    body = request.body
    if body.transactional_id is None:
        may_write = access.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE, audit=False)
        if not may_write and not access.allows_any(_WRITE, _TOPIC):
            access.allows_on_cluster(AclOperation.IDEMPOTENT_WRITE)
            return refuse(request, denial(ErrorCode.cluster_authorization_failed))
        return handler(request)
    asked = [_WRITE]
    if getattr(body, "enable2_pc", False):
        asked.append(AclOperation.TWO_PHASE_COMMIT)
    if not all(access.allows(operation, _TRANSACTION, body.transactional_id) for operation in asked):
        return refuse(request, denial(_FAILED))
    return handler(request)


async def add_partitions_to_txn(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Response:
    """Require WRITE on the transactional id and on each topic; all partitions are added or none.

    Newer versions are for brokers, and need CLUSTER_ACTION.
    """
    body = request.body
    if request.api_version >= _FIRST_ADD_PARTITIONS_OF_BROKERS:
        if not access.allows_on_cluster(AclOperation.CLUSTER_ACTION):
            return refuse(request, denial(ErrorCode.cluster_authorization_failed))
        return handler(request)
    if not access.allows(_WRITE, _TRANSACTION, body.v3_and_below_transactional_id):
        return refuse(request, denial(_FAILED))
    _, denied = await divided(
        body.v3_and_below_topics,
        lambda topic: not is_internal_topic(topic.name) and access.allows(_WRITE, _TOPIC, topic.name),
    )
    if not denied:
        return handler(request)
    names = {topic.name for topic in denied}
    topics = await _not_added(access, request, names)
    return answer_of(request, results_by_topic_v3_and_below=tuple(topics))


async def _not_added(access: Access, request: Request, denied: set[str]) -> list[Any]:
    """Return the result of each partition where one is denied; a step a topic."""
    topic_type = item_type(
        response_type(request.api_key, request.api_version), "results_by_topic_v3_and_below"
    )
    partition_type = item_type(topic_type, "results_by_partition")
    topics = []
    for topic in request.body.v3_and_below_topics:
        await turn()
        known = access.image.topics.by_name.get(topic.name)
        rows = []
        for index in topic.partitions:
            if topic.name in denied:
                error_code = ErrorCode.topic_authorization_failed
            elif known is None or index not in known.partitions:
                error_code = ErrorCode.unknown_topic_or_partition
            else:
                error_code = ErrorCode.operation_not_attempted
            rows.append(filled(partition_type, partition_index=index, partition_error_code=error_code))
        topics.append(filled(topic_type, name=topic.name, results_by_partition=tuple(rows)))
    return topics


def write_txn_markers(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """Require ALTER on the cluster, for `kafka-transactions --abort`, or CLUSTER_ACTION."""
    may_write = access.allows_on_cluster(AclOperation.ALTER, audit=False)
    if not may_write and not access.allows_on_cluster(AclOperation.CLUSTER_ACTION):
        return refuse(request, denial(ErrorCode.cluster_authorization_failed))
    return handler(request)


async def describe_transactions(
    refuse: Refusal, access: Access, request: Request, handler: Handler
) -> Response:
    """Require DESCRIBE on each transactional id; only topics with DESCRIBE are listed."""
    allowed, denied = await divided(
        request.body.transactional_ids, lambda name: access.allows(_DESCRIBE, _TRANSACTION, name)
    )
    if denied:
        request.body = replace(request.body, transactional_ids=tuple(allowed))

    async def finish(response: Any) -> Response:
        states = []
        for state in response.transaction_states:
            seen, _ = await divided(
                state.topics, lambda topic: access.allows(_DESCRIBE, _TOPIC, topic.topic, audit=False)
            )
            states.append(replace(state, topics=tuple(seen)))
        response = replace(response, transaction_states=tuple(states))
        return with_rows(response, "transaction_states", _refused_states(type(response), denied))

    return completed(handler(request), finish)


def _refused_states(response_entity: type[Any], transactional_ids: list[str]) -> Iterator[Any]:
    state_type = item_type(response_entity, "transaction_states")
    for transactional_id in transactional_ids:
        yield filled(state_type, transactional_id=transactional_id, error_code=_FAILED)


def list_transactions(refuse: Refusal, access: Access, request: Request, handler: Handler) -> Answer:
    """List the transactions with DESCRIBE on their transactional ids."""

    async def finish(response: Any) -> Response:
        seen, _ = await divided(
            response.transaction_states,
            lambda state: access.allows(_DESCRIBE, _TRANSACTION, state.transactional_id, audit=False),
        )
        return replace(response, transaction_states=tuple(seen))

    return completed(handler(request), finish)
