"""What clients are told about topics, partitions and brokers."""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from sparklog.node.apis.cluster import METADATA, unnamed_topics
from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from sparklog.node.metadata.topic_names import are_topics_named
from sparklog.node.responses.authorized_operations import (
    CLUSTER_OPERATIONS,
    OPERATIONS_OMITTED,
    TOPIC_OPERATIONS,
)
from sparklog.node.responses.describe_cluster import ControllerNode, describe_cluster_response
from sparklog.node.responses.describe_topic_partitions import describe_topic_partitions_response
from sparklog.node.responses.metadata import advertised_leaders, metadata_response, topics_to_create
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.frames import LENGTH, decode_response, encode_response_frame, request_codec
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError

FLIGHTS: Final = UUID(int=100)
PLANES: Final = UUID(int=200)
DIRECTORY: Final = UUID(int=77)
LISTENER: Final = "PLAINTEXT"


def broker(broker_id: int, **changes: Any) -> BrokerRegistration:
    registration = BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=broker_id,
        incarnation_id=UUID(int=broker_id),
        listeners=(
            Endpoint(LISTENER, f"host-{broker_id}", 9092),
            Endpoint("INSIDE", "10.0.0.1", 1000 + broker_id),
        ),
        rack=f"rack-{broker_id}",
        fenced=False,
        log_directories=(DIRECTORY,),
    )
    return replace(registration, **changes)


def partition(**changes: Any) -> PartitionRegistration:
    registration = PartitionRegistration(
        replicas=(1, 2, 3),
        directories=(DIRECTORY, DIRECTORY, DIRECTORY),
        isr=(1, 2, 3),
        leader=1,
        leader_epoch=5,
        partition_epoch=7,
    )
    return replace(registration, **changes)


def image_of(
    *partitions: PartitionRegistration, brokers: tuple[BrokerRegistration, ...] | None = None, planes: int = 1
) -> MetadataImage:
    topics = [
        TopicImage("planes", PLANES, {number: partition() for number in range(planes)}),
        TopicImage("flights", FLIGHTS, dict(enumerate(partitions))),
    ]
    return MetadataImage(
        offset=10,
        brokers={item.broker_id: item for item in brokers or (broker(3), broker(1), broker(2))},
        topics=TopicsImage(
            {topic.name: topic for topic in topics}, {topic.topic_id: topic for topic in topics}
        ),
    )


def asking(*topics: str | UUID, create: bool = False, operations: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(
            MetadataRequestTopic(topic_id=topic, name=None)
            if isinstance(topic, UUID)
            else MetadataRequestTopic(topic_id=None, name=topic)
            for topic in topics
        ),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=operations,
    )


def answer(
    image: MetadataImage, request: MetadataRequest, listener: str = LISTENER, version: int = 13
) -> Any:
    return in_one_go(
        metadata_response(image, request, listener, cluster_id="c", controller_id=2, request_version=version)
    )


ALL_TOPICS: Final = MetadataRequest(
    topics=None, allow_auto_topic_creation=True, include_topic_authorized_operations=False
)


def test_metadata_response_lists_live_brokers_at_the_listener_asked_through() -> None:
    """A client can connect only to addresses of the network it is in."""
    image = image_of(brokers=(broker(2), broker(1), broker(3, fenced=True)))
    response = answer(image, asking(), "INSIDE")
    assert [(item.node_id, item.host, item.port, item.rack) for item in response.brokers] == [
        (1, "10.0.0.1", 1001, "rack-1"),
        (2, "10.0.0.1", 1002, "rack-2"),
    ]
    assert (response.cluster_id, response.controller_id, response.topics) == ("c", 2, ())


def test_metadata_response_lists_a_just_fenced_broker_where_it_was() -> None:
    """Clients are let go of a broker gently; one that is back is listed as it is now."""
    image = image_of(brokers=(broker(1), broker(2, fenced=True), broker(3)))
    was = (broker(2), replace(broker(3), listeners=(Endpoint(LISTENER, "old", 1),)), broker(4, listeners=()))
    response = in_one_go(metadata_response(image, asking(), LISTENER, cluster_id="c", just_fenced=was))
    assert [(item.node_id, item.host) for item in response.brokers] == [
        (1, "host-1"),
        (2, "host-2"),
        (3, "host-3"),
    ]
    assert response.controller_id == 1


