"""What each record does to the image, and what the delta says about it."""

from typing import Final
from uuid import UUID

import pytest

from sparklog.node.endpoints import Endpoint
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import (
    EMPTY_IMAGE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    ResourceType,
)
from sparklog.node.metadata.replay import (
    MalformedRecordError,
    MetadataReplayError,
    StaleBrokerEpochRecordError,
    TopicExistsRecordError,
    UnknownBrokerRecordError,
    UnknownPartitionRecordError,
    UnknownTopicRecordError,
    replay_records,
)
from sparklog.node.metadata.schemas import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

FLIGHTS: Final = UUID(int=100)
PLANES: Final = UUID(int=200)
DIRECTORY: Final = UUID(int=77)


def register(broker_id: int, broker_epoch: int = 1) -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092 + broker_id, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=UUID(int=broker_id),
        broker_epoch=broker_epoch,
        end_points=(endpoint,),
        rack=f"rack-{broker_id}",
        log_dirs=(DIRECTORY,),
    )


def partition(topic_id: UUID, number: int, elr: tuple[int, ...] | None = None) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=(1, 2, 3),
        isr=(1, 2, 3),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(),
        eligible_leader_replicas=elr,
    )


def applied(
    *records: MetadataRecord, image: MetadataImage = EMPTY_IMAGE
) -> tuple[MetadataImage, MetadataDelta]:
    return replay_records(image, records, image.end_offset + len(records) - 1, 1)


def image_of(*records: MetadataRecord) -> MetadataImage:
    return applied(*records)[0]


TOPIC_RECORDS: Final = (
    TopicRecord(name="flights", topic_id=FLIGHTS),
    partition(FLIGHTS, 0),
    partition(FLIGHTS, 1),
)


def test_register_broker_record_adds_a_fenced_broker() -> None:
    """A broker serves only after it has been unfenced."""
    image, delta = applied(register(1))
    assert image.brokers == {
        1: BrokerRegistration(
            broker_id=1,
            broker_epoch=1,
            incarnation_id=UUID(int=1),
            listeners=(Endpoint("PLAINTEXT", "127.0.0.1", 9093),),
            rack="rack-1",
            fenced=True,
            log_directories=(DIRECTORY,),
        )
    }
    assert delta == MetadataDelta(changed_brokers={1})
    assert image.brokers[1].to_record() == register(1)


def test_register_broker_record_of_a_known_broker_replaces_it() -> None:
    """A restarted broker begins anew, fenced, under its new epoch."""
    image = image_of(
        register(1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
        register(1, broker_epoch=9),
    )
    assert (image.brokers[1].broker_epoch, image.brokers[1].fenced) == (9, True)


def test_broker_change_records_change_what_they_name_only() -> None:
    """Fencing, controlled shutdown and directories change independently."""
    image = image_of(register(1), BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1))
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, False)
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1)
    image, delta = applied(change, image=image)
    assert (image.brokers[1].fenced, image.brokers[1].in_controlled_shutdown) == (False, True)
    assert delta.changed_brokers == {1}
    image, delta = applied(change, image=image)
    assert delta == MetadataDelta()
    moved = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, log_dirs=(UUID(int=5),))
    assert applied(moved, image=image)[0].brokers[1].log_directories == (UUID(int=5),)
    assert (
        applied(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1), image=image)[0]
        .brokers[1]
        .fenced
    )


def test_unregister_broker_record_removes_it_and_the_delta_names_it() -> None:
    """Whoever watches brokers must notice one that has gone."""
    image, delta = applied(UnregisterBrokerRecord(broker_id=1, broker_epoch=1), image=image_of(register(1)))
    assert image.brokers == {}
    assert delta.changed_brokers == {1}


def test_topic_and_partition_records_create_a_topic() -> None:
    """Both look-ups find the same topic, and the delta calls it created."""
    image, delta = applied(*TOPIC_RECORDS)
    assert image.topics.by_name["flights"] is image.topics.by_id[FLIGHTS]
    assert image.topics.partition(FLIGHTS, 1) == PartitionRegistration(
        replicas=(1, 2, 3),
        directories=(None, None, None),
        isr=(1, 2, 3),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )
    assert delta == MetadataDelta(changed_topics={FLIGHTS: {0, 1}}, created_topics={FLIGHTS})
    assert (image.offset, image.end_offset, image.leader_epoch) == (2, 3, 1)
    assert image.topics.partition_count == 2


