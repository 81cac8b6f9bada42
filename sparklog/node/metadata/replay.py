"""Replay of metadata records: from one image to the next.

`replay_records` applies the records of one batch and returns the next image, with the delta. A batch that
touches k partitions costs one copy of the topic directory plus k, independent of the cluster's size.

Rule: controller and brokers that have replayed the same offset have equal images. So records are the only
input, and a record that contradicts the image (an unknown topic, a broker epoch that is not the registered
one) raises a `MetadataReplayError` instead of being skipped: log and image have diverged, and the replay must
stop.

Order for callers: replay every batch exactly once and in order; publish the new image before acting on the
delta.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.node.acls.acl import Acl
from sparklog.node.metadata.acl_records import acl_of_record
from sparklog.node.metadata.delta import MetadataDelta
from sparklog.node.metadata.image import (
    ClientQuotaEntity,
    ConfigResource,
    MetadataImage,
    TopicImage,
    TopicsImage,
)
from sparklog.node.metadata.registrations import BrokerRegistration, PartitionRegistration
from sparklog.node.metadata.schemas import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from sparklog.node.metadata.scram_records import ScramKey, scram_credential_of_record, scram_key
from sparklog.node.security.sasl.scram import ScramCredential
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset


class MetadataReplayError(KafkaError):
    """A metadata record cannot follow the records before it."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.unknown_server_error, message)


class UnknownTopicRecordError(MetadataReplayError):
    """The record is about a topic that does not exist."""


class UnknownPartitionRecordError(MetadataReplayError):
    """The record changes a partition that does not exist."""


class TopicExistsRecordError(MetadataReplayError):
    """The record creates a topic whose name or id is taken."""


class UnknownBrokerRecordError(MetadataReplayError):
    """The record is about a broker that is not registered."""


class StaleBrokerEpochRecordError(MetadataReplayError):
    """The record is about another registration of the broker than the present one."""


class UnknownAclRecordError(MetadataReplayError):
    """The record removes an ACL or a SCRAM credential that does not exist."""


class AclExistsRecordError(MetadataReplayError):
    """The record creates an ACL whose id is taken."""


class MalformedRecordError(MetadataReplayError):
    """A field of the record has an impossible value."""


class _OwnTopic(NamedTuple):
    """A topic that differs from that of the old image."""

    name: str
    partitions: dict[int, PartitionRegistration]
    changed: set[int]


def replay_records(
    image: MetadataImage, records: Iterable[MetadataRecord], offset: Offset, leader_epoch: LeaderEpoch
) -> tuple[MetadataImage, MetadataDelta]:
    """Return the image after the records, of which the last has `offset`, and the delta.

    Raises:
        MetadataReplayError: a record contradicts `image`, which is unchanged; the subclass gives the reason.
    """
    replay = _Replay(image)
    for record in records:
        replay.replay(record)
    return replay.finish(offset, leader_epoch)