def test_leaders_told_are_those_of_the_topics_asked_for() -> None:
    """They decide whether an answer can be given yet."""
    image = image_of(partition(leader=2), partition(leader=None), partition(leader=3))
    assert in_one_go(advertised_leaders(image, asking("flights"))) == {2, 3}
    assert in_one_go(advertised_leaders(image, asking(PLANES, FLIGHTS))) == {1, 2, 3}
    assert in_one_go(advertised_leaders(image, ALL_TOPICS)) == {1, 2, 3}
    assert in_one_go(advertised_leaders(image, asking("none"))) == set()
    assert in_one_go(advertised_leaders(image, asking())) == set()


def test_metadata_response_without_a_controller_names_the_first_live_broker() -> None:
    """Brokers forward admin requests, so any will do."""
    image = image_of(brokers=(broker(1, fenced=True), broker(2)))
    assert in_one_go(metadata_response(image, ALL_TOPICS, LISTENER, cluster_id="c")).controller_id == 2
    assert (
        in_one_go(metadata_response(MetadataImage(), ALL_TOPICS, LISTENER, cluster_id="c")).controller_id
        == -1
    )


def test_metadata_response_of_a_healthy_partition_says_where_it_is() -> None:
    """The everyday answer, field by field."""
    (topic,) = answer(image_of(partition()), asking("flights")).topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (
        ErrorCode.none,
        "flights",
        FLIGHTS,
        False,
    )
    assert topic.topic_authorized_operations == OPERATIONS_OMITTED
    (item,) = topic.partitions
    assert (item.error_code, item.partition_index, item.leader_id, item.leader_epoch) == (
        ErrorCode.none,
        0,
        1,
        5,
    )
    assert (item.replica_nodes, item.isr_nodes, item.offline_replicas) == ((1, 2, 3), (1, 2, 3), ())


def test_metadata_response_lists_fenced_unknown_and_dirless_replicas_as_offline() -> None:
    """Tools show from this what has failed; the replica list itself stays whole."""
    brokers = (broker(1), broker(2, fenced=True), broker(4, log_directories=(UUID(int=5),)))
    offline = partition(replicas=(1, 2, 3, 4), directories=(DIRECTORY,) * 4, isr=(1,))
    (topic,) = answer(image_of(offline, brokers=brokers), asking("flights")).topics
    assert topic.partitions[0].offline_replicas == (2, 3, 4)
    assert topic.partitions[0].replica_nodes == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("listener", "version", "leader", "error"),
    [
        (LISTENER, 13, None, ErrorCode.leader_not_available),
        (LISTENER, 13, 9, ErrorCode.leader_not_available),
        ("OUTSIDE", 13, 1, ErrorCode.listener_not_found),
        ("OUTSIDE", 5, 1, ErrorCode.leader_not_available),
    ],
)
def test_metadata_response_without_a_reachable_leader_says_so(
    listener: str, version: int, leader: int | None, error: ErrorCode
) -> None:
    """Clients retry on these, and learn of a listener that is configured wrongly."""
    image = image_of(partition(leader=leader))
    (item,) = answer(image, asking("flights"), listener, version).topics[0].partitions
    assert (item.error_code, item.leader_id, item.leader_epoch) == (error, -1, 5)


def test_metadata_response_of_version_0_shows_live_replicas_only() -> None:
    """The oldest clients have no field for offline replicas."""
    image = image_of(partition(), brokers=(broker(1), broker(2, fenced=True), broker(3)))
    (item,) = answer(image, asking("flights"), version=0).topics[0].partitions
    assert (item.error_code, item.leader_id) == (ErrorCode.replica_not_available, 1)
    assert (item.replica_nodes, item.isr_nodes) == ((1, 3), (1, 3))


def test_metadata_response_by_name_answers_each_name_once_and_in_order() -> None:
    """Unknown and illegal names have errors of their own and spoil nothing else."""
    response = answer(
        image_of(partition()), asking("nowhere", "a/b", "flights", "nowhere", "__consumer_offsets")
    )
    assert [(topic.name, topic.error_code, topic.is_internal) for topic in response.topics] == [
        ("nowhere", ErrorCode.unknown_topic_or_partition, False),
        ("a/b", ErrorCode.invalid_topic_exception, False),
        ("flights", ErrorCode.none, False),
        ("__consumer_offsets", ErrorCode.unknown_topic_or_partition, True),
    ]