def test_partition_change_without_a_leader_keeps_the_leader_epoch() -> None:
    """An ISR change is no election: producers and followers go on."""
    image, delta = applied(
        PartitionChangeRecord(partition_id=0, topic_id=FLIGHTS, isr=(1, 2)), image=image_of(*TOPIC_RECORDS)
    )
    changed = image.topics.by_id[FLIGHTS].partitions[0]
    assert (changed.isr, changed.leader, changed.leader_epoch, changed.partition_epoch) == ((1, 2), 1, 0, 1)
    assert delta == MetadataDelta(changed_topics={FLIGHTS: {0}})


@pytest.mark.parametrize(("leader", "expected"), [(1, 1), (2, 2), (-1, None)])
def test_partition_change_with_a_leader_begins_a_leader_epoch(leader: int, expected: int | None) -> None:
    """Even the same leader, named again, leads in a new epoch; -1 leaves the partition without one."""
    image = image_of(*TOPIC_RECORDS, PartitionChangeRecord(partition_id=0, topic_id=FLIGHTS, leader=leader))
    changed = image.topics.by_id[FLIGHTS].partitions[0]
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (expected, 1, 1)


def test_partition_change_of_everything_is_a_partition_record_again() -> None:
    """A snapshot writes a changed partition whole; replaying that must give the same partition."""
    image = image_of(
        *TOPIC_RECORDS,
        PartitionChangeRecord(
            partition_id=0,
            topic_id=FLIGHTS,
            isr=(4,),
            leader=4,
            replicas=(4, 5),
            removing_replicas=(1,),
            adding_replicas=(5,),
            leader_recovery_state=1,
            directories=(DIRECTORY, DIRECTORY),
            eligible_leader_replicas=(5,),
            last_known_elr=(1,),
        ),
    )
    changed = image.topics.by_id[FLIGHTS].partitions[0]
    assert changed.leader_recovery_state is LeaderRecoveryState.RECOVERING
    assert changed.preferred_leader == 4
    assert changed.directory_of(5) == DIRECTORY
    assert PartitionRegistration.from_record(changed.to_record(FLIGHTS, 0)) == changed


def test_partition_change_in_the_same_batch_as_its_topic_takes_effect() -> None:
    """Records of one batch see each other."""
    image = image_of(*TOPIC_RECORDS, PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, isr=(1,)))
    assert image.topics.by_name["flights"].partitions[1].isr == (1,)


def test_remove_topic_record_takes_partitions_and_configs_along() -> None:
    """A topic that is created again under the name must not inherit anything."""
    config = ConfigRecord(
        resource_type=ResourceType.TOPIC, resource_name="flights", name="retention.ms", value="1"
    )
    image = image_of(*TOPIC_RECORDS, config)
    assert image.topic_configs("flights") == {"retention.ms": "1"}
    image, delta = applied(RemoveTopicRecord(topic_id=FLIGHTS), image=image)
    assert (image.topics.by_name, image.topics.by_id, image.configs) == ({}, {}, {})
    assert delta == MetadataDelta(
        deleted_topics={FLIGHTS: "flights"}, changed_configs={(ResourceType.TOPIC, "flights")}
    )


def test_topic_created_and_removed_in_one_batch_leaves_no_trace() -> None:
    """Nobody should open and delete a log for it."""
    image, delta = applied(*TOPIC_RECORDS, RemoveTopicRecord(topic_id=FLIGHTS))
    assert image.topics.by_id == {}
    assert delta == MetadataDelta()


def test_topic_recreated_in_one_batch_is_deleted_and_created() -> None:
    """The old id's logs go, the new id's are made."""
    image, delta = applied(
        PartitionChangeRecord(partition_id=0, topic_id=FLIGHTS, isr=(1,)),
        RemoveTopicRecord(topic_id=FLIGHTS),
        TopicRecord(name="flights", topic_id=PLANES),
        partition(PLANES, 0),
        image=image_of(*TOPIC_RECORDS),
    )
    assert image.topics.by_name["flights"].topic_id == PLANES
    assert delta == MetadataDelta(
        changed_topics={PLANES: {0}}, created_topics={PLANES}, deleted_topics={FLIGHTS: "flights"}
    )