class _Replay:
    """Work space of one batch over `image`: a mapping is copied when a record first changes it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._features: dict[str, int] | None = None
        self._brokers: dict[BrokerId, BrokerRegistration] | None = None
        self._configs: dict[ConfigResource, Mapping[str, str]] | None = None
        self._client_quotas: dict[ClientQuotaEntity, Mapping[str, float]] | None = None
        self._acls: dict[UUID, Acl] | None = None
        self._scram: dict[ScramKey, ScramCredential] | None = None
        self._topics_by_name: dict[str, TopicImage] | None = None
        self._topics_by_id: dict[UUID, TopicImage] | None = None
        self._own_topics: dict[UUID, _OwnTopic] = {}
        self._next_producer_id = image.next_producer_id
        self._created_topics: set[UUID] = set()
        self._deleted_topics: dict[UUID, str] = {}
        self._changed_configs: set[ConfigResource] = set()
        self._changed_brokers: set[BrokerId] = set()
        self._changed_client_quotas: set[ClientQuotaEntity] = set()

    def replay(self, record: MetadataRecord) -> None:
        """Apply the record.

        Raises:
            MetadataReplayError: it contradicts the state so far.
        """
        handler = _HANDLERS.get(type(record))
        if handler is None:
            raise MalformedRecordError(f"{type(record).__name__} cannot be replayed")
        try:
            handler(self, record)
        except ValueError as error:
            raise MalformedRecordError(f"{record}: {error}") from error

    def finish(self, offset: Offset, leader_epoch: LeaderEpoch) -> tuple[MetadataImage, MetadataDelta]:
        image = self._image
        topics = image.topics
        if self._topics_by_name is not None and self._topics_by_id is not None:
            topics = TopicsImage(self._topics_by_name, self._topics_by_id)
        new_image = replace(
            image,
            offset=offset,
            leader_epoch=leader_epoch,
            features=image.features if self._features is None else self._features,
            brokers=image.brokers if self._brokers is None else self._brokers,
            topics=topics,
            configs=image.configs if self._configs is None else self._configs,
            client_quotas=image.client_quotas if self._client_quotas is None else self._client_quotas,
            next_producer_id=self._next_producer_id,
            acls=image.acls if self._acls is None else self._acls,
            scram_credentials=image.scram_credentials if self._scram is None else self._scram,
        )
        delta = MetadataDelta(
            changed_topics={topic_id: topic.changed for topic_id, topic in self._own_topics.items()},
            created_topics=self._created_topics,
            deleted_topics=self._deleted_topics,
            changed_configs=self._changed_configs,
            changed_brokers=self._changed_brokers,
            changed_client_quotas=self._changed_client_quotas,
        )
        return new_image, delta

    # Brokers

    def _writable_brokers(self) -> dict[BrokerId, BrokerRegistration]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def _registered(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, action: str) -> BrokerRegistration:
        registration = self._writable_brokers().get(broker_id)
        if registration is None:
            raise UnknownBrokerRecordError(f"cannot {action} broker {broker_id}: it is not registered")
        if registration.broker_epoch != broker_epoch:
            raise StaleBrokerEpochRecordError(
                f"cannot {action} broker {broker_id}: the record is about broker epoch {broker_epoch}, "
                f"registered is {registration.broker_epoch}"
            )
        return registration

    def _put_broker(self, registration: BrokerRegistration) -> None:
        self._writable_brokers()[registration.broker_id] = registration
        self._changed_brokers.add(registration.broker_id)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._put_broker(BrokerRegistration.from_record(record))

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        registration = self._registered(record.broker_id, record.broker_epoch, "unregister")
        del self._writable_brokers()[registration.broker_id]
        self._changed_brokers.add(registration.broker_id)

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        registration = self._registered(record.broker_id, record.broker_epoch, "change")
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise ValueError("fenced must be -1, 0 or 1, and in_controlled_shutdown 0 or 1")
        changed = registration.changed_by(record)
        if changed != registration:
            self._put_broker(changed)

    # Topics

    def _writable_topics(self) -> tuple[dict[str, TopicImage], dict[UUID, TopicImage]]:
        if self._topics_by_name is None or self._topics_by_id is None:
            self._topics_by_name = dict(self._image.topics.by_name)
            self._topics_by_id = dict(self._image.topics.by_id)
        return self._topics_by_name, self._topics_by_id

    def _writable_topic(self, topic_id: UUID) -> _OwnTopic:
        own = self._own_topics.get(topic_id)
        if own is None:
            _, by_id = self._writable_topics()
            topic = by_id.get(topic_id)
            if topic is None:
                raise UnknownTopicRecordError(
                    f"record for a partition of topic id {topic_id}, which does not exist"
                )
            own = self._put_topic(topic.name, topic_id, dict(topic.partitions))
        return own

    def _put_topic(
        self, name: str, topic_id: UUID, partitions: dict[int, PartitionRegistration]
    ) -> _OwnTopic:
        by_name, by_id = self._writable_topics()
        by_name[name] = by_id[topic_id] = TopicImage(name, topic_id, partitions)
        own = self._own_topics[topic_id] = _OwnTopic(name, partitions, set())
        return own

    def _create_topic(self, record: TopicRecord) -> None:
        by_name, by_id = self._writable_topics()
        if record.name in by_name or record.topic_id in by_id:
            raise TopicExistsRecordError(
                f"topic {record.name} with id {record.topic_id} is created, but the name or the id is taken"
            )
        self._put_topic(record.name, record.topic_id, {})
        self._created_topics.add(record.topic_id)

    def _put_partition(self, record: PartitionRecord) -> None:
        topic = self._writable_topic(record.topic_id)
        topic.partitions[record.partition_id] = PartitionRegistration.from_record(record)
        topic.changed.add(record.partition_id)

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._writable_topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise UnknownPartitionRecordError(
                f"record changes {topic.name}-{record.partition_id}, which does not exist"
            )
        topic.partitions[record.partition_id] = partition.changed_by(record)
        topic.changed.add(record.partition_id)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        by_name, by_id = self._writable_topics()
        topic = by_id.pop(record.topic_id, None)
        if topic is None:
            raise UnknownTopicRecordError(f"record removes topic id {record.topic_id}, which does not exist")
        del by_name[topic.name]
        self._own_topics.pop(record.topic_id, None)
        if record.topic_id in self._created_topics:
            self._created_topics.remove(record.topic_id)
        else:
            self._deleted_topics[record.topic_id] = topic.name
        resource = (ResourceType.TOPIC, topic.name)
        if resource in self._writable_configs():
            del self._writable_configs()[resource]
            self._changed_configs.add(resource)

    # Configuration, quotas, ACLs, producer ids, features

    def _writable_configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self._image.configs)
        return self._configs

    def _set_config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        values = dict(self._writable_configs().get(resource, {}))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._writable_configs()[resource] = values
        else:
            self._writable_configs().pop(resource, None)
        self._changed_configs.add(resource)

    def _set_client_quota(self, record: ClientQuotaRecord) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self._image.client_quotas)
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = dict(self._client_quotas.get(entity, {}))
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._client_quotas[entity] = quotas
        else:
            self._client_quotas.pop(entity, None)
        self._changed_client_quotas.add(entity)

    def _writable_acls(self) -> dict[UUID, Acl]:
        if self._acls is None:
            self._acls = dict(self._image.acls)
        return self._acls

    def _create_acl(self, record: AccessControlEntryRecord) -> None:
        acls = self._writable_acls()
        if record.id in acls:
            raise AclExistsRecordError(f"an ACL is created with id {record.id}, which is taken")
        acls[record.id] = acl_of_record(record)

    def _writable_scram(self) -> dict[ScramKey, ScramCredential]:
        if self._scram is None:
            self._scram = dict(self._image.scram_credentials)
        return self._scram

    def _set_scram(self, record: UserScramCredentialRecord) -> None:
        key = scram_key(record.name, record.mechanism)
        self._writable_scram()[key] = scram_credential_of_record(record)

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> None:
        if self._writable_scram().pop(scram_key(record.name, record.mechanism), None) is None:
            raise UnknownAclRecordError(f"record removes a credential of {record.name!r} that does not exist")

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._writable_acls().pop(record.id, None) is None:
            raise UnknownAclRecordError(f"record removes ACL {record.id}, which does not exist")

    def _hand_out_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id < self._next_producer_id:
            raise ValueError(f"producer ids from {self._next_producer_id} on have not been handed out yet")
        self._next_producer_id = record.next_producer_id

    def _set_feature(self, record: FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self._image.features)
        if record.feature_level == 0:
            self._features.pop(record.name, None)
        else:
            self._features[record.name] = record.feature_level


_HANDLERS: Final[Mapping[type[MetadataRecord], Callable[[_Replay, Any], None]]] = MappingProxyType(
    {
        RegisterBrokerRecord: _Replay._register_broker,
        UnregisterBrokerRecord: _Replay._unregister_broker,
        BrokerRegistrationChangeRecord: _Replay._change_broker,
        TopicRecord: _Replay._create_topic,
        PartitionRecord: _Replay._put_partition,
        PartitionChangeRecord: _Replay._change_partition,
        RemoveTopicRecord: _Replay._remove_topic,
        ConfigRecord: _Replay._set_config,
        ClientQuotaRecord: _Replay._set_client_quota,
        AccessControlEntryRecord: _Replay._create_acl,
        RemoveAccessControlEntryRecord: _Replay._remove_acl,
        UserScramCredentialRecord: _Replay._set_scram,
        RemoveUserScramCredentialRecord: _Replay._remove_scram,
        ProducerIdsRecord: _Replay._hand_out_producer_ids,
        FeatureLevelRecord: _Replay._set_feature,
    }
)