def test_metadata_response_by_id_answers_unknown_ids_without_a_name() -> None:
    """A client that kept an id learns that the topic was deleted."""
    unknown = UUID(int=999)
    response = answer(image_of(partition()), asking(unknown, FLIGHTS))
    assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
        (None, unknown, ErrorCode.unknown_topic_id),
        ("flights", FLIGHTS, ErrorCode.none),
    ]


def test_metadata_response_for_all_topics_has_all() -> None:
    """A null list means everything, an empty one nothing."""
    assert {topic.name for topic in answer(image_of(partition()), ALL_TOPICS).topics} == {"flights", "planes"}


def test_metadata_response_with_operations_allows_everything() -> None:
    """There is no authorizer, so every operation that a topic has is open."""
    (topic,) = answer(image_of(partition()), asking("flights", operations=True)).topics
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS == 0b110111111000


def test_topics_to_create_are_the_missing_legal_names_if_the_client_agrees() -> None:
    """Auto-creation must not make a topic of every id, illegal name or consumer's guess."""
    image = image_of(partition())
    assert in_one_go(topics_to_create(image, asking("new", "flights", "a/b", "new", create=True))) == ("new",)
    assert in_one_go(topics_to_create(image, asking("new"))) == ()
    assert in_one_go(topics_to_create(image, asking(UUID(int=9), create=True))) == ()
    assert in_one_go(topics_to_create(image, ALL_TOPICS)) == ()


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
def test_internal_topic_that_is_asked_for_is_unknown_and_not_to_be_created(name: str) -> None:
    """Made by auto-creation it would have one partition, and every group would be in it for ever."""
    image = image_of(partition())
    request = asking(name, create=True)
    assert in_one_go(topics_to_create(image, request)) == ()
    (topic,) = answer(image, request).topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.unknown_topic_or_partition)
    assert topic.is_internal
    assert in_one_go(topics_to_create(image, asking("__cluster_metadata", create=True))) == ()


def cluster_request(endpoint_type: int = 1, fenced: bool = False, operations: bool = False) -> Any:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=fenced,
    )


def test_describe_cluster_response_lists_fenced_brokers_only_if_asked() -> None:
    """KIP-1073: only then are they marked."""
    image = image_of(brokers=(broker(1), broker(2, fenced=True)))
    response = describe_cluster_response(image, cluster_request(), LISTENER, cluster_id="c")
    assert [item.broker_id for item in response.brokers] == [1]
    assert (response.cluster_id, response.controller_id) == ("c", 1)
    response = describe_cluster_response(image, cluster_request(fenced=True), LISTENER, cluster_id="c")
    assert [(item.broker_id, item.is_fenced) for item in response.brokers] == [(1, False), (2, True)]


def test_describe_cluster_response_for_controllers_comes_from_controllers() -> None:
    """A broker refuses it, and says nothing else, as Kafka's; the controller names itself."""
    request = cluster_request(endpoint_type=2, operations=True)
    response = describe_cluster_response(image_of(), request, LISTENER, cluster_id="c")
    assert (response.error_code, response.brokers) == (ErrorCode.mismatched_endpoint_type, ())
    assert (response.cluster_id, response.cluster_authorized_operations) == ("", -(2**31))
    node = ControllerNode(3000, Endpoint("CONTROLLER", "driver", 9093))
    response = describe_cluster_response(image_of(), request, LISTENER, cluster_id="c", controllers=[node])
    assert (response.error_code, response.endpoint_type, response.controller_id) == (ErrorCode.none, 2, 3000)
    assert [(item.broker_id, item.host, item.port) for item in response.brokers] == [(3000, "driver", 9093)]


def test_describe_cluster_response_for_an_unknown_endpoint_type_is_an_error() -> None:
    """And nothing worse."""
    response = describe_cluster_response(
        image_of(), cluster_request(endpoint_type=9), LISTENER, cluster_id="c"
    )
    assert response.error_code is ErrorCode.unsupported_endpoint_type


def test_describe_cluster_response_with_operations_allows_everything() -> None:
    """As for topics."""
    response = describe_cluster_response(
        image_of(), cluster_request(operations=True), LISTENER, cluster_id="c"
    )
    assert response.cluster_authorized_operations == CLUSTER_OPERATIONS


