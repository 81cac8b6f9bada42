"""One version inside, all of Kafka's outside."""

import random
from datetime import timedelta
from uuid import UUID

import pytest
from kio.index import KioIndexError
from kio.schema.alter_partition.v2.request import AlterPartitionRequest as AlterPartitionRequestV2
from kio.schema.alter_partition.v2.request import PartitionData as PartitionDataV2
from kio.schema.alter_partition.v2.request import TopicData as TopicDataV2
from kio.schema.delete_topics.v1.request import DeleteTopicsRequest as DeleteTopicsRequestV1
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindCoordinatorRequestV3
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.metadata.v0.request import MetadataRequest as MetadataRequestV0
from kio.schema.metadata.v0.request import MetadataRequestTopic as MetadataRequestTopicV0
from kio.schema.metadata.v1.request import MetadataRequest as MetadataRequestV1
from kio.schema.metadata.v13.response import MetadataResponse, MetadataResponseTopic

from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.encoder import encode_to_bytes
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.codec.versions import downgrade, downgrade_in_steps, upgrade, upgrade_in_steps
from sparklog.protocol.errors import ErrorCode
from tests.unit.sparklog.node.serving.entities import arbitrary_entity, payload_types


@pytest.mark.parametrize("api_key", ApiKey, ids=lambda api_key: api_key.name)
def test_every_version_of_an_api_upgrades_and_downgrades_to_what_can_be_written(api_key: ApiKey) -> None:
    """A field that changes its form between versions without a rule would fail when it is written."""
    source = random.Random(int(api_key))
    newest = known_versions(api_key).max_version
    newest_types = list(payload_types(api_key))[-2:]
    for entity_type in payload_types(api_key):
        entity = arbitrary_entity(entity_type, source)
        upgraded = upgrade(entity)
        assert in_one_go(upgrade_in_steps(entity)) == upgraded
        assert type(upgraded) in newest_types
        assert upgraded.__version__ == newest
        encode_to_bytes(upgraded)
    for newest_type in newest_types:
        entity = arbitrary_entity(newest_type, source)
        assert upgrade(entity) is entity
        for version in range(known_versions(api_key).min_version, newest + 1):
            downgraded = downgrade(entity, version)
            encode_to_bytes(downgraded)
            assert in_one_go(downgrade_in_steps(entity, version)) == downgraded


def test_upgrade_of_metadata_v0_without_topics_asks_for_all() -> None:
    """In v0 an empty list meant all topics; from v1 on it means none, and null means all."""
    assert upgrade(MetadataRequestV0(topics=())).topics is None
    assert upgrade(MetadataRequestV1(topics=())).topics == ()
    assert upgrade(MetadataRequestV1(topics=None)).topics is None


def test_upgrade_of_metadata_keeps_topics_and_takes_the_defaults_of_newer_fields() -> None:
    """Versions without the field created topics automatically, so the default is True."""
    upgraded = upgrade(MetadataRequestV0(topics=(MetadataRequestTopicV0(name="a"),)))
    assert [(topic.name, topic.topic_id) for topic in upgraded.topics] == [("a", None)]
    assert upgraded.allow_auto_topic_creation is True


def test_downgrade_of_metadata_gives_a_null_topic_name_as_the_empty_string() -> None:
    """Names became nullable in v12; older clients cannot read a null there."""
    topic = MetadataResponseTopic(
        error_code=ErrorCode.unknown_topic_id, name=None, topic_id=UUID(int=7), partitions=()
    )
    response = MetadataResponse(
        throttle_time=timedelta(0), brokers=(), topics=(topic,), cluster_id="c", error_code=ErrorCode.none
    )
    assert downgrade(response, 9).topics[0].name == ""
    assert downgrade(response, 13) is response


def test_delete_topics_names_become_structs_and_back() -> None:
    """v6 put the names into structs beside topic ids (KIP-516)."""
    old = DeleteTopicsRequestV1(topic_names=("a", "b"), timeout=timedelta(seconds=1))
    new = DeleteTopicsRequest(
        topics=(DeleteTopicState(name="a", topic_id=None), DeleteTopicState(name="b", topic_id=None)),
        timeout=timedelta(seconds=1),
    )
    assert upgrade(old) == new
    assert downgrade(new, 1) == old


def test_alter_partition_isr_without_epochs_becomes_one_of_unknown_epochs() -> None:
    """v3 added the broker epochs (KIP-903); -1 is Kafka's word for an unknown one."""
    partition = PartitionDataV2(
        partition_index=0, leader_epoch=1, new_isr=(1, 2), leader_recovery_state=0, partition_epoch=3
    )
    old = AlterPartitionRequestV2(
        broker_id=1, broker_epoch=9, topics=(TopicDataV2(topic_id=UUID(int=5), partitions=(partition,)),)
    )
    new = upgrade(old)
    isr = new.topics[0].partitions[0].new_isr_with_epochs
    assert [(state.broker_id, state.broker_epoch) for state in isr] == [(1, -1), (2, -1)]
    assert downgrade(new, 2) == old


def test_find_coordinator_of_one_key_becomes_a_list_of_keys_and_back() -> None:
    """v4 asks for several keys at once (KIP-699), and older clients for one."""
    old = FindCoordinatorRequestV3(key="group", key_type=1)
    new = FindCoordinatorRequest(key_type=1, coordinator_keys=("group",))
    assert upgrade(old) == new
    assert downgrade(new, 3) == old
    response = FindCoordinatorResponse(
        throttle_time=timedelta(0),
        coordinators=(
            Coordinator(
                key="group",
                node_id=-1,
                host="",
                port=-1,
                error_code=ErrorCode.coordinator_not_available,
                error_message="not yet",
            ),
        ),
    )
    answered = downgrade(response, 3)
    assert answered.error_code is ErrorCode.coordinator_not_available
    assert (answered.node_id, answered.error_message) == (-1, "not yet")
    assert downgrade(response, 0).error_code is ErrorCode.coordinator_not_available


def test_downgrade_to_a_version_that_is_not_there_says_so() -> None:
    """The mistake must not become a wrong frame."""
    with pytest.raises(KioIndexError):
        downgrade(MetadataRequestV0(topics=()), 99)


@pytest.mark.parametrize(
    ("version", "error_code"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
def test_deletion_that_is_disabled_is_an_invalid_request_for_who_does_not_know_the_error(
    version: int, error_code: ErrorCode
) -> None:
    """As ControllerApis tells it of the versions that are older than the error."""
    result = DeletableTopicResult(
        name="t", topic_id=None, error_code=ErrorCode.topic_deletion_disabled, error_message=None
    )
    answer = DeleteTopicsResponse(throttle_time=timedelta(0), responses=(result,))
    assert downgrade(answer, version).responses[0].error_code is error_code
