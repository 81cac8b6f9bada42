"""Metadata images for tests: any that can be, and large ones."""

from uuid import UUID

from hypothesis import strategies as st

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.endpoints import Endpoint, SecurityProtocol
from sparklog.node.metadata.image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    ResourceType,
    TopicImage,
    TopicsImage,
)
from sparklog.node.metadata.registrations import FeatureRange
from sparklog.node.metadata.schemas import METADATA_VERSION_FEATURE, LeaderRecoveryState
from sparklog.protocol.types import BrokerId

_names = st.text("abcdefg.-", min_size=1, max_size=12)
_ids = st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
_broker_ids = st.integers(0, 2**31 - 1)
_some_brokers = st.lists(_broker_ids, max_size=3, unique=True).map(tuple)
_levels = st.integers(0, 2**15 - 1)
_quota_entities = st.dictionaries(
    st.sampled_from(["user", "client-id", "ip"]), st.none() | _names, min_size=1, max_size=2
).map(lambda entity: tuple(sorted(entity.items())))
_quotas = st.dictionaries(_names, st.floats(min_value=0, exclude_min=True), min_size=1, max_size=2)
_acls = st.builds(
    Acl,
    st.sampled_from(AclResourceType),
    st.sampled_from(PatternType),
    _names,
    _names,
    _names,
    st.sampled_from(AclOperation),
    st.sampled_from(AclPermissionType),
)


@st.composite
def _registrations(draw: st.DrawFn, broker_id: BrokerId) -> BrokerRegistration:
    endpoints = st.builds(Endpoint, _names, _names, st.integers(0, 65535), st.sampled_from(SecurityProtocol))
    features = st.tuples(_names, st.builds(FeatureRange, _levels, _levels))
    directories = st.lists(_ids, max_size=3).map(tuple)
    return BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=draw(st.integers(0, 2**63 - 1)),
        incarnation_id=draw(st.none() | _ids),
        listeners=draw(st.lists(endpoints, max_size=2).map(tuple)),
        features=draw(st.lists(features, max_size=2).map(tuple)),
        rack=draw(st.none() | _names),
        fenced=draw(st.booleans()),
        in_controlled_shutdown=draw(st.booleans()),
        log_directories=draw(directories),
        cordoned_log_directories=draw(st.none() | directories),
    )


@st.composite
def _partitions(draw: st.DrawFn) -> PartitionRegistration:
    replicas = draw(st.lists(_broker_ids, min_size=1, max_size=4, unique=True).map(tuple))
    count = len(replicas)
    return PartitionRegistration(
        replicas=replicas,
        directories=draw(st.lists(st.none() | _ids, min_size=count, max_size=count).map(tuple)),
        isr=draw(_some_brokers),
        leader=draw(st.none() | _broker_ids),
        leader_epoch=draw(st.integers(0, 2**31 - 1)),
        partition_epoch=draw(st.integers(0, 2**31 - 1)),
        removing_replicas=draw(_some_brokers),
        adding_replicas=draw(_some_brokers),
        elr=draw(_some_brokers),
        last_known_elr=draw(_some_brokers),
        leader_recovery_state=draw(st.sampled_from(LeaderRecoveryState)),
    )


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    """Return an image with anything in it that an image may hold, but no open transaction."""
    topics = [
        TopicImage(
            name, topic_id, draw(st.dictionaries(st.integers(0, 2**31 - 1), _partitions(), max_size=3))
        )
        for name, topic_id in draw(st.dictionaries(_names, _ids, max_size=4)).items()
    ]
    by_id = {topic.topic_id: topic for topic in topics}
    broker_ids = draw(st.sets(_broker_ids, max_size=3))
    values = st.dictionaries(_names, st.text(max_size=20), min_size=1, max_size=3)
    return MetadataImage(
        offset=draw(st.integers(0, 2**63 - 2)),
        leader_epoch=draw(st.integers(1, 2**31 - 1)),
        features=draw(
            st.dictionaries(st.just(METADATA_VERSION_FEATURE) | _names, st.integers(1, 2**15 - 1), max_size=3)
        ),
        brokers={broker_id: draw(_registrations(broker_id)) for broker_id in broker_ids},
        topics=TopicsImage({topic.name: topic for topic in by_id.values()}, by_id),
        configs=draw(
            st.dictionaries(
                st.tuples(st.sampled_from(ResourceType), st.just("") | _names), values, max_size=4
            )
        ),
        client_quotas=draw(st.dictionaries(_quota_entities, _quotas, max_size=3)),
        next_producer_id=draw(st.integers(0, 2**63 - 1)),
        acls=draw(st.dictionaries(_ids, _acls, max_size=3)),
    )


def image_with_partitions(count: int) -> MetadataImage:
    """Return an image of one topic of `count` partitions, each on three brokers, at offset `count`."""
    topic = TopicImage(
        "flights",
        UUID(int=100),
        {
            number: PartitionRegistration(
                replicas=(1, 2, 3),
                directories=(UUID(int=11), UUID(int=12), UUID(int=13)),
                isr=(1, 2, 3),
                leader=1,
                leader_epoch=3,
                partition_epoch=number,
            )
            for number in range(count)
        },
    )
    return MetadataImage(
        offset=count,
        leader_epoch=4,
        features={METADATA_VERSION_FEATURE: 30},
        topics=TopicsImage({topic.name: topic}, {topic.topic_id: topic}),
    )
