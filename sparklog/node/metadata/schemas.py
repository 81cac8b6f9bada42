"""Records of the `__cluster_metadata` log, as entities that `kio` can read and write.

One class for each record type, at the version that Kafka 4.3 writes (metadata.version 30, 4.3-IV0); only this
cluster's controller writes the log, so no older version occurs in it. Fields are in wire order; a field with
a `tag` is left out of the bytes while it has its default. Entities are the wire form: Kafka's -1 and -2
become `None` in the image. A zero UUID is `None`.

Source: Kafka's message definitions, metadata/src/main/resources/common/metadata; KIP-631 (records), KIP-858
(directories), KIP-966 (eligible leader replicas), KIP-868 (transactions).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar, Final
from uuid import UUID

from kio.static.constants import EntityType

NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
"""`PartitionChangeRecord.leader`: leader and leader epoch are unchanged."""

METADATA_VERSION_FEATURE: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 30
"""4.3-IV0, the newest stable metadata version of Kafka 4.3."""

UNASSIGNED_DIRECTORY: Final = UUID(int=1)
"""The broker has not reported the replica's directory yet (KIP-858)."""
LOST_DIRECTORY: Final = UUID(int=2)
"""The replica's directory went offline (KIP-858)."""
DAMAGED_DIRECTORY: Final = UUID(int=99)
"""Only in reports: as LOST, of a replica with damaged records that keeps them if it is the last one."""

_BOOL: Final = MappingProxyType({"kafka_type": "bool"})
_INT8: Final = MappingProxyType({"kafka_type": "int8"})
_INT16: Final = MappingProxyType({"kafka_type": "int16"})
_UINT16: Final = MappingProxyType({"kafka_type": "uint16"})
_INT32: Final = MappingProxyType({"kafka_type": "int32"})
_INT64: Final = MappingProxyType({"kafka_type": "int64"})
_FLOAT64: Final = MappingProxyType({"kafka_type": "float64"})
_STRING: Final = MappingProxyType({"kafka_type": "string"})
_BYTES: Final = MappingProxyType({"kafka_type": "bytes"})
_UUID: Final = MappingProxyType({"kafka_type": "uuid"})


def _tagged(kafka_type: str, tag: int) -> Mapping[str, object]:
    return {"kafka_type": kafka_type, "tag": tag}


class ResourceType(IntEnum):
    """Kafka's `ConfigResource.Type`, as in `ConfigRecord` and the configuration requests."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    """Whether the leader was elected uncleanly and has not recovered yet (KIP-704)."""

    RECOVERED = 0
    RECOVERING = 1


class MetadataRecord:
    """Base of all record types: kio's attributes of an entity, and the API key of the record type."""

    __slots__ = ()
    __type__: ClassVar = EntityType.data
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[int] = 0
    __api_key__: ClassVar[int]


