"""Delegation tokens (KIP-48), which are not here: answered as by a broker of Kafka that has them disabled."""

from typing import Any, Final

from sparklog.node.apis.refusals import said
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.node.serving.requests import ANONYMOUS
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.errors import KafkaError

_BROKER: Final = Offer(many=False, answers_errors=True)
"""The handler checks whether the connection may have tokens before any permission, so it has no guard."""


def _creation_refused(body: Any, error: KafkaError) -> Any:
    requester_type, requester_name = ANONYMOUS
    return answer_to(
        body,
        principal_type=requester_type,
        principal_name=requester_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp=None,
        expiry_timestamp=None,
        max_timestamp=None,
        **said(error),
    )


CREATE_DELEGATION_TOKEN: Final = ApiRow(
    ApiKey.CREATE_DELEGATION_TOKEN, SupportedVersions(1, 3), broker=_BROKER, refused=_creation_refused
)

RENEW_DELEGATION_TOKEN: Final = ApiRow(ApiKey.RENEW_DELEGATION_TOKEN, SupportedVersions(1, 2), broker=_BROKER)

EXPIRE_DELEGATION_TOKEN: Final = ApiRow(
    ApiKey.EXPIRE_DELEGATION_TOKEN, SupportedVersions(1, 2), broker=_BROKER
)

DESCRIBE_DELEGATION_TOKEN: Final = ApiRow(
    ApiKey.DESCRIBE_DELEGATION_TOKEN, SupportedVersions(1, 3), broker=_BROKER
)
