"""The quotas that users, client ids and addresses may have, by Kafka's names.

They are not broker configuration: AlterClientQuotas sets them while the cluster runs; unset is unlimited.

Source: Kafka's QuotaConfig.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from sparklog.node.config.definition import INT_MAX, LONG_MAX

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
QUOTA_ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class QuotaKey(NamedTuple):
    """The range of a quota's value: any number above 0, or an integer from 1 to `max_value`."""

    max_value: int | None
    shown_type: str


_A_LONG: Final = QuotaKey(LONG_MAX, "a LONG")
_A_DOUBLE: Final = QuotaKey(None, "a DOUBLE")

USER_QUOTA_KEYS: Final[Mapping[str, QuotaKey]] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: _A_LONG,
        CONSUMER_BYTE_RATE: _A_LONG,
        REQUEST_PERCENTAGE: _A_DOUBLE,
        CONTROLLER_MUTATION_RATE: _A_DOUBLE,
    }
)
"""Quotas of a user, a client id, or a client id of a user."""

IP_QUOTA_KEYS: Final[Mapping[str, QuotaKey]] = MappingProxyType(
    {CONNECTION_CREATION_RATE: QuotaKey(INT_MAX, "an INT")}
)
"""Quotas of an address."""
