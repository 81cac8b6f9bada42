"""Responses to DescribeClientQuotas and DescribeUserScramCredentials from a metadata image.

Source: Kafka's ClientQuotasImage and ScramImage; KIP-546, KIP-554.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from kio.schema.describe_client_quotas.v1.request import ComponentData
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from sparklog.node.config.client_quotas import IP, QUOTA_ENTITY_TYPES
from sparklog.node.metadata.image import ClientQuotaEntity, MetadataImage
from sparklog.node.metadata.scram_records import MECHANISM_NUMBERS
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.steps import turn
from sparklog.protocol.errors import ErrorCode, KafkaError


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


async def describe_client_quotas_response(image: MetadataImage, request: Any) -> DescribeClientQuotasResponse:
    """Return the response to a DescribeClientQuotasRequest of version 1; yield after each entity."""
    try:
        asked = _asked(request.components)
    except KafkaError as error:
        return unthrottled(
            DescribeClientQuotasResponse,
            error_code=error.error_code,
            error_message=error.message,
            entries=None,
        )
    entries = []
    for entity, quotas in image.client_quotas.items():
        if _matches(entity, asked, strict=request.strict):
            entries.append(_entry(entity, quotas))
        await turn()
    return unthrottled(
        DescribeClientQuotasResponse, error_code=ErrorCode.none, error_message=None, entries=tuple(entries)
    )


def _asked(components: tuple[ComponentData, ...]) -> dict[str, tuple[_Match, str | None]]:
    asked: dict[str, tuple[_Match, str | None]] = {}
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise KafkaError(ErrorCode.invalid_request, "Invalid empty entity type.")
        if entity_type in asked:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Entity type {entity_type} cannot appear more than once in the filter.",
            )
        if entity_type not in QUOTA_ENTITY_TYPES:
            raise KafkaError(ErrorCode.unsupported_version, f"Unsupported entity type {entity_type}")
        try:
            match = _Match(component.match_type)
        except ValueError:
            raise KafkaError(
                ErrorCode.invalid_request, f"Unknown match type {component.match_type}"
            ) from None
        if match is _Match.EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.invalid_request, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        if match is not _Match.EXACT and component.match is not None:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Request specified MATCH_TYPE_{match.name}, but also specified a match string.",
            )
        asked[entity_type] = (match, component.match)
    if IP in asked and len(asked) > 1:
        raise KafkaError(
            ErrorCode.invalid_request,
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component.",
        )
    return asked


def _matches(
    entity: ClientQuotaEntity, asked: Mapping[str, tuple[_Match, str | None]], *, strict: bool
) -> bool:
    if strict and len(entity) != len(asked):
        return False
    names = dict(entity)
    return all(
        entity_type in names and (match is _Match.SPECIFIED or names[entity_type] == name)
        for entity_type, (match, name) in asked.items()
    )


def _entry(entity: ClientQuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=each, entity_name=name) for each, name in entity),
        values=tuple(ValueData(key=key, value=value) for key, value in quotas.items()),
    )


async def describe_user_scram_credentials_response(
    image: MetadataImage, request: Any
) -> DescribeUserScramCredentialsResponse:
    """Return the response to a DescribeUserScramCredentialsRequest, for the named users or for all.

    Kafka's tools send it together with a request for the user's quotas. Yields after each user.
    """
    credentials: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in image.scram_credentials.items():
        number = MECHANISM_NUMBERS[mechanism]
        info = CredentialInfo(mechanism=number, iterations=credential.iterations)
        credentials.setdefault(name, []).append(info)
        await turn()
    times_named: dict[str, int] = {} if request.users else dict.fromkeys(credentials, 1)
    for user in request.users or ():
        times_named[user.name] = times_named.get(user.name, 0) + 1
        await turn()
    results = []
    for name, times in times_named.items():
        results.append(_described_credentials(name, times, credentials.get(name, ())))
        await turn()
    return unthrottled(
        DescribeUserScramCredentialsResponse,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(results),
    )


def _described_credentials(
    user: str, times_named: int, credentials: Sequence[CredentialInfo]
) -> DescribeUserScramCredentialsResult:
    error_code, message = ErrorCode.none, None
    if times_named > 1:
        error_code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif not credentials:
        error_code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=error_code,
        error_message=message,
        credential_infos=() if error_code is not ErrorCode.none else tuple(credentials),
    )
