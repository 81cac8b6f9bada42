"""AlterClientQuotas: the quotas of users, client ids and addresses.

The changes of one entity are made together or not at all. `sparklog.node.quotas` enforces the quotas.

Source: Kafka's ClientQuotaControlManager, for behaviour, error codes and messages; KIP-546, KIP-599, KIP-612.
It takes NaN for a quota, and the first of two entries about the same entity; both are refused here.
"""

import logging
import math
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as Alteration
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntityData
from kio.schema.alter_client_quotas.v1.response import EntryData as Altered

from sparklog.driver.controller.machine.cluster_state import ClusterState
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.config.client_quotas import (
    IP,
    IP_QUOTA_KEYS,
    QUOTA_ENTITY_TYPES,
    USER_QUOTA_KEYS,
    QuotaKey,
)
from sparklog.node.metadata.image import ClientQuotaEntity
from sparklog.node.metadata.schemas import ClientQuotaRecord, MetadataRecord, QuotaEntityData
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_TOO_MANY_PARTS: Final = len(QUOTA_ENTITY_TYPES) + 1
_ALMOST_WHOLE: Final = 1e-6
"""The tolerance within which a value counts as a whole number, as in Kafka."""


def alter_client_quotas(cluster: ClusterState, request: AlterClientQuotasRequest) -> ControllerResult:
    entries_of: dict[ClientQuotaEntity, list[Alteration]] = {}
    for entry in request.entries:
        entries_of.setdefault(_entity(entry), []).append(entry)
    records: list[MetadataRecord] = []
    answers = []
    for entity, (entry, *others) in entries_of.items():
        error_code, message = ErrorCode.none, None
        try:
            if others:
                raise _refused(f"Ignoring duplicate entity {_shown(entity)}")
            changed = _entity_records(cluster.image.client_quotas.get(entity, {}), entity, entry)
            if not request.validate_only:
                records += changed
                if changed:
                    logger.info("Quotas of %s change: %s", _shown(entity), _shown_quotas(changed))
        except KafkaError as error:
            error_code, message = error.error_code, error.message
        named = tuple(EntityData(entity_type=each, entity_name=name) for each, name in entity)
        answers.append(Altered(error_code=error_code, error_message=message, entity=named))
    return ControllerResult(records, unthrottled(AlterClientQuotasResponse, entries=tuple(answers)))


def _entity(entry: Alteration) -> ClientQuotaEntity:
    """Return the entity of an entry, cut at _TOO_MANY_PARTS (enough for the error)."""
    parts = [(part.entity_type, part.entity_name) for part in entry.entity[:_TOO_MANY_PARTS]]
    return tuple(sorted(parts, key=lambda part: (part[0], part[1] is not None, part[1] or "")))


def _entity_records(
    quotas: Mapping[str, float], entity: ClientQuotaEntity, entry: Alteration
) -> list[ClientQuotaRecord]:
    keys = _keys_of(entity)
    parts = tuple(QuotaEntityData(entity_type=each, entity_name=name) for each, name in entity)
    records = []
    named: set[str] = set()
    for operation in entry.ops:
        if operation.key in named:
            raise _refused(
                f"Duplicate quota key {operation.key} not updating quota for this entity {_shown(entity)}"
            )
        named.add(operation.key)
        if operation.remove:
            if operation.key in quotas:
                records.append(ClientQuotaRecord(entity=parts, key=operation.key, remove=True))
            continue
        _check(keys, operation.key, operation.value)
        if quotas.get(operation.key) != operation.value:
            records.append(ClientQuotaRecord(entity=parts, key=operation.key, value=operation.value))
    return records


def _keys_of(entity: ClientQuotaEntity) -> Mapping[str, QuotaKey]:
    """Return the quotas that an entity of these types may have.

    Raises:
        KafkaError: INVALID_REQUEST: there are no such entities.
    """
    if not entity:
        raise _refused("Invalid empty client quota entity")
    types = [entity_type for entity_type, _ in entity]
    for entity_type, name in entity:
        if entity_type not in QUOTA_ENTITY_TYPES:
            raise _refused(f"Unhandled client quota entity type: {entity_type}")
        if types.count(entity_type) > 1:
            raise _refused(f"Invalid client quota entity, duplicate entity entry {entity_type}")
        if name == "":
            raise _refused(f"Empty {entity_type} not supported")
    if IP not in types:
        return USER_QUOTA_KEYS
    if len(types) > 1:
        raise _refused(
            "Invalid quota entity combination, IP entity should not be combined with User or ClientId"
        )
    address = entity[0][1]
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise _refused(f"{address} is not a valid IP.") from None
    return IP_QUOTA_KEYS


def _check(keys: Mapping[str, QuotaKey], name: str, value: float) -> None:
    key = keys.get(name)
    if key is None:
        raise _refused(f"Invalid configuration key {name}")
    if math.isnan(value) or value <= 0:
        raise _refused(f"Quota {name} must be greater than 0")
    if key.max_value is None:
        return
    if value > float(key.max_value):
        raise _refused(f"Proposed value for {name} is too large for {key.shown_type}.")
    if math.fmod(value, 1) > _ALMOST_WHOLE:
        raise _refused(f"{name} cannot be a fractional value.")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)


def _shown(entity: ClientQuotaEntity) -> str:
    return ", ".join(f"{each} {'<default>' if name is None else name}" for each, name in entity)


def _shown_quotas(records: list[ClientQuotaRecord]) -> str:
    return ", ".join(f"{each.key} {'is removed' if each.remove else each.value}" for each in records)
