"""An ACL: whether a principal, from a host, may do an operation on resources of a name.

Kafka's numbers, on the wire and in the metadata log. UNKNOWN, ANY and MATCH occur in requests and filters
only, never in a stored ACL.

Source: Kafka's org.apache.kafka.common.acl and .resource; StandardAcl.
"""

from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
"""Every host; every user, as `User:*`; as a literal name every resource."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class Principal(NamedTuple):
    """The identity of a client (Kafka's KafkaPrincipal)."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


class AclResourceType(IntEnum):
    __hash__ = int.__hash__  # decisions are looked up by it, at each request; an enum's own is slow
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The resources that the name in an ACL covers."""

    __hash__ = int.__hash__
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    __hash__ = int.__hash__
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(IntEnum):
    __hash__ = int.__hash__
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry. The order of fields is the order in lists and snapshots."""

    resource_type: AclResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    """`type:name`."""
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    def is_for(self, principal: Principal, host: str) -> bool:
        return self.host in (WILDCARD, host) and self.principal in (f"User:{WILDCARD}", str(principal))