class _NestedEntity:
    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True
    __version__: ClassVar[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint(_NestedEntity):
    """A broker's endpoint; `security_protocol` is Kafka's number, 0 for PLAINTEXT."""

    __version__: ClassVar[int] = 4
    name: str = field(metadata=_STRING)
    host: str = field(metadata=_STRING)
    port: int = field(metadata=_UINT16)
    security_protocol: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFeature(_NestedEntity):
    __version__: ClassVar[int] = 4
    name: str = field(metadata=_STRING)
    min_supported_version: int = field(metadata=_INT16)
    max_supported_version: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(MetadataRecord):
    """A broker process has registered; it replaces any earlier registration of the same id."""

    __api_key__: ClassVar[int] = 0
    __version__: ClassVar[int] = 4
    broker_id: int = field(metadata=_INT32)
    is_migrating_zk_broker: bool = field(metadata=_BOOL, default=False)
    incarnation_id: UUID | None = field(metadata=_UUID)
    broker_epoch: int = field(metadata=_INT64)
    end_points: tuple[BrokerEndpoint, ...]
    features: tuple[BrokerFeature, ...] = ()
    rack: str | None = field(metadata=_STRING)
    fenced: bool = field(metadata=_BOOL, default=True)
    in_controlled_shutdown: bool = field(metadata=_BOOL, default=False)
    log_dirs: tuple[UUID, ...] = field(metadata=_tagged("uuid", 0), default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata=_tagged("uuid", 1), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(MetadataRecord):
    """A broker has left the cluster permanently."""

    __api_key__: ClassVar[int] = 1
    broker_id: int = field(metadata=_INT32)
    broker_epoch: int = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(MetadataRecord):
    """A topic was created; its partitions follow."""

    __api_key__: ClassVar[int] = 2
    name: str = field(metadata=_STRING)
    topic_id: UUID = field(metadata=_UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(MetadataRecord):
    """Whole state of a partition; `directories` is parallel to `replicas`."""

    __api_key__: ClassVar[int] = 3
    __version__: ClassVar[int] = 2
    partition_id: int = field(metadata=_INT32, default=-1)
    topic_id: UUID = field(metadata=_UUID)
    replicas: tuple[int, ...] = field(metadata=_INT32)
    isr: tuple[int, ...] = field(metadata=_INT32)
    removing_replicas: tuple[int, ...] = field(metadata=_INT32, default=())
    adding_replicas: tuple[int, ...] = field(metadata=_INT32, default=())
    leader: int = field(metadata=_INT32, default=NO_LEADER)
    leader_recovery_state: int = field(metadata=_tagged("int8", 0), default=0)
    leader_epoch: int = field(metadata=_INT32, default=-1)
    partition_epoch: int = field(metadata=_INT32, default=-1)
    directories: tuple[UUID | None, ...] = field(metadata=_UUID)
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata=_tagged("int32", 1), default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata=_tagged("int32", 2), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(MetadataRecord):
    """A dynamic configuration value; `value` of `None` removes it."""

    __api_key__: ClassVar[int] = 4
    resource_type: int = field(metadata=_INT8)
    resource_name: str = field(metadata=_STRING)
    name: str = field(metadata=_STRING)
    value: str | None = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(MetadataRecord):
    """Change of a partition; increments its partition epoch, and its leader epoch if `leader` is set.

    `None` (for `leader` -2, for `leader_recovery_state` -1) means unchanged.
    """

    __api_key__: ClassVar[int] = 5
    __version__: ClassVar[int] = 2
    partition_id: int = field(metadata=_INT32, default=-1)
    topic_id: UUID = field(metadata=_UUID)
    isr: tuple[int, ...] | None = field(metadata=_tagged("int32", 0), default=None)
    leader: int = field(metadata=_tagged("int32", 1), default=NO_LEADER_CHANGE)
    replicas: tuple[int, ...] | None = field(metadata=_tagged("int32", 2), default=None)
    removing_replicas: tuple[int, ...] | None = field(metadata=_tagged("int32", 3), default=None)
    adding_replicas: tuple[int, ...] | None = field(metadata=_tagged("int32", 4), default=None)
    leader_recovery_state: int = field(metadata=_tagged("int8", 5), default=-1)
    directories: tuple[UUID | None, ...] | None = field(metadata=_tagged("uuid", 8), default=None)
    eligible_leader_replicas: tuple[int, ...] | None = field(metadata=_tagged("int32", 6), default=None)
    last_known_elr: tuple[int, ...] | None = field(metadata=_tagged("int32", 7), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(MetadataRecord):
    """A topic was deleted, with its partitions and its configuration."""

    __api_key__: ClassVar[int] = 9
    topic_id: UUID = field(metadata=_UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(MetadataRecord):
    """A feature's finalized level; 0 removes it. The first record of a log sets `metadata.version`."""

    __api_key__: ClassVar[int] = 12
    name: str = field(metadata=_STRING)
    feature_level: int = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntityData(_NestedEntity):
    """One part of a quota's entity: a user, a client id or an address; a name of `None` is the default."""

    __version__: ClassVar[int] = 0
    entity_type: str = field(metadata=_STRING)
    entity_name: str | None = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(MetadataRecord):
    """A quota is set, or with `remove` deleted, when `value` has no meaning."""

    __api_key__: ClassVar[int] = 14
    entity: tuple[QuotaEntityData, ...]
    key: str = field(metadata=_STRING)
    value: float = field(metadata=_FLOAT64, default=0.0)
    remove: bool = field(metadata=_BOOL, default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(MetadataRecord):
    """A broker was given the block of producer ids below `next_producer_id` that were still free."""

    __api_key__: ClassVar[int] = 15
    broker_id: int = field(metadata=_INT32)
    broker_epoch: int = field(metadata=_INT64, default=-1)
    next_producer_id: int = field(metadata=_INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(MetadataRecord):
    """Change of a broker's registration.

    `fenced` is 1 for fenced, -1 for unfenced, 0 for unchanged; `in_controlled_shutdown` is 1 for entered, 0
    for unchanged; empty `log_dirs` and `cordoned_log_dirs` of `None` mean unchanged.
    """

    __api_key__: ClassVar[int] = 17
    __version__: ClassVar[int] = 3
    broker_id: int = field(metadata=_INT32)
    broker_epoch: int = field(metadata=_INT64)
    fenced: int = field(metadata=_tagged("int8", 0), default=0)
    in_controlled_shutdown: int = field(metadata=_tagged("int8", 1), default=0)
    log_dirs: tuple[UUID, ...] = field(metadata=_tagged("uuid", 2), default=())
    cordoned_log_dirs: tuple[UUID, ...] | None = field(metadata=_tagged("uuid", 3), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(MetadataRecord):
    """An ACL was created; the numbers are those of `sparklog.node.acls.acl`."""

    __api_key__: ClassVar[int] = 18
    id: UUID = field(metadata=_UUID)
    resource_type: int = field(metadata=_INT8)
    resource_name: str = field(metadata=_STRING)
    pattern_type: int = field(metadata=_INT8)
    principal: str = field(metadata=_STRING)
    host: str = field(metadata=_STRING)
    operation: int = field(metadata=_INT8)
    permission_type: int = field(metadata=_INT8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(MetadataRecord):
    __api_key__: ClassVar[int] = 19
    id: UUID = field(metadata=_UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(MetadataRecord):
    """A user's SCRAM credential is set; `mechanism` as in `scram_records`."""

    __api_key__: ClassVar[int] = 11
    name: str = field(metadata=_STRING)
    mechanism: int = field(metadata=_INT8)
    salt: bytes = field(metadata=_BYTES, repr=False)
    stored_key: bytes = field(metadata=_BYTES, repr=False)
    server_key: bytes = field(metadata=_BYTES, repr=False)
    iterations: int = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(MetadataRecord):
    __api_key__: ClassVar[int] = 22
    name: str = field(metadata=_STRING)
    mechanism: int = field(metadata=_INT8)


RECORD_TYPES: Final[Mapping[int, type[MetadataRecord]]] = MappingProxyType(
    {
        record_type.__api_key__: record_type
        for record_type in (
            RegisterBrokerRecord,
            UnregisterBrokerRecord,
            TopicRecord,
            PartitionRecord,
            ConfigRecord,
            PartitionChangeRecord,
            RemoveTopicRecord,
            FeatureLevelRecord,
            ClientQuotaRecord,
            ProducerIdsRecord,
            BrokerRegistrationChangeRecord,
            AccessControlEntryRecord,
            RemoveAccessControlEntryRecord,
            UserScramCredentialRecord,
            RemoveUserScramCredentialRecord,
        )
    }
)
"""All record types that this cluster writes or replays, by API key."""
