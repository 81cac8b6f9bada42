"""DeleteTopics: by name or by id, each topic at most once in a request."""

import logging
from collections import Counter
from uuid import UUID

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.mutation_quota import MutationQuota
from sparklog.driver.controller.machine.requests.create_topics import LOGGED_TOPICS
from sparklog.node.metadata.image import TopicImage
from sparklog.node.metadata.schemas import MetadataRecord, RemoveTopicRecord
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


def delete_topics(
    cluster: ClusterState, request: DeleteTopicsRequest, quota: MutationQuota
) -> ControllerResult:
    times_named = Counter((wanted.name, wanted.topic_id) for wanted in request.topics)
    records: list[MetadataRecord] = []
    results = []
    deleted: set[UUID] = set()
    for (name, topic_id), times in times_named.items():
        try:
            if not cluster.config.delete_topic_enable:
                raise KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false.")
            topic = _find(cluster, name, topic_id, is_duplicate=times > 1)
            if topic.topic_id in deleted:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            quota.spend(len(topic.partitions))
        except KafkaError as error:
            results.append(_result(name, topic_id, error.error_code, error.message))
            continue
        deleted.add(topic.topic_id)
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        results.append(_result(topic.name, topic.topic_id, ErrorCode.none, None))
        if len(times_named) <= LOGGED_TOPICS:
            logger.info("Topic %s with id %s is deleted", topic.name, topic.topic_id)
    if len(times_named) > LOGGED_TOPICS:
        logger.info("%d topics are deleted", len(records))
    return ControllerResult(records, unthrottled(DeleteTopicsResponse, responses=tuple(results)))


def _find(
    cluster: ClusterState, name: str | None, topic_id: UUID | None, *, is_duplicate: bool
) -> TopicImage:
    if name is None and topic_id is None:
        raise KafkaError(ErrorCode.invalid_request, "Neither topic name nor id were specified.")
    if name is not None and topic_id is not None:
        raise KafkaError(ErrorCode.invalid_request, "You may not specify both topic name and topic id.")
    if is_duplicate:  # before the look-up: this error hides whether the topic exists (guards)
        what = "id" if name is None else "name"
        raise KafkaError(ErrorCode.invalid_request, f"Duplicate topic {what}.")
    if name is not None:
        topic = cluster.image.topics.by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"There is no topic {name}.")
        return topic
    assert topic_id is not None
    topic = cluster.image.topics.by_id.get(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id, f"There is no topic with id {topic_id}.")
    return topic


def _result(
    name: str | None, topic_id: UUID | None, error_code: ErrorCode, message: str | None
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error_code, error_message=message)
