"""The quotas that users, client ids and addresses may have, by Kafka's names for them.

They are no broker configuration: they are set while the cluster runs (AlterClientQuotas); unset is unlimited.

Source: Kafka's QuotaConfig.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from sparklog.config.definition import INT_MAX, LONG_MAX

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
    """What a quota's value may be: any number above 0, or a whole one up to `max_value`."""

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
"""What a user, a client id, or a client id of a user may have."""

IP_QUOTA_KEYS: Final[Mapping[str, QuotaKey]] = MappingProxyType(
    {CONNECTION_CREATION_RATE: QuotaKey(INT_MAX, "an INT")}
)
"""What an address may have."""