def pages(image: MetadataImage, *names: str, limit: int) -> list[list[tuple[str, ErrorCode, list[int]]]]:
    cursor: Cursor | None = None
    seen = []
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor,
        )
        response = in_one_go(
            describe_topic_partitions_response(image, request, LISTENER, max_partitions=2000)
        )
        seen.append(
            [
                (topic.name, topic.error_code, [item.partition_index for item in topic.partitions])
                for topic in response.topics
            ]
        )
        if response.next_cursor is None:
            return seen
        cursor = Cursor(
            topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
        )


def test_describe_topic_partitions_pages_through_topics_in_order() -> None:
    """A page ends inside a topic or between two, and nothing is said twice or left out."""
    image = image_of(partition(), partition(), partition(), planes=2)
    none = ErrorCode.none
    assert pages(image, limit=2) == [
        [("flights", none, [0, 1])],
        [("flights", none, [2]), ("planes", none, [0])],
        [("planes", none, [1])],
    ]
    assert pages(image, limit=3) == [[("flights", none, [0, 1, 2])], [("planes", none, [0, 1])]]
    assert pages(image, limit=0)[0] == [("flights", none, [0])]


def test_describe_topic_partitions_of_named_topics_has_errors_for_missing_ones() -> None:
    """As Metadata has."""
    assert pages(image_of(partition()), "planes", "a/b", "nowhere", limit=9) == [
        [
            ("a/b", ErrorCode.invalid_topic_exception, []),
            ("nowhere", ErrorCode.unknown_topic_or_partition, []),
            ("planes", ErrorCode.none, [0]),
        ]
    ]


def test_describe_topic_partitions_shows_the_elr() -> None:
    """It is the one answer that has them (KIP-966)."""
    request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name="flights"),))
    image = image_of(partition(isr=(1,), elr=(2,), last_known_elr=(3,)))
    response = in_one_go(describe_topic_partitions_response(image, request, LISTENER, max_partitions=2000))
    (item,) = response.topics[0].partitions
    assert (item.isr_nodes, item.eligible_leader_replicas, item.last_known_elr) == ((1,), (2,), (3,))
    assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS


@pytest.mark.parametrize("cursor", [("flights", 0), ("planes", -1)])
def test_describe_topic_partitions_with_an_impossible_cursor_is_refused(cursor: tuple[str, int]) -> None:
    """A cursor comes from the page before, so another one is the client's mistake."""
    request = DescribeTopicPartitionsRequest(
        topics=(TopicRequest(name="planes"),), cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1])
    )
    with pytest.raises(KafkaError) as caught:
        in_one_go(
            describe_topic_partitions_response(image_of(partition()), request, LISTENER, max_partitions=2000)
        )
    assert caught.value.error_code is ErrorCode.invalid_request


def test_describe_topic_partitions_with_a_cursor_beyond_the_topic_goes_on_behind_it() -> None:
    """Partitions never vanish, but the topic may have been deleted and made again smaller."""
    request = DescribeTopicPartitionsRequest(
        topics=(), cursor=Cursor(topic_name="flights", partition_index=2**31 - 1)
    )
    response = in_one_go(
        describe_topic_partitions_response(image_of(partition()), request, LISTENER, max_partitions=9)
    )
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [
        ("flights", 0),
        ("planes", 1),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_before_it_may_is_refused_topic_by_topic(version: int) -> None:
    """As in Kafka. An answer that can't be written closes the connection, and its client tries for ever."""
    request = asking("__consumer_offsets", FLIGHTS)
    named = are_topics_named(request.topics, version), are_topics_named(request.topics, 12)
    assert named == (False, True)
    refused = in_one_go(METADATA.refused(request, unnamed_topics()))
    frame = b"".join(map(bytes, encode_response_frame(request_codec(ApiKey.METADATA, version), 1, refused)))
    _, told = decode_response(downgrade(request, version), frame[LENGTH.size :])
    rows = [(topic.error_code, topic.name, topic.topic_id, topic.is_internal) for topic in told.topics]
    assert rows == [
        (ErrorCode.invalid_request, "__consumer_offsets", None, False),
        (ErrorCode.invalid_request, "", FLIGHTS, False),
    ]
    assert (told.brokers, told.controller_id) == ((), -1)