def test_config_records_set_and_remove_values() -> None:
    """Removing the last value removes the resource."""
    setting = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="a", value="1")
    image, delta = applied(setting)
    assert image.broker_configs(None) == {"a": "1"}
    assert image.broker_configs(1) == {}
    assert delta == MetadataDelta(changed_configs={(ResourceType.BROKER, "")})
    removal = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name="a", value=None)
    assert applied(removal, image=image)[0].configs == {}


def test_feature_level_records_set_and_remove_levels() -> None:
    """Level 0 means that the feature is not there."""
    image, _ = applied(FeatureLevelRecord(name="metadata.version", feature_level=30))
    assert image.features == {"metadata.version": 30}
    assert (
        applied(FeatureLevelRecord(name="metadata.version", feature_level=0), image=image)[0].features == {}
    )


def test_producer_ids_record_moves_on_and_never_back() -> None:
    """A producer id is given out once."""
    image = image_of(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000))
    assert image.next_producer_id == 1000
    with pytest.raises(MalformedRecordError, match="from 1000 on"):
        applied(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=999), image=image)


def test_removal_of_an_unknown_feature_moves_the_offset_only() -> None:
    """Brokers see from it that they are up to date."""
    image, delta = applied(FeatureLevelRecord(name="gone", feature_level=0))
    assert image == MetadataImage(offset=0, leader_epoch=1)
    assert delta == MetadataDelta()


def test_apply_shares_what_the_batch_did_not_touch() -> None:
    """A small change in a large cluster must stay cheap."""
    before = image_of(
        register(1), *TOPIC_RECORDS, TopicRecord(name="planes", topic_id=PLANES), partition(PLANES, 0)
    )
    after, _ = applied(PartitionChangeRecord(partition_id=0, topic_id=PLANES, isr=(1,)), image=before)
    assert after.brokers is before.brokers
    assert after.configs is before.configs
    assert after.topics.by_id[FLIGHTS] is before.topics.by_id[FLIGHTS]
    assert before.topics.by_id[PLANES].partitions[0].isr == (1, 2, 3)
    assert applied(register(2), image=before)[0].topics is before.topics


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (partition(PLANES, 0), UnknownTopicRecordError),
        (PartitionChangeRecord(partition_id=0, topic_id=PLANES, isr=()), UnknownTopicRecordError),
        (PartitionChangeRecord(partition_id=7, topic_id=FLIGHTS, isr=()), UnknownPartitionRecordError),
        (RemoveTopicRecord(topic_id=PLANES), UnknownTopicRecordError),
        (TopicRecord(name="flights", topic_id=PLANES), TopicExistsRecordError),
        (TopicRecord(name="planes", topic_id=FLIGHTS), TopicExistsRecordError),
        (BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=1), UnknownBrokerRecordError),
        (UnregisterBrokerRecord(broker_id=1, broker_epoch=0), StaleBrokerEpochRecordError),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, fenced=1), StaleBrokerEpochRecordError),
        (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=5), MalformedRecordError),
        (
            PartitionChangeRecord(partition_id=0, topic_id=FLIGHTS, directories=(DIRECTORY,)),
            MalformedRecordError,
        ),
        (
            PartitionChangeRecord(partition_id=0, topic_id=FLIGHTS, leader_recovery_state=7),
            MalformedRecordError,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MetadataRecord) else value.__name__,
)
def test_record_that_contradicts_the_image_is_refused_by_name(
    record: MetadataRecord, error: type[MetadataReplayError]
) -> None:
    """Going on after it would let images drift apart; the image it was tried on stays as it was."""
    image = image_of(register(1), *TOPIC_RECORDS)
    with pytest.raises(error):
        applied(FeatureLevelRecord(name="gone", feature_level=0), record, image=image)
    assert image == image_of(register(1), *TOPIC_RECORDS)


def test_any_split_of_the_records_into_batches_gives_the_same_image() -> None:
    """Controller and brokers batch differently and must agree."""
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        register(1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1),
        *TOPIC_RECORDS,
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name="flights", name="a", value="1"),
        PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, leader=2),
        TopicRecord(name="planes", topic_id=PLANES),
        RemoveTopicRecord(topic_id=FLIGHTS),
    ]
    at_once = image_of(*records)
    assert [_in_batches(records, size) for size in (1, 2, 3, 5)] == [at_once] * 4


def _in_batches(records: list[MetadataRecord], size: int) -> MetadataImage:
    image = EMPTY_IMAGE
    for start in range(0, len(records), size):
        image, _ = applied(*records[start : start + size], image=image)
    return image
