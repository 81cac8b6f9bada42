"""The delegation token APIs where tokens are disabled.

The error of a request is the first of these: the connection proves no identity
(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED); the requester may not create tokens of another owner
(DELEGATION_TOKEN_AUTHORIZATION_FAILED); a renewer is no user (INVALID_PRINCIPAL_TYPE);
DELEGATION_TOKEN_AUTH_DISABLED. Timestamps are -1 with all but the last, which Kafka's controller gives with
zeros; nothing is forwarded here, since the answer does not depend on the cluster.

Source: Kafka 4.3.1's KafkaApis and DelegationTokenControlManager.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sparklog.executor.api.services import BrokerServices
from sparklog.node.acls.acl import AclOperation, AclResourceType, Principal
from sparklog.node.authorization.guards.guard import answer_of
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.serving.requests import ANONYMOUS, Handler, Request, Response
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

_NOT_ALLOWED: Final = ErrorCode.delegation_token_request_not_allowed
_DISABLED: Final = ErrorCode.delegation_token_auth_disabled
_USER: Final = "User"
_ZERO: Final = datetime.fromtimestamp(0, UTC)


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    return DelegationTokenHandlers(services.config).handlers()


class DelegationTokenHandlers:
    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self._create,
            ApiKey.RENEW_DELEGATION_TOKEN: self._change,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self._change,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self._describe,
        }

    def _create(self, request: Request) -> Response:
        body, requester = request.body, request.principal
        owner = _owner(body) or requester
        error_code = _DISABLED
        if not self._is_allowed(request):
            error_code = _NOT_ALLOWED
        elif not _may_create_for(request, owner):
            error_code = ErrorCode.delegation_token_authorization_failed
        elif any(renewer.principal_type != _USER for renewer in body.renewers):
            error_code = ErrorCode.invalid_principal_type
        time = _ZERO if error_code is _DISABLED else None
        return answer_of(
            request,
            error_code=error_code,
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
            issue_timestamp=time,
            expiry_timestamp=time,
            max_timestamp=time,
        )

    def _change(self, request: Request) -> Response:
        if self._is_allowed(request):
            return answer_of(request, error_code=_DISABLED, expiry_timestamp=_ZERO)
        return answer_of(request, error_code=_NOT_ALLOWED, expiry_timestamp=None)

    def _describe(self, request: Request) -> Response:
        return answer_of(request, error_code=_DISABLED if self._is_allowed(request) else _NOT_ALLOWED)

    def _is_allowed(self, request: Request) -> bool:
        """Whether the connection authenticates its principal."""
        protocol = self._config.security_protocol(request.listener_name)
        return protocol.is_sasl or (protocol is SecurityProtocol.SSL and request.principal != ANONYMOUS)


def _owner(body: Any) -> Principal | None:
    """Return the owner that a creation names.

    Raises:
        KafkaError: UNKNOWN_SERVER_ERROR, as in Kafka: it has a name, but no type.
    """
    name = getattr(body, "owner_principal_name", None)
    if not name:
        return None
    if body.owner_principal_type is None:
        raise KafkaError(ErrorCode.unknown_server_error, f"the owner {name} of a token has no principal type")
    return Principal(body.owner_principal_type, name)


def _may_create_for(request: Request, owner: Principal) -> bool:
    access = request.access
    if owner == request.principal or access is None:
        return True
    return access.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner))
